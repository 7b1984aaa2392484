"""How many greedy choices were turned, by rounding or by whatever else, and how many can have been?

A choice is turned where the arms part, and after that, where the reference scored it, wherever the token is not its
best one. Rounding turns some in any arm; numerics that are wrong turn more. A run excludes what turns more than its own
count leaves possible, whoever turned them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import numpy as np

from parity.comparator.reference.gaps import BoolArray, TokenGaps, end_to_end
from parity.comparator.statistics import poisson_tail
from parity.comparator.stats import Moved
from parity.comparator.streams.pairing import Pairs
from parity.comparator.streams.sides import Ints
from parity.records import Key

SURE = 0.95
"""Chance with which more would have shown."""


def moved(pairs: Pairs, gaps: Mapping[Key, TokenGaps], limited: Mapping[Key, int]) -> Moved | None:
    """Of greedy pairs; `gaps`: of the candidate's scored completions; limited: from where on nothing is known of one.
    None where nothing was compared."""
    turned = tokens = unseen = 0
    all_sizes = pairs.candidate_tokens.sizes
    tokens += int(all_sizes.sum(where=pairs.same_prompt & pairs.identical))
    other = np.flatnonzero(pairs.same_prompt & ~pairs.identical)
    cut_short = _cut_short(pairs, other)
    sizes, after = all_sizes[other], pairs.parts_at[other] + ~cut_short
    turned += int((~cut_short).sum())
    tokens += int(np.minimum(after, sizes).sum())
    unseen += int(np.maximum(sizes - after, 0).sum())
    later = (
        found.gap[begin : limited.get(key, size)]
        for row, begin, size in zip(other.tolist(), after.tolist(), sizes.tolist(), strict=True)
        for key in (pairs.keys[row],)
        if (found := gaps.get(key)) is not None
    )
    for gap in end_to_end(later):
        finite = np.isfinite(gap)
        known = int(np.count_nonzero(finite))
        turned, tokens, unseen = turned + int((finite & (gap > 0)).sum()), tokens + known, unseen - known
    if not tokens:
        return None
    return Moved(turned=turned, tokens=tokens, unseen=unseen, at_most=min(1.0, most(turned) / tokens))


def _cut_short(pairs: Pairs, rows: Ints) -> BoolArray:
    """Of these pairs those in which one completion begins the other, and was aborted: nobody chose to end there."""
    found = np.zeros(len(rows), dtype=np.bool_)
    for at, row in enumerate(rows.tolist() if pairs.aborted else ()):
        a, b = pairs.baseline[row], pairs.candidate[row]
        shorter = a if len(a.token_ids) < len(b.token_ids) else b
        found[at] = shorter.aborted and len(shorter.token_ids) == pairs.parts_at[row]
    return found


@cache
def most(count: int) -> float:
    """The largest mean of a count that leaves this one, or fewer, with a chance of 1 - SURE."""
    low, high = float(count), 2.0 * count + 10.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if poisson_tail(count + 1, middle) < SURE else (low, middle)
    return high
