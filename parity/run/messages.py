"""What a worker answers, as types, one JSON object a line; `record` lines go into the capture. Commands: `commands`.

A far host is not trusted to keep to it: what is not as written here is a ProtocolError. Only this module of `run` sees
JSON objects. What they mean for a plan is checked by `expected`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Final, TypeAlias

import msgspec
import numpy as np
import orjson
from msgspec import UNSET, Meta, Struct, UnsetType

from parity.capture import dump_line, header_record, is_too_dense, parse_completion, parse_header
from parity.capture.problems import Malformed
from parity.capture.sketches import SketchesBlock, SketchesHeader, SketchesLine, SketchesStopped
from parity.capture.steps import StepsBlock, StepsHeader, StepsLine, StepsStopped
from parity.messages import Message, message
from parity.records import Completion as Parsed
from parity.records import Header, Json, Key, ScoreKey, TopLogprobs
from parity.records.counters import sane
from parity.records.depth import is_shallow
from parity.run.counting import Counters
from parity.run.words import printable

Count: TypeAlias = Annotated[int, Meta(ge=0, lt=1 << 31)]
Drafts: TypeAlias = Annotated[int, Meta(ge=-1, le=1 << 16)]
TokenId: TypeAlias = Annotated[int, Meta(ge=-(1 << 31), lt=1 << 31)]
TopOfEach: TypeAlias = list[list[tuple[int, float | None]]]
"""[token_id, logprob] of each top token, for each output token."""


class ProtocolError(Exception):
    """The worker said something that is not the protocol."""

    def __init__(self, said: Message) -> None:
        super().__init__(said)
        self.said = said


def unfit(error: BaseException) -> ProtocolError:
    """What a worker said that nothing here could take: a fault in reading it must end its arm alone."""
    what = f"{type(error).__name__}: {printable(str(error))[:200]}"
    return ProtocolError(message("run.unfit", "what it said cannot be taken: {what}", what=what))


# --------------------------------------------------------------------------- records


class Spec(Struct, frozen=True):
    """Draft tokens of each decode step."""

    accepted: list[Drafts]
    drafted: list[Drafts]


class Tokens(Struct, frozen=True, kw_only=True, tag_field="record", tag="completion"):
    """What a resumed run needs of a completion in its capture."""

    request: str
    round: Count
    sample: Count
    prompt_token_ids: list[TokenId]
    token_ids: list[TokenId]
    spec: Spec | UnsetType | None = UNSET

    @property
    def key(self) -> Key:
        return Key(self.request, self.round, self.sample)


class Completion(Tokens, frozen=True, kw_only=True, tag_field="record", tag="completion"):
    text: str | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    logprobs: TopOfEach | None = None
    max_tokens: int | UnsetType | None = UNSET
    sampling: dict[str, msgspec.Raw] | UnsetType | None = UNSET
    aborted: bool | UnsetType = UNSET
    server: dict[str, msgspec.Raw] | UnsetType | None = UNSET
    replica: int | UnsetType = UNSET

    def parsed(self) -> Parsed:
        """As from a capture."""
        return parse_completion(orjson.loads(line_of(self)))


class ScoreName(Struct, frozen=True, kw_only=True, tag_field="record", tag="score"):
    """Whose score it is; also all that a resumed run needs of one."""

    arm: str
    request: str
    round: Count
    sample: Count

    @property
    def key(self) -> ScoreKey:
        return ScoreKey(self.arm, self.request, self.round, self.sample)


class Score(ScoreName, frozen=True, kw_only=True, tag_field="record", tag="score"):
    logprobs: TopOfEach
    logsumexp: list[float | None] | UnsetType | None = UNSET

    def parsed(self) -> TopLogprobs:
        sums = np.array(self.logsumexp, dtype=np.float64) if self.logsumexp else None
        return replace(TopLogprobs.from_json(self.logprobs), logsumexp=sums)


class Round(Struct, frozen=True, kw_only=True, tag_field="record", tag="round"):
    """The counters of a round that was run to its end."""

    round: Count
    replica: Count = 0
    counters: Counters


class Footer(Struct, frozen=True, kw_only=True, tag_field="record", tag="footer"):
    completions: Count = 0
    scores: Count = 0
    counters: Counters


# --------------------------------------------------------------------------- events


class Progress(Struct, frozen=True, tag_field="event", tag="progress"):
    """Only shown."""

    running: Json = 0


class Failed(Struct, frozen=True, tag_field="event", tag="error"):
    """The engine failed. `type` is "WorkerError" where the message says all there is to say."""

    type: str | None = None
    message: str | None = None
    said: Json = None
    """The message as an object with its id, where it is a sentence of ours."""


class _Named(Struct, frozen=True):
    arm: str
    request: str
    round: int
    sample: int


class Unscored(Struct, frozen=True, tag_field="event", tag="unscored"):
    """An item that the engine cannot take."""

    named: _Named = msgspec.field(name="key")
    reason: Json = ""
    """A sentence of the worker's as an object with its id, or the words of its engine."""

    @property
    def key(self) -> ScoreKey:
        return ScoreKey(*msgspec.structs.astuple(self.named))


class Scored(Struct, frozen=True, tag_field="event", tag="scored"):
    """All items of a command are done."""

    sequences: Json = 0
    tokens: Json = 0


