"""Do completions draw with the same noise, so that chance adds up over them where it should average out?

One seed for all requests gives each the same random numbers, in engines that seed each request's generator with it
(vLLM's `SamplingParams.seed`), and in those that hash seed and place (SGLang's deterministic inference). Then all
tokens at one place are likelier than they should be, or all less likely, and what a test over many completions takes
for their number is nearer to one. Nothing in a capture tells for sure: a seed may be the plan's, of which each request
has its own, and a server may have one that nobody gave. The draws do: independent ones at the same place cancel out.
"""

from __future__ import annotations

import numpy as np

from parity.comparator.reference.draw_sums import NAMES, AtPlaces
from parity.comparator.statistics import FloatArray

FEWEST_PLACES, FEWEST_ROWS = 8, 4
"""Places, and tokens at a place, below which nothing is said."""

BEYOND = 5.0
"""Standard errors by which the draws at places vary more than independent ones."""

TOGETHER = 0.005
"""Correlation of two draws at one place below which it is the reference that is off a little, by place."""

OUTER, FAR = 0.2, 2.0
"""Of places, this share lies at least so many standard errors off to the one side, and as many to the other: an arm
that draws otherwise at some places does so to one side, or at fewer."""


def factors(found: AtPlaces) -> FloatArray:
    """By number (`NAMES`), times the variance of independent draws that the sums of the arm's draws have, at least 1:
    the design effect of its places (Kish 1965, Survey Sampling)."""
    known, odd, _ = _spread(found)
    return np.maximum(1.0, odd) if known.any() else np.ones(len(NAMES))


def shares_noise(found: AtPlaces, *, is_baseline: bool) -> bool:
    """Whether completions at the same places are drawn alike. The baseline's are also said to be where only few places
    show it: what else is odd about places is asked of the candidate against it."""
    known, odd, error = _spread(found)
    at = NAMES.index("rank")
    if known.sum() < FEWEST_PLACES:
        return False
    rows = found.tokens[known]
    if is_baseline:
        together = (odd[at] - 1.0) / max(1.0, float((rows * rows).sum() / rows.sum()) - 1.0)
        return bool(odd[at] - 1.0 > BEYOND * error[at] and together > TOGETHER)
    off = found.sums[known, at] / np.sqrt(np.maximum(found.squares[known, at], 1e-12))
    low, high = np.quantile(off, (OUTER, 1.0 - OUTER))
    return bool(low < -FAR and high > FAR)


def _spread(found: AtPlaces) -> tuple[np.typing.NDArray[np.bool_], FloatArray, FloatArray]:
    """(places that count, by number: variance of the sums at these over that of independent draws, its error).

    The draws' own squares say what independent ones vary by: scores that are off do so for each draw alone as well.
    """
    known = found.tokens >= FEWEST_ROWS
    sums, squares, rows = found.sums[known], found.squares[known], found.tokens[known]
    if not known.any():
        return known, np.ones(len(NAMES)), np.ones(len(NAMES))
    mean = sums.sum(axis=0) / rows.sum()
    alone = np.maximum(squares - 2 * mean * sums + mean * mean * rows[:, None], 1e-12)
    total = alone.sum(axis=0)
    odd = ((sums - mean * rows[:, None]) ** 2).sum(axis=0) / total
    return known, odd, np.sqrt(2.0 * (alone**2).sum(axis=0)) / total
