"""Which ids lean: every n-th, or those of one shard of the vocabulary."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import numpy.typing as npt
import pytest

from parity.comparator.population.leaning import BOTH, by_id, learn
from parity.comparator.population.leaning_patterns import leaning_pattern
from parity.comparator.population.stretches import Looked, in_one_pass
from parity.comparator.reference.residuals import PairedResiduals, Residuals
from parity.comparator.stats import LeaningPattern

Ints = npt.NDArray[np.int64]
VOCABULARY = 500  # 512 with what fills it up


def found(seed: int, biased: Callable[[Ints], npt.NDArray[np.bool_]], nats: float = 0.1) -> LeaningPattern | None:
    """Of 150 completions of 64 tokens; all ids as likely."""
    rng = np.random.default_rng(seed)
    size = 150 * 64
    row, place = np.repeat(np.arange(150), 64), np.tile(np.arange(64), 150)
    token = rng.integers(0, VOCABULARY, size)
    sides = [0.01 * rng.standard_t(3, size) for _ in range(2)]
    sides[1] = sides[1] + np.where(biased(token), nats, 0.0)
    score = np.full(size, -1.0)
    arms = PairedResiduals(sides[0], sides[1], score, score, row, place, place, token, token, by_scores=True)
    looked = Looked(Residuals.of(arms), 1 / 16)
    (learned,) = in_one_pass(looked, [partial(learn, by_id, BOTH)])
    variance = looked.baseline.capped.variance + looked.candidate.capped.variance
    return leaning_pattern(learned, variance, VOCABULARY)


@pytest.mark.parametrize(
    ("by", "of", "number"), [("modulo", 8, 3), ("modulo", 2, 0), ("modulo", 40, 7), ("shard", 2, 1), ("shard", 8, 2)]
)
@pytest.mark.parametrize("seed", range(3))
def test_what_the_ids_have_in_common_is_named(by: str, of: int, number: int, seed: int) -> None:
    def biased(token: Ints) -> npt.NDArray[np.bool_]:
        return token % of == number if by == "modulo" else token // (512 // of) == number

    one = found(seed, biased)
    assert one is not None
    assert (one.by, one.of, one.number) == (by, of, number)
    assert one.nats == pytest.approx(0.1, abs=0.02)
    assert one.others == pytest.approx(0.0, abs=0.005)
    assert one.p_value < 0.001


def test_ids_that_have_nothing_in_common_are_no_pattern() -> None:
    rng = np.random.default_rng(9)
    for seed in range(20):
        some = rng.choice(VOCABULARY, 60, replace=False)
        assert found(seed, lambda token, some=some: np.isin(token, some)) is None


def test_what_makes_all_ids_lean_is_no_matter_of_ids() -> None:
    for seed in range(10):
        assert found(seed, lambda token: token >= 0) is None
        assert found(seed, lambda token: token < 0) is None
