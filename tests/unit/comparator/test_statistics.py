"""The home-made statistics against scipy 1.17.1, whose figures stand here as literals.

Functions named beside each table: scipy.stats.binomtest(...).proportion_ci(method="wilson"), binom.sf, binomtest,
fisher_exact, gamma.sf, norm.sf, mannwhitneyu(method="asymptotic"), beta.ppf, permutation_test, hypergeom.pmf.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from parity.comparator.statistics import (
    MANY,
    binomial_tail,
    chi_square_homogeneity,
    fisher_more,
    gamma_tail,
    holm,
    in_two_stages,
    mann_whitney,
    mcnemar_more,
    missed_rate_bound,
    negative_binomial,
    negative_binomial_tail,
    normal_tail,
    sign_flip_more,
    wilson_interval,
)


@pytest.mark.parametrize(
    ("hits", "total", "low", "high"),
    [  # binomtest(hits, total).proportion_ci(0.95, method="wilson")
        (0, 10, 0.0, 0.27753279986288926),
        (1, 64, 0.002763541923337505, 0.08334101600094265),
        (5, 64, 0.03383117690855046, 0.17019537354162906),
        (32, 64, 0.3810209474394701, 0.6189790525605299),
        (64, 64, 0.9433759402071946, 1.0),
        (3, 20480, 4.981912886369691e-05, 0.00043063073404305896),
    ],
)
def test_wilson_interval(hits: int, total: int, low: float, high: float) -> None:
    assert wilson_interval(hits, total) == pytest.approx((low, high), rel=1e-6, abs=1e-12)


def test_wilson_interval_of_nothing() -> None:
    assert wilson_interval(0, 0) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("clean", "bound"),
    [  # beta.ppf(0.95, 1, clean)
        (1, 0.95),
        (4, 0.527129195498412),
        (64, 0.04572970233076244),
        (640, 0.004669893657829755),
        (20480, 0.00014626529210863226),
    ],
)
def test_missed_rate_bound(clean: int, bound: float) -> None:
    assert missed_rate_bound(clean) == pytest.approx(bound, rel=1e-9)


def test_missed_rate_bound_is_the_rule_of_three() -> None:
    assert missed_rate_bound(1000) == pytest.approx(3 / 1000, rel=0.01)
    assert missed_rate_bound(0) is None


@pytest.mark.parametrize(
    ("hits", "total", "chance", "tail"),
    [  # binom.sf(hits - 1, total, chance)
        (1, 10, 0.5, 0.9990234375),
        (7, 10, 0.5, 0.171875),
        (10, 10, 0.5, 0.0009765625),
        (3, 20, 0.1, 0.32307319481053404),
        (60, 100, 0.5, 0.028443966820490444),
        (600, 1000, 0.5, 1.3642320780329735e-10),
    ],
)
def test_binomial_tail(hits: int, total: int, chance: float, tail: float) -> None:
    assert binomial_tail(hits, total, chance) == pytest.approx(tail, rel=1e-9)


@pytest.mark.parametrize(
    ("hits", "total", "chance", "tail"),
    [(0, 10, 0.5, 1.0), (0, 0, 0.5, 1.0), (11, 10, 0.5, 0.0), (1, 10, 0.0, 0.0), (10, 10, 1.0, 1.0)],
)
def test_binomial_tail_at_the_edges(hits: int, total: int, chance: float, tail: float) -> None:
    assert binomial_tail(hits, total, chance) == tail


@pytest.mark.parametrize(
    ("candidate", "baseline", "p_value"),
    [  # binomtest(candidate, candidate + baseline, 0.5, alternative="greater").pvalue
        (5, 0, 0.03125),
        (10, 0, 0.0009765625),
        (10, 2, 0.019287109375),
        (3, 7, 0.9453125),
        (30, 10, 0.0011107168866146822),
    ],
)
def test_mcnemar(candidate: int, baseline: int, p_value: float) -> None:
    assert mcnemar_more(candidate, baseline) == pytest.approx(p_value, rel=1e-9)


def test_mcnemar_without_discordant_pairs() -> None:
    assert mcnemar_more(0, 0) == 1.0


@pytest.mark.parametrize(
    ("table", "p_value"),
    [  # fisher_exact([[hits_a, total_a - hits_a], [hits_b, total_b - hits_b]], alternative="greater")
        ((3, 10, 1, 20), 0.09523809523809522),
        ((0, 5, 3, 5), 1.0),
        ((8, 100, 2, 400), 6.357747676424022e-05),
        ((5, 5, 0, 5), 0.003968253968253969),
        ((40, 1000, 90, 9000), 3.5745821040966104e-11),
    ],
)
def test_fisher(table: tuple[int, int, int, int], p_value: float) -> None:
    assert fisher_more(*table) == pytest.approx(p_value, rel=1e-8)


@pytest.mark.parametrize("table", [(0, 0, 0, 0), (0, 0, 3, 5), (0, 9, 0, 3)])
def test_fisher_without_evidence(table: tuple[int, int, int, int]) -> None:
    assert fisher_more(*table) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("shape", "value", "tail"),
    [  # gamma.sf(value, shape)
        (1, 1.0, 0.36787944117144245),
        (1, 20.0, 2.0611536224385566e-09),
        (4, 4.0, 0.43347012036670896),
        (8, 30.0, 5.233734167070702e-07),
        (32, 60.0, 2.8299656297543995e-05),
        (32, 10.0, 0.9999999753740448),
    ],
)
def test_gamma_tail(shape: int, value: float, tail: float) -> None:
    assert gamma_tail(shape, value) == pytest.approx(tail, rel=1e-9)


def test_gamma_tail_at_the_edges() -> None:
    assert gamma_tail(4, 0.0) == 1.0
    assert gamma_tail(32, 1e4) == 0.0


@pytest.mark.parametrize(
    ("z", "tail"),
    [  # norm.sf(z)
        (-1.0, 0.8413447460685429),
        (0.0, 0.5),
        (1.959964, 0.024999999096442398),
        (5.0, 2.866515718791933e-07),
        (8.0, 6.22096057427174e-16),
    ],
)
def test_normal_tail(z: float, tail: float) -> None:
    assert normal_tail(z) == pytest.approx(tail, rel=1e-9)


@pytest.mark.parametrize(
    ("a", "b", "p_value"),
    [  # mannwhitneyu(a, b, alternative="two-sided", method="asymptotic", use_continuity=True)
        (range(1, 11), range(3, 13), 0.18455093943501133),
        ([128] * 9 + [40], [128] * 6 + [20, 30, 10, 50], 0.12358420113551419),
        (range(40), range(15, 45), 0.0006572721977007786),
        (range(1, 11), range(1, 11), 1.0),
    ],
)
def test_mann_whitney(a: object, b: object, p_value: float) -> None:
    left, right = (np.array(list(side), dtype=float) for side in (a, b))  # type: ignore[call-overload]
    assert mann_whitney(left, right) == pytest.approx(p_value, rel=1e-9)
    assert mann_whitney(right, left) == pytest.approx(p_value, rel=1e-9)


def test_mann_whitney_of_equal_or_no_values() -> None:
    same = np.full(20, 7.0)
    assert mann_whitney(same, same) == 1.0
    assert mann_whitney(same, np.empty(0)) == 1.0


SHIFTED = [
    0.646, 1.122, 0.63, -1.003, 1.205, 0.746, -0.237, 0.881, 0.665, 0.594, 0.328, 0.847,
    -0.436, 0.137, -0.182, 0.899, 0.34, 0.008, -0.482, 0.043, 0.308, 0.024, 1.594, 1.307,
]  # fmt: skip


@pytest.mark.parametrize(
    ("differences", "p_value"),
    [  # permutation_test((differences,), np.sum, permutation_type="samples", alternative="greater")
        ([0.5, 0.2, -0.1, 0.4, 0.3, -0.2, 0.6, 0.1], 0.04296875),  # all 256 sign patterns
        (SHIFTED, 0.002024989875050625),  # 200,000 of 16.8 million
    ],
)
def test_sign_flip(differences: list[float], p_value: float) -> None:
    found = sign_flip_more(np.array(differences), draws=20_000)
    spread = math.sqrt(p_value * (1 - p_value) / 20_000)
    assert found == pytest.approx(p_value, abs=4 * spread + 1 / 20_000)


def test_many_signs_are_bounded_and_not_drawn() -> None:
    """The bound is above the chance, and by no more than its constant."""
    rng = np.random.default_rng(3)
    for shift in (0.0, 0.02, 0.05):
        differences = rng.standard_t(4, MANY) + shift
        drawn = sign_flip_more(differences[:-1], draws=4_000)
        bound = sign_flip_more(differences)
        assert bound > 0.5 * drawn
        assert bound < max(1e-3, 5 * drawn)


def test_sign_flip_is_one_sided_and_never_zero() -> None:
    assert sign_flip_more(-np.array(SHIFTED)) > 0.99
    assert sign_flip_more(np.zeros(50)) == 1.0
    assert sign_flip_more(np.full(60, 3.0), draws=20_000) == pytest.approx(1 / 20_001)


@pytest.mark.parametrize(
    ("a", "b", "p_value"),
    [  # the statistic's exact distribution, summed from hypergeom.pmf
        ([50, 14], [40, 24], 0.08094534317039953),
        ([30, 30], [31, 29], 1.0),
    ],
)
def test_chi_square_homogeneity(a: list[int], b: list[int], p_value: float) -> None:
    found = chi_square_homogeneity(a, b, draws=5_000)
    assert found == pytest.approx(p_value, abs=4 * math.sqrt(0.25 / 5_000))


def test_chi_square_homogeneity_sees_a_difference() -> None:
    # The asymptotic chi-square gives 8.8e-05 (chi2_contingency).
    assert chi_square_homogeneity([60, 4, 0], [40, 20, 4]) < 0.002
    assert chi_square_homogeneity([5, 0], [9, 0]) == 1.0
    assert chi_square_homogeneity([0, 0], [9, 3]) == 1.0


def test_two_stages_take_the_second_answer_only_where_the_first_is_small() -> None:
    asked: list[tuple[int, int]] = []

    def answer(first: float, second: float) -> float:
        asked.clear()

        def test(draws: int, seed: int) -> float:
            asked.append((draws, seed))
            return first if len(asked) == 1 else second

        return in_two_stages(test, few=10, many=1_000)

    assert answer(0.3, 0.001) == 0.3
    assert asked == [(10, 0)]
    assert answer(0.04, 0.2) == 0.2
    assert asked == [(10, 0), (1_000, 1)]


def test_holm() -> None:
    # Holm 1979: sorted p-values times m, m - 1, …, made monotone.
    adjusted = holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005})
    assert adjusted == pytest.approx({"d": 0.02, "a": 0.03, "c": 0.06, "b": 0.06})
    assert holm({"a": 0.9, "b": 0.8}) == {"b": 1.0, "a": 1.0}
    assert holm({}) == {}


def test_p_values_are_honest_under_the_null() -> None:
    """Over many samples of the same distribution, no more than a share of alpha falls below alpha."""
    rng = np.random.default_rng(0)
    runs = 300
    below = sum(sign_flip_more(rng.normal(size=16), draws=1_000, seed=run) < 0.05 for run in range(runs))
    assert below <= 28  # binom.isf(0.001, 300, 0.05) is 28


def test_the_negative_binomial_is_the_geometric_for_shape_one_and_adds_up() -> None:
    assert negative_binomial_tail(5, 1.0, 0.3) == pytest.approx(0.3**5)
    assert negative_binomial_tail(40, 1.0, 0.3) == pytest.approx(0.3**40)  # what one minus the rest cannot show
    some = [negative_binomial(one, 0.5, 0.4) for one in range(200)]
    assert sum(some) == pytest.approx(1.0)
    assert negative_binomial_tail(3, 0.5, 0.4) == pytest.approx(sum(some[3:]))
    assert negative_binomial_tail(0, 0.5, 0.4) == 1.0
