"""The sketches file beside a capture: what each module gave for each token, in a few numbers. docs/sketches.md.

JSON Lines as steps files are: a `sketches_header` for every start of an engine, then `sketches` blocks of packed
columns (`sketch_table`), and `sketches_stopped` where the worker gave up. A file may end anywhere between two lines.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from parity.capture.lines import Report, raw_lines
from parity.capture.problems import CaptureError
from parity.capture.room import sketches_room
from parity.capture.sketch_table import (
    EARLIER_SKETCHES,
    MAX_SKETCH_MODULES,
    PROJECTIONS,
    SKETCHES_SCHEMA,
    UNSEEN_NORM,
    split_sketch_name,
    unpack_sketches,
)
from parity.capture.steps import Count, StepRequest
from parity.messages import Message, message

Numbers: TypeAlias = npt.NDArray[Any]
SUFFIX: Final = ".sketches"


def sketches_path(capture: Path) -> Path:
    """Where the sketches of a capture (or of a scores file) are: beside it."""
    return capture.with_name(capture.name.removesuffix(".gz").removesuffix(".jsonl") + SUFFIX)


class SketchedModule(msgspec.Struct, frozen=True):
    """A module of the model."""

    name: str
    role: str = "part"
    """"layer", "norm", "router", "part", "output" (the last hidden states) or "logits"."""
    type: str = ""
    """Of which class it is."""
    order: int = -1
    """When it ran in a step, before and after others; -1: it gave nothing, as what a compiled or captured graph does is
    not seen."""
    drafter: bool = False
    """It is of the drafter's first pass, which reads what the target gave for the same tokens."""


class SketchesHeader(msgspec.Struct, frozen=True, kw_only=True, tag_field="record", tag="sketches_header"):
    """What was sketched of one engine."""

    schema: str
    arm: str
    modules: tuple[SketchedModule, ...]
    device: str = ""
    dtype: str = ""
    level: str = ""
    prefill: bool = False
    """The engine computed its own completions once more as prompts: what its drafter's steps are set against."""
    replica: int = 0

    @property
    def hidden(self) -> tuple[str, ...]:
        """Modules that gave nothing."""
        return tuple(one.name for one in self.modules if one.order < 0)


class SketchesBlock(msgspec.Struct, frozen=True, kw_only=True, tag_field="record", tag="sketches"):
    tokens: Count
    requests: list[StepRequest] = []
    columns: list[tuple[str, int]]
    data: str
    replica: int = 0


class SketchesStopped(msgspec.Struct, frozen=True, kw_only=True, tag_field="record", tag="sketches_stopped"):
    """The worker gave up after this step; the engine went on."""

    step: int
    why: str
    enough: bool = False
    """Nothing failed: these are as many tokens as were asked for."""
    replica: int = 0


SketchesLine: TypeAlias = SketchesHeader | SketchesBlock | SketchesStopped
_DECODER: Final = msgspec.json.Decoder(SketchesLine)

MODULE_BYTES: Final = 4 + 2 * PROJECTIONS
TOKEN_BYTES: Final = 88
"""In memory, of one token: for each module, and of its own."""

_DRAFTER: Final = ("drafted", "drafted_at", "drafter_entry")
_PLAIN: Final = ("step", "row", "request", "position", "token", "entry", "best", "ties", *_DRAFTER)
_ABSENT: Final = {"best": -1, **dict.fromkeys(_DRAFTER, -1)}


@dataclass(frozen=True)
class Sketches:
    """All tokens of one start of an engine, in the order in which they were computed; a token that was computed twice
    stands there twice."""

    header: SketchesHeader
    requests: Mapping[int, StepRequest]
    columns: Mapping[str, Numbers]
    """step, row, request, position, token, entry, best, ties, drafted, drafted_at, drafter_entry, each of shape
    (tokens,); the last three -1 where no drafter was seen."""
    has_entry: bool
    norms: Numbers
    """Shape (tokens, modules), UNSEEN_NORM where a module gave nothing."""
    values: Numbers
    """Shape (tokens, modules, PROJECTIONS), in units of the norm; float16."""
    gaps: Mapping[int, Numbers]
    experts: Mapping[int, Numbers]
    """Of routers, by module: the gap of logits between the last chosen expert and the next, and who was chosen."""
    stopped: SketchesStopped | None = None

    def __len__(self) -> int:
        return len(self.norms)

    @cached_property
    def modules(self) -> tuple[SketchedModule, ...]:
        return self.header.modules


