"""Token streams that are read one after another, as one column."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from parity.records import RaggedTokens, TokenIds
from parity.records.ragged import Flat, PatchedTokens

GROWS_BY = 1 << 20
"""Tokens for which room is made at most, or a sixteenth of what is there: new room is filled with zeros."""

_AT_ONCE = 1024
"""Streams put into a packed column at once."""

NONE: TokenIds = np.empty(0, dtype=np.int64)


class Column:
    """`like`: another capture's, of which nothing is copied as long as the streams come in its order: those that differ
    are put beside it."""

    def __init__(self, like: RaggedTokens | None, *, packed: bool = False) -> None:
        """`packed`: with int32 for ids as long as that holds them."""
        self._like = like
        self._packed = packed
        self._own = _Growing(np.empty(0, dtype=np.int32 if packed else np.int64))
        self._rows = array("q")
        """Of the streams in `_own`, while there is a `like`."""
        self._count = 0

    def append(self, stream: TokenIds, *, in_order: bool, shared: bool) -> None:
        if self._like is not None and not in_order:
            self._part_from(self._like)
        if self._like is not None and not shared:
            self._rows.append(self._count)
        if self._like is None or not shared:
            self._own.append(stream)
        self._count += 1

    def extend(self, streams: RaggedTokens, *, in_order: bool) -> None:
        """By many."""
        count = len(streams.sizes)
        if self._like is not None and not in_order:
            self._part_from(self._like)
        if self._like is not None:
            rows = np.flatnonzero(differing(streams, self._like.part(self._count, self._count + count)))
            self._rows.extend((rows + self._count).tolist())
            streams = streams.of_rows(rows)
        self._own.extend(streams)
        self._count += count

    def whole(self) -> RaggedTokens:
        if self._like is None:
            return self._own.whole()
        if not self._rows and self._count == len(self._like.sizes):
            return self._like
        if len(self._rows) == self._count:
            return self._own.whole()
        return PatchedTokens(self._like, np.array(self._rows, dtype=np.int64), self._own.whole(), self._count)

    def _part_from(self, like: RaggedTokens) -> None:
        whole = self.whole()
        self._like = None
        flat = whole.flat
        self._own = _Growing(flat.copy() if whole is like else flat, whole.offsets)


def differing(some: RaggedTokens, others: RaggedTokens) -> npt.NDArray[np.bool_]:
    """Shape (P,): which streams of two columns of P are not the same."""
    found: npt.NDArray[np.bool_] = some.sizes != others.sizes
    kept = np.flatnonzero(~found)
    if len(kept) < len(found):
        some, others = some.of_rows(kept), others.of_rows(kept)
    hits = np.flatnonzero(some.flat != others.flat)
    found[kept[np.searchsorted(some.offsets, hits, side="right") - 1]] = True
    return found


class _Growing:
    """One stream after another, in one array that grows."""

    def __init__(self, flat: Flat, offsets: Sequence[int] | npt.NDArray[np.int64] = (0,)) -> None:
        """What there is already: `flat` is its own from now on; one of int32 is widened when that is too small."""
        self._flat = flat
        self._ends = array("q", offsets)
        self._waiting: list[TokenIds] = []

    def append(self, stream: TokenIds) -> None:
        begin, end = self._ends[-1], self._ends[-1] + len(stream)
        self._ends.append(end)
        if self._flat.dtype == np.int64:
            self._make_room(end)
            self._flat[begin:end] = stream
            return
        self._waiting.append(stream)
        if len(self._waiting) == _AT_ONCE:
            self._pack()

    def extend(self, streams: RaggedTokens) -> None:
        self._pack()
        begin = self._ends[-1]
        self._ends.frombytes((streams.offsets[1:] + begin).tobytes())
        if self._flat.dtype != np.int64 and _is_wide(streams.flat):
            self._flat = self._flat.astype(np.int64)
        self._make_room(self._ends[-1])
        self._flat[begin : self._ends[-1]] = streams.flat

    def whole(self) -> RaggedTokens:
        self._pack()
        self._flat.resize(self._ends[-1], refcheck=False)
        return RaggedTokens(self._flat, np.array(self._ends, dtype=np.int64))

    def _pack(self) -> None:
        if not self._waiting:
            return
        some, end = np.concatenate(self._waiting), self._ends[-1]
        self._waiting.clear()
        if _is_wide(some):
            self._flat = self._flat.astype(np.int64)
        self._make_room(end)
        self._flat[end - len(some) : end] = some

    def _make_room(self, end: int) -> None:
        if end > len(self._flat):
            # In place: the system moves pages, no token is copied.
            self._flat.resize(end + max(min(end, GROWS_BY), end >> 4), refcheck=False)


_INT32 = np.iinfo(np.int32)


def _is_wide(some: Flat) -> bool:
    """Is there an id that int32 cannot hold?"""
    return some.dtype != np.int32 and len(some) > 0 and bool(some.min() < _INT32.min or some.max() > _INT32.max)
