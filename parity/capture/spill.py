"""What is too much for memory, in a file without a name that goes with its last user."""

from __future__ import annotations

import mmap
import os
import tempfile
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from parity.errors import writing
from parity.messages import message

_AT_ONCE = 1 << 18
"""Bytes written, and read ahead, at once."""

_SIZE = 4
"""Bytes that say how long a piece is."""

_ARMS = 2
"""Places at which a spill is read in turns."""

_MAKE_ROOM = message("capture.make_room", "make room there, or set TMPDIR to a directory with more")


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


class Held:
    """As `Unnamed`, in memory."""

    def __init__(self) -> None:
        self._data = bytearray()

    @property
    def size(self) -> int:
        return len(self._data)

    def append(self, data: bytes | memoryview) -> int:
        begin = self.size
        self._data += data
        return begin

    def read(self, begin: int, end: int) -> bytes:
        return bytes(self._data[begin:end])

    def mapped(self, kind: npt.DTypeLike) -> npt.NDArray[Any]:
        """All of it so far, to be looked at only."""
        return np.frombuffer(bytes(self._data), dtype=kind)


class Unnamed:
    """A file without a name that is written at its end and read anywhere. What is not looked at takes no memory."""

    def __init__(self) -> None:
        """Raises ParityError where no file can be made."""
        with writing(tempfile.gettempdir(), _MAKE_ROOM):
            self._file: IO[bytes] = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - it lives as long as this
        self._written = 0
        self._waiting = bytearray()

    @property
    def size(self) -> int:
        """Bytes."""
        return self._written + len(self._waiting)

    def append(self, data: bytes | memoryview) -> int:
        """Where it begins. Raises ParityError where the disk is full."""
        begin = self.size
        self._waiting += data
        if len(self._waiting) >= _AT_ONCE:
            self.flush()
        return begin

    def flush(self) -> None:
        """Raises ParityError where the disk is full."""
        with writing(tempfile.gettempdir(), _MAKE_ROOM):
            left = memoryview(self._waiting)
            while left:
                left = left[os.pwrite(self._file.fileno(), left, self._written + len(self._waiting) - len(left)) :]
            left.release()
        self._written += len(self._waiting)
        self._waiting = bytearray()

    def read(self, begin: int, end: int) -> bytes:
        """The bytes from `begin` to before `end`, as far as there are."""
        if self._waiting:
            self.flush()
        return os.pread(self._file.fileno(), end - begin, begin)

    def mapped(self, kind: npt.DTypeLike) -> npt.NDArray[Any]:
        """All of it as an array that cannot be written to: the system reads what is looked at, and takes the memory
        back when it needs it. Raises ParityError where the disk is full."""
        self.flush()
        if not self._written:
            return np.empty(0, dtype=kind)
        return np.frombuffer(mmap.mmap(self._file.fileno(), self._written, prot=mmap.PROT_READ), dtype=kind)


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
            at, near = self._look(begin, _AT_ONCE)
        start = begin - at + _SIZE
        size = int.from_bytes(near[start - _SIZE : start], "little")
        if start + size > len(near):
            at, near = self._look(begin, max(_AT_ONCE, _SIZE + size))
            start = _SIZE
        return near[start : start + size]

    def _look(self, begin: int, size: int) -> tuple[int, bytes]:
        found = begin, self._file.read(begin, begin + size)
        self._near = [found, *self._near[: _ARMS - 1]]
        return found
