"""Token streams that are read one after another, as one column."""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from parity.records import RaggedTokens, TokenIds
from parity.records.ragged import Flat, PatchedTokens, is_wide
from parity.unnamed import Held, Numbers, Unnamed

GROWS_BY = 1 << 20
"""Tokens for which room is made at most, or a sixteenth of what is there: new room is filled with zeros."""

_AT_ONCE = 1024
"""Streams put into a packed column at once."""

NONE: TokenIds = np.empty(0, dtype=np.int64)


class Column:
    """`like`: another capture's, of which nothing is copied as long as the streams come in its order: those that differ
    are put beside it."""

    def __init__(self, like: RaggedTokens | None, new: Callable[[], Streams] | None = None) -> None:
        """`new`: what takes streams in; by default ids of 64 bits, in memory."""
        self._like = like
        self._new = new or Wide
        self._own = self._new()
        self._rows = array("q")
        """Of the streams in `_own`, while there is a `like`."""
        self._count = 0

    def append(self, stream: TokenIds, *, in_order: bool, shared: bool) -> None:
        """Raises ParityError where the disk is full."""
        if self._like is not None and not in_order:
            self._part_from(self._like)
        if self._like is not None and not shared:
            self._rows.append(self._count)
        if self._like is None or not shared:
            self._own.append(stream)
        self._count += 1

    def extend(self, streams: RaggedTokens, *, in_order: bool) -> None:
        """By many. Raises ParityError where the disk is full."""
        count = len(streams)
        if self._like is not None and not in_order:
            self._part_from(self._like)
        if self._like is not None:
            rows = np.flatnonzero(differing(streams, self._like.part(self._count, self._count + count)))
            self._rows.extend((rows + self._count).tolist())
            streams = streams.of_rows(rows)
        self._own.extend(streams)
        self._count += count

    def whole(self) -> RaggedTokens:
        """All that were added. Raises ParityError where the disk is full."""
        if self._like is None:
            return self._own.whole()
        if not self._rows and self._count == len(self._like):
            return self._like
        if len(self._rows) == self._count:
            return self._own.whole()
        return PatchedTokens(self._like, np.array(self._rows, dtype=np.int64), self._own.whole(), self._count)

    def _part_from(self, like: RaggedTokens) -> None:
        own, rows, at = self._own.whole(), self._rows.tolist(), 0
        self._like, self._own = None, self._new()
        for row in range(self._count):
            patched = at < len(rows) and rows[at] == row
            self._own.append(own.row(at) if patched else like.row(row))
            at += patched


def differing(some: RaggedTokens, others: RaggedTokens) -> npt.NDArray[np.bool_]:
    """Shape (P,): which streams of two columns of P are not the same."""
    found: npt.NDArray[np.bool_] = some.sizes != others.sizes
    kept = np.flatnonzero(~found)
    if len(kept) < len(found):
        some, others = some.of_rows(kept), others.of_rows(kept)
    hits = np.flatnonzero(some.flat != others.flat)
    found[kept[np.searchsorted(some.offsets, hits, side="right") - 1]] = True
    return found


class Streams(ABC):
    """One stream after another."""

    @abstractmethod
    def append(self, stream: TokenIds) -> None: ...

    @abstractmethod
    def extend(self, streams: RaggedTokens) -> None: ...

    @abstractmethod
    def whole(self) -> RaggedTokens: ...


class Wide(Streams):
    """In one array of int64 that grows."""

    def __init__(self) -> None:
        self._flat: Flat = np.empty(0, dtype=np.int64)
        self._ends = array("q", (0,))

    def append(self, stream: TokenIds) -> None:
        begin, end = self._ends[-1], self._ends[-1] + len(stream)
        self._ends.append(end)
        if end > len(self._flat):
            # In place: the system moves pages, no token is copied.
            self._flat.resize(end + max(min(end, GROWS_BY), end >> 4), refcheck=False)
        self._flat[begin:end] = stream

    def extend(self, streams: RaggedTokens) -> None:
        for row in range(len(streams)):
            self.append(streams.row(row))

    def whole(self) -> RaggedTokens:
        self._flat.resize(self._ends[-1], refcheck=False)
        return RaggedTokens(self._flat, np.array(self._ends, dtype=np.int64))


class Narrow(Streams):
    """Ids of 32 bits, as long as that holds them. In a file without a name, or `held` in memory."""

    def __init__(self, *, held: bool = False) -> None:
        """Raises ParityError where no file can be made."""
        self._store: type[Held | Unnamed] = Held if held else Unnamed
        self._ids = self._store()
        self._kind: np.dtype[Any] = np.dtype(np.int32)
        self._ends, self._end = Numbers("q", held=held), 0
        self._ends.append(0)
        self._waiting: list[TokenIds] = []

    def append(self, stream: TokenIds) -> None:
        """Raises ParityError where the disk is full."""
        self._end += len(stream)
        self._ends.append(self._end)
        self._waiting.append(stream)
        if len(self._waiting) == _AT_ONCE:
            self._pack()

    def extend(self, streams: RaggedTokens) -> None:
        """Raises ParityError where the disk is full."""
        self._pack()
        self._ends.extend(streams.offsets[1:] + self._end)
        self._end += streams.total
        self._write(streams.flat)

    def whole(self) -> RaggedTokens:
        """Raises ParityError where the disk is full."""
        self._pack()
        return RaggedTokens(self._ids.mapped(self._kind), self._ends.whole())

    def _pack(self) -> None:
        if self._waiting:
            some = np.concatenate(self._waiting)
            self._waiting.clear()
            self._write(some)

    def _write(self, ids: Flat) -> None:
        if self._kind == np.int32 and is_wide(ids):
            narrow, self._ids, self._kind = self._ids.mapped(self._kind), self._store(), np.dtype(np.int64)
            for begin in range(0, len(narrow), GROWS_BY):
                self._write(narrow[begin : begin + GROWS_BY])
        self._ids.append(ids.astype(self._kind, copy=False).tobytes())
