"""The steps file beside a capture: what the flight recorder saw of every engine step. docs/steps.md specifies it.

JSON Lines, as captures: a `steps_header` for every start of an engine, then `steps` blocks of packed columns
(`step_table`), and `steps_stopped` where the recorder gave up. A file may end anywhere between two lines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from parity.capture.checksum import hint_for
from parity.capture.lines import Report, is_too_dense, raw_lines
from parity.capture.problems import CaptureError
from parity.capture.room import MOST_NUMBERS, TooMuch, steps_room
from parity.capture.step_table import (
    MOST_PLACE,
    NOTHING,
    STEPS_SCHEMA,
    Ragged,
    joined_lists,
    same_lists,
    smallest,
    spans,
    split_name,
    unpack_block,
)
from parity.messages import Message, message
from parity.records import Key
from parity.records.recording import ALL

Ints: TypeAlias = npt.NDArray[np.int64]
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
Number: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=MOST_PLACE)]
Counted: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)]

MOST_GROUPS: Final = 1024

MOST_OF_A_COLUMN: Final = 1 << 25
"""Numbers in the lists of one column, of one start of an engine: what is asked of them takes some 50 bytes each. They
are those of 30 million tokens, whose steps are gigabytes."""


SUFFIX: Final = ".steps"


def steps_path(capture: Path) -> Path:
    """Where the steps of a capture are: beside it, `.steps` in place of `.jsonl` or `.jsonl.gz`."""
    name = capture.name.removesuffix(".gz").removesuffix(".jsonl")
    return capture.with_name(name + SUFFIX)


class CacheGroup(msgspec.Struct, frozen=True):
    """Layers that share one block table."""

    kind: str = "unknown"
    """"attention", "state" (recurrent layers), or "unknown"."""
    block_size: Count = 0
    """Tokens in a block as the scheduler counts them; 0 where unknown."""
    layers: int = 0


class StepsHeader(msgspec.Struct, frozen=True, kw_only=True, tag_field="record", tag="steps_header"):
    """What was recorded of one engine, and how."""

    schema: str
    arm: str
    runner: str = ""
    device: str = ""
    groups: Annotated[tuple[CacheGroup, ...], msgspec.Meta(max_length=MOST_GROUPS)] = ()
    speculative_tokens: Count = 0
    mamba_cache_mode: str = ""
    limits: dict[str, Count] = {}
    how: str = ""
    asynchronous: bool = False
    """The scheduler asked for a step before it had the tokens of the one before."""
    unseen: dict[str, Any] = {}
    """Columns that could not be seen, and why (as `parity.messages.words_heard` reads it); "*" is all of them,
    NAME/GROUP those of one cache group."""
    replica: int = 0
    kept: str = ALL
    """Which steps follow. A ring's stretches have a header each, and a `StepsSummary` says of how many they are."""


class StepRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request that rows name by `number`: which completion it makes, and what bounds it."""

    number: Number
    engine_id: str = ""
    request: str | None = None
    round: Count = 0
    sample: Count = 0
    prompt_tokens: Count = 0
    plain: bool = False
    """Greedy, and nothing shapes its logits."""
    max_tokens: Count | None = None
    stops: tuple[int, ...] = ()
    """Token ids that end it."""

    @property
    def key(self) -> Key | None:
        return None if self.request is None else Key(self.request, self.round, self.sample)


class StepsBlock(msgspec.Struct, frozen=True, kw_only=True, tag_field="record", tag="steps"):
    steps: Count
    rows: Count
    requests: list[StepRequest] = []
    columns: list[tuple[str, str, int]]
    data: str
    replica: int = 0

    @property
    def numbers(self) -> int:
        """In all its columns, as it says."""
        return sum(max(0, count) for _, _, count in self.columns)


class StepsStopped(msgspec.Struct, frozen=True, kw_only=True, tag_field="record", tag="steps_stopped"):
    """The recorder gave up after this step; the engine went on."""

    step: int
    why: str
    replica: int = 0


class StepsSummary(msgspec.Struct, frozen=True, kw_only=True, tag_field="record", tag="steps_summary"):
    """What the invariants said of all steps of an engine, of which a ring keeps some."""

    steps: Counted = 0
    row_steps: Counted = 0
    asked: dict[str, Counted] = {}
    """Row-steps that each invariant was asked of."""
    violations: dict[str, Counted] = {}
    """By invariant."""
    broken: Counted = 0
    """Row-steps that broke any."""
    kept: Counted = 0
    """Row-steps in this file."""
    let_go: Counted = 0
    """Of `broken`, those that are not in this file: there were too many."""
    replica: int = 0


StepsLine: TypeAlias = StepsHeader | StepsBlock | StepsStopped | StepsSummary
_DECODER: Final = msgspec.json.Decoder(StepsLine)


class Unseen(KeyError):
    """A column that something rests on is not in a file."""


@dataclass(frozen=True)
class RowSteps:
    """All steps of one start of an engine, as columns: of shape (steps,), or of (row-steps,) in the order of steps and
    then of rows. They are held as narrow as their numbers allow; ask for them by `numbers` and `lists`."""

    header: StepsHeader
    requests: Mapping[int, StepRequest]
    columns: Mapping[str, Ints | Ragged]
    stopped: StepsStopped | None = None
    summary: StepsSummary | None = None

    def __len__(self) -> int:
        """Row-steps."""
        return int(self.rows.sum())

    def has(self, *names: str) -> bool:
        """Whether all of these columns were seen."""
        return all(name in self.columns for name in names)

    def numbers(self, name: str) -> Ints:
        """Raises Unseen for a column that is not there."""
        found = self._column(name)
        assert not isinstance(found, Ragged), name
        return found.astype(np.int64, copy=False)

    def lists(self, name: str) -> Ragged:
        """Raises Unseen for a column that is not there."""
        found = self._column(name)
        assert isinstance(found, Ragged), name
        return Ragged(*(values.astype(np.int64, copy=False) for values in found))

    def _column(self, name: str) -> Ints | Ragged:
        found = self.columns.get(name)
        if found is None:
            raise Unseen(name)
        return found

    @cached_property
    def rows(self) -> Ints:
        """Rows of each step, shape (steps,)."""
        return self.numbers("rows") if "rows" in self.columns else np.zeros(0, dtype=np.int64)

    @cached_property
    def step_index(self) -> Ints:
        """The step of each row-step as an index into the columns of steps."""
        return np.repeat(np.arange(len(self.rows)), self.rows)

    @cached_property
    def row(self) -> Ints:
        """The row of each row-step in its batch."""
        starts = np.cumsum(self.rows) - self.rows
        return np.arange(len(self)) - np.repeat(starts, self.rows)

    @cached_property
    def step(self) -> Ints:
        """The engine's step number of each row-step."""
        return self.numbers("step")[self.step_index]


@dataclass
class _Start:
    header: StepsHeader
    requests: dict[int, StepRequest] = field(default_factory=dict)
    blocks: list[dict[str, Any]] = field(default_factory=list)
    listed: Counter[str] = field(default_factory=Counter)
    """Numbers in lists, by column."""
    stopped: StepsStopped | None = None
    summary: StepsSummary | None = None

    def add(self, columns: Mapping[str, Any]) -> None:
        """Raises ValueError for more than can be asked about."""
        for name, values in columns.items():
            if isinstance(values, Ragged):
                self.listed[name] += len(values.values)
                if self.listed[name] > MOST_OF_A_COLUMN:
                    raise ValueError(f"more than {MOST_OF_A_COLUMN} numbers of {name}")
        self.blocks.append({name: _narrow(values) for name, values in columns.items()})

    def done(self) -> RowSteps:
        """The blocks are let go of as they are joined."""
        columns = {name: _joined([block.pop(name) for block in self.blocks]) for name in _shared(self.blocks)}
        return RowSteps(self.header, self.requests, columns, self.stopped, self.summary)


def _narrow(values: Any) -> Any:
    return Ragged(*map(smallest, values)) if isinstance(values, Ragged) else smallest(values)


def _shared(blocks: Sequence[Mapping[str, Any]]) -> list[str]:
    return [name for name in (blocks[0] if blocks else ()) if all(name in one for one in blocks)]


def _joined(parts: Sequence[Any]) -> Ints | Ragged:
    return joined_lists(parts) if isinstance(parts[0], Ragged) else np.concatenate(parts)


def joined_blocks(blocks: Sequence[Mapping[str, Any]]) -> dict[str, Ints | Ragged]:
    """The columns of several blocks as one; a column that any of them lacks is left out."""
    return {name: _joined([block[name] for block in blocks]) for name in _shared(blocks)}


