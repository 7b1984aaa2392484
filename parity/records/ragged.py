"""Token streams as columns."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

TokenIds = npt.NDArray[np.int64]
Flat = npt.NDArray[Any]
"""Token ids of many streams: int32 where they fit, which halves what is read of memory, else int64."""

_AT_ONCE = 256
"""Streams gathered at once, to stay in the processor's cache."""

_LOOKED_AT = 1 << 20
"""Tokens looked at at once, so that what is found out of them takes little memory."""


@dataclass(frozen=True)
class RaggedTokens:
    """P token streams as one flat array, so that what is equal costs no Python per stream."""

    flat: Flat
    """All tokens in a row."""
    offsets: npt.NDArray[np.int64]
    """Shape (P + 1,): where each stream begins in `flat`."""
    _places: dict[int, npt.NDArray[np.int64]] = field(default_factory=dict, compare=False, repr=False)
    """What `places` has found."""

    @staticmethod
    def of(streams: Sequence[TokenIds]) -> RaggedTokens:
        offsets = np.zeros(len(streams) + 1, dtype=np.int64)
        np.cumsum(np.fromiter(map(len, streams), dtype=np.int64, count=len(streams)), out=offsets[1:])
        return RaggedTokens(_gathered(streams, offsets), offsets)

    def __len__(self) -> int:
        """Streams."""
        return len(self.offsets) - 1

    @property
    def sizes(self) -> npt.NDArray[np.int64]:
        """Shape (P,): the tokens of each stream. Made when they are asked for: they take as much as `offsets`."""
        return np.diff(self.offsets)

    @property
    def total(self) -> int:
        """Tokens of all streams."""
        return int(self.offsets[-1])

    @cached_property
    def largest(self) -> int:
        """The largest id; a negative one is larger than any other (the ids as unsigned numbers). 0 without tokens."""
        flat = self.flat
        if flat.dtype == np.int64:
            return int(flat.view(np.uint64).max(initial=0))
        least = int(flat.min(initial=0))
        return int(flat.max(initial=0)) if least >= 0 else int(flat[flat < 0].max()) + (1 << 64)

    def all_below(self, limit: int) -> bool:
        """Is each id a number from 0 to before `limit`?"""
        return self.largest < limit

    def beyond(self, limit: int) -> list[int]:
        """Streams with an id that is no number from 0 to before `limit`."""
        return self.rows_at(self._where(lambda ids: (ids < 0) | (ids >= limit)))

    def head(self, size: int) -> Flat:
        """The first `size` tokens of all."""
        return self.flat[:size]

    def row(self, index: int) -> TokenIds:
        """One stream."""
        return np.asarray(self.flat[self.offsets[index] : self.offsets[index + 1]], dtype=np.int64)

    def streams(self, begin: int, end: int) -> list[TokenIds]:
        """Those from `begin` to before `end`."""
        bounds = self.offsets[begin : end + 1].tolist()
        flat = self.flat
        # Each by itself: one that somebody keeps must not keep all of them.
        return [flat[one:other].astype(np.int64, copy=False) for one, other in pairwise(bounds)]

    def same_as(self, other: RaggedTokens) -> bool:
        if self is other:
            return True
        return np.array_equal(self.offsets, other.offsets) and all(
            np.array_equal(self.flat[begin : begin + _LOOKED_AT], other.flat[begin : begin + _LOOKED_AT])
            for begin in range(0, self.total, _LOOKED_AT)
        )

    def holds(self, streams: Sequence[TokenIds]) -> bool:
        """Are these its streams? Some at a time: where one differs that shows early, and no second column is made."""
        if len(streams) != len(self):
            return False
        sizes = self.sizes
        for begin in range(0, len(streams), _AT_ONCE):
            some, rows = streams[begin : begin + _AT_ONCE], slice(begin, begin + _AT_ONCE)
            if list(map(len, some)) != sizes[rows].tolist():
                return False
            start = int(self.offsets[begin])
            tokens = np.concatenate(some)
            if not np.array_equal(tokens, self.flat[start : start + len(tokens)]):
                return False
        return True

    def part(self, begin: int, end: int) -> RaggedTokens:
        """The streams from `begin` to before `end`; nothing is copied."""
        offsets = self.offsets[begin : end + 1]
        return RaggedTokens(self.flat[offsets[0] : offsets[-1]], offsets - offsets[0])

    def of_rows(self, rows: npt.NDArray[np.int64]) -> RaggedTokens:
        """Some of the streams, copied unless these are all of them."""
        if len(rows) == len(self) and np.array_equal(rows, np.arange(len(rows))):
            return self
        offsets = np.zeros(len(rows) + 1, dtype=np.int64)
        np.cumsum(self.offsets[rows + 1] - self.offsets[rows], out=offsets[1:])
        flat = np.empty(int(offsets[-1]), dtype=self.flat.dtype)
        for begin in range(0, len(rows), _AT_ONCE):
            some = rows[begin : begin + _AT_ONCE]
            if len(some):
                parts = zip(self.offsets[some].tolist(), self.offsets[some + 1].tolist(), strict=True)
                place = slice(*offsets[[begin, begin + len(some)]].tolist())
                np.concatenate([self.flat[one:other] for one, other in parts], out=flat[place])
        return RaggedTokens(flat, offsets)

    def ends(self, rows: npt.NDArray[np.int64], size: int) -> Flat:
        """The last `size` tokens of these streams, which all have as many; shape (len(rows), size)."""
        return np.asarray(self.flat[(self.offsets[rows + 1] - size)[:, None] + np.arange(size)])

    def each(self, rows: npt.NDArray[np.int64], at: npt.NDArray[np.int64]) -> Flat:
        """One token of each of these streams, at these positions in them; shape (len(rows),)."""
        return np.asarray(self.flat[self.offsets[rows] + at])

    def places(self, token: int) -> npt.NDArray[np.int64]:
        """Where in `flat` a token stands; looked for once, since several checks ask for the same few."""
        if token not in self._places:
            self._places[token] = self._found(token)
        return self._places[token]

    def _found(self, token: int) -> npt.NDArray[np.int64]:
        return self._where(lambda ids: ids == token)

    def _where(self, hits: Callable[[Flat], npt.NDArray[np.bool_]]) -> npt.NDArray[np.int64]:
        """Places in `flat` for which `hits` is true, looked at some at a time: no second column is made."""
        flat = self.flat
        parts = range(0, len(flat), _LOOKED_AT)
        found = [np.flatnonzero(hits(flat[begin : begin + _LOOKED_AT])) + begin for begin in parts]
        return np.concatenate([np.empty(0, dtype=np.int64), *found])

    def places_of(self, tokens: Iterable[int]) -> npt.NDArray[np.int64]:
        """Where in `flat` any of these stands, in any order."""
        return np.concatenate([np.empty(0, dtype=np.int64), *(self.places(token) for token in tokens)])

    def rows_at(self, places: npt.NDArray[np.int64]) -> list[int]:
        """Streams that hold one of these places in `flat`, ascending."""
        if not len(places):
            return []
        found: list[int] = (np.searchsorted(self.offsets, np.sort(places), side="right") - 1).tolist()
        return list(dict.fromkeys(found))

    def rows_with(self, hits: npt.NDArray[np.bool_]) -> list[int]:
        """Streams with at least one token for which `hits` (shape of `flat`) is true."""
        return self.rows_at(np.flatnonzero(hits))


