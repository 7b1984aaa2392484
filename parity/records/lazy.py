"""Mappings over columns: values are made when they are looked at and not kept, so that millions fit into memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from functools import cached_property
from operator import attrgetter
from typing import Any, TypeVar, overload

import numpy as np
import numpy.typing as npt

from parity.records.ragged import PatchedTokens, RaggedTokens

K = TypeVar("K")
V = TypeVar("V")
V_co = TypeVar("V_co", covariant=True)
Rows = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.float64]


class Index(Sequence[K]):
    """Keys of many records in order, each there once, that say where one stands. Records of one request have the same
    name in front of their keys."""

    @abstractmethod
    def row(self, key: object) -> int | None:
        """None where it does not stand here."""

    def __contains__(self, key: object) -> bool:
        return self.row(key) is not None

    @abstractmethod
    def number(self, name: str) -> int | None:
        """The number of a request; None where it has none here."""

    @property
    @abstractmethod
    def numbers(self) -> npt.NDArray[np.int32]:
        """Shape (P,): the request of each, numbered in the order in which they first stand here."""

    @property
    @abstractmethod
    def firsts(self) -> Rows:
        """Where each request first stands, ascending."""

    @property
    @abstractmethod
    def rounds_and_samples(self) -> npt.NDArray[np.int32]:
        """Shape (P, 2): of each record."""


class Numbered(Mapping[K, int]):
    """Some of the keys of an index, with a number each."""

    def __init__(self, order: Index[K], rows: Rows, numbers: npt.NDArray[np.int64]) -> None:
        """rows: where the keys stand, ascending; numbers: shape of `rows`."""
        self._order, self._rows, self._numbers = order, rows, numbers

    def __getitem__(self, key: K) -> int:
        row = self._order.row(key)
        at = len(self._rows) if row is None else int(np.searchsorted(self._rows, row))
        if at == len(self._rows) or self._rows[at] != row:
            raise KeyError(key)
        return int(self._numbers[at])

    def __iter__(self) -> Iterator[K]:
        return map(self._order.__getitem__, map(int, self._rows))

    def __len__(self) -> int:
        return len(self._rows)

    def values(self) -> Any:
        """As a mapping has it, in one pass."""
        return map(int, self._numbers)

    def items(self) -> Any:
        """As a mapping has it, in one pass."""
        return zip(self, self.values(), strict=True)


class Flagged(Set[K]):
    """Some of the keys of an index, in its order."""

    def __init__(self, order: Index[K], flags: Flags) -> None:
        """flags: shape (P,), which of them."""
        self._order, self._flags = order, flags

    @classmethod
    def _from_iterable(cls, it: Iterable[Any]) -> Set[Any]:
        return frozenset(it)

    def __contains__(self, key: object) -> bool:
        row = self._order.row(key)
        return row is not None and bool(self._flags[row])

    def __iter__(self) -> Iterator[K]:
        return map(self._order.__getitem__, map(int, np.flatnonzero(self._flags)))

    def __len__(self) -> int:
        return int(np.count_nonzero(self._flags))


class Lazy(Mapping[K, V], ABC):
    """A mapping whose values are made of columns; rows are numbered in its order. Values are records with the same
    fields; each look makes a new one."""

    @property
    @abstractmethod
    def order(self) -> Index[K]:
        """The keys."""

    @abstractmethod
    def row(self, key: object) -> int | None:
        """Where a key stands; None where it does not."""

    @abstractmethod
    def at(self, row: int) -> V: ...

    @abstractmethod
    def each(self) -> Iterator[V]:
        """All values in order."""

    @abstractmethod
    def column(self, field: str) -> Iterator[Any]:
        """One field of all values in order."""

    @abstractmethod
    def has(self, field: str) -> Flags:
        """Which values have something in a field that is no array: not None, no empty mapping, not false."""

    @abstractmethod
    def streams(self, field: str) -> RaggedTokens:
        """A field that is an array of tokens, as one column."""

    @property
    @abstractmethod
    def has_own(self) -> Flags:
        """Which values have logprobs of their own tokens alone, one for each, that `own_logprobs` gives. Not all of
        them need be named."""

    @abstractmethod
    def own_logprobs(self, rows: Rows) -> Numbers:
        """The logprobs of all tokens of these rows, which all `has_own`, one row after another; to be looked at
        only."""

    @abstractmethod
    def aside(self, other: Lazy[K, V]) -> Rows | None:
        """Rows in which something besides tokens and their logprobs may be another than in the same row of `other`;
        None: in any."""

    @property
    def rows(self) -> Sequence[V]:
        """The values by their place."""
        return Each(self)

    def some(self, rows: Rows) -> Sequence[V]:
        """The values of these rows."""
        return Picked(self.rows, rows)

    def but(self, changed: Mapping[K, V]) -> Lazy[K, V]:
        """The same with other values for some of its keys."""
        rows = {row: value for key, value in changed.items() if (row := self.row(key)) is not None}
        return Changed(self, rows) if rows else self

    def __getitem__(self, key: K) -> V:
        row = self.row(key)
        if row is None:
            raise KeyError(key)
        return self.at(row)

    def __contains__(self, key: object) -> bool:
        return self.row(key) is not None

    def __iter__(self) -> Iterator[K]:
        return iter(self.order)

    def __len__(self) -> int:
        return len(self.order)

    def values(self) -> Any:
        """As a mapping has it, in one pass."""
        return self.rows

    def items(self) -> Any:
        return _Items(self)


class _Items(Sequence[Any]):
    """(key, value) of all rows."""

    def __init__(self, of: Lazy[Any, Any]) -> None:
        self._of = of

    def __len__(self) -> int:
        return len(self._of)

    def __getitem__(self, row: Any) -> Any:
        return self._of.order[row], self._of.at(row)

    def __iter__(self) -> Iterator[Any]:
        return zip(self._of.order, self._of.each(), strict=True)


class Each(Sequence[V_co]):
    """The values of a lazy mapping by their place."""

    def __init__(self, of: Lazy[Any, V_co]) -> None:
        self.of = of

    def __len__(self) -> int:
        return len(self.of)

    @overload
    def __getitem__(self, row: int) -> V_co: ...
    @overload
    def __getitem__(self, row: slice) -> Sequence[V_co]: ...
    def __getitem__(self, row: int | slice) -> V_co | Sequence[V_co]:
        if isinstance(row, slice):
            return Picked(self, np.arange(*row.indices(len(self))))
        return self.of.at(row)

    def __iter__(self) -> Iterator[V_co]:
        return self.of.each()


class Picked(Sequence[V_co]):
    """Some of a sequence, by their places."""

    def __init__(self, of: Sequence[V_co], rows: Rows) -> None:
        self.of = of
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, row: int) -> V_co: ...
    @overload
    def __getitem__(self, row: slice) -> Sequence[V_co]: ...
    def __getitem__(self, row: int | slice) -> V_co | Sequence[V_co]:
        if isinstance(row, slice):
            return Picked(self.of, self.rows[row])
        return self.of[int(self.rows[row])]

    def __iter__(self) -> Iterator[V_co]:
        return map(self.of.__getitem__, map(int, self.rows))


class Changed(Lazy[K, V]):
    """Another one, but for some rows, whose values are held."""

    def __init__(self, base: Lazy[K, V], changed: Mapping[int, V]) -> None:
        self._base, self._changed = (base, dict(changed))
        if isinstance(base, Changed):
            self._base, self._changed = base._base, {**base._changed, **changed}

    @property
    def order(self) -> Index[K]:
        return self._base.order

    def row(self, key: object) -> int | None:
        return self._base.row(key)

    def at(self, row: int) -> V:
        found = self._changed.get(row if row >= 0 else row + len(self))
        return self._base.at(row) if found is None else found

    def each(self) -> Iterator[V]:
        changed = self._changed.get
        for row, value in enumerate(self._base.each()):
            found = changed(row)
            yield value if found is None else found

    def column(self, field: str) -> Iterator[Any]:
        changed, of = self._changed, attrgetter(field)
        for row, value in enumerate(self._base.column(field)):
            yield of(changed[row]) if row in changed else value

    def has(self, field: str) -> Flags:
        found, of = self._base.has(field).copy(), attrgetter(field)
        for row, value in self._changed.items():
            said = of(value)
            found[row] = said is not None and said is not False and said != {}
        return found

    def streams(self, field: str) -> RaggedTokens:
        base, of = self._base.streams(field), attrgetter(field)
        rows = {row: of(value) for row, value in self._changed.items()}
        changed = {row: stream for row, stream in rows.items() if not np.array_equal(stream, base.row(row))}
        if not changed:
            return base
        like = base
        if isinstance(base, PatchedTokens):
            like = base.like
            changed = {**dict(zip(base.rows.tolist(), base.own.streams(0, len(base.rows)), strict=True)), **changed}
        order = sorted(changed)
        own = RaggedTokens.of([changed[row] for row in order])
        return PatchedTokens(like, np.array(order, dtype=np.int64), own, len(self))

    @cached_property
    def has_own(self) -> Flags:
        found = self._base.has_own.copy()
        found[list(self._changed)] = False
        return found

    def own_logprobs(self, rows: Rows) -> Numbers:
        return self._base.own_logprobs(rows)

    def aside(self, other: Lazy[K, V]) -> Rows | None:
        found = self._base.aside(other._base if isinstance(other, Changed) else other)
        if found is None:
            return None
        changed = set(self._changed) | (set(other._changed) if isinstance(other, Changed) else set())
        return np.array(sorted({*found.tolist(), *changed}), dtype=np.int64)
