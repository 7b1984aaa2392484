"""Do a few completions lie farther off their scores than any of the baseline's?

A fault of single rows (a prompt's chunk that is lost, a cache that is damaged for some of them) leaves the mean over
all rows nearly as it is. So each completion's mean logit noise, over what its own arm usually has, is compared with the
largest of the baseline's completions of the same requests.

How far rows of a clean arm lie apart is not known beforehand, and it differs: loops, short outputs, experts at a
near-tie. Two things are used. As rows of both arms are alike, the k largest of all are the candidate's with a chance of
1/2 to the power of k at most. And the noise beyond the usual falls off at least as fast as its size to the power of
-TAIL, so that k rows `ratio` times as far off as the baseline's farthest have the chance

    (1 / (1 + ratio ** TAIL)) ** k        (`chance`)

of a clean arm: the number of these rows is geometric where the baseline's largest is itself one of chance. The first
holds whatever the rows' distribution is and takes ten rows for alpha = 0.001; the second does not where a cause comes
to few rows or none, as another kernel for a small batch or an expert of the prompt's tokens at a near-tie. Such a cause
is no fault, so what is found here proves nothing: it keeps the verdict from PASS.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from parity.comparator.population.residual_tests import BIT_EXACT, FROM_BIT_EXACT, Arm, Groups
from parity.comparator.reference.gaps import FloatArray
from parity.comparator.stats import OddRows, RowsSeen
from parity.records import Key

Bools = npt.NDArray[np.bool_]

TAIL = 3.0
"""The noise of a token counts CAP units at most, so that means over many tokens fall off faster than this."""

FEWEST = 4
"""Completions that it takes. Where a tenth of the rows of both arms burst, three would do in 6 of 200 clean runs of 48
rows."""

MOST = 16
"""Completions that are looked for at most. Each number of them from FEWEST on is tried, and gets half of the error rate
that is left, so that k of them are asked for 2 ** (k - FEWEST + 1) times less (`chance`)."""

LEAST_TOKENS = 16
"""Of a completion, after contexts of their own."""

USUAL = 32
"""Tokens of usual noise that are added to each completion, so that short ones lie no farther off than long ones."""

LEAST_ROWS = 16
"""Completions from which on the largest of the baseline's says something."""

LEAST_RATIO = 1.25
"""Times the baseline's largest, below which nothing is odd, however often."""

BEGIN = 32
"""Output tokens that are looked at by themselves as well: what a prompt has lost shows most there."""

LOOKS = 2
"""Over all tokens, and over the first BEGIN."""

SHOWN = 8
"""Completions that the statistics name."""


def odd_rows(
    arms: tuple[Arm, Arm], completion: Groups, place: npt.NDArray[np.int64], new: Bools, step: float,
    alpha: float, keys: Sequence[Key],
) -> OddRows | None:  # fmt: skip
    """The completions that lie off, or None.

    arms: baseline and candidate, the same tokens; place, new: position of each token, and whether no other one stands
    after the same tokens, shape (N,). step: the bf16 unit, nats. keys: of the completions that `completion` counts.
    """
    found = [_odd(arms, completion, some, step) for some in (new, new & (place < BEGIN))]
    best = min((one for one in found if one is not None), key=lambda one: one[0], default=None)
    if best is None or best[0] * LOOKS >= alpha:
        return None
    p_value, rows, times, usual = best
    return OddRows(
        completions=len(rows),
        named=tuple(str(keys[row]) for row in rows[:SHOWN]) if keys else (),
        times=times,
        baseline_times=usual,
        p_value=min(1.0, p_value * LOOKS),
    )


def rows_seen(arms: tuple[Arm, Arm], completion: Groups, new: Bools, step: float, alpha: float) -> tuple[RowsSeen, ...]:
    """From how much noise on FEWEST completions would have been found, and as many as MOST: with a baseline whose
    farthest completion is as far off as this run's. Arguments as of `odd_rows`."""
    found = _beyond(arms, completion, new, step)
    if found is None:
        return ()
    rows, sizes, own, _ = found
    shrunk = 1.0 + USUAL / float(np.median(sizes))  # what the tokens of usual noise take off
    return tuple(
        RowsSeen(completions=count, times=1.0 + _ratio_needed(count, alpha) * float(own.max()) * shrunk)
        for count in (FEWEST, MOST)
        if count <= len(rows)
    )


def _ratio_needed(count: int, alpha: float) -> float:
    """Times the baseline's farthest, that so many completions must be off: `farthest`, turned round."""
    level = alpha / LOOKS / 2.0 ** (count - FEWEST + 1)
    return float(max(LEAST_RATIO, (level ** (-1.0 / count) - 1.0) ** (1.0 / TAIL)))


def _odd(
    arms: tuple[Arm, Arm], completion: Groups, counted: Bools, step: float
) -> tuple[float, list[int], float, float] | None:
    """(chance, rows, how many times the usual noise the least of these has, and the baseline's largest)."""
    found = _beyond(arms, completion, counted, step)
    if found is None:
        return None
    rows, _, own, other = found
    largest = float(own.max())
    order = np.argsort(-other, kind="stable")[:MOST]
    p_value, count = farthest(largest, other[order])
    return p_value, rows[order[:count]].tolist(), 1.0 + float(other[order[count - 1]]), 1.0 + largest


def _beyond(
    arms: tuple[Arm, Arm], completion: Groups, counted: Bools, step: float
) -> tuple[npt.NDArray[np.int64], FloatArray, FloatArray, FloatArray] | None:
    """(rows, their tokens, how far beyond the usual the baseline's are, and the candidate's); None where the baseline's
    say nothing."""
    sizes = completion.sums(counted)
    rows = np.flatnonzero(sizes >= LEAST_TOKENS)
    if len(rows) < LEAST_ROWS:
        return None
    sums = [completion.sums(one.noise * counted)[rows] for one in arms]
    least = FROM_BIT_EXACT * step if float(arms[0].noise.mean()) < BIT_EXACT * step else 0.0
    own, other = (_beyond_usual(one, sizes[rows], least) for one in sums)
    return (rows, sizes[rows], own, other) if float(own.max()) > 0.0 else None


def farthest(largest: float, other: FloatArray) -> tuple[float, int]:
    """(chance, how many of them): the number of the candidate's completions that chance explains least.

    largest: the baseline's farthest beyond the usual; other: the candidate's, falling, shape (N,), N at least FEWEST.
    """
    counts = range(FEWEST, len(other) + 1)
    chances = {one: chance(float(other[one - 1]) / largest, one) * 2.0 ** (one - FEWEST + 1) for one in counts}
    count = min(chances, key=chances.__getitem__)
    return min(1.0, chances[count]), count


def _beyond_usual(sums: FloatArray, sizes: FloatArray, least: float) -> FloatArray:
    """A completion's mean noise over the median one's, less 1; `least`: nats that the median counts at least."""
    means = (sums + USUAL * float(sums.sum() / sizes.sum())) / (sizes + USUAL)
    usual = max(float(np.median(means)), least)
    return np.asarray(means / usual - 1.0 if usual > 0 else np.zeros_like(means))


def chance(ratio: float, count: int) -> float:
    """Of so many rows of a clean arm, all `ratio` times as far beyond the usual as the baseline's farthest."""
    return 1.0 if ratio < LEAST_RATIO else float((1.0 / (1.0 + ratio**TAIL)) ** count)
