"""The keys of many completions as columns, and where each stands."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple, overload

import numpy as np
import numpy.typing as npt

from parity.records import Key
from parity.records.lazy import Index


class _Requests(NamedTuple):
    """`hashes` of their names, ascending; `number` of each of these; `numbers` and `firsts` as in `Index`."""

    hashes: memoryview
    number: npt.NDArray[np.int32]
    numbers: npt.NDArray[np.int32]
    firsts: npt.NDArray[np.int64]


class Keys(Index[Key]):
    """Some 30 bytes each, besides the bytes of its name."""

    def __init__(self) -> None:
        self._names = bytearray()
        self._ends = array("q", (0,))
        self._numbers = array("i")
        """Round and sample in turns."""
        self._hashes = array("q")
        self._last: tuple[object, int | None] = (None, None)
        """The last one that was found."""

    def append(self, key: Key) -> None:
        """While they are being read: nothing has been looked up yet."""
        self._names += key.request.encode("utf-8", "surrogatepass")
        self._ends.append(len(self._names))
        self._numbers.append(key.round)
        self._numbers.append(key.sample)
        self._hashes.append(hash(key))

    def extend(self, other: Keys) -> None:
        """By others, which may have been looked up."""
        begin = len(self._names)
        self._names += other._names
        self._ends.frombytes((np.frombuffer(other._ends, dtype=np.int64)[1:] + begin).tobytes())
        self._numbers += other._numbers
        self._hashes.extend(map(hash, other))

    def alike(self, at: int, other: Keys) -> int:
        """How many of the first keys of `other` stand here in the same order from row `at` on."""
        count = max(min(len(self) - at, len(other)), 0)
        ends = (np.frombuffer(one._ends, dtype=np.int64) for one in (self, other))
        mine, theirs = (found[begin : begin + count + 1] for found, begin in zip(ends, (at, 0), strict=True))
        apart = np.diff(mine) != np.diff(theirs)
        numbers = (np.frombuffer(one._numbers, dtype=np.int32).reshape(-1, 2) for one in (self, other))
        apart |= (next(numbers)[at : at + count] != next(numbers)[:count]).any(axis=1)
        count = int(apart.argmax()) if apart.any() else count
        begin, size = int(mine[0]), int(theirs[count])
        letters = (np.frombuffer(one._names, dtype=np.uint8) for one in (self, other))
        differs = next(letters)[begin : begin + size] != next(letters)[:size]
        if differs.any():
            count = int(np.searchsorted(theirs, differs.argmax(), side="right")) - 1
        return count

    def part(self, begin: int, end: int) -> Keys:
        """Those from row `begin` to before `end`, to `extend` others."""
        first, last = self._ends[begin], self._ends[end]
        ends = np.frombuffer(self._ends[begin : end + 1], dtype=np.int64) - first
        return Keys.unpacked(
            bytes(self._names[first:last]), ends.tobytes(), self._numbers[2 * begin : 2 * end].tobytes()
        )

    def pack(self) -> tuple[bytes, bytes, bytes]:
        """All of them, for `unpacked`."""
        return bytes(self._names), self._ends.tobytes(), self._numbers.tobytes()

    @staticmethod
    def unpacked(names: bytes, ends: bytes, numbers: bytes) -> Keys:
        """Those of another process, to `extend` others: they are not looked up themselves."""
        found = Keys()
        found._names, found._ends, found._numbers = bytearray(names), array("q", ends), array("i", numbers)
        return found

    def begin(self, count: int) -> Keys:
        """The first so many, as ones of their own."""
        found = Keys()
        for row in range(count):
            found.append(self[row])
        return found

    def row(self, key: object) -> int | None:
        """Where it stands; None where it does not."""
        last, found = self._last
        if key is last or key == last:  # several ask for the same one after another
            return found
        if not isinstance(key, tuple):
            return None
        hashes, order = self._index
        wanted = hash(key)
        at = bisect_left(hashes, wanted)
        while at < len(hashes) and hashes[at] == wanted:
            if self[order[at]] == key:
                self._last = key, int(order[at])
                return self._last[1]
            at += 1
        return None

    def repeated(self) -> tuple[int, int] | None:
        """(a row, the first later one of the same key) with the smallest later one; None where each is there once."""
        hashes = np.frombuffer(self._hashes, dtype=np.int64)
        order = np.argsort(hashes, kind="stable")
        alike = np.flatnonzero(hashes[order[1:]] == hashes[order[:-1]])
        if not len(alike):
            return None
        first: dict[Key, int] = {}
        for row in sorted({*order[alike].tolist(), *order[alike + 1].tolist()}):
            if first.setdefault(self[row], row) != row:
                return first[self[row]], row
        return None

    @cached_property
    def _index(self) -> tuple[memoryview, memoryview]:
        """Hashes in ascending order, and the row of each."""
        hashes = np.frombuffer(self._hashes, dtype=np.int64)
        order: npt.NDArray[np.int32] = np.argsort(hashes, kind="stable").astype(np.int32)
        found = hashes[order], order
        self._hashes = array("q")
        return found[0].data, found[1].data

    @cached_property
    def _requests(self) -> _Requests:
        # Two names of the same 64-bit hash are not to be expected.
        hashes = np.fromiter((hash(key.request) for key in self), dtype=np.int64, count=len(self))
        order = np.argsort(hashes, kind="stable").astype(np.int32)
        hashes = hashes[order]
        begins = np.flatnonzero(np.diff(hashes, prepend=~hashes[:1]) != 0)
        first = order[begins]
        by_row = np.argsort(first, kind="stable")
        number = np.empty(len(first), dtype=np.int32)
        number[by_row] = np.arange(len(first), dtype=np.int32)
        numbers = np.empty(len(self), dtype=np.int32)
        numbers[order] = np.repeat(number, np.diff(begins, append=len(self)))
        return _Requests(hashes[begins].data, number, numbers, first[by_row].astype(np.int64))

    def number(self, name: str) -> int | None:
        known, wanted = self._requests.hashes, hash(name)
        at = bisect_left(known, wanted)
        return int(self._requests.number[at]) if at < len(known) and known[at] == wanted else None

    @property
    def numbers(self) -> npt.NDArray[np.int32]:
        return self._requests.numbers

    @property
    def firsts(self) -> npt.NDArray[np.int64]:
        return self._requests.firsts

    def __len__(self) -> int:
        return len(self._ends) - 1

    @overload
    def __getitem__(self, row: int) -> Key: ...
    @overload
    def __getitem__(self, row: slice) -> Sequence[Key]: ...
    def __getitem__(self, row: int | slice) -> Key | Sequence[Key]:
        if isinstance(row, slice):
            return [self[at] for at in range(*row.indices(len(self)))]
        if row < 0:
            row += len(self)
        name = self._names[self._ends[row] : self._ends[row + 1]].decode("utf-8", "surrogatepass")
        return Key(name, self._numbers[2 * row], self._numbers[2 * row + 1])

    def __iter__(self) -> Iterator[Key]:
        names, numbers, begin = self._names, iter(self._numbers), 0
        for row in range(len(self)):
            end = self._ends[row + 1]
            yield Key(names[begin:end].decode("utf-8", "surrogatepass"), next(numbers), next(numbers))
            begin = end

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if isinstance(other, Keys):
            return (self._ends, self._numbers, self._names) == (other._ends, other._numbers, other._names)
        if isinstance(other, tuple | list):
            return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]
