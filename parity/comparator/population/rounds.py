"""Did the candidate change in the middle of a run? The rounds of one engine, set against each other.

All rounds ask the same. So as long as the engine stays as it is, any order of the rounds is as likely as any other, and
each number of a round is a series of a test martingale (`parity.comparator.martingale`, as in `parity watch`): one may
look at it after each round, add rounds, or stop, and the error rate stays what it is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import numpy as np

from parity.comparator.martingale import Series
from parity.comparator.reference.gaps import FloatArray, TokenGaps
from parity.comparator.stats import OverRounds
from parity.comparator.streams.pairing import Pairs
from parity.messages import Message, message
from parity.records import Key, rounds_of

MEASURES: Final[Mapping[str, Message]] = MappingProxyType(
    {
        "differing": message("rounds.differing", "the share of completions that differ"),
        "mean_gap": message("rounds.mean_gap", "the mean gap (nats)"),
        "length": message("rounds.length", "the mean length (tokens)"),
    }
)
"""What is followed, by name."""


def over_rounds(pairs: Pairs, gaps: Mapping[Key, TokenGaps], alpha: float) -> dict[str, OverRounds]:
    """By measure; empty for a run of one round. `gaps`: of the candidate's scored completions. All measures together
    share `alpha`."""
    rounds = np.fromiter(rounds_of(pairs.keys), dtype=np.int64, count=len(pairs.keys))
    if not len(rounds) or rounds.min() == rounds.max():
        return {}
    whole = pairs.whole()  # where one that was aborted ends says nothing
    of_gaps = np.array([_mean(gaps.get(key)) for key in pairs.keys])
    values = {
        "differing": np.where(whole, ~pairs.identical, np.nan),
        "mean_gap": np.where(pairs.random, np.nan, of_gaps),
        "length": np.where(whole, pairs.candidate_tokens.sizes, np.nan),
    }
    limit = math.log(len(MEASURES) / alpha)
    found = {}
    for name in MEASURES:
        series = _series(values[name], rounds)
        if len(series.recent) > 1:
            before, after = series.means
            found[name] = OverRounds(
                rounds=len(series.recent),
                log10_e=series.log_e / math.log(10),
                since=int(series.recent[series.since][0]),
                before=before,
                after=after,
                changed=series.log_e >= limit,
            )
    return found


def _series(values: FloatArray, rounds: np.typing.NDArray[np.int64]) -> Series:
    """The mean of each round that has values, in order."""
    known = np.isfinite(values)
    sums = np.bincount(rounds[known], values[known])
    counts = np.bincount(rounds[known])
    series = Series()
    for number in np.flatnonzero(counts).tolist():
        # Rounds that are equal must stay equal: sums in another order differ in the last bit.
        series = series.after(str(number), round(float(sums[number] / counts[number]), 12))
    return series


def _mean(gaps: TokenGaps | None) -> float:
    known = np.empty(0) if gaps is None else gaps.gap[np.isfinite(gaps.gap)]
    return float(known.mean()) if len(known) else math.nan
