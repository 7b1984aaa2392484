"""The tests of residuals: is the candidate's noise larger than the baseline's, shifted, or wider in its tails?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from msgspec import Struct, structs

from parity.comparator.population import rates
from parity.comparator.reference.gaps import FloatArray
from parity.comparator.statistics import binomial_tail, paired_mean, poisson_tail, symmetric_sum, without_giants
from parity.comparator.stats import Residuals

WIDE = 0.1
"""Nats. Residuals beyond are counted: clean arms of the embedded checkpoint have 3 to 6 in 10,000."""

SURE = 0.02
"""A logit's noise shows in a logprob times 1 minus the probability; below this share rounding of the logprob itself is
larger."""

WILD = 0.5
"""Nats that a residual counts at most in a mean: one row that is wrong is no matter of the run."""

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

Ints = npt.NDArray[np.int64]


class Arm(Struct, frozen=True):
    """The residuals of one arm, arrays of shape (N,)."""

    residual: FloatArray
    capped: FloatArray
    """At most WILD nats."""
    noise: FloatArray
    """Nats by which the chosen token's logit is off, at most CAP units."""
    wide: npt.NDArray[np.bool_]
    mid: npt.NDArray[np.bool_]
    far: npt.NDArray[np.bool_]

    @staticmethod
    def of(residual: FloatArray, score: FloatArray, unit: float) -> Arm:
        size = np.abs(residual)
        logit = size / np.maximum(-np.expm1(score), SURE)
        return Arm(
            residual,
            np.clip(residual, -WILD, WILD),
            np.minimum(logit, CAP * unit),
            size > WIDE,
            logit > MID * unit,
            logit > FAR * unit,
        )

    @staticmethod
    def of_none(count: int) -> Arm:
        """Of residuals that are all 0, in no room."""
        zeros, never = np.broadcast_to(0.0, count), np.broadcast_to(False, count)
        return Arm(zeros, zeros, zeros, never, never, never)

    def where(self, kept: npt.NDArray[np.bool_]) -> Arm:
        """Of some tokens, `kept` of shape (N,)."""
        return Arm(*(getattr(self, one)[kept] for one in self.__struct_fields__))

    def first_as_usual(self, place: Ints, below: float = 1.0) -> Arm:
        """The same with as much noise at an output's first tokens (`place` 0, shape (N,)) as at the others, where they
        have less than `below` times that.

        The first token comes from a prefill. An engine that scores its own output makes that prefill again, to the last
        bit, and so has no noise there: with outputs of two tokens, vLLM 0.32's other arm had 2.3 times the noise.
        """
        first = place == 0
        if not first.any() or first.all():
            return self
        there, usual = float(self.noise[first].mean()), float(self.noise[~first].mean())
        return self if there >= below * usual else structs.replace(self, noise=self.noise + (usual - there) * first)

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


class Groups(Struct, frozen=True):
    """Tokens by the unit of a test that they belong to: `of` counts units from 0, shape (N,)."""

    of: Ints

    @property
    def count(self) -> int:
        return int(self.of[-1]) + 1

    def sums(self, values: npt.NDArray[np.generic]) -> FloatArray:
        return np.bincount(self.of, weights=values, minlength=self.count).astype(np.float64)

    def sizes(self) -> FloatArray:
        return np.bincount(self.of, minlength=self.count).astype(np.float64)


def numbered(names: Ints) -> Ints:
    """Runs of equal names, counted from 0."""
    found = np.zeros(max(1, len(names)), dtype=np.int32)
    np.cumsum(names[1:] != names[:-1], dtype=np.int32, out=found[1:])
    return np.asarray(found)


def allowed_shift(baseline_variance: float, candidate_variance: float) -> float:
    """Nats by which the mean residuals of arms may differ: LEAST_SHIFT, and what more noise does by itself."""
    return LEAST_SHIFT + SELECTION * max(0.0, candidate_variance - baseline_variance)


def shift(baseline: Arm, candidate: Arm, completion: Groups) -> float:
    """Two-sided: are the candidate's residuals shifted by more than `allowed_shift`?"""
    differences, sizes = completion.sums(candidate.capped - baseline.capped), completion.sizes()
    allowed = allowed_shift(float(baseline.capped.var()), float(candidate.capped.var())) * sizes
    sides = (without_giants(sign * differences - allowed, sizes) for sign in (1.0, -1.0))
    return min(1.0, 2 * min(paired_mean(one) for one in sides))


def scale(baseline: Arm, candidate: Arm, block: Groups, least: float, unit: float) -> float:
    """Is the candidate's mean logit noise more than LEAST_FACTOR times the baseline's, and more than `least` nats?"""
    own, other = block.sums(baseline.noise), block.sums(candidate.noise)
    sizes = block.sizes()
    if float(baseline.noise.mean()) < BIT_EXACT * unit:
        least = max(least, FROM_BIT_EXACT * unit)
    found = symmetric_sum(other - LEAST_FACTOR * own)
    return max(found, symmetric_sum(other - least * sizes)) if least else found


def tail(
    baseline: npt.NDArray[np.bool_],
    candidate: npt.NDArray[np.bool_],
    block: Groups,
    completion: Groups,
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


def tail_alone(baseline: Arm, candidate: Arm, block: Groups, completion: Groups) -> float:
    """The same beside a mean logit noise like the baseline's, which noise on every logit would not leave."""
    if float(candidate.noise.mean()) >= ALONE * float(baseline.noise.mean()):
        return 1.0
    return tail(baseline.wide, candidate.wide, block, completion, ALONE_RATE, ALONE_FACTOR)


def not_fresh(baseline: Arm, candidate: Arm) -> Iterator[str]:
    """Names of tests whose effect is not there in the arms' tokens of which no other one stands after the same tokens.

    Completions that end in one loop repeat one residual a hundred times over, and whether that is a large one is one
    chance: 1.27 times the baseline's noise over all tokens of a clean arm was 1.09 where no context repeats.
    """
    if float(candidate.noise.mean()) < LEAST_FACTOR * float(baseline.noise.mean()):
        yield from ("scale", "unit")
    for name, own, other in (
        ("tail", baseline.wide, candidate.wide),
        ("tail_alone", baseline.wide, candidate.wide),
        ("mid_tail", baseline.mid, candidate.mid),
        ("far_tail", baseline.far, candidate.far),
    ):
        if int(other.sum()) < TAIL_FACTOR * int(own.sum()) or not other.any():
            yield name


def tail_p_value(own: int, other: int, expected: float) -> float:
    """Chance of at least `other` events where as many as `own`, or `expected`, are usual: the larger of the two."""
    return max(binomial_tail(other, own + other), poisson_tail(other, expected))
