"""Token streams as columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

TokenIds = npt.NDArray[np.int64]

_AT_ONCE = 256
"""Streams gathered at once, to stay in the processor's cache."""


@dataclass(frozen=True)
class RaggedTokens:
    """P token streams as one flat array, so that what is equal costs no Python per stream."""

    flat: TokenIds
    """All tokens in a row."""
    offsets: npt.NDArray[np.int64]
    """Shape (P + 1,): where each stream begins in `flat`."""
    _places: dict[int, npt.NDArray[np.int64]] = field(default_factory=dict, compare=False, repr=False)
    """What `places` has found."""

    @staticmethod
    def of(streams: Sequence[TokenIds]) -> RaggedTokens:
        offsets = np.zeros(len(streams) + 1, dtype=np.int64)
        np.cumsum(np.fromiter(map(len, streams), dtype=np.int64, count=len(streams)), out=offsets[1:])
        return RaggedTokens(np.concatenate(streams) if streams else np.empty(0, dtype=np.int64), offsets)

    @cached_property
    def sizes(self) -> npt.NDArray[np.int64]:
        """Shape (P,): the tokens of each stream."""
        return np.diff(self.offsets)

    @cached_property
    def largest(self) -> int:
        """The largest id; a negative one is larger than any other (the ids as unsigned numbers). 0 without tokens."""
        return int(self.flat.view(np.uint64).max(initial=0))

    def same_as(self, other: RaggedTokens) -> bool:
        return self is other or (np.array_equal(self.offsets, other.offsets) and np.array_equal(self.flat, other.flat))

    def holds(self, streams: Sequence[TokenIds]) -> bool:
        """Are these its streams? Some at a time: where one differs that shows early, and no second column is made."""
        if len(streams) != len(self.sizes):
            return False
        for begin in range(0, len(streams), _AT_ONCE):
            some, rows = streams[begin : begin + _AT_ONCE], slice(begin, begin + _AT_ONCE)
            if list(map(len, some)) != self.sizes[rows].tolist():
                return False
            start = int(self.offsets[begin])
            tokens = np.concatenate(some)
            if not np.array_equal(tokens, self.flat[start : start + len(tokens)]):
                return False
        return True

    def places(self, token: int) -> npt.NDArray[np.int64]:
        """Where in `flat` a token stands; looked for once, since several checks ask for the same few."""
        if token not in self._places:
            self._places[token] = np.flatnonzero(self.flat == token)
        return self._places[token]

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
