"""The few statistical tests a comparison needs, in numpy and the standard library.

Each is exact or says how it approximates. scipy would do the same at a price that ARCHITECTURE.md names;
tests/unit/comparator/test_statistics.py holds these to scipy's figures.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from parity.comparator.sums import Sums

FloatArray = npt.NDArray[np.float64]


def wilson_interval(hits: int, total: int, z: float = 1.959964) -> tuple[float, float]:
    """Wilson score interval of a proportion; z = 1.96 gives 95 %. (Wilson 1927, JASA 22.)"""
    if total == 0:
        return 0.0, 1.0
    share = hits / total
    denominator = 1 + z * z / total
    centre = share + z * z / (2 * total)
    half = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    low = 0.0 if hits == 0 else max(0.0, (centre - half) / denominator)
    high = 1.0 if hits == total else min(1.0, (centre + half) / denominator)
    return low, high


FEW, AMONG, ALONE = 3, 8, 1e-3
"""So many units, and one in so many at most, make the whole improbable where the chance of the rest is ALONE or more,
and that of each by itself less: a fault of all leaves nothing either where three are left out, but no single one shows
it."""


def few_alone(won: FloatArray, chance_without: Callable[[list[int]], float]) -> list[int]:
    """Numbers of the few units that alone make a whole improbable, the clearest first; none where they are more. won:
    nats that each of N units wins (the log of an e-value), shape (N,); chance_without: the p-value without some."""
    most: list[int] = np.argsort(-won, kind="stable")[: min(FEW, len(won) // AMONG)].tolist()
    for count, number in enumerate(most, 1):
        if won[number] < -math.log(ALONE):
            break
        if chance_without(most[:count]) >= ALONE:
            return most[:count]
    return []


def missed_rate_bound(clean: float, confidence: float = 0.95) -> float | None:
    """The highest fault rate that still gives no fault in `clean` trials with chance 1 - confidence.

    Exact form of the rule of three (3/N at 95 %). None without trials. A trial that shows a fault only with some chance
    counts as that part of one.
    """
    return None if clean <= 0 else 1 - (1 - confidence) ** (1 / clean)


def binomial_tail(hits: int, total: int, chance: float = 0.5) -> float:
    """P(X >= hits) for X ~ Binomial(total, chance), summed exactly in logarithms; the normal's beyond 20,000."""
    if hits <= 0:
        return 1.0
    if chance <= 0:
        return 0.0
    if chance >= 1:
        return 1.0
    if total > 20_000:
        return normal_tail((hits - 0.5 - total * chance) / math.sqrt(total * chance * (1 - chance)))
    if hits > total:
        return 0.0
    first = (
        math.lgamma(total + 1)
        - math.lgamma(hits + 1)
        - math.lgamma(total - hits + 1)
        + hits * math.log(chance)
        + (total - hits) * math.log1p(-chance)
    )
    more = np.arange(hits, total)
    steps = np.log((total - more) / (more + 1)) + (math.log(chance) - math.log1p(-chance))
    logs = first + np.concatenate([[0.0], np.cumsum(steps)])
    peak = float(logs.max())
    return min(1.0, math.exp(peak) * float(np.exp(logs - peak).sum()))


def mcnemar_more(only_candidate: int, only_baseline: int) -> float:
    """Exact one-sided McNemar: chance of at least this many discordant pairs on the candidate's side."""
    return binomial_tail(only_candidate, only_candidate + only_baseline)


def fisher_more(hits_a: int, total_a: int, hits_b: int, total_b: int) -> float:
    """One-sided Fisher exact test that group a has a higher rate than group b."""
    hits, total = hits_a + hits_b, total_a + total_b

    def log_choose(n: int, k: int) -> float:
        return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)

    whole = log_choose(total, hits)
    upper = min(hits, total_a)
    return min(
        1.0,
        sum(
            math.exp(log_choose(total_a, k) + log_choose(total_b, hits - k) - whole)
            for k in range(hits_a, upper + 1)
            if 0 <= hits - k <= total_b
        ),
    )


def gamma_tail(shape: int, value: float) -> float:
    """P(G >= value) for G the sum of `shape` independent Exp(1) variables (Erlang)."""
    if value <= 0:
        return 1.0
    log = math.log(value)
    logs = [k * log - math.lgamma(k + 1) - value for k in range(shape)]
    peak = max(logs)
    return min(1.0, math.exp(peak) * sum(math.exp(x - peak) for x in logs))


def normal_tail(z: float) -> float:
    """P(Z >= z) for a standard normal Z."""
    return 0.5 * math.erfc(z / math.sqrt(2))


def mann_whitney(a: FloatArray, b: FloatArray) -> float:
    """Two-sided Mann-Whitney U by the normal approximation with tie correction (sizes of 8 and more)."""
    n, m = len(a), len(b)
    if not n or not m:
        return 1.0
    values = np.concatenate([a, b])
    _, inverse, tie_sizes = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(tie_sizes)
    ranks = ((ends - tie_sizes + 1 + ends) / 2)[inverse]
    u = float(ranks[:n].sum()) - n * (n + 1) / 2
    total = n + m
    ties = float((tie_sizes.astype(float) ** 3 - tie_sizes).sum()) / (total * (total - 1))
    variance = n * m / 12 * (total + 1 - ties)
    if variance <= 0:
        return 1.0
    z = (abs(u - n * m / 2) - 0.5) / math.sqrt(variance)
    return min(1.0, 2 * normal_tail(max(z, 0.0)))