@dataclass
class _Begun:
    header: SketchesHeader
    requests: dict[int, StepRequest] = field(default_factory=dict)
    blocks: list[tuple[int, dict[str, Numbers]]] = field(default_factory=list)
    widths: dict[str, int] = field(default_factory=dict)
    """Of experts, by column."""
    stopped: SketchesStopped | None = None

    def done(self) -> Sketches:
        total, modules = sum(tokens for tokens, _ in self.blocks), len(self.header.modules)
        columns = {name: np.full(total, _ABSENT.get(name, 0), dtype=np.int64) for name in _PLAIN}
        norms = np.full((total, modules), UNSEEN_NORM, dtype=np.float32)
        values = np.zeros((total, modules, PROJECTIONS), dtype=np.float16)
        gaps: dict[int, Numbers] = {}
        experts: dict[int, Numbers] = {}
        has_entry = bool(self.blocks) and all("entry" in block for _, block in self.blocks)
        at = 0
        waiting = deque(self.blocks)
        self.blocks.clear()
        while waiting:  # let go of as they are joined
            tokens, block = waiting.popleft()
            here = slice(at, at + tokens)
            at += tokens
            for name, given in block.items():
                column, module = split_sketch_name(name)
                if column.name in columns:
                    columns[column.name][here] = given
                elif column.name == "norm":
                    norms[here, module] = given
                elif column.name == "sketch":
                    values[here, module] = given
                elif column.name == "gap":
                    gaps.setdefault(module, np.full(total, np.nan, dtype=np.float32))[here] = given
                else:
                    known = experts.setdefault(module, np.full((total, given.shape[1]), -1, dtype=np.int16))
                    known[here] = given
        return Sketches(
            self.header, self.requests, columns, has_entry, norms, values, gaps, experts, self.stopped
        )  # fmt: skip


def read_sketches(path: str | Path) -> tuple[Sketches, ...]:
    """Each start of an engine (or of a replica) that a sketches file holds. Raises CaptureError, ParityError."""
    path = Path(path)
    starts: list[_Begun] = []
    current: dict[int, _Begun] = {}
    room = sketches_room()

    def fail(number: int | None, what: Message) -> None:
        hint = message("capture.sketches_spec", "docs/steps-file.md says what a sketches file holds")
        raise CaptureError(str(path), number, what, hint=hint)

    for number, size, line in sketch_lines(path, fail):
        try:
            if isinstance(line, SketchesHeader):
                check_sketches_header(line)
                current[line.replica] = _Begun(line)
                starts.append(current[line.replica])
                continue
            start = current.get(line.replica)
            if start is None:
                raise ValueError("sketches before any header")
            if isinstance(line, SketchesStopped):
                start.stopped = line
                continue
            room.take(size, unpacked_bytes(line, start.header))
            start.blocks.append((line.tokens, sketch_block(line, start.header, start.widths)))
            start.requests.update((one.number, one) for one in line.requests)
        except (ValueError, KeyError, TypeError) as error:
            fail(number, message("capture.sketches_damaged", "a damaged line of sketches: {said}", said=str(error)))
    return tuple(start.done() for start in starts)


def sketch_lines(path: Path, fail: Report) -> Iterator[tuple[int, int, SketchesLine]]:
    """(line number, its bytes, what it says) of each whole line; what is wrong goes to `fail`, which raises."""
    for number, _, raw in raw_lines(path, fail):
        if not raw.endswith(b"\n"):
            return  # cut off: the writer was interrupted
        try:
            yield number, len(raw), _DECODER.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            fail(number, message("capture.sketches_damaged", "a damaged line of sketches: {said}", said=str(error)))


def unpacked_bytes(line: SketchesBlock, header: SketchesHeader) -> int:
    return line.tokens * (len(header.modules) * MODULE_BYTES + TOKEN_BYTES)


def check_sketches_header(header: SketchesHeader) -> None:
    """Raises ValueError."""
    if header.schema not in (SKETCHES_SCHEMA, *EARLIER_SKETCHES):
        raise ValueError(f"schema is {header.schema!r}, this parity reads {SKETCHES_SCHEMA!r}")
    names = [one.name for one in header.modules]
    if not 0 < len(names) <= MAX_SKETCH_MODULES or len(set(names)) < len(names):
        raise ValueError(f"{len(names)} modules, or two of one name")


def sketch_block(line: SketchesBlock, header: SketchesHeader, widths: dict[str, int]) -> dict[str, Numbers]:
    """The columns of a block. `widths`: of experts by column, which is added to. Raises ValueError, KeyError."""
    found: dict[str, Numbers] = unpack_sketches(line.tokens, line.columns, line.data)
    missing = [name for name in ("step", "row", "request", "position", "token") if name not in found]
    if missing:
        raise ValueError(f"no column {missing[0]}")
    for name, values in found.items():
        column, module = split_sketch_name(name)
        if column.of_module and module >= len(header.modules):
            raise ValueError(f"{name} is of no module")
        if column.name == "experts" and widths.setdefault(name, values.shape[1]) != values.shape[1]:
            raise ValueError(f"{name} changes its width")
    return found
