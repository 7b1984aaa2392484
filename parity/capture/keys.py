"""The keys of many completions as columns, and where each stands."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from parity.records import Key
from parity.records.lazy import Index
from parity.unnamed import Held, Numbers, Unnamed, kept

_AT_ONCE = 1 << 10
"""Keys that are packed at once."""

_SORTED_AT_ONCE = 1 << 17
"""Hashes that are sorted at once, so that sorting takes memory for no more."""


class _Columns(NamedTuple):
    """names: the bytes of all names; ends: (N + 1,), where each ends; numbers: (N, 2), round and sample."""

    names: memoryview
    ends: npt.NDArray[np.int64]
    numbers: npt.NDArray[np.int32]


class _Requests(NamedTuple):
    """`hashes` of their names, ascending; `number` of each of these; `numbers` and `firsts` as in `Index`."""

    hashes: memoryview
    number: npt.NDArray[np.int32]
    numbers: npt.NDArray[np.int32]
    firsts: npt.NDArray[np.int64]


class Keys(Index[Key]):
    """Some 30 bytes each, besides the bytes of its name, in files without names."""

    def __init__(self, *, held: bool = False) -> None:
        """`held`: in memory. Raises ParityError where no file can be made."""
        self._held = held
        self._new: list[Key] = []
        """Added and not yet packed."""
        self._count = 0
        """Packed."""
        self._names: Held | Unnamed = Held() if held else Unnamed()
        self._ends, self._numbers, self._hashes = (Numbers(kind, held=held) for kind in "qiq")
        self._ends.append(0)
        self._made: _Columns | None = None
        """Of all that are packed."""
        self._views: tuple[memoryview, memoryview, memoryview] | None = None
        """The same, of which each look gives a Python number."""
        self._last: tuple[object, int | None] = (None, None)
        """The last one that was found."""
        self._in_turn, self._missed = True, False
        """Whether it stood after the one that was found before; whether another one was not found since."""

    def append(self, key: Key) -> None:
        """While they are being read: nothing has been looked up yet. Raises ParityError where the disk is full."""
        self._new.append(key)
        if len(self._new) == _AT_ONCE:
            self._pack()

    def extend(self, other: Keys) -> None:
        """By others, which may have been looked up. Raises ParityError where the disk is full."""
        self._pack()
        names, ends, numbers = other._columns
        self._ends.extend(ends[1:] + self._names.size)
        self._names.append(names)
        self._numbers.extend(numbers.reshape(-1))
        self._add_hashes(other)

    def _pack(self) -> None:
        if not self._new:
            return
        names = [key.request.encode("utf-8", "surrogatepass") for key in self._new]
        self._ends.extend(self._names.size + np.cumsum(list(map(len, names))))
        self._names.append(b"".join(names))
        self._numbers.extend(np.array([key[1:] for key in self._new], dtype=np.int32).reshape(-1))
        self._add_hashes(self._new)
        self._new = []

    def _add_hashes(self, keys: Sequence[Key]) -> None:
        self._hashes.extend(np.fromiter(map(hash, keys), dtype=np.int64, count=len(keys)))
        self._count, self._made, self._views = self._count + len(keys), None, None

    @property
    def _columns(self) -> _Columns:
        if self._made is None or self._new:
            self._pack()
            letters = self._names.mapped(np.uint8)
            self._made = _Columns(letters.data, self._ends.whole(), self._numbers.whole().reshape(-1, 2))
        return self._made

    def alike(self, at: int, other: Keys) -> int:
        """How many of the first keys of `other` stand here in the same order from row `at` on."""
        count = max(min(len(self) - at, len(other)), 0)
        both = self._columns, other._columns
        mine, theirs = (one.ends[begin : begin + count + 1] for one, begin in zip(both, (at, 0), strict=True))
        apart = np.diff(mine) != np.diff(theirs)
        apart |= (both[0].numbers[at : at + count] != both[1].numbers[:count]).any(axis=1)
        count = int(apart.argmax()) if apart.any() else count
        begin, size = int(mine[0]), int(theirs[count])
        letters, others = (np.frombuffer(one.names, dtype=np.uint8) for one in both)
        differs = letters[begin : begin + size] != others[:size]
        if differs.any():
            count = int(np.searchsorted(theirs, differs.argmax(), side="right")) - 1
        return count

    def part(self, begin: int, end: int) -> Keys:
        """Those from row `begin` to before `end`, to `extend` others."""
        names, ends, numbers = self._columns
        ends = ends[begin : end + 1]
        return Keys._of(names[int(ends[0]) : int(ends[-1])], ends - ends[0], numbers[begin:end])

    def pack(self) -> tuple[bytes, bytes, bytes]:
        """All of them, for `unpacked`."""
        names, ends, numbers = self._columns
        return names.tobytes(), ends.tobytes(), numbers.tobytes()

    @staticmethod
    def unpacked(names: bytes, ends: bytes, numbers: bytes) -> Keys:
        """Those of another process, to `extend` others: they are not looked up themselves."""
        rows = np.frombuffer(numbers, dtype=np.int32).reshape(-1, 2)
        return Keys._of(memoryview(names), np.frombuffer(ends, dtype=np.int64), rows)

    @staticmethod
    def _of(names: memoryview, ends: npt.NDArray[np.int64], numbers: npt.NDArray[np.int32]) -> Keys:
        found = Keys(held=True)
        found._count, found._made = len(numbers), _Columns(names, ends, numbers)
        return found

    def begin(self, count: int) -> Keys:
        """The first so many, as ones of their own. Raises ParityError where the disk is full."""
        found = Keys(held=self._held)
        for begin in range(0, count, _SORTED_AT_ONCE):
            found.extend(self.part(begin, min(begin + _SORTED_AT_ONCE, count)))
        return found

    def row(self, key: object) -> int | None:
        """Where it stands; None where it does not."""
        last, found = self._last
        if key is last or key == last:  # several ask for the same one after another
            return found
        if not isinstance(key, tuple):
            return None
        after = 0 if found is None else found + 1
        if self._in_turn and after < len(self) and self[after] == key:  # most passes go through them in order
            self._last = key, after
            return after
        hashes, order = self._index
        wanted = hash(key)
        at = bisect_left(hashes, wanted)
        while at < len(hashes) and hashes[at] == wanted:
            row = int(order[at])
            if self[row] == key:
                self._last, self._in_turn, self._missed = (key, row), row == after and not self._missed, False
                return row
            at += 1
        self._in_turn, self._missed = False, True
        return None

    def repeated(self) -> tuple[int, int] | None:
        """(a row, the first later one of the same key) with the smallest later one; None where each is there once."""
        alike: set[int] = set()
        for hashes, order in _sorted(self._all_hashes()):
            twice = np.flatnonzero(hashes[1:] == hashes[:-1])
            alike.update(order[twice].tolist(), order[twice + 1].tolist())
        first: dict[Key, int] = {}
        for row in sorted(alike):
            if first.setdefault(self[row], row) != row:
                return first[self[row]], row
        return None

    def _all_hashes(self) -> npt.NDArray[np.int64]:
        self._pack()
        return self._hashes.whole()

    @cached_property
    def _index(self) -> tuple[memoryview, memoryview]:
        """Hashes in ascending order, and the row of each."""
        hashes, order = Numbers("q", held=self._held), Numbers("i", held=self._held)
        for some, rows in _sorted(self._all_hashes()):
            hashes.extend(some)
            order.extend(rows)
        return hashes.data, order.data

    @cached_property
    def _requests(self) -> _Requests:
        # Two names of the same 64-bit hash are not to be expected.
        count = len(self)
        by_row, hashes, first_rows = (Numbers(kind, held=self._held) for kind in "qqi")
        names = (hash(key.request) for key in self)
        for begin in range(0, count, _SORTED_AT_ONCE):
            by_row.extend(np.fromiter(names, dtype=np.int64, count=min(_SORTED_AT_ONCE, count - begin)))
        is_first = np.zeros(count, dtype=np.bool_)
        for some, rows in _sorted(by_row.whole()):
            begins = _begins(some)
            is_first[rows[begins]] = True
            hashes.extend(some[begins])
            first_rows.extend(rows[begins])
        firsts = kept(np.flatnonzero(is_first))
        before = kept(np.cumsum(is_first, dtype=np.int32) - np.int32(1))
        """By row: the requests that stand before it, where it is the first of its own."""
        numbers = before
        if len(firsts) < count:
            numbers = np.empty(count, dtype=np.int32)
            for some, rows in _sorted(by_row.whole()):
                begins = _begins(some)
                numbers[rows] = np.repeat(before[rows[begins]], np.diff(begins, append=len(some)))
        return _Requests(hashes.data, kept(before[first_rows.whole()]), kept(numbers), firsts)

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

    @property
    def rounds_and_samples(self) -> npt.NDArray[np.int32]:
        return self._columns.numbers

    def __len__(self) -> int:
        return self._count + len(self._new)

    @overload
    def __getitem__(self, row: int) -> Key: ...
    @overload
    def __getitem__(self, row: slice) -> Sequence[Key]: ...
    def __getitem__(self, row: int | slice) -> Key | Sequence[Key]:
        if isinstance(row, slice):
            return [self[at] for at in range(*row.indices(len(self)))]
        if row < 0:
            row += len(self)
        views = self._views
        if views is None or self._new:
            columns = self._columns
            views = self._views = columns.names, columns.ends.data, columns.numbers.reshape(-1).data
        names, ends, numbers = views
        name = str(names[ends[row] : ends[row + 1]], "utf-8", "surrogatepass")
        return Key(name, numbers[2 * row], numbers[2 * row + 1])

    def __iter__(self) -> Iterator[Key]:
        names, ends, numbers = self._columns
        begin = 0
        for at in range(0, len(self), _AT_ONCE):
            some = numbers[at : at + _AT_ONCE].tolist()
            for end, (round_, sample) in zip(ends[at + 1 : at + 1 + _AT_ONCE].tolist(), some, strict=True):
                yield Key(str(names[begin:end], "utf-8", "surrogatepass"), round_, sample)
                begin = end

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if isinstance(other, Keys):
            return len(self) == len(other) == self.alike(0, other)
        if isinstance(other, tuple | list):
            return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]


def _sorted(hashes: npt.NDArray[np.int64]) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    """(hashes, their rows) in ascending order, those of the same hash by row; some at a time, equal ones together."""
    bits = max(0, len(hashes).bit_length() - _SORTED_AT_ONCE.bit_length())
    shift = np.int64(64 - bits)
    for begin in range(-(1 << bits >> 1), max(1, 1 << bits >> 1)):
        rows = np.arange(len(hashes)) if not bits else _of_first_bits(hashes, shift, begin)
        some = hashes[rows]
        order = np.argsort(some, kind="stable")
        yield some[order], rows[order]


def _of_first_bits(hashes: npt.NDArray[np.int64], shift: np.int64, begin: int) -> npt.NDArray[np.int64]:
    """Rows of the hashes that begin with these bits, ascending."""
    parts = range(0, len(hashes), _SORTED_AT_ONCE)
    found = [np.flatnonzero(hashes[at : at + _SORTED_AT_ONCE] >> shift == begin) + at for at in parts]
    return np.concatenate(found)


def _begins(ordered: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Where each value first stands."""
    return np.flatnonzero(np.diff(ordered, prepend=~ordered[:1]) != 0)
