"""How many greedy choices were turned, by rounding or by whatever else, and how many can have been?

A choice is turned where the arms part, and after that, where the reference scored it, wherever the token is not its
best one. Rounding turns some in any arm; numerics that are wrong turn more. A run excludes what turns more than its own
count leaves possible, whoever turned them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from itertools import islice

import numpy as np

from parity.comparator.reference.gaps import TokenGaps
from parity.comparator.statistics import poisson_tail
from parity.comparator.stats import Moved
from parity.comparator.streams.pairing import Pairs
from parity.records import Key

SURE = 0.95
"""Chance with which more would have shown."""

AT_ONCE = 1 << 10
"""Pairs that are looked at together."""


def moved(pairs: Pairs, gaps: Mapping[Key, TokenGaps], limited: Mapping[Key, int]) -> Moved | None:
    """Of greedy pairs; `gaps`: of the candidate's scored completions; limited: from where on nothing is known of one.
    None where nothing was compared."""
    turned = tokens = unseen = 0
    all_sizes = pairs.candidate_tokens.sizes
    tokens += int(all_sizes.sum(where=pairs.same_prompt & pairs.identical))
    other = np.flatnonzero(pairs.same_prompt & ~pairs.identical)
    sizes, after = all_sizes[other], pairs.parts_at[other] + 1
    turned += len(other)
    tokens += int(np.minimum(after, sizes).sum())
    unseen += int(np.maximum(sizes - after, 0).sum())
    later = (
        found.gap[begin : limited.get(key, size)]
        for row, begin, size in zip(other.tolist(), after.tolist(), sizes.tolist(), strict=True)
        for key in (pairs.keys[row],)
        if (found := gaps.get(key)) is not None
    )
    while some := list(islice(later, AT_ONCE)):
        gap = np.concatenate(some)
        finite = np.isfinite(gap)
        known = int(np.count_nonzero(finite))
        turned, tokens, unseen = turned + int((finite & (gap > 0)).sum()), tokens + known, unseen - known
    if not tokens:
        return None
    return Moved(turned=turned, tokens=tokens, unseen=unseen, at_most=min(1.0, most(turned) / tokens))


@cache
def most(count: int) -> float:
    """The largest mean of a count that leaves this one, or fewer, with a chance of 1 - SURE."""
    low, high = float(count), 2.0 * count + 10.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if poisson_tail(count + 1, middle) < SURE else (low, middle)
    return high