def _gathered(streams: Sequence[TokenIds], offsets: npt.NDArray[np.int64]) -> Flat:
    """All tokens in a row; `offsets`: where each stream begins, and the last one ends."""
    flat = np.empty(int(offsets[-1]), dtype=np.int32)
    for begin in range(0, len(streams), _AT_ONCE):
        some = np.concatenate(streams[begin : begin + _AT_ONCE])
        if is_wide(some):
            return np.concatenate(streams)
        start = int(offsets[begin])
        flat[start : start + len(some)] = some
    return flat


_INT32 = np.iinfo(np.int32)


def is_wide(ids: Flat) -> bool:
    """Is there an id that int32 cannot hold?"""
    if ids.dtype == np.int32 or not len(ids):
        return False
    if ids.dtype == np.int64 and int(ids.view(np.uint64).max()) <= _INT32.max:
        return False  # one look: a negative id is more, as an unsigned number
    return bool(ids.min() < _INT32.min or ids.max() > _INT32.max)


class PatchedTokens(RaggedTokens):
    """The first streams of another column, but for some, which alone take memory."""

    like: RaggedTokens
    rows: npt.NDArray[np.int64]
    """The streams that are not those of `like`, ascending."""
    own: RaggedTokens
    """What stands in their place."""

    def __init__(self, like: RaggedTokens, rows: npt.NDArray[np.int64], own: RaggedTokens, count: int) -> None:
        """`count`: streams in all, no more than `like` has."""
        offsets = like.offsets[: count + 1]
        if (own.sizes != like.offsets[rows + 1] - like.offsets[rows]).any():
            sizes = np.diff(offsets)
            sizes[rows] = own.sizes
            offsets = np.zeros(count + 1, dtype=np.int64)
            np.cumsum(sizes, out=offsets[1:])
        vars(self).update(like=like, rows=rows, own=own, offsets=offsets, _places={})

    @cached_property
    def flat(self) -> Flat:
        """Put together when it is asked for: what can be known without it is asked for elsewhere."""
        return self.head(self.total)

    def same_as(self, other: RaggedTokens) -> bool:
        if other is not self.like:
            return super().same_as(other)
        return len(self) == len(other) and self.own.same_as(other.of_rows(self.rows))

    def all_below(self, limit: int) -> bool:
        return (self.own.all_below(limit) and self.like.all_below(limit)) or super().all_below(limit)

    def beyond(self, limit: int) -> list[int]:
        like = set(self.like.beyond(limit)) - set(self.rows.tolist())
        own = [int(self.rows[row]) for row in self.own.beyond(limit)]
        return sorted(row for row in (*like, *own) if row < len(self))

    def of_rows(self, rows: npt.NDArray[np.int64]) -> RaggedTokens:
        if np.array_equal(rows, self.rows):
            return self.own
        at, changed = self._own_rows(rows)
        if changed.all():
            return self.own.of_rows(at)
        return RaggedTokens.of([self.row(row) for row in rows.tolist()])

    def _own_rows(self, rows: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """(of those that are in `own`, their place there; which are), shapes (changed,) and (len(rows),)."""
        at = np.searchsorted(self.rows, rows)
        changed = at < len(self.rows)
        changed[changed] = self.rows[at[changed]] == rows[changed]
        return at[changed], changed

    def each(self, rows: npt.NDArray[np.int64], at: npt.NDArray[np.int64]) -> Flat:
        own, changed = self._own_rows(rows)
        found = np.empty(len(rows), dtype=np.result_type(self.like.flat, self.own.flat))
        found[~changed] = self.like.each(rows[~changed], at[~changed])
        found[changed] = self.own.each(own, at[changed])
        return found

    def ends(self, rows: npt.NDArray[np.int64], size: int) -> Flat:
        own, changed = self._own_rows(rows)
        found = np.empty((len(rows), size), dtype=np.result_type(self.like.flat, self.own.flat))
        found[~changed] = self.like.ends(rows[~changed], size)
        found[changed] = self.own.ends(own, size)
        return found

    def row(self, index: int) -> TokenIds:
        at = bisect_left(self.rows, index)
        changed = at < len(self.rows) and self.rows[at] == index
        return self.own.row(at) if changed else self.like.row(index)

    def streams(self, begin: int, end: int) -> list[TokenIds]:
        found = self.like.streams(begin, end)
        first, last = np.searchsorted(self.rows, (begin, end)).tolist()
        own = self.own.streams(first, last) if last > first else ()
        for row, stream in zip(self.rows[first:last].tolist(), own, strict=True):
            found[row - begin] = stream
        return found

    def head(self, size: int) -> Flat:
        flat = np.empty(min(size, self.total), dtype=np.result_type(self.like.flat, self.own.flat))
        for begin, part in self._parts():
            if begin >= len(flat):
                break
            flat[begin : begin + len(part)] = part[: len(flat) - begin]
        return flat

    def _parts(self) -> Iterator[tuple[int, Flat]]:
        """Where it begins, and the tokens of each stretch that is in one of both columns, in order."""
        row, like = 0, self.like
        for at, changed in enumerate([*self.rows.tolist(), len(self)]):
            yield int(self.offsets[row]), like.flat[like.offsets[row] : like.offsets[changed]]
            if at < len(self.rows):
                yield int(self.offsets[changed]), self.own.part(at, at + 1).flat
            row = changed + 1

    def _found(self, token: int) -> npt.NDArray[np.int64]:
        theirs = self.like.places(token)
        row = np.searchsorted(self.like.offsets, theirs, side="right") - 1
        changed = np.ones(len(self.like), dtype=np.bool_)
        changed[: len(self)] = False
        changed[self.rows] = True
        kept = ~changed[row]
        row, theirs = row[kept], theirs[kept]
        mine = self.own.places(token)
        at = np.searchsorted(self.own.offsets, mine, side="right") - 1
        return np.sort(
            np.concatenate(
                [
                    theirs - self.like.offsets[row] + self.offsets[row],
                    mine - self.own.offsets[at] + self.offsets[self.rows[at]],
                ]
            )
        )
