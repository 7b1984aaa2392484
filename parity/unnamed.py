"""What is too much for memory, in a file without a name that goes with its last user."""

from __future__ import annotations

import errno
import math
import mmap
import os
import tempfile
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, Final

import numpy as np
import numpy.typing as npt

from parity.errors import cannot_write
from parity.messages import message

AT_ONCE: Final = 1 << 18
"""Bytes written at once."""

LARGE: Final = 1 << 20
"""Bytes of an array from which on it is `kept` in a file."""

_MAKE_ROOM = message("capture.make_room", "make room there, or set TMPDIR to a directory with more")
_OPEN_MORE = message(
    "capture.open_more", "each large capture takes some 40 files: raise the limit (`ulimit -n 4096`), then try again"
)


@contextmanager
def _in_files() -> Iterator[None]:
    """Inside, what the system refuses is a ParityError that says what to do."""
    try:
        yield
    except OSError as error:
        hint = _OPEN_MORE if error.errno in (errno.EMFILE, errno.ENFILE) else _MAKE_ROOM
        raise cannot_write(tempfile.gettempdir(), error, hint) from error


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
        with _in_files():
            self._file: IO[bytes] = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - it lives as long as this
        self._written = 0
        self._waiting = bytearray()
        self._owner = os.getpid()

    @property
    def size(self) -> int:
        """Bytes."""
        return self._written + len(self._waiting)

    def append(self, data: bytes | memoryview) -> int:
        """Where it begins. Raises ParityError where the disk is full."""
        if os.getpid() != self._owner:
            raise RuntimeError(self._owner)  # in a copy of the process that reads it, and writes over it
        begin = self.size
        self._waiting += data
        if len(self._waiting) >= AT_ONCE:
            self.flush()
        return begin

    def flush(self) -> None:
        """Raises ParityError where the disk is full."""
        with _in_files():
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

    def mapped(self, kind: npt.DTypeLike, *, writeable: bool = False) -> npt.NDArray[Any]:
        """All of it as an array, shape (N,): the system reads what is looked at, and takes the memory back when it
        needs it. Raises ParityError where the disk is full, or too many files are open."""
        self.flush()
        if not self._written:
            return np.empty(0, dtype=kind)
        access = mmap.PROT_READ | (mmap.PROT_WRITE if writeable else 0)
        with _in_files():
            found = mmap.mmap(self._file.fileno(), self._written, prot=access)
        return np.frombuffer(found, dtype=kind)


class Numbers:
    """Numbers that are added one by one, or many at a time."""

    def __init__(self, kind: str, *, held: bool = False) -> None:
        """kind: as `array.array` has it. Raises ParityError where no file can be made."""
        self._kind, self._waiting = kind, array(kind)
        self._store: Held | Unnamed = Held() if held else Unnamed()
        self._most = AT_ONCE // self._waiting.itemsize // 8
        self._stored = 0
        self._mapped: npt.NDArray[Any] | None = None
        self._data: memoryview | None = None

    def __len__(self) -> int:
        return self._stored + len(self._waiting)

    def append(self, number: int) -> None:
        """Raises ParityError where the disk is full."""
        self._waiting.append(number)
        if len(self._waiting) == self._most:
            self._pack()

    def extend(self, numbers: npt.NDArray[Any]) -> None:
        """Raises ParityError where the disk is full."""
        self._pack()
        step = AT_ONCE // self._waiting.itemsize
        for begin in range(0, len(numbers), step):
            self._store.append(numbers[begin : begin + step].astype(self._kind, copy=False).tobytes())
        self._stored += len(numbers)
        self._mapped = self._data = None

    def whole(self) -> npt.NDArray[Any]:
        """All of them so far, to be looked at only. Raises ParityError where the disk is full."""
        if self._mapped is None or self._waiting:
            self._pack()
            self._mapped, self._data = self._store.mapped(self._kind), None
        return self._mapped

    @property
    def data(self) -> memoryview:
        """`whole`, for looks at one after another: each gives a Python number."""
        if self._data is None or self._waiting:
            self._data = self.whole().data
        return self._data

    def _pack(self) -> None:
        if self._waiting:
            self._store.append(self._waiting.tobytes())
            self._stored += len(self._waiting)
            self._waiting = array(self._kind)
            self._mapped = self._data = None


def blank(shape: tuple[int, ...], kind: npt.DTypeLike) -> npt.NDArray[Any]:
    """Zeros to be written over: in a file where they are many, so that the system takes the memory back when it needs
    it. Raises ParityError where no file can be made, or the disk is full."""
    size = math.prod(shape) * np.dtype(kind).itemsize
    if size < LARGE:
        return np.zeros(shape, dtype=kind)
    store = Unnamed()
    for begin in range(0, size, AT_ONCE):  # written now: a full disk is an error here, and a crash where it is mapped
        store.append(bytes(min(AT_ONCE, size - begin)))
    return store.mapped(kind, writeable=True).reshape(shape)


def kept(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The same numbers, to be looked at only: in a file where they are many. Raises ParityError where the disk is
    full."""
    if values.nbytes < LARGE:
        return values
    store = Unnamed()
    step = max(1, AT_ONCE // values.itemsize)
    for begin in range(0, len(values), step):
        store.append(values[begin : begin + step].tobytes())
    return store.mapped(values.dtype)
