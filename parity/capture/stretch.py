"""A stretch of a large capture that is read by somebody else: as far as it is ordinary.

Ordinary is a whole line with a completion in which nothing is wrong, or with the end of a round; or lines with a score
each. A stretch ends before the first line that is anything else. So what is wrong, and whatever depends on the lines
before, is seen by one reader alone, which reads on from there and says what it always says.
"""

from __future__ import annotations

import marshal
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple, NoReturn, Protocol, TypeVar

import numpy as np

from parity.capture.fields import take
from parity.capture.keys import Keys
from parity.capture.lines import MAX_LINE_BYTES, Lines, is_record, open_capture
from parity.capture.packing import Packing, Part
from parity.capture.parse import RoundRecord, parse_completion, parse_score
from parity.capture.problems import Malformed
from parity.capture.remote import Place
from parity.capture.rows import STREAMS, Said
from parity.capture.score_columns import ArmPart, PackedScores, ScorePart
from parity.capture.spill import Pile
from parity.messages import Message
from parity.records import RaggedTokens

Asked = TypeVar("Asked")

BYTES: Final = 4 << 20
"""Of a file that are read as one stretch: an eighth of a second of a processor, and some 2.5 MB of columns."""


class Stretch(NamedTuple):
    """Lines of a file that were read."""

    begin: int
    """The byte where the first line begins."""
    size: int
    """Bytes."""
    lines: int
    sealed: bool
    """Whether the first line has a checksum. If so all have."""
    owes: bool
    """Whether any line has one."""
    identity: tuple[int, int]
    """Of the file (`Lines.identity`)."""
    part: Part | ScorePart


class _Other(Exception):
    """A line that is not ordinary."""


def _other(line: int | None, what: Message) -> NoReturn:
    raise _Other(what.id)


def stretch_of(path: Place, begin: int, end: int) -> Stretch | None:
    """The ordinary lines from the first one that begins at or after a byte, to before the first one that begins at or
    after `end`; the first line of a file is left out. None where the first is not ordinary, or there is none.

    Raises OSError and ParityError."""
    begin = _first_line(path, begin, end)
    if begin >= end:
        return None
    lines = Lines(path, _other, begin=begin)
    count = size = 0
    sealed, identity = False, (0, 0)
    taken: _Completions | _OfScores = _Completions()
    try:
        for number, record in _whole(lines, end):
            if number == 1 and is_record(record, "score"):
                taken = _OfScores()
            if not taken.add(record, number):
                break
            if count == 0:
                sealed, identity = lines.seals.owed, lines.identity
            count, size, owes = number, lines.begin - begin, lines.seals.owed
    except (_Other, Malformed):
        pass
    return Stretch(begin, size, count, sealed, owes, identity, taken.part()) if count else None


class _Completions:
    def __init__(self) -> None:
        self._packing = Packing(pile=Pile())

    def add(self, record: Any, number: int) -> bool:
        """False for what is not ordinary. Raises Malformed."""
        if is_record(record, "completion"):
            self._packing.add(parse_completion(record, number))
        elif is_record(record, "round"):
            take(RoundRecord, record)
        else:
            return False
        return True

    def part(self) -> Part:
        return self._packing.part()


class _OfScores:
    def __init__(self) -> None:
        self._scores = PackedScores(Pile())

    def add(self, record: Any, number: int) -> bool:
        """False for what is not ordinary. Raises Malformed."""
        if not is_record(record, "score"):
            return False
        key, top = parse_score(record)
        self._scores.add(key, top, number)
        return True

    def part(self) -> ScorePart:
        return self._scores.part()


def _first_line(path: Place, begin: int, end: int) -> int:
    """Where the first line at or after a byte begins, but for the header; `end` where that is too far."""
    before = max(begin - 1, 0)
    with open_capture(path) as file:
        file.seek(before)
        rest = file.readline(MAX_LINE_BYTES)
    return min(before + len(rest), end) if rest.endswith(b"\n") else end


def _whole(lines: Lines, end: int) -> Iterator[tuple[int, Any]]:
    """Parsed lines that begin before a byte and end with their line."""
    for number, record in lines.parsed():
        yield number, record
        if lines.begin >= end:
            return


def dumped(found: Stretch) -> bytes:
    """For `loaded`, in another process of this Python."""
    part = found.part
    packed = _packed_scores(part) if isinstance(part, ScorePart) else _packed(part)
    return marshal.dumps((found[:-1], isinstance(part, ScorePart), packed))


def loaded(data: bytes | bytearray) -> Stretch:
    """Of `dumped`: our own, from a process that this one, or this one's cluster, has started."""
    about, of_scores, packed = marshal.loads(data)
    begin, size, count, sealed, owes, identity = about
    part = _unpacked_scores(*packed) if of_scores else _unpacked(*packed)
    return Stretch(begin, size, count, sealed, owes, identity, part)


