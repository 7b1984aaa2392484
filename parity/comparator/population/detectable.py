"""What the tests of a run's numerics would have seen: the smallest effects, by the noise that a run measured."""

from __future__ import annotations

import math
from statistics import NormalDist

from msgspec import Struct

from parity.comparator.population.residual_tests import (
    BLOCK,
    LEAST_FACTOR,
    LEAST_SHIFT,
    TAIL_FACTOR,
    TAIL_RATE,
    WIDE,
    Arm,
    Groups,
    tail_p_value,
)
from parity.comparator.statistics import SELF_NORMALISED, poisson_tail, without_giants
from parity.comparator.stats import Detectable, Numerics

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


def detectable_effects(
    baseline: Arm, candidate: Arm, completion: Groups, block: Groups, tests: int, alpha: float
) -> Detectable:
    """From the noise of this run."""
    tokens = len(completion.of)
    differences = completion.sums(candidate.capped - baseline.capped)
    differences -= completion.sizes() * (differences.sum() / tokens)
    differences = without_giants(differences, completion.sizes())
    noise = math.sqrt(float((differences**2).sum()) / tokens)
    own, other = block.sums(baseline.noise), block.sums(candidate.noise)
    mean = float(own.mean())
    ratio = float(other.mean()) / mean if mean > 0 else 1.0
    spread = other - max(LEAST_FACTOR, ratio) * own if mean > 0 else other
    spread = spread - block.sizes() * (spread.sum() / tokens)
    relative = math.sqrt(float((spread**2).sum()) / tokens) / (float(own.sum()) / tokens) if mean > 0 else math.inf
    return Detectable(
        mean_shift=detectable_shift(noise, tokens, completion.count, alpha, tests),
        scale_factor=detectable_factor(relative, tokens, alpha, tests) if math.isfinite(relative) else None,
        wide_per_10_000=_times(detectable_rate(float(baseline.wide.mean()), tokens, alpha, tests), 1e4),
        noise_per_token=noise,
        relative_scale_noise=relative if math.isfinite(relative) else None,
    )


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor
