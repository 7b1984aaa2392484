"""Logprobs of many tokens, one after another in a file without a name: those of a million completions are 250 MB.

Workers write six decimals. Such numbers are kept as whole millionths, which take half the room and come back to the
last bit: a decimal is read as the double nearest to it, and so is the quotient of two whole numbers. Where one number
is another, all are kept as doubles.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from parity.unnamed import Held, Unnamed

FloatArray = npt.NDArray[np.float64]
Packed = npt.NDArray[Any]
"""Numbers as they are kept: int32, millionths, or float64."""

MILLION: Final = 1e6
_NAN: Final = -(2**31)
_MINUS_ZERO: Final = _NAN + 1
"""What no logprob of six decimals comes to."""

_LARGEST: Final = 2**31 - 2

_AT_ONCE: Final = 1 << 14
"""Numbers that are packed at once, and read ahead."""


def packed(values: FloatArray) -> Packed:
    """As millionths, where that says the same to the last bit; else as they are."""
    with np.errstate(invalid="ignore", over="ignore"):
        scaled = np.rint(values * MILLION)
    unknown = np.isnan(scaled)
    scaled[unknown] = 0.0
    if len(scaled) and float(np.abs(scaled).max()) > _LARGEST:
        return values
    found = scaled.astype(np.int32)
    if not ((found / MILLION == values) | unknown).all():
        return values
    found[unknown] = _NAN
    found[(found == 0) & np.signbit(values)] = _MINUS_ZERO
    return found


def unpacked(found: Packed) -> FloatArray:
    """What was `packed`."""
    if found.dtype == np.float64:
        return found
    values = found / MILLION
    if len(found) and int(found.min()) <= _MINUS_ZERO:
        values[found == _NAN] = np.nan
        values[found == _MINUS_ZERO] = -0.0
    return values


class Decimals:
    """Numbers that are added at the end and read anywhere."""

    def __init__(self, *, held: bool = False) -> None:
        """`held`: in memory. Raises ParityError where no file can be made."""
        self._new: type[Held | Unnamed] = Held if held else Unnamed
        self._file = self._new()
        self._kind: np.dtype[Any] = np.dtype(np.int32)
        self._waiting: list[FloatArray] = []
        self._count = self._waits = 0
        self._near: tuple[int, FloatArray] = (0, np.empty(0))

    def __len__(self) -> int:
        return self._count

    def append(self, values: FloatArray) -> None:
        """Raises ParityError where the disk is full."""
        self._waiting.append(values)
        self._count += len(values)
        self._waits += len(values)
        if self._waits >= _AT_ONCE:
            self.flush()

    def extend(self, values: Packed) -> None:
        """By many that are `packed`. Raises ParityError where the disk is full."""
        self.flush()
        self._count += len(values)
        self._write(values)

    def flush(self) -> None:
        """Raises ParityError where the disk is full."""
        if self._waiting:
            some = np.concatenate(self._waiting)
            self._waiting, self._waits = [], 0
            self._write(packed(some))

    def part(self, begin: int, end: int) -> FloatArray:
        """Those from `begin` to before `end`, to be looked at only."""
        at, near = self._near
        if not (at <= begin and end <= at + len(near)):
            self.flush()
            at = begin
            near = self._read(begin, max(end, min(begin + _AT_ONCE, self._count)))
            if len(near) <= 4 * _AT_ONCE:
                self._near = at, near
        return near[begin - at : end - at]

    def whole(self) -> Packed:
        """All of them, as they are kept."""
        self.flush()
        return np.frombuffer(self._file.read(0, self._count * self._kind.itemsize), dtype=self._kind)

    def _write(self, values: Packed) -> None:
        if values.dtype != self._kind and self._kind == np.int32:
            self._widen()
        if values.dtype != self._kind:
            values = unpacked(values)
        self._file.append(values.tobytes())

    def _widen(self) -> None:
        narrow, count = self._file, self._file.size // 4
        self._file, self._kind = self._new(), np.dtype(np.float64)
        for begin in range(0, count, _AT_ONCE):
            some = narrow.read(4 * begin, 4 * min(begin + _AT_ONCE, count))
            self._file.append(unpacked(np.frombuffer(some, dtype=np.int32)).tobytes())

    def _read(self, begin: int, end: int) -> FloatArray:
        size = self._kind.itemsize
        return unpacked(np.frombuffer(self._file.read(size * begin, size * end), dtype=self._kind))
