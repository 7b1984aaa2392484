"""A few completions that lie farther off their scores than any of the baseline's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from worlds import BASE, FLAT, Broken, World, speculating

from parity.comparator import Comparison, compare
from parity.comparator.population.first_contexts import FirstContexts
from parity.comparator.population.odd_rows import (
    FEWEST,
    GUESS,
    LEAST_RATIO,
    MOST,
    SHOWN,
    TAIL,
    UNUSUAL,
    UNUSUAL_SHARE,
    Rows,
    chance,
    farthest,
    more_than,
    odd_rows,
    row_sums,
    rows_seen,
)
from parity.comparator.population.residual_tests import Arm
from parity.comparator.population.stretches import Stretch
from parity.comparator.reference.residuals import PairedResiduals
from parity.comparator.stats import Numerics, OddRows
from parity.records import Capture, Key, Scores, Verdict
from parity.records.next_steps import Step

ALPHA = 0.001
UNIT = 1 / 16


def odd(sd: Sequence[np.ndarray], rng: np.random.Generator, *, loop: bool = False) -> OddRows | None:
    """Of two arms whose residuals have these standard deviations, nats, shape (rows, tokens) each."""
    rows, tokens = sd[0].shape
    values = [rng.standard_t(5, one.shape) * one for one in sd]
    ids = rng.integers(0, 10**6, (rows, tokens))
    if loop:  # from token 24 on the same two tokens, the residuals of which are the same ones
        ids[:, 24:] = ids[:, 24:25]
        for one in values:
            one[:, 24:] = one[:, 24:25]
    row, place, flat = np.repeat(np.arange(rows), tokens), np.tile(np.arange(tokens), rows), ids.ravel()
    score = np.full(rows * tokens, -1.0)
    new = FirstContexts(len(flat)).of(flat, row, place)
    arms = Arm.of(values[0].ravel(), score, UNIT), Arm.of(values[1].ravel(), score, UNIT)
    keys = [Key(f"r{one}", 0, 0) for one in range(rows)]
    return odd_rows(summed(arms, row, place, new), float(arms[0].noise.mean()), UNIT, ALPHA, keys)


def summed(arms: tuple[Arm, Arm], row: np.ndarray, place: np.ndarray, new: np.ndarray) -> Rows:
    """Of one stretch."""
    sides = [one.residual for one in arms]
    residuals = PairedResiduals(*sides, *sides, row, place, place, row, row, by_scores=True)
    return row_sums(Stretch(residuals, arms, np.stack([new] * 3), 0))


def level(rows: int = 48, tokens: int = 96) -> np.ndarray:
    return np.full((rows, tokens), 0.01)


def flat_arms(beyond: float, count: int, own: float = 1.5, rows: int = 48, tokens: int = 96) -> tuple[Arm, Arm]:
    """Every token as noisy as usual; one of the baseline's completions `own` times, `count` of the candidate's
    `beyond` times."""
    sides = [np.full((rows, tokens), 0.02) for _ in range(2)]
    sides[0][0] *= own
    sides[1][:count] *= beyond
    score = np.full(rows * tokens, -1.0)
    base, other = (Arm.of(one.ravel(), score, UNIT) for one in sides)
    return base, other


@pytest.mark.parametrize(("at", "count"), [(0, FEWEST), (1, MOST)])
def test_what_is_said_to_be_seen_is_seen_and_half_of_it_is_not(at: int, count: int) -> None:
    rows, tokens = 48, 96
    row, place = np.repeat(np.arange(rows), tokens), np.tile(np.arange(tokens), rows)
    new = np.ones(rows * tokens, dtype=np.bool_)
    said = rows_seen(summed(flat_arms(1.0, 0), row, place, new), 0.02, UNIT, ALPHA)[at]
    assert said.completions == count

    def found(times: float) -> bool:
        arms = flat_arms(times, count)
        return odd_rows(summed(arms, row, place, new), 0.02, UNIT, ALPHA, [Key("r", 0, 0)] * rows) is not None

    assert found(1.05 * said.times)
    assert not found(1 + (said.times - 1) / 2)


def test_what_is_said_to_be_seen_is_seen_whichever_completions_it_is() -> None:
    """Of 95 %, as it says, whatever the noise of the run that says it: some are short, and some have less by chance."""
    seen = told = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        rows, tokens = 96, 64
        row, place = np.repeat(np.arange(rows), tokens), np.tile(np.arange(tokens), rows)
        length = rng.integers(8, tokens, rows)
        new = place < length[row]
        score = np.full(rows * tokens, -1.0)
        noise = [0.01 * rng.standard_t(5, rows * tokens) for _ in range(2)]
        own = Arm.of(noise[0], score, UNIT)
        usual = float(own.noise[new].mean())
        said = rows_seen(summed((own, Arm.of(noise[1], score, UNIT)), row, place, new), usual, UNIT, ALPHA)
        for one in said:
            hit = rng.permutation(rows)[: one.completions]
            other = Arm.of(noise[1] * np.where(np.isin(row, hit), one.times, 1.0), score, UNIT)
            found = odd_rows(summed((own, other), row, place, new), usual, UNIT, ALPHA, [Key("r", 0, 0)] * rows)
            told += 1
            seen += found is not None
    assert told >= 60
    assert seen >= 0.9 * told


def test_completions_without_residuals_cannot_be_said_to_show() -> None:
    row, place = np.repeat(np.arange(48), 96), np.tile(np.arange(96), 48)
    sums = summed(flat_arms(1.0, 0), row, place, np.ones(48 * 96, dtype=np.bool_))
    assert rows_seen(sums, 0.02, UNIT, ALPHA)[0].completions == FEWEST
    assert rows_seen(sums, 0.02, UNIT, ALPHA, every=96)[0].completions > FEWEST
    assert not rows_seen(sums, 0.02, UNIT, ALPHA, every=480)


# ------------------------------------------------------------------ its error rate


@pytest.mark.parametrize("alpha", [0.05, 0.01])
def test_rows_that_fall_off_as_said_are_seldom_odd(alpha: float) -> None:
    rng = np.random.default_rng(1)
    runs = 20_000
    found = 0
    for _ in range(runs):
        own, other = rng.pareto(TAIL, (2, 48)) + 1
        found += farthest(float(own.max()), np.sort(other)[::-1][:MOST])[0] < alpha
    assert found <= runs * alpha


def test_the_chance_is_that_of_falling_off_as_said() -> None:
    rng = np.random.default_rng(2)
    own, other = rng.pareto(TAIL, (2, 20_000, 256)) + 1
    third = np.sort(other, axis=1)[:, -3] / own.max(axis=1)
    for ratio in (1.3, 1.6, 2.0):
        said = chance(ratio, 3)
        assert (third >= ratio).mean() == pytest.approx(said, abs=4 * (said / 20_000) ** 0.5)
    assert chance(LEAST_RATIO - 0.01, 16) == 1.0


@pytest.mark.parametrize("share", [0.0, 0.1, 0.3])
def test_clean_rows_that_burst_in_both_arms_are_seldom_odd(share: float) -> None:
    """Stretches of 20 tokens with ten times the noise, in that share of the rows of each arm. Where few rows burst, all
    may be in one arm: no distribution is asked for, so it is more than ALPHA, and never more than 2 ** -FEWEST."""
    rng = np.random.default_rng(3)
    found = 0
    for _ in range(200):
        arms = [level(), level()]
        for arm in arms:
            for row in np.flatnonzero(rng.random(len(arm)) < share).tolist():
                start = int(rng.integers(0, 76))
                arm[row, start : start + 20] *= 10
        found += odd(arms, rng) is not None
    assert found <= (0 if not share else 200 * 2**-FEWEST)


def test_arms_of_which_one_is_noisier_everywhere_have_no_odd_rows() -> None:
    rng = np.random.default_rng(4)
    assert not any(odd((level(), 1.5 * level()), rng) for _ in range(50))


def test_loops_are_one_chance() -> None:
    rng = np.random.default_rng(5)
    assert not any(odd((level(), level()), rng, loop=True) for _ in range(50))


# ------------------------------------------------------------------ its power


def test_a_few_rows_are_found_by_name_and_size() -> None:
    rng = np.random.default_rng(6)
    noisy = level()
    noisy[[3, 11, 19, 40]] *= 3
    found = odd((level(), noisy), rng)
    assert found is not None
    assert sorted(found.named) == sorted(str(Key(f"r{row}", 0, 0)) for row in (3, 11, 19, 40))
    assert found.completions == 4
    assert found.times > found.baseline_times > 1
    assert found.p_value < ALPHA


def test_many_rows_that_are_each_a_little_off_are_found_beside_a_baselines_farther_one() -> None:
    rng = np.random.default_rng(12)
    own, noisy = level(96), level(96)
    own[5] *= 2.2
    noisy[:16] *= 1.6
    found = odd((own, noisy), rng)
    assert found is not None
    assert found.times < found.baseline_times
    assert found.completions >= 8
    assert sum(int(name.split()[0][1:]) < 16 for name in found.named) >= SHOWN - 1
    assert odd((noisy, own), rng) is None


def test_the_chance_of_more_rows_is_that_of_the_guess_it_makes() -> None:
    rng = np.random.default_rng(13)
    runs, expected, rows = 400_000, 1.5, 96
    unusual = rng.random(runs) < UNUSUAL
    mean = np.where(unusual, UNUSUAL_SHARE * rows, expected)
    rate = rng.gamma(GUESS, mean / GUESS)
    own, other = rng.poisson(rate), rng.poisson(rate)
    for seen, count in ((0, 4), (1, 6), (3, 8)):
        said = more_than(count, seen, expected, rows)
        alike = other[own == seen]
        assert (alike >= count).mean() == pytest.approx(said, abs=4 * (said / len(alike)) ** 0.5)


def test_what_shows_in_the_first_tokens_alone_is_found_in_long_completions() -> None:
    rng = np.random.default_rng(7)
    noisy = level(48, 512)
    noisy[:6, :32] *= 3
    found = odd((level(48, 512), noisy), rng)
    assert found is not None
    assert set(found.named) <= {str(Key(f"r{row}", 0, 0)) for row in range(6)}


def test_two_rows_and_short_runs_say_nothing() -> None:
    rng = np.random.default_rng(8)
    for rows, hit in ((48, FEWEST - 2), (12, 5)):
        noisy = level(rows)
        noisy[:hit] *= 5
        assert odd((level(rows), noisy), rng) is None


def test_the_baselines_own_rows_are_no_matter_of_the_candidate() -> None:
    rng = np.random.default_rng(9)
    noisy = level()
    noisy[:5] *= 3
    assert odd((noisy, level()), rng) is None
    assert odd((noisy, np.roll(noisy, 7, axis=0)), rng) is None


def test_no_more_than_some_are_named() -> None:
    rng = np.random.default_rng(10)
    noisy = level(160)
    noisy[:12] *= 3
    found = odd((level(160), noisy), rng)
    assert found is not None
    assert found.completions > SHOWN == len(found.named)


# ------------------------------------------------------------------ in a run


def few(seed: int, broken: Broken, hit: int = 5) -> tuple[Capture, Capture, Scores, set[Key]]:
    """48 completions, in so many of which the engine is broken."""
    world = World(seed, FLAT)
    asked = world.requests(48)
    base, clean = (world.run(asked, arm, max_tokens=128).capture for arm in (BASE, speculating(2)))
    long = [one for one in asked if len(one.prompt) > broken.lost + 1][:hit]
    wrong = world.run(long, replace(speculating(2), broken=broken), max_tokens=128).capture
    other = replace(clean, completions={**clean.completions, **wrong.completions})
    return base, other, world.score(base, other), set(wrong.completions)


def ids(result: Comparison) -> set[str]:
    return {one.id for one in result.reasons}


@pytest.mark.parametrize("broken", [Broken(noise=2.0), Broken(bias=0.2, biased=256)], ids=["noise", "bias"])
def test_wrong_numbers_in_five_of_48_rows_are_no_pass(broken: Broken) -> None:
    base, other, scores, hit = few(303, broken)
    result = compare(base, other, scores)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "conclude.odd_rows" in ids(result)
    assert isinstance(result.stats.numerics, Numerics)
    found = result.stats.numerics.odd_rows
    assert found is not None
    assert set(found.named) <= set(map(str, hit))
    assert [one.step for one in result.next_steps] == [Step.ROUNDS]
    assert not result.findings or not any(one.severity == "corrupt" for one in result.findings)


def test_a_chunk_of_the_prompt_that_is_lost_shows_in_its_rows() -> None:
    base, other, scores, hit = few(301, Broken(lost=18), hit=8)
    result = compare(base, other, scores)
    assert result.verdict is not Verdict.PASS
    assert isinstance(result.stats.numerics, Numerics)
    found = result.stats.numerics.odd_rows
    assert found is not None
    assert set(found.named) <= set(map(str, hit))


def test_other_kernels_leave_it_a_limit() -> None:
    base, other, scores, _ = few(303, Broken(noise=2.0))
    header = replace(other.header, backend="cpu")
    result = compare(base, replace(other, header=header), scores)
    assert "conclude.odd_rows" in ids(result)
    assert result.verdict is Verdict.PASS
