"""The tests of residuals: is the candidate's noise larger than the baseline's, shifted, or wider in its tails?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from msgspec import Struct, structs

from parity.comparator.reference.gaps import FloatArray
from parity.comparator.statistics import binomial_tail, paired_mean, poisson_tail, symmetric_sum, without_giants
from parity.comparator.stats import Residuals
from parity.comparator.sums import Added, Joined, Largest, Products, Sums

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
Bools = npt.NDArray[np.bool_]


class Arm(Struct, frozen=True):
    """The residuals of one arm, arrays of shape (N,)."""

    residual: FloatArray
    capped: FloatArray
    """At most WILD nats."""
    noise: FloatArray
    """Nats by which the chosen token's logit is off, at most CAP units."""
    wide: Bools
    mid: Bools
    far: Bools

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

    def lifted(self, place: Ints, nats: float) -> Arm:
        """The same with so much more noise at an output's first tokens (`ArmSums.lift`)."""
        return structs.replace(self, noise=self.noise + nats * (place == 0)) if nats else self


LIMITS = (0.05, WIDE, 0.2)
"""Nats. The share of residuals beyond each is in the statistics."""

QUANTILES = (0.5, 0.9, 0.99, 0.999)
"""Of the sizes of residuals, that the statistics have."""


class ArmSums(Added, frozen=True):
    """What all tokens of an arm come to, as they were recorded."""

    residual: Sums
    capped: Sums
    first: Sums
    """Noise at the first token of outputs, and at the later ones."""
    later: Sums
    beyond: FloatArray
    """Tokens beyond each of LIMITS, shape (3,)."""
    largest: Largest

    @staticmethod
    def of(arm: Arm, place: Ints) -> ArmSums:
        first, size = place == 0, np.abs(arm.residual)
        return ArmSums(
            Sums.of(arm.residual),
            Sums.of(arm.capped),
            Sums.of(arm.noise[first]),
            Sums.of(arm.noise[~first]),
            np.array([float(np.count_nonzero(size > limit)) for limit in LIMITS]),
            Largest(float(size.max(initial=0.0))),
        )

    @property
    def tokens(self) -> int:
        return self.residual.count

    @property
    def wide(self) -> float:
        """Share of residuals beyond WIDE."""
        return float(self.beyond[LIMITS.index(WIDE)]) / self.tokens

    def lift(self, below: float = 1.0) -> float:
        """Nats that an output's first tokens lack of the noise that the others have; 0 where they have at least `below`
        times that.

        The first token comes from a prefill. An engine that scores its own output makes that prefill again, to the last
        bit, and so has no noise there: with outputs of two tokens, vLLM 0.32's other arm had 2.3 times the noise.
        """
        if not self.first.count or not self.later.count or self.first.mean >= below * self.later.mean:
            return 0.0
        return self.later.mean - self.first.mean

    def noise(self, lift: float = 0.0) -> float:
        """Mean logit noise, nats, with so much more at first tokens."""
        return (self.first.total + self.later.total + lift * self.first.count) / self.tokens

    def summary(self, some: FloatArray) -> Residuals:
        """some: residuals evenly spaced, for quantiles."""
        quantiles = np.quantile(np.abs(some), QUANTILES).tolist()
        return Residuals(
            tokens=self.tokens,
            mean=self.residual.mean,
            sd=self.residual.variance**0.5,
            median_size=quantiles[0],
            quantiles={str(name): round(value, 6) for name, value in zip(QUANTILES, quantiles, strict=True)},
            beyond={str(limit): float(n) / self.tokens for limit, n in zip(LIMITS, self.beyond, strict=True)},
            largest=self.largest.value,
            logit_noise=self.noise(),
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

    def begins(self) -> Ints:
        """The first token of each unit."""
        return np.flatnonzero(np.concatenate([[True], self.of[1:] != self.of[:-1]]))


def numbered(names: Ints) -> Ints:
    """Runs of equal names, counted from 0."""
    found = np.zeros(max(1, len(names)), dtype=np.int32)
    np.cumsum(names[1:] != names[:-1], dtype=np.int32, out=found[1:])
    return np.asarray(found)


# ------------------------------------------------------------------ shift


def allowed_shift(baseline_variance: float, candidate_variance: float) -> float:
    """Nats by which the mean residuals of arms may differ: LEAST_SHIFT, and what more noise does by itself."""
    return LEAST_SHIFT + SELECTION * max(0.0, candidate_variance - baseline_variance)


class Shifts(Added, frozen=True):
    """By completion: the sum of the paired differences of residuals, and tokens. Of both arms: all residuals."""

    differences: Joined
    sizes: Joined
    baseline: Sums
    candidate: Sums

    @staticmethod
    def of(baseline: FloatArray, candidate: FloatArray, completion: Groups) -> Shifts:
        """Arrays of shape (N,), capped residuals."""
        sums, sizes = (
            (completion.sums(candidate - baseline), completion.sizes()) if len(baseline) else (np.empty(0), np.empty(0))
        )
        of_each = Joined.of(sums), Joined.of(sizes.astype(np.int32))
        return Shifts(*of_each, Sums.of(baseline), Sums.of(candidate))


def shift(found: Shifts) -> float:
    """Two-sided: are the candidate's residuals shifted by more than `allowed_shift`?"""
    differences, sizes = found.differences.values, found.sizes.values
    allowed = allowed_shift(found.baseline.variance, found.candidate.variance) * sizes
    sides = (without_giants(sign * differences - allowed, sizes) for sign in (1.0, -1.0))
    return min(1.0, 2 * min(paired_mean(Sums.of(one)) for one in sides))


# ------------------------------------------------------------------ scale

BASELINE, CANDIDATE = 0, 1
"""Where each arm's noise stands among the sums of blocks."""


def block_sums(arms: tuple[Arm, Arm], block: Groups) -> Products:
    """Over blocks: the noise of the baseline, that of the candidate, and their tokens."""
    return Products.of(np.stack([block.sums(arms[0].noise), block.sums(arms[1].noise), block.sizes()]))


def scale(blocks: Products, least: float, unit: float, *, own: int = BASELINE) -> float:
    """Is the mean logit noise of the arm that is not `own` more than LEAST_FACTOR times that of `own`, and more than
    `least` nats?"""
    other = 1 - own
    if float(blocks.totals[own] / blocks.totals[2]) < BIT_EXACT * unit:
        least = max(least, FROM_BIT_EXACT * unit)
    weights = np.zeros(3)
    weights[[own, other]] = -LEAST_FACTOR, 1.0
    found = symmetric_sum(blocks.combined(weights))
    weights[own], weights[2] = 0.0, -least
    return max(found, symmetric_sum(blocks.combined(weights))) if least else found


# ------------------------------------------------------------------ tails


class Hits(Added, frozen=True):
    """Blocks with a rare residual: how many, and over completions the sums of the squares of their number, and of their
    number times the completion's tokens."""

    blocks: int
    squares: float
    by_size: float


class Rare(Added, frozen=True):
    """One kind of rare residual in both arms; `sizes`: of completions, tokens."""

    baseline: Hits
    candidate: Hits
    sizes: Sums

    @staticmethod
    def of(sides: tuple[Bools, Bools], block: Groups, completion: Groups) -> Rare:
        first, sizes = block.begins(), completion.sizes()
        at = completion.of[first]

        def hits(one: Bools) -> Hits:
            found = np.maximum.reduceat(one, first)
            of_each = np.bincount(at, weights=found, minlength=completion.count)
            return Hits(int(found.sum()), float((of_each**2).sum()), float((of_each * sizes).sum()))

        return Rare(hits(sides[0]), hits(sides[1]), Sums.of(sizes))

    def swapped(self) -> Self:
        return structs.replace(self, baseline=self.candidate, candidate=self.baseline)


def tail(found: Rare, rate: float, factor: float | None = None) -> float:
    """Has the candidate more rare large residuals: more than the baseline, and more than `rate` a token?

    Blocks with at least one are counted, and where they gather in few completions they count for less: the numbers
    are divided by Fano's factor over completions.
    """
    own, other = found.baseline.blocks, found.candidate.blocks
    if other < (factor or TAIL_FACTOR) * own or not other:
        return 1.0
    tokens = found.sizes.total
    expected = other / tokens
    apart = found.candidate.squares - 2 * expected * found.candidate.by_size + expected**2 * found.sizes.squares
    spread = max(1.0, apart / other)
    return tail_p_value(int(own / spread), int(other / spread), rate * tokens / spread)


def tail_alone(found: Rare, noise: tuple[float, float]) -> float:
    """The same beside a mean logit noise (of baseline and candidate) like the baseline's, which noise on every logit
    would not leave."""
    return 1.0 if noise[1] >= ALONE * noise[0] else tail(found, ALONE_RATE, ALONE_FACTOR)


class Fresh(Added, frozen=True):
    """Of an arm's tokens of which no other one stands after the same tokens."""

    tokens: int
    noise: float
    wide: int
    mid: int
    far: int

    @staticmethod
    def of(arm: Arm, new: Bools) -> Fresh:
        def count(some: npt.NDArray[Any]) -> int:
            return int(np.count_nonzero(some & new))

        return Fresh(
            int(np.count_nonzero(new)), float(arm.noise[new].sum()), count(arm.wide), count(arm.mid), count(arm.far)
        )


def not_fresh(baseline: Fresh, candidate: Fresh) -> Iterator[str]:
    """Names of tests whose effect is not there in the arms' tokens of which no other one stands after the same tokens.

    Completions that end in one loop repeat one residual a hundred times over, and whether that is a large one is one
    chance: 1.27 times the baseline's noise over all tokens of a clean arm was 1.09 where no context repeats.
    """
    if candidate.noise < LEAST_FACTOR * baseline.noise:
        yield from ("scale", "unit")
    for name, own, other in (
        ("tail", baseline.wide, candidate.wide),
        ("tail_alone", baseline.wide, candidate.wide),
        ("mid_tail", baseline.mid, candidate.mid),
        ("far_tail", baseline.far, candidate.far),
    ):
        if other < TAIL_FACTOR * own or not other:
            yield name


def tail_p_value(own: int, other: int, expected: float) -> float:
    """Chance of at least `other` events where as many as `own`, or `expected`, are usual: the larger of the two."""
    return max(binomial_tail(other, own + other), poisson_tail(other, expected))
