"""Pieces of bytes that are too much for memory."""

from __future__ import annotations

from parity.unnamed import AT_ONCE, Unnamed

_SIZE = 4
"""Bytes that say how long a piece is."""

_ARMS = 2
"""Places at which a spill is read in turns."""


class Pile:
    """Pieces of bytes on their way into a `Spill`."""

    def __init__(self) -> None:
        self.pieces = bytearray()

    def append(self, piece: bytes) -> int:
        """Where it is."""
        begin = len(self.pieces)
        self.pieces += len(piece).to_bytes(_SIZE, "little") + piece
        return begin


def end_of(pieces: bytes, begin: int) -> int:
    """Where a piece of a `Pile` ends."""
    return begin + _SIZE + int.from_bytes(pieces[begin : begin + _SIZE], "little")


def piece_at(pieces: bytes, begin: int) -> bytes:
    """A piece of a `Pile`, by the place that `append` gave."""
    return pieces[begin + _SIZE : end_of(pieces, begin)]


class Spill:
    """Pieces of bytes, one after another, in an `Unnamed` file."""

    def __init__(self) -> None:
        """Raises ParityError where no file can be made."""
        self._file = Unnamed()
        self._near: list[tuple[int, bytes]] = []
        """Where somebody has looked, the last place first: those of two arms are looked at in turns."""

    def append(self, piece: bytes) -> int:
        """Where it is. Raises ParityError where the disk is full."""
        return self.take(len(piece).to_bytes(_SIZE, "little") + piece)

    def take(self, pieces: bytes | memoryview) -> int:
        """Some of a `Pile`, as they are there; where the first is. Raises ParityError where the disk is full."""
        return self._file.append(pieces)

    def flush(self) -> None:
        """Raises ParityError where the disk is full."""
        self._file.flush()

    def read(self, begin: int) -> bytes:
        """The piece at a place that `append` gave."""
        for at, near in self._near:
            if at <= begin <= at + len(near) - _SIZE:
                break
        else:
            at, near = self._look(begin, AT_ONCE)
        start = begin - at + _SIZE
        size = int.from_bytes(near[start - _SIZE : start], "little")
        if start + size > len(near):
            at, near = self._look(begin, max(AT_ONCE, _SIZE + size))
            start = _SIZE
        return near[start : start + size]

    def _look(self, begin: int, size: int) -> tuple[int, bytes]:
        found = begin, self._file.read(begin, begin + size)
        self._near = [found, *self._near[: _ARMS - 1]]
        return found
