"""Places after tokens that no earlier place of the run stands after.

Rounding is chance only where it is done anew. After the same tokens an engine rounds the same way each time, also in
another completion: in a loop, in a phrase that many requests lead to. So of all places after the same tokens one
counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy

import numpy as np
import numpy.typing as npt

from parity.comparator.reference.residuals import PairedResiduals
from parity.comparator.streams.contexts import CONTEXT
from parity.unnamed import blank

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

BUCKETS = 4
"""Slots for each place at least, so that few names of contexts share one."""

MOST_BITS = 28
"""Of the number of a slot, which is one bit: 32 MiB. Of more than 64 million places more share one, and fewer count."""

NEAR_BITS = 20
"""Of the number of a slot, by which those of a few tokens are distinguished first."""

_AT_ONCE = 1 << 16
"""Tokens that get their names together."""

_MIX = np.uint64(0x9E3779B97F4A7C15)


class FirstContexts:
    """Asked of one stretch of a run after another; names that share a slot cost a few places, for sorting the names
    would take most of a comparison's time."""

    def __init__(self, most: int) -> None:
        """most: places there may be."""
        self._bits = min(MOST_BITS, max(3, (BUCKETS * most).bit_length()))
        self._seen = blank((1 << (self._bits - 3),), np.uint8)
        self._near = np.empty(1 << min(self._bits, NEAR_BITS), dtype=np.int32)

    def copy(self) -> FirstContexts:
        """One that has seen as much."""
        found = copy(self)
        found._seen = blank(self._seen.shape, np.uint8)
        found._seen[:] = self._seen
        return found

    def of(self, tokens: Ints, row: Ints, place: Ints, spot: Ints | None = None) -> Bools:
        """Places where no earlier one (of the same `spot`, where spots are given) has the same CONTEXT tokens; of all
        arrays, shape (N,), tokens in order within a row, whole rows.

        Places with fewer tokens before them count: prompts differ, and those of one request that are shared are left
        out before.
        """
        size = len(tokens)
        same = place >= CONTEXT - 1
        for back in range(1, CONTEXT):
            same[back:] &= row[: max(0, size - back)] == row[back:]
            same[:back] = False
        kept = ~same
        for begin in range(0, size, _AT_ONCE):
            part = slice(begin, min(begin + _AT_ONCE, size))
            slots = (_names(tokens, part, spot)[same[part]] * _MIX) >> np.uint64(64 - self._bits)
            kept[part][same[part]] = self._new(slots)
        return kept

    def _new(self, slots: npt.NDArray[np.uint64]) -> Bools:
        """Slots that were not there before, each once; they are from now on."""
        found = self._firsts(slots)
        found &= (self._seen[slots >> np.uint64(3)] >> (slots & np.uint64(7)).astype(np.uint8)) & 1 == 0
        new = slots[found]
        for bit in range(8):  # of one bit's slots, no two stand in one byte
            self._seen[new[(new & np.uint64(7)) == bit] >> np.uint64(3)] |= np.uint8(1 << bit)
        return found

    def _firsts(self, slots: npt.NDArray[np.uint64]) -> Bools:
        """Those that no earlier one of these is like."""
        near, order = slots & np.uint64(len(self._near) - 1), np.arange(len(slots), dtype=np.int32)
        # Written from the last to the first, a place holds the first of its slots.
        self._near[near[::-1]] = order[::-1]
        before = self._near[near]
        found: Bools = before == order
        if len(self._near) < 1 << self._bits and len(clash := np.flatnonzero(slots[before] != slots)):
            found[clash[np.unique(slots[clash], return_index=True)[1]]] = True
        return found


def _names(tokens: Ints, part: slice, spot: Ints | None) -> npt.NDArray[np.uint64]:
    """A number for each token of a part of all, made of the CONTEXT tokens up to it (and its spot)."""
    some = tokens[max(0, part.start - CONTEXT + 1) : part.stop].astype(np.uint64)
    name = some[len(some) - (part.stop - part.start) :]
    if spot is not None:
        name = name + spot[part].astype(np.uint64) * np.uint64(0xC2B2AE3D27D4EB4F)
    for back in range(1, CONTEXT):
        begin = len(some) - len(name) - back
        none = np.zeros(min(max(0, -begin), len(name)), dtype=np.uint64)
        before = np.concatenate([none, some[max(0, begin) : max(0, len(some) - back)]])
        name = name * _MIX + before
    return name


class New:
    """Of the tokens of both arms, whichever arm's: stretch after stretch, those after tokens of their own; and the
    same of the tokens at one place, or after one number of tokens."""

    def __init__(self, most: int, spot: Callable[[PairedResiduals], Ints] | None = None) -> None:
        """most: tokens there may be. spot: what all three are asked by instead, as the round; shape (N,)."""
        self._spot = spot
        self._seen: list[list[FirstContexts]] = [[FirstContexts(most)] for _ in range(KINDS)]

    def of(self, residuals: PairedResiduals) -> Bools:
        """Shape (KINDS, N)."""
        return np.stack(list(self._kinds(residuals)))

    def _kinds(self, some: PairedResiduals) -> Iterator[Bools]:
        alike = some.baseline_token is some.candidate_token or np.array_equal(some.baseline_token, some.candidate_token)
        spots = (None, some.context, some.place) if self._spot is None else (self._spot(some),) * KINDS
        for seen, spot in zip(self._seen, spots, strict=True):
            if not alike and len(seen) == 1:
                seen.append(seen[0].copy())  # up to here both arms had the same tokens
            found = seen[0].of(some.baseline_token, some.row, some.place, spot)
            for other in seen[1:]:
                found &= other.of(some.candidate_token, some.row, some.place, spot)
            yield found


KINDS = 3
"""All tokens; those after as many tokens; those at the same place of an output."""