class Other(Struct, frozen=True):
    """What this version does not know: passed over."""

    record: Json = None
    event: Json = None


FromWorker: TypeAlias = (
    Header
    | Completion
    | Score
    | Round
    | Footer
    | StepsLine
    | SketchesLine
    | Progress
    | Failed
    | Unscored
    | Scored
    | Other
)
Record: TypeAlias = Header | Completion | Score | Round | Footer | StepsLine | SketchesLine

MAX_EVENT_BYTES: Final = 1 << 20
MAX_HEADER_BYTES: Final = 4 << 20
"""Of a header; one of an arm with replicas, environment and plan has some 20 KB."""

AnyDecoder: TypeAlias = msgspec.json.Decoder[Any]


def _decoders(*types: type[Struct]) -> dict[str, AnyDecoder]:
    return {str(each.__struct_config__.tag): msgspec.json.Decoder(each) for each in types}


_BESIDE: Final = (StepsHeader, StepsBlock, StepsStopped, SketchesHeader, SketchesBlock, SketchesStopped)
_RECORDS: Final = _decoders(Completion, Score, Round, Footer, *_BESIDE)
_EVENTS: Final = _decoders(Progress, Failed, Unscored, Scored)
_TAGS: Final = msgspec.json.Decoder(Other)


def decode(
    line: bytes, events: Mapping[str, AnyDecoder] = _EVENTS, records: Mapping[str, AnyDecoder] = _RECORDS
) -> Any:
    """The message of a line, `Other` where it is of no known kind. Raises ProtocolError, whatever the line holds."""
    try:
        return _decoded(line, events, records)
    except (ArithmeticError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise unfit(error) from None


def _decoded(line: bytes, events: Mapping[str, AnyDecoder], records: Mapping[str, AnyDecoder]) -> Any:
    if len(line) > MAX_EVENT_BYTES and line.startswith(b'{"event"'):
        raise ProtocolError(message("run.long_event", "an event of {size} bytes", size=len(line)))
    if is_too_dense(line):
        raise ProtocolError(message("capture.too_dense", "a record of lists in lists: no completion"))
    try:
        tags = _TAGS.decode(line)
    except msgspec.ValidationError:
        raise ProtocolError(message("run.not_an_object", "a line that is not a JSON object")) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        shown = printable(line[:120].decode("utf-8", "replace"))
        raise ProtocolError(message("run.not_json", "a line that is not JSON: {line}", line=repr(shown))) from None
    if tags.record == "header":
        return _header(line)
    decoder = _known(records, tags.record) or _known(events, tags.event)
    if decoder is None:
        return tags
    said = typed(decoder, line, str(tags.record or tags.event))
    return msgspec.structs.replace(said, counters=sane(said.counters)) if isinstance(said, Round | Footer) else said


HeldRecord: TypeAlias = Header | Tokens | ScoreName | Round | Footer
"""A record of an unfinished capture, as far as whoever continues it needs it."""

_HELD: Final = _decoders(Tokens, ScoreName, Round, Footer)


def held_record(line: bytes) -> HeldRecord:
    """The record of a line of an unfinished capture. Raises ProtocolError."""
    found = decode(line, {}, _HELD)
    if isinstance(found, Other):
        raise ProtocolError(message("run.unknown_record", "unknown record {kind}", kind=repr(found.record)))
    record: HeldRecord = found
    return record


def _known(decoders: Mapping[str, AnyDecoder], tag: Json) -> AnyDecoder | None:
    return decoders.get(tag) if isinstance(tag, str) else None


def typed(decoder: msgspec.json.Decoder[Any], line: bytes, what: str) -> Any:
    """The message of a line of this kind. Raises ProtocolError that names the field."""
    try:
        return decoder.decode(line)
    except msgspec.ValidationError as error:
        said = str(error).replace("`$.", "`").replace("`", "'")
        raise ProtocolError(message("run.wrong_field", "{what}: {said}", what=what, said=said)) from None
    except RecursionError:
        raise ProtocolError(message("run.too_deep", "{what}: nested too deeply", what=what)) from None


def _header(line: bytes) -> Header:
    if len(line) > MAX_HEADER_BYTES:
        raise ProtocolError(message("run.long_header", "a header of {size} bytes", size=len(line)))
    raw = orjson.loads(line)
    if not is_shallow(raw):
        raise ProtocolError(message("run.too_deep", "{what}: nested too deeply", what="header"))
    for name in ("engine", "sampling", "environment"):
        if not isinstance(raw.get(name), dict):
            raise ProtocolError(message("run.header_without", "header without {name}", name=name))
    if not isinstance(raw.get("model_fingerprint"), dict | None):
        raise ProtocolError(message("run.bad_fingerprint", "model_fingerprint is not an object"))
    try:
        return parse_header(raw)
    except Malformed as error:
        raise ProtocolError(message("run.bad_header", "header: {said}", said=str(error))) from None


def line_of(record: Record) -> bytes:
    """A record as a line of a capture."""
    if isinstance(record, Header):
        return dump_line(header_record(record))
    return msgspec.json.encode(record) + b"\n"


def count(value: Json) -> int:
    """A number of an event that is only shown; nonsense counts as 0."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0