def read_steps(path: str | Path) -> tuple[RowSteps, ...]:
    """Each start of an engine (or of a replica) that a steps file holds, in order. Raises CaptureError, ParityError.

    A cut-off last line is what an interrupted run leaves, and is passed over.
    """
    path = Path(path)
    starts: list[_Start] = []
    current: dict[int, _Start] = {}
    room = steps_room()

    def fail(number: int | None, what: Message) -> None:
        spec = message("capture.steps_spec", "docs/steps-file.md says what a steps file holds")
        raise CaptureError(str(path), number, what, hint=hint_for(what, spec))

    for number, size, line in step_lines(path, fail):
        if isinstance(line, StepsHeader):
            if line.schema != STEPS_SCHEMA:
                fail(
                    number,
                    message(
                        "capture.steps_schema",
                        "schema is {schema!r}, this parity reads {known!r}",
                        schema=line.schema,
                        known=STEPS_SCHEMA,
                    ),
                )
            current[line.replica] = _Start(line)
            starts.append(current[line.replica])
            continue
        start = current.get(line.replica)
        if start is None and isinstance(line, StepsStopped):
            fail(
                number, message("capture.steps_gave_up", "the recorder gave up in its first steps: {why}", why=line.why)
            )
        elif start is None:
            fail(number, message("capture.steps_no_header", "steps before any header"))
        elif isinstance(line, StepsStopped):
            start.stopped = line
        elif isinstance(line, StepsSummary):
            start.summary = line
        else:
            start.requests.update((one.number, one) for one in line.requests)
            try:
                room.take(size, line.numbers, line.rows, len(line.requests))
                columns = block_columns(line)
                check_requests(columns, start.requests)
                start.add(columns)
            except TooMuch:
                fail(
                    number,
                    message(
                        "capture.steps_too_many",
                        "more than {most} numbers, which is all that is read into memory: of a run this long record a "
                        "ring (--record ring)",
                        most=MOST_NUMBERS,
                    ),
                )
            except (ValueError, KeyError, TypeError) as error:
                fail(number, message("capture.steps_damaged", "a damaged block: {said}", said=str(error)))
    return tuple(start.done() for start in starts)


def step_lines(path: Path, fail: Report) -> Iterator[tuple[int, int, StepsLine]]:
    """(line number, its bytes, what it says) of each whole line; what is wrong goes to `fail`, which raises."""
    for number, _, raw in raw_lines(path, fail):
        if not raw.endswith(b"\n"):
            return  # cut off: the writer was interrupted
        if is_too_dense(raw):
            fail(number, message("capture.steps_dense", "a line of objects in objects: no steps"))
        try:
            yield number, len(raw), _DECODER.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            fail(number, message("capture.steps_line", "not a line of a steps file: {said}", said=str(error)))


def block_columns(block: StepsBlock) -> dict[str, Any]:
    """The columns of a block, their lengths checked. Raises ValueError, KeyError, TypeError."""
    found = unpack_block(block.columns, block.data)
    rows = found.get("rows")
    if rows is None or len(rows) != block.steps or int(rows.sum()) != block.rows or (rows < 0).any():
        raise ValueError(f"{block.steps} steps of {block.rows} rows do not add up")
    missing = [name for name in ("step", "request") if name not in found]
    if missing:
        raise ValueError(f"no column {missing[0]}")
    for name, values in found.items():
        column, _ = split_name(name)
        length = len(values.counts) if isinstance(values, Ragged) else len(values)
        if length != (block.steps if column.level == "step" else block.rows):
            raise ValueError(f"{name} has {length} entries")
    return found


def check_requests(columns: Mapping[str, Any], known: Mapping[int, StepRequest]) -> None:
    """Raises ValueError for row-steps of a request that no line describes."""
    if "request" in columns:
        unknown = set(np.unique(columns["request"]).tolist()) - known.keys()
        if unknown:
            raise ValueError(f"request {min(unknown)} is of nobody")


__all__ = [
    "NOTHING",
    "STEPS_SCHEMA",
    "CacheGroup",
    "Ints",
    "Ragged",
    "RowSteps",
    "StepRequest",
    "StepsBlock",
    "StepsHeader",
    "StepsLine",
    "StepsStopped",
    "StepsSummary",
    "Unseen",
    "block_columns",
    "check_requests",
    "joined_blocks",
    "read_steps",
    "same_lists",
    "spans",
    "step_lines",
    "steps_path",
]
