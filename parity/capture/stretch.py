"""A stretch of a large capture that is read by somebody else: as far as it is ordinary.

Ordinary is a whole line with a completion in which nothing is wrong, or with the end of a round. A stretch ends before
the first line that is anything else. So what is wrong, and whatever depends on the lines before, is seen by one reader
alone, which reads on from there and says what it always says.
"""

from __future__ import annotations

import marshal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn

import numpy as np

from parity.capture.fields import take
from parity.capture.keys import Keys
from parity.capture.lines import MAX_LINE_BYTES, Lines, is_record, open_capture
from parity.capture.packing import Packing, Part
from parity.capture.parse import RoundRecord, parse_completion
from parity.capture.problems import Malformed
from parity.capture.rows import STREAMS, Said
from parity.capture.spill import Pile
from parity.messages import Message
from parity.records import RaggedTokens

BYTES: Final = 8 << 20
"""Of a file that are read as one stretch: a quarter of a second of a processor, and some 5 MB of columns."""


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
    part: Part


class _Other(Exception):
    """A line that is not ordinary."""


def _other(line: int | None, what: Message) -> NoReturn:
    raise _Other(what.id)


def stretch_of(path: Path, begin: int, end: int) -> Stretch | None:
    """The ordinary lines from the first one that begins at or after a byte, to before the first one that begins at or
    after `end`. None where the first is not ordinary, or there is none. Raises OSError and ParityError."""
    begin = _first_line(path, begin, end)
    if begin >= end:
        return None
    lines, packing = Lines(path, _other, begin=begin), Packing(pile=Pile())
    count = size = 0
    sealed, identity = False, (0, 0)
    try:
        for number, record in _whole(lines, end):
            if number != count + 1:  # there were empty lines
                break
            if is_record(record, "completion"):
                packing.add(parse_completion(record, number))
            elif is_record(record, "round"):
                take(RoundRecord, record)
            else:
                break
            if count == 0:
                sealed, identity = lines.seals.owed, lines.identity
            count, size, owes = number, lines.begin - begin, lines.seals.owed
    except (_Other, Malformed):
        pass
    return Stretch(begin, size, count, sealed, owes, identity, packing.part()) if count else None


def _first_line(path: Path, begin: int, end: int) -> int:
    """Where the first line at or after a byte begins; `end` where that is too far."""
    if begin == 0:
        return 0
    with open_capture(path) as file:
        file.seek(begin - 1)
        rest = file.readline(MAX_LINE_BYTES)
    return min(begin - 1 + len(rest), end) if rest.endswith(b"\n") else end


def _whole(lines: Lines, end: int) -> Iterator[tuple[int, Any]]:
    """Parsed lines that begin before a byte and end with their line."""
    for number, record in lines.parsed():
        yield number, record
        if lines.begin >= end:
            return


def dumped(found: Stretch) -> bytes:
    """For `loaded`, in another process of this Python."""
    part = found.part
    streams = [
        (column.flat.dtype.str, column.flat.tobytes(), column.offsets.tobytes()) for column in part.streams.values()
    ]
    columns = [column.tobytes() for column in (part.said, part.rest, part.lines)]
    table = [tuple(one) for one in part.table]
    return marshal.dumps((found[:-1], part.keys.pack(), streams, columns, table, part.pieces))


def loaded(data: bytes) -> Stretch:
    """Of `dumped`: our own, from a process that this one, or this one's cluster, has started."""
    about, keys, streams, columns, table, pieces = marshal.loads(data)
    ragged = (
        RaggedTokens(np.frombuffer(flat, dtype=kind), np.frombuffer(offsets, dtype=np.int64))
        for kind, flat, offsets in streams
    )
    said, rest, lines = columns
    part = Part(
        Keys.unpacked(*keys),
        dict(zip(STREAMS, ragged, strict=True)),
        np.frombuffer(said, dtype=np.int32),
        np.frombuffer(rest, dtype=np.int64),
        np.frombuffer(lines, dtype=np.int32),
        [Said(*one) for one in table],
        pieces,
    )
    begin, size, count, sealed, owes, identity = about
    return Stretch(begin, size, count, sealed, owes, identity, part)


class Ahead:
    """What others have read of a file, given in order to the one that reads it."""

    def __init__(self, stretches: Iterator[Stretch | None]) -> None:
        self._stretches = stretches
        self._next: Stretch | None = None
        self._over = False

    def at(self, begin: int) -> Stretch | None:
        """The one that begins at this byte; None where the next begins elsewhere. The byte is never smaller than the
        one before."""
        while not self._over and (self._next is None or self._next.begin < begin):
            try:
                self._next = next(self._stretches)
            except StopIteration:
                self._over, self._next = True, None
        found = self._next
        return found if found is not None and found.begin == begin else None
