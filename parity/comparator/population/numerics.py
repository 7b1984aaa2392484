"""Do the numerics of a whole arm differ from the baseline's, though no single token shows it?

What is tested is small and everywhere: residuals (reference/residuals.py) and gaps, each pair of completions a unit,
since the tokens of one completion depend on each other. Each test asks for more than a clean arm shows (the constants
below), so that no number of tokens makes one of arms that only round in another order. Every p-value is adjusted for
all tests of the run (Holm).

There are two sizes. `ROUNDING`: more than arms of the same kernels differ by, but no more than one bf16 unit of
noise on every logit would do. `BEYOND`: more than that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist

import msgspec
import numpy as np
import numpy.typing as npt

from parity.comparator.population import rates
from parity.comparator.reference.gaps import FloatArray
from parity.comparator.reference.residuals import PairedResiduals
from parity.comparator.statistics import (
    SELF_NORMALISED,
    binomial_tail,
    holm,
    mcnemar_more,
    paired_mean,
    poisson_tail,
    symmetric_sum,
)
from parity.comparator.stats import Detectable, Drift, Numerics, Residuals

BEYOND = ("shift", "unit", "tail_alone", "mid_tail", "far_tail", "gaps_beyond", "doubt")
"""Tests that one bf16 unit of noise on every logit does not fail."""

ROUNDING = ("scale", "tail", "gaps")
"""Tests that it fails, and arms of the same kernels do not."""

WIDE = 0.1
"""Nats. Residuals beyond are counted: clean arms of the embedded checkpoint have 3 to 6 in 10,000."""

SURE = 0.02
"""A logit's noise shows in a logprob times 1 minus the probability; below this share rounding of the logprob itself is
larger."""

WILD = 0.5
"""Nats that a residual counts at most in a mean: one row that is wrong is no matter of the run."""

UNIT = 1 / 16
"""Nats: the bf16 unit of logits between 8 and 16, where nothing shows it."""

CAP = 3.0
"""bf16 units that a token's logit noise counts at most in the test of scale."""

BLOCK = 64
"""Consecutive tokens that are one unit of the tests of scale and tail: neighbours' absolute residuals correlate by 0.04
at most, and a few long completions must be enough."""

LEAST_SHIFT = 0.0004
"""Nats by which mean residuals of clean arms may differ. Seen: 0.0002."""

SELECTION = 1.25
"""Nats of mean shift for each squared nat of more noise: the token that noise lifts is chosen. Noise of a bf16 unit on
every logit gave 0.8, float8 caches up to 1.2."""

LEAST_FACTOR = 1.2
"""Ratio of the arms' mean logit noise. Clean arms (speculation, other batches): 0.9 to 1.11."""

BIT_EXACT, FROM_BIT_EXACT = 0.03, 0.3
"""A baseline whose logit noise is below the first (bf16 units) computes as its scorer does, to the last bit. Other
batches need not: clean arms have up to 0.25 units."""

ONE_UNIT = 0.65
"""bf16 units of mean logit noise that noise of one unit on every logit stays below (0.29 to 0.55)."""

TAIL_FACTOR = 2.0
"""Ratio of the numbers of wide residuals from which it is more than chance among clean arms."""

TAIL_RATE = 6e-4
"""Share of tokens beyond WIDE that clean arms may have whatever the baseline shows."""

ALONE_FACTOR, ALONE_RATE = 2.5, 8e-4
"""The same, where the mean logit noise is not larger as well: noise of a bf16 unit that leaves so many wide residuals
makes that twice as large."""

ALONE = 1.6
"""Ratio of mean logit noise below which it is not."""

MID, FAR = 2.5, 3.0
"""bf16 units of logit noise that one unit of noise on every logit seldom reaches."""

MID_RATE, FAR_RATE = 2.5e-3, 8e-4
"""Share of tokens beyond them that one unit of noise may leave (6 to 17, and 0.8 to 7.6, in 10,000)."""

GAP_FACTOR = 3.0
"""Ratio of mean gaps. Clean arms: up to 1.5."""

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Gaps:
    """What the gaps of the arms say: `drift` as in the statistics, completions with a token a little beyond the
    tolerance in one arm alone, and the mean gap (nats) that one bf16 unit of noise on every logit would make."""

    drift: Drift | None = None
    only_candidate: int = 0
    only_baseline: int = 0
    of_one_unit: float = 0.0


def measure_numerics(
    residuals: PairedResiduals | None, gaps: Gaps, unit: float | None, alpha: float
) -> Numerics | None:
    """All tests and the numbers they rest on; `unit`: the bf16 unit of the chosen tokens' logits (nats), None where
    nothing shows it. None where there is nothing to test."""
    p_values = _gap_tests(gaps)
    if residuals is None or not len(residuals):
        if gaps.drift is None:
            return None
        return _with_failed(Numerics(source="gaps", gaps_of_one_unit=gaps.of_one_unit), p_values, alpha)
    step = UNIT if unit is None else unit
    arms = tuple(
        _Arm.of(values, score, step)
        for values, score in (
            (residuals.baseline, residuals.baseline_score),
            (residuals.candidate, residuals.candidate_score),
        )
    )
    baseline, candidate = arms
    completion = _Groups(_numbered(residuals.row))
    block = _Groups(_numbered(residuals.row * 65_536 + residuals.place // BLOCK))
    tests = {
        **p_values,
        "shift": _shift(baseline, candidate, completion),
        "unit": _scale(baseline, candidate, block, ONE_UNIT * step, step),
        "mid_tail": _tail(baseline.mid, candidate.mid, block, completion, MID_RATE),
        "far_tail": _tail(baseline.far, candidate.far, block, completion, FAR_RATE),
    }
    if residuals.by_scores:
        tests |= {
            "scale": _scale(baseline, candidate, block, 0.0, step),
            "tail": _tail(baseline.wide, candidate.wide, block, completion, TAIL_RATE),
            "tail_alone": _tail_alone(baseline, candidate, block, completion),
        }
    found = Numerics(
        source="scores" if residuals.by_scores else "own",
        tokens=len(residuals),
        completions=completion.count,
        unit=step,
        unit_is_measured=unit is not None,
        baseline=baseline.summary() if residuals.by_scores else None,
        candidate=candidate.summary(),
        mean_shift=float((candidate.capped - baseline.capped).mean()),
        scale_ratio=_ratio(float(candidate.noise.mean()), float(baseline.noise.mean()))
        if residuals.by_scores
        else None,
        extra_wide_per_10_000=float((candidate.wide.mean() - baseline.wide.mean()) * 1e4),
        logit_noise_in_units=float(candidate.noise.mean()) / step,
        gaps_of_one_unit=gaps.of_one_unit,
        detectable=_detectable(baseline, candidate, completion, block, len(tests), alpha),
    )
    return _with_failed(found, tests, alpha)


def _with_failed(found: Numerics, p_values: Mapping[str, float], alpha: float) -> Numerics:
    adjusted = holm(dict(p_values))
    failed = tuple(name for name in (*BEYOND, *ROUNDING) if adjusted.get(name, 1.0) < alpha)
    return msgspec.structs.replace(
        found,
        p_values=dict(p_values),
        adjusted=adjusted,
        failed=failed,
        more_than_one_unit=any(name in BEYOND for name in failed),
    )


# ------------------------------------------------------------------ residuals


@dataclass(frozen=True, slots=True)
class _Arm:
    """The residuals of one arm, arrays of shape (N,)."""

    residual: FloatArray
    capped: FloatArray
    """At most WILD nats."""
    noise: FloatArray
    """Nats by which the chosen token's logit is off, at most CAP units."""
    wide: npt.NDArray[np.bool_]
    mid: npt.NDArray[np.bool_]
    far: npt.NDArray[np.bool_]
    unit: float

    @staticmethod
    def of(residual: FloatArray, score: FloatArray, unit: float) -> _Arm:
        size = np.abs(residual)
        logit = size / np.maximum(-np.expm1(score), SURE)
        return _Arm(
            residual,
            np.clip(residual, -WILD, WILD),
            np.minimum(logit, CAP * unit),
            size > WIDE,
            logit > MID * unit,
            logit > FAR * unit,
            unit,
        )

    def summary(self) -> Residuals:
        size = np.abs(self.residual)
        at = (0.5, 0.9, 0.99, 0.999)
        quantiles = np.quantile(size[:: max(1, len(size) // rates.QUANTILES_OF)], at).tolist()
        return Residuals(
            tokens=len(size),
            mean=float(self.residual.mean()),
            sd=float(self.residual.std()),
            median_size=quantiles[0],
            quantiles={str(name): round(value, 6) for name, value in zip(at, quantiles, strict=True)},
            beyond={str(limit): float((size > limit).mean()) for limit in (0.05, 0.1, 0.2)},
            largest=float(size.max()),
            logit_noise=float(self.noise.mean()),
        )


@dataclass(frozen=True, slots=True)
class _Groups:
    """Tokens by the unit of a test that they belong to: `of` counts units from 0, shape (N,)."""

    of: Ints

    @property
    def count(self) -> int:
        return int(self.of[-1]) + 1

    def sums(self, values: npt.NDArray[np.generic]) -> FloatArray:
        return np.bincount(self.of, weights=values, minlength=self.count).astype(np.float64)

    def sizes(self) -> FloatArray:
        return np.bincount(self.of, minlength=self.count).astype(np.float64)


def _numbered(names: Ints) -> Ints:
    """Runs of equal names, counted from 0."""
    return np.concatenate([[0], np.cumsum(names[1:] != names[:-1])]).astype(np.int64)


def allowed_shift(baseline_variance: float, candidate_variance: float) -> float:
    """Nats by which the mean residuals of arms may differ: LEAST_SHIFT, and what more noise does by itself."""
    return LEAST_SHIFT + SELECTION * max(0.0, candidate_variance - baseline_variance)


def _shift(baseline: _Arm, candidate: _Arm, completion: _Groups) -> float:
    """Two-sided: are the candidate's residuals shifted by more than `allowed_shift`?"""
    differences = completion.sums(candidate.capped - baseline.capped)
    allowed = allowed_shift(float(baseline.capped.var()), float(candidate.capped.var())) * completion.sizes()
    return min(1.0, 2 * min(paired_mean(differences - allowed), paired_mean(-differences - allowed)))


def _scale(baseline: _Arm, candidate: _Arm, block: _Groups, least: float, unit: float) -> float:
    """Is the candidate's mean logit noise more than LEAST_FACTOR times the baseline's, and more than `least` nats?"""
    own, other = block.sums(baseline.noise), block.sums(candidate.noise)
    sizes = block.sizes()
    if float(baseline.noise.mean()) < BIT_EXACT * unit:
        least = max(least, FROM_BIT_EXACT * unit)
    found = symmetric_sum(other - LEAST_FACTOR * own)
    return max(found, symmetric_sum(other - least * sizes)) if least else found


def _tail(
    baseline: npt.NDArray[np.bool_],
    candidate: npt.NDArray[np.bool_],
    block: _Groups,
    completion: _Groups,
    rate: float,
    factor: float | None = None,
) -> float:
    """Has the candidate more rare large residuals: more than the baseline, and more than `rate` a token?

    Blocks with at least one are counted, and where they gather in few completions they count for less: the numbers
    are divided by Fano's factor over completions.
    """
    first = np.flatnonzero(np.concatenate([[True], block.of[1:] != block.of[:-1]]))
    hits = [np.maximum.reduceat(one, first) for one in (baseline, candidate)]
    own, other = (int(one.sum()) for one in hits)
    if other < (factor or TAIL_FACTOR) * own or not other:
        return 1.0
    per_completion = np.bincount(completion.of[first], weights=hits[1], minlength=completion.count)
    expected = completion.sizes() * (other / len(block.of))
    spread = max(1.0, float(((per_completion - expected) ** 2).sum()) / other)
    return tail_p_value(int(own / spread), int(other / spread), rate * len(block.of) / spread)


def _tail_alone(baseline: _Arm, candidate: _Arm, block: _Groups, completion: _Groups) -> float:
    """The same beside a mean logit noise like the baseline's, which noise on every logit would not leave."""
    if float(candidate.noise.mean()) >= ALONE * float(baseline.noise.mean()):
        return 1.0
    return _tail(baseline.wide, candidate.wide, block, completion, ALONE_RATE, ALONE_FACTOR)


def tail_p_value(own: int, other: int, expected: float) -> float:
    """Chance of at least `other` events where as many as `own`, or `expected`, are usual: the larger of the two."""
    return max(binomial_tail(other, own + other), poisson_tail(other, expected))


# ------------------------------------------------------------------ gaps


def _gap_tests(gaps: Gaps) -> dict[str, float]:
    """Mean gaps by the sign-flip test, and doubtful completions by McNemar's."""
    drift = gaps.drift
    if drift is None:
        return {}
    more = drift.candidate_mean_gap - drift.baseline_mean_gap
    wide = drift.ratio is None or drift.ratio >= GAP_FACTOR
    return {
        "gaps": drift.p_value if wide and more > gaps.of_one_unit / 2 else 1.0,
        "gaps_beyond": drift.p_value if wide and more > 1.5 * gaps.of_one_unit else 1.0,
        "doubt": mcnemar_more(gaps.only_candidate, gaps.only_baseline),
    }


def gaps_of_one_unit(differences: FloatArray, unit: float) -> float:
    """The mean gap (nats) that noise of one bf16 unit on every logit makes.

    differences: nats between the two best tokens, shape (N,). Each logit moves by a unit up or down with chance 1/4, so
    their difference moves by two units with chance 1/16 and by one with 1/4.
    """
    if not len(differences):
        return 0.0
    chance = np.where(differences < unit, 5 / 16, np.where(differences < 2 * unit, 1 / 16, 0.0))
    return float((differences * chance).mean())


# ------------------------------------------------------------------ what would have been seen

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


@dataclass(frozen=True, slots=True)
class Smallest:
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


def _detectable(
    baseline: _Arm, candidate: _Arm, completion: _Groups, block: _Groups, tests: int, alpha: float
) -> Detectable:
    """From the noise of this run."""
    tokens = len(completion.of)
    differences = completion.sums(candidate.capped - baseline.capped)
    differences -= completion.sizes() * (differences.sum() / tokens)
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


def _ratio(value: float, other: float) -> float | None:
    return value / other if other > 0 else None
