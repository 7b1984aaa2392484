"""What the tests of a run's numerics would have seen: the smallest effects, by the noise that a run measured."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
from msgspec import Struct

from parity.comparator.population.residual_tests import (
    BLOCK,
    LEAST_FACTOR,
    LEAST_SHIFT,
    TAIL_FACTOR,
    TAIL_RATE,
    WIDE,
    Shifts,
    tail_p_value,
)
from parity.comparator.statistics import SELF_NORMALISED, poisson_tail, without_giants
from parity.comparator.stats import Detectable, Numerics
from parity.comparator.sums import Products

SEEN = 0.95
"""Chance with which an effect of the smallest size is seen."""


def _score_needed(units: int, tests: int, alpha: float) -> float | None:
    """Standard errors from what is allowed to an effect that is seen with chance SEEN; None where so few units never
    are enough."""
    quantile = NormalDist().inv_cdf
    critical = -quantile(min(0.5, alpha / tests / SELF_NORMALISED)) + quantile(SEEN)
    return None if units <= critical**2 else critical / math.sqrt(1 - critical**2 / units)


def detectable_shift(noise: float, tokens: int, completions: int, alpha: float, tests: int = 10) -> float | None:
    """The smallest mean shift (nats) that is seen with chance SEEN.

    noise: standard deviation of the paired difference of residuals as a token contributes it, correlation inside
    completions included (nats). None: so few completions show none.
    """
    needed = _score_needed(completions, tests, alpha / 2)
    return None if needed is None else LEAST_SHIFT + needed * noise / math.sqrt(tokens)


def detectable_factor(noise: float, tokens: int, alpha: float, tests: int = 10) -> float | None:
    """The smallest ratio of logit noise that is seen with chance SEEN; noise: standard deviation of the paired
    difference as a token contributes it, as a share of the mean."""
    needed = _score_needed(tokens // BLOCK, tests, alpha)
    return None if needed is None else LEAST_FACTOR + needed * noise / math.sqrt(tokens)


def detectable_rate(own: float, tokens: int, alpha: float, tests: int = 10) -> float | None:
    """The smallest share of residuals beyond WIDE that is seen with chance SEEN, `own` being the baseline's."""
    if tokens < 1:
        return None
    usual = round(own * tokens)
    enough = max(1, math.ceil(TAIL_FACTOR * usual))
    while tail_p_value(usual, enough, TAIL_RATE * tokens) >= alpha / tests:
        enough = max(enough + 1, int(enough * 1.02))
        if enough > tokens:
            return None
    low, high = float(enough), 2.0 * enough + 20
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if poisson_tail(enough, middle) >= SEEN else (middle, high)
    return high / tokens if high <= tokens else None


class Smallest(Struct, frozen=True):
    """The smallest effects that so many tokens show with chance SEEN; None where they show none of any size."""

    tokens: int
    mean_shift: float | None
    """Nats of bias on every token."""
    scale_factor: float | None
    """Ratio of the arms' logit noise."""
    wide_per_10_000: float | None
    """Residuals beyond WIDE, in 10,000 tokens."""


def smallest_effects(found: Numerics, tokens: int, alpha: float) -> Smallest | None:
    """What `tokens` tokens would show, with the noise that a run measured; None where it measured none.

    The tokens are of completions as long as that run's, and of contexts that do not repeat.
    """
    noise = found.detectable
    if noise is None or not found.tokens or not found.completions:
        return None
    completions = max(1, round(tokens * found.completions / found.tokens))
    own = 0.0 if found.baseline is None else found.baseline.beyond[str(WIDE)]
    tests = max(1, len(found.p_values))
    relative = noise.relative_scale_noise
    return Smallest(
        tokens,
        detectable_shift(noise.noise_per_token, tokens, completions, alpha, tests),
        None if relative is None else detectable_factor(relative, tokens, alpha, tests),
        _times(detectable_rate(own, tokens, alpha, tests), 1e4),
    )


def detectable_effects(shifts: Shifts, blocks: Products, wide: float, tests: int, alpha: float) -> Detectable:
    """From the noise of this run. blocks: `block_sums`. wide: share of the baseline's residuals beyond WIDE."""
    sizes = shifts.sizes.values
    own, other, tokens = blocks.totals.tolist()
    differences = shifts.differences.values - sizes * (shifts.differences.values.sum() / tokens)
    noise = math.sqrt(float((without_giants(differences, sizes) ** 2).sum()) / tokens)
    weights, relative = np.array([0.0, 1.0, 0.0]), math.inf
    if own > 0:
        weights[0] = -max(LEAST_FACTOR, other / own)
        weights[2] = -blocks.combined(weights).total / tokens
        relative = math.sqrt(blocks.combined(weights).squares / tokens) / (own / tokens)
    return Detectable(
        mean_shift=detectable_shift(noise, int(tokens), len(sizes), alpha, tests),
        scale_factor=detectable_factor(relative, int(tokens), alpha, tests) if math.isfinite(relative) else None,
        wide_per_10_000=_times(detectable_rate(wide, int(tokens), alpha, tests), 1e4),
        noise_per_token=noise,
        relative_scale_noise=relative if math.isfinite(relative) else None,
    )


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor
