"""Many completions of one arm by the columns they stand in, so that none is made where a column says it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from parity.records import Completion, Key, Lazy, RaggedTokens
from parity.records.lazy import Each, Flags, Picked, Rows
from parity.unnamed import kept

Ints = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
V = TypeVar("V")


class Side(ABC):
    """P completions, by their place among these."""

    sizes: Ints
    """Shape (P,): output tokens."""
    prompt_sizes: Ints
    """Shape (P,): prompt tokens."""
    has_own: Flags
    """Shape (P,): those of which `own` tells the logprobs: of their own tokens alone, one for each."""
    has_logprobs: Flags
    """Shape (P,): those with any logprobs."""

    @abstractmethod
    def keys(self, rows: Rows) -> list[Key]: ...

    @abstractmethod
    def tokens(self, rows: Rows) -> RaggedTokens: ...

    @abstractmethod
    def prompts(self) -> Iterator[bytes]:
        """The prompt tokens of all, in 64 bits each."""

    @abstractmethod
    def some(self, rows: Rows) -> list[Completion]: ...

    @abstractmethod
    def own(self, rows: Rows) -> FloatArray:
        """The logprobs of all tokens of rows that `has_own`, one row after another; to be looked at only."""

    @abstractmethod
    def spread(self, values: Mapping[Key, int], otherwise: int) -> Ints:
        """Shape (P,): what is said of each completion; to be looked at only."""


class _Held(Side):
    def __init__(self, of: Sequence[Completion]) -> None:
        self._of = of
        self.sizes = np.array([len(one.token_ids) for one in of], dtype=np.int64)
        self.prompt_sizes = np.array([len(one.prompt_token_ids) for one in of], dtype=np.int64)
        self.has_own = np.zeros(len(of), dtype=np.bool_)
        self.has_logprobs = np.array([one.logprobs is not None for one in of], dtype=np.bool_)

    def keys(self, rows: Rows) -> list[Key]:
        return [one.key for one in self.some(rows)]

    def tokens(self, rows: Rows) -> RaggedTokens:
        return RaggedTokens.of([one.token_ids for one in self.some(rows)])

    def prompts(self) -> Iterator[bytes]:
        return (one.prompt_token_ids.tobytes() for one in self._of)

    def some(self, rows: Rows) -> list[Completion]:
        return list(map(self._of.__getitem__, rows.tolist()))

    def own(self, rows: Rows) -> FloatArray:
        raise AssertionError

    def spread(self, values: Mapping[Key, int], otherwise: int) -> Ints:
        if not values:
            return np.broadcast_to(np.int64(otherwise), len(self._of))
        return np.array([values.get(one.key, otherwise) for one in self._of], dtype=np.int64)


class _InColumns(Side):
    """`at`: the rows of `of`, ascending, that these are."""

    def __init__(self, of: Lazy[Key, Completion], at: Rows) -> None:
        self._of, self._at = of, kept(at)
        self._tokens = of.streams("token_ids")
        chosen = slice(None) if len(at) == len(of) else at  # all of them, without a copy
        self.sizes = kept(self._tokens.sizes[chosen])
        self.prompt_sizes = kept(of.streams("prompt_token_ids").sizes[chosen])
        self.has_own = of.has_own[chosen]
        self.has_logprobs = self.has_own | of.has("logprobs")[chosen]

    def keys(self, rows: Rows) -> list[Key]:
        return [self._of.order[row] for row in self._at[rows].tolist()]

    def tokens(self, rows: Rows) -> RaggedTokens:
        return self._tokens.of_rows(self._at[rows])

    def prompts(self) -> Iterator[bytes]:
        column = self._of.streams("prompt_token_ids")
        return (column.row(row).tobytes() for row in self._at.tolist())

    def some(self, rows: Rows) -> list[Completion]:
        return [self._of.at(row) for row in self._at[rows].tolist()]

    def own(self, rows: Rows) -> FloatArray:
        return self._of.own_logprobs(self._at[rows])

    def spread(self, values: Mapping[Key, int], otherwise: int) -> Ints:
        if not values:
            return np.broadcast_to(np.int64(otherwise), len(self._at))
        found = np.full(len(self._of), otherwise, dtype=np.int64)
        for key, value in values.items():
            if (row := self._of.row(key)) is not None:
                found[row] = value
        return kept(found[self._at])


def side_of(completions: Sequence[Completion]) -> Side:
    """Columns where there are some."""
    found = _origin(completions)
    return _Held(completions) if found is None else _InColumns(*found)


def _origin(of: Sequence[V]) -> tuple[Lazy[Key, V], Rows] | None:
    """Where values come from, and their rows there."""
    if isinstance(of, Each):
        return of.of, np.arange(len(of))
    if isinstance(of, Picked):
        found = _origin(of.of)
        return None if found is None else (found[0], found[1][of.rows])
    return None


def batches_of(sizes: Ints, most: int) -> Iterator[slice]:
    """Places of rows of these sizes that make up to `most` tokens together; one at least."""
    ends = kept(np.cumsum(sizes))
    begin = 0
    while begin < len(sizes):
        before = int(ends[begin - 1]) if begin else 0
        end = max(begin + 1, int(np.searchsorted(ends, before + most, side="right")))
        yield slice(begin, end)
        begin = end