MANY = 4_000
"""Differences from which on no signs are drawn: a million of them would take minutes."""


def sign_flip_more(differences: FloatArray, *, draws: int = 40_000, seed: int = 0) -> float:
    """One-sided paired permutation test that the mean difference is above zero.

    Signs of the paired differences are flipped at random; p has the usual +1 so that it is never zero. Of MANY
    differences and more, the bound of `symmetric_sum`.
    """
    differences = differences[differences != 0]
    if not len(differences):
        return 1.0
    if len(differences) >= MANY:
        return symmetric_sum(Sums.of(differences))
    rng = np.random.default_rng(seed)
    observed = float(differences.sum())
    hits = 0
    for start in range(0, draws, 1_000):
        signs = rng.integers(0, 2, size=(min(1_000, draws - start), len(differences)), dtype=np.int8) * 2 - 1
        hits += int((signs @ differences >= observed - 1e-12).sum())
    return (hits + 1) / (draws + 1)


@lru_cache(maxsize=10_000)  # what a run would have shown is asked at the same bounds every time
def student_tail(t: float, freedom: int) -> float:
    """P(T >= t) for Student's t: the incomplete beta function by its continued fraction (Lentz)."""
    if t < 0:
        return 1.0 - student_tail(-t, freedom)
    a, b, x = freedom / 2, 0.5, freedom / (freedom + t * t)
    if x > (a + 1) / (a + b + 2):  # near the middle the other side's fraction is the one that ends
        return 0.5 - 0.5 * _incomplete_beta(b, a, 1 - x)
    return 0.5 * _incomplete_beta(a, b, x)


def _incomplete_beta(a: float, b: float, x: float) -> float:
    if x <= 0:
        return 0.0
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    tiny = 1e-300
    c, d = 1.0, 1.0 / max(1 - (a + b) * x / (a + 1), tiny)
    value = d
    for m in range(1, 300):
        for numerator in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1.0 / (1 + numerator * d or tiny)
            c = 1 + numerator / c or tiny
            value *= c * d
        if abs(c * d - 1) < 1e-14:
            break
    return front * value / a


SELF_NORMALISED = 3.18
"""Pinelis 2012 (An asymptotically Gaussian bound on the Rademacher tails, EJP 17): the tail of a sum of signs, times
their sizes and over the root of the sum of their squares, is at most this times the normal's."""


GIANT = 4.0
"""Times the usual size, that a sum may count at most: a completion that ends in a loop repeats one residual."""

FEWEST, FEW = 6, 40
"""Numbers of values from which, and below which, Student's t is asked."""


def symmetric_sum(values: Sums) -> float:
    """One-sided: chance of a sum as large as that of the values, were each as likely with the other sign.

    An upper bound for independent values, whatever their sizes and tails; nothing is drawn.
    """
    size = math.sqrt(values.squares)
    return min(1.0, SELF_NORMALISED * normal_tail(values.total / size)) if size else 1.0


def paired_mean(values: Sums) -> float:
    """One-sided: is the mean above zero? FEW values, each a sum over many tokens, by Student's t; more by
    `symmetric_sum`, which says nothing of few."""
    return symmetric_sum(values) if values.count >= FEW or values.count < FEWEST else student_mean(values)


def student_mean(values: Sums) -> float:
    """One-sided: is the mean above zero, by Student's t? Of a few that are far above it says less than the sum does."""
    spread = values.deviation
    return student_tail(values.mean / spread * math.sqrt(values.count), values.count - 1) if spread else 1.0


def without_giants(values: FloatArray, sizes: FloatArray) -> FloatArray:
    """Sums over `sizes` tokens each, (N,), none larger than GIANT times what is usual for its size. The bound depends
    on how large they are, not on their signs: what is as likely with the other sign stays so."""
    root = np.sqrt(np.maximum(sizes, 1.0))
    most = GIANT * float(np.median(np.abs(values) / root)) * root if len(values) else root
    return np.asarray(np.clip(values, -most, most) if np.any(most > 0) else values)


def poisson_tail(hits: int, expected: float) -> float:
    """P(X >= hits) for X ~ Poisson(expected)."""
    if hits <= 0:
        return 1.0
    if expected <= 0:
        return 0.0
    if expected > 2_000:
        return normal_tail((hits - 0.5 - expected) / math.sqrt(expected))
    counts = np.arange(1, hits)
    logs = np.concatenate([[0.0], counts * math.log(expected) - np.cumsum(np.log(counts))]) - expected
    below = float(np.exp(logs).sum())
    if below < 0.99:
        return max(0.0, 1.0 - below)
    total, term, k = 0.0, math.exp(hits * math.log(expected) - expected - math.lgamma(hits + 1)), hits
    while term > total * 1e-17 and k < hits + 100_000:
        total += term
        k += 1
        term *= expected / k
    return min(1.0, total)


