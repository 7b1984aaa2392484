"""Tokens that a sampler hardly ever draws, in too many completions: each by itself may be chance.

By `surprisal.tail_logs` a token at most as likely as the one that was drawn has at most the probability x at its place,
so T tokens have one of x or less with a probability of at most T x. Of N completions as many as K have, with a
probability of exp(-(K log(K / due) - K + due)) at most, where due is the sum of these (Chernoff).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from msgspec import Struct

from parity.comparator.statistics import FloatArray, binomial_tail
from parity.records import Key

RARE: Final = (6.0, 7.0, 8.0, 9.0, 10.0, 12.0, 15.0, 20.0)
"""Nats of surprisal, from which on a token is counted: each is tried."""

PROVEN: Final = 20.7
"""Nats, from which on it is a finding: less than one chance in 10⁹, beside the error rate of the tests."""

TIMES: Final = 4.0
"""Times the share of completions that the baseline has, with one completion more, that the candidate must have."""

CHANCE: Final = 2e-3
"""Chance of so uneven a split between the arms, if both had as many by their lengths: the scores may be off the same
way for both."""


class Rarest(Struct, frozen=True):
    """Of the tokens of a completion that was drawn, and their number."""

    key: Key
    nats: float
    """Surprisal of the rarest, less what another backend may make of it."""
    tokens: int


class RareDraws(Struct, frozen=True):
    """Too many completions of the candidate have a token of so many `nats` of surprisal, or more."""

    nats: float
    keys: tuple[Key, ...]
    of: int
    due: float
    baseline: int
    of_baseline: int
    proof: float
    """Nats."""


def rarest(key: Key, logs: FloatArray, slack: float) -> Rarest | None:
    """logs, slack: as `draws.tail_logs` gives them. None without any."""
    known = -logs[np.isfinite(logs)]
    return Rarest(key, float(known.max()) - slack, len(known)) if len(known) else None


def too_many(baseline: Sequence[Rarest], candidate: Sequence[Rarest]) -> RareDraws | None:
    """Where the candidate's completions have too many, and the baseline's do not: without these it is not known whether
    the scores say what was drawn from."""
    found = None
    for nats in RARE if baseline else ():
        keys = tuple(one.key for one in candidate if one.nats >= nats)
        theirs = sum(one.nats >= nats for one in baseline)
        due, due_there = _due(candidate, nats), _due(baseline, nats)
        proof = _proof(len(keys), due) - math.log(len(RARE))
        is_more = len(keys) * due_there >= TIMES * (theirs + 1) * due
        is_more &= binomial_tail(len(keys), len(keys) + theirs, due / (due + due_there)) < CHANCE
        if is_more and proof >= max(PROVEN, 0.0 if found is None else found.proof):
            found = RareDraws(nats, keys, len(candidate), due, theirs, len(baseline), proof)
    return found


def _due(some: Sequence[Rarest], nats: float) -> float:
    return sum(min(1.0, one.tokens * math.exp(-nats)) for one in some)


def _proof(count: int, due: float) -> float:
    return count * math.log(count / due) - count + due if count > due > 0 else 0.0