def _packed(part: Part) -> tuple[Any, ...]:
    streams = [
        (column.flat.dtype.str, column.flat.tobytes(), column.offsets.tobytes()) for column in part.streams.values()
    ]
    columns = [column.tobytes() for column in (part.said, part.rest, part.lines)]
    table = [tuple(one) for one in part.table]
    own = None if part.own is None else (part.own.dtype.str, part.own.tobytes())
    return part.keys.pack(), streams, columns, table, part.pieces, own


def _unpacked(keys: Any, streams: Any, columns: Any, table: Any, pieces: bytes, own: Any) -> Part:
    ragged = (
        RaggedTokens(np.frombuffer(flat, dtype=kind), np.frombuffer(offsets, dtype=np.int64))
        for kind, flat, offsets in streams
    )
    said, rest, lines = columns
    return Part(
        Keys.unpacked(*keys),
        dict(zip(STREAMS, ragged, strict=True)),
        np.frombuffer(said, dtype=np.int32),
        np.frombuffer(rest, dtype=np.int64),
        np.frombuffer(lines, dtype=np.int32),
        [Said(*one) for one in table],
        pieces,
        None if own is None else np.frombuffer(own[1], dtype=own[0]),
    )


def _packed_scores(part: ScorePart) -> tuple[Any, ...]:
    arms = [
        (one.arm, one.keys.pack(), one.lines.tobytes(), one.lengths.tobytes(), one.places.tobytes())
        for one in part.arms
    ]
    return arms, part.order.tobytes(), part.pieces


def _unpacked_scores(arms: Any, order: bytes, pieces: bytes) -> ScorePart:
    found = [
        ArmPart(
            arm,
            Keys.unpacked(*keys),
            np.frombuffer(lines, dtype=np.int64),
            np.frombuffer(lengths, dtype=np.int32),
            np.frombuffer(places, dtype=np.int64),
        )
        for arm, keys, lines, lengths, places in arms
    ]
    return ScorePart(found, np.frombuffer(order, dtype=np.int32), pieces)


class Span(NamedTuple):
    """What is to be read as one stretch."""

    number: int
    """Of the file, among those of the capture."""
    path: Place
    begin: int
    end: int


class Readers(Protocol):
    """Who reads stretches for a reader."""

    def stretches(self, spans: Iterator[Span]) -> Iterator[tuple[Span, Stretch | None]]:
        """Those of the spans, in their order; None for one that is not ordinary or was lost."""
        ...


def in_order(
    spans: Iterator[Span], ask: Callable[[Span], Asked], answer: Callable[[Asked], Stretch | None], most: int
) -> Iterator[tuple[Span, Stretch | None]]:
    """What `Readers` give: `most` spans are asked for before the first answer is waited for."""
    waiting: deque[tuple[Span, Asked]] = deque()
    for span in spans:
        waiting.append((span, ask(span)))
        if len(waiting) >= most:
            first, asked = waiting.popleft()
            yield first, answer(asked)
    while waiting:
        first, asked = waiting.popleft()
        yield first, answer(asked)


def is_plain(path: Place) -> bool:
    """Whether somebody else can begin to read in its middle."""
    return path.suffix != ".gz"


class Ahead:
    """What others have read of the files of a capture, given in order to the one that reads them."""

    def __init__(self, readers: Readers, files: Sequence[Place]) -> None:
        self._readers, self._files = readers, files
        self._stretches: Iterator[tuple[Span, Stretch | None]] | None = None
        self._next: tuple[int, Stretch] | None = None
        self._over = False

    def at(self, path: Place, begin: int) -> Stretch | None:
        """The one that begins at this byte of a file; None where the next begins elsewhere. Others begin to read when
        this is first asked; the place is never before the one asked for last."""
        here = self._files.index(path), begin
        if self._stretches is None:
            self._stretches = self._readers.stretches(self._spans(*here))
        while not self._over and (self._next is None or (self._next[0], self._next[1].begin) < here):
            try:
                span, found = next(self._stretches)
            except StopIteration:
                self._over, self._next = True, None
            else:
                self._next = self._next if found is None else (span.number, found)
        if self._next is None or (self._next[0], self._next[1].begin) != here:
            return None
        return self._next[1]

    def _spans(self, first: int, begin: int) -> Iterator[Span]:
        for number, path in enumerate(self._files[first:], first):
            if is_plain(path):
                bounds = [*range(begin, size := path.stat().st_size, BYTES), size]
                yield from (Span(number, path, one, other) for one, other in pairwise(bounds))
            begin = 0