def negative_binomial(hits: int, shape: float, chance: float) -> float:
    """P(X = hits) for X with mass proportional to gamma(x + shape) / x! times chance ** x: the number of a Poisson
    variable whose rate has a gamma distribution."""
    ways = math.lgamma(hits + shape) - math.lgamma(shape) - math.lgamma(hits + 1)
    return math.exp(ways + hits * math.log(chance) + shape * math.log1p(-chance))


def negative_binomial_tail(hits: int, shape: float, chance: float) -> float:
    """P(X >= hits) of the same."""
    most = 1.0 - sum(negative_binomial(one, shape, chance) for one in range(hits))
    if most > 1e-6:
        return most
    total, at = 0.0, hits  # of what is so small, one minus the rest has no digits left
    while at < hits + 10_000:
        term = negative_binomial(at, shape, chance)
        total, at = total + term, at + 1
        if term <= total * 1e-12:
            break
    return total


def bennett(beyond: float, variance: float, largest: float) -> float:
    """The chance, at most, of a sum of martingale differences of `beyond` or more, none of them above `largest`, the
    variances of which add up to `variance`."""
    if beyond <= 0:
        return 1.0
    if variance <= 0:
        return 0.0
    size = beyond * largest / variance
    return math.exp(-variance / largest**2 * ((1 + size) * math.log1p(size) - size))


def mean_difference(a: FloatArray, b: FloatArray, *, draws: int = 5_000, seed: int = 0) -> float:
    """One-sided permutation test that b's mean is above a's, by shuffling which value is whose.

    Beyond 400 values in all, the normal approximation of the same (the mean of values drawn without replacement).
    """
    values = np.concatenate([a, b])
    n, m = len(a), len(b)
    if not n or not m or np.ptp(values) == 0:
        return 1.0
    observed = float(b.mean() - a.mean())
    if n + m > 400:
        return normal_tail(observed / (float(values.std(ddof=1)) * math.sqrt(1 / n + 1 / m)))
    rng = np.random.default_rng(seed)
    hits = 0
    for start in range(0, draws, 1_000):
        order = rng.random((min(1_000, draws - start), n + m)).argsort(axis=1)
        shuffled = values[order]
        hits += int((shuffled[:, n:].mean(axis=1) - shuffled[:, :n].mean(axis=1) >= observed - 1e-12).sum())
    return (hits + 1) / (draws + 1)


def chi_square_homogeneity(a: Sequence[int], b: Sequence[int], *, draws: int = 5_000, seed: int = 0) -> float:
    """Permutation test that two rows of counts come from one distribution (chi-square statistic)."""
    counts = np.array([a, b], dtype=float)
    counts = counts[:, counts.sum(axis=0) > 0]
    sizes = counts.sum(axis=1)
    if counts.shape[1] < 2 or not sizes.all():
        return 1.0
    totals = counts.sum(axis=0)

    def statistic(first: FloatArray) -> FloatArray:
        expected = np.outer([sizes[0], sizes[1]], totals) / totals.sum()
        second = totals - first
        result: FloatArray = ((first - expected[0]) ** 2 / expected[0]).sum(axis=-1)
        result += ((second - expected[1]) ** 2 / expected[1]).sum(axis=-1)
        return result

    rng = np.random.default_rng(seed)
    simulated = rng.multivariate_hypergeometric(totals.astype(int), int(sizes[0]), size=draws)
    observed = statistic(counts[0][None, :])[0]
    return float(((statistic(simulated.astype(float)) >= observed - 1e-9).sum() + 1) / (draws + 1))


def in_two_stages(test: Callable[[int, int], float], *, few: int = 2_000, many: int = 40_000) -> float:
    """p-value of a permutation test `test(draws, seed)`: with few draws, and with many new ones where that is small.

    A p-value of 1 in `many` is needed where several tests share a small error rate. Honest: below 0.05 only the
    second, independent stage counts.
    """
    first = test(few, 0)
    return first if first > 0.05 else test(many, 1)


def spent(alpha: float, look: int) -> float:
    """The error rate of the look with this number, from 1: all looks together, however many, stay within `alpha`."""
    return alpha / (look * (look + 1))


def holm(p_values: dict[str, float], weights: Mapping[str, float] | None = None) -> dict[str, float]:
    """Holm's step-down adjustment: honest family-wise p-values when several tests are made. `weights`: of tests that
    get more of the error rate than the others, which have 1 (Holm 1979, section 4)."""
    weight = {name: (weights or {}).get(name, 1.0) for name in p_values}
    left = sum(weight.values())
    adjusted: dict[str, float] = {}
    worst = 0.0
    for name in sorted(p_values, key=lambda one: p_values[one] / weight[one]):
        worst = max(worst, min(1.0, p_values[name] * left / weight[name]))
        adjusted[name] = worst
        left -= weight[name]
    return adjusted
