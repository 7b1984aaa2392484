"""Noise that is larger in one part of the tokens: from some place on, after long prompts, in one round."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from worlds import BASE, FLAT, PEAKED, Broken, World, speculating
from worlds.trials import Faulty
from worlds.unseen import unseen

from parity.comparator import Comparison, compare
from parity.comparator.population.parts import BEGINS, LEAST_COMPLETIONS, ask, asked_of, measure, noisy_part, of_numbers
from parity.comparator.population.residual_tests import LEAST_FACTOR
from parity.comparator.population.stretches import Looked, in_one_pass
from parity.comparator.reference.residuals import PairedResiduals, Residuals
from parity.comparator.stats import NoisyPart, Numerics
from parity.records import Key, Verdict
from parity.records.next_steps import Step

ALPHA = 0.001
UNIT = 1 / 16
ROWS, TOKENS = 48, 96


class Run:
    """Two clean arms: residuals of 0.01 nats, with tails; a third of the completions in each of three rounds."""

    def __init__(self, seed: int, *, loops: bool = False) -> None:
        self.rng = np.random.default_rng(seed)
        self.row, self.place = np.repeat(np.arange(ROWS), TOKENS), np.tile(np.arange(TOKENS), ROWS)
        self.prompt = np.repeat(self.rng.integers(4, 40, ROWS), TOKENS)
        self.sides = [0.01 * self.rng.standard_t(5, ROWS * TOKENS) for _ in range(2)]
        self.tokens = self.rng.integers(0, 10**6, ROWS * TOKENS)
        self.keys = [Key(f"r{one // 3}", one % 3, 0) for one in range(ROWS)]
        if loops:  # from token 24 on the same token, with one residual
            for one in (self.tokens, *self.sides):
                by_row = one.reshape(ROWS, TOKENS)
                by_row[:, 24:] = by_row[:, 24:25]

    def found(self, times: float = 1.0, inside: np.ndarray | None = None, everywhere: float = 1.0) -> NoisyPart | None:
        """`times` the noise at the candidate's tokens that are `inside`."""
        other = self.sides[1] * np.where(np.zeros(len(self.row), bool) if inside is None else inside, times, 1.0)
        other = other * everywhere
        score = np.full(len(self.row), -1.0)
        residuals = PairedResiduals(
            self.sides[0], other, score, score, self.row, self.place, self.prompt + self.place, self.tokens,
            self.tokens, by_scores=True,
        )  # fmt: skip
        return self.noisy(residuals)

    def noisy(self, residuals: PairedResiduals) -> NoisyPart | None:
        looked = Looked(Residuals.of(residuals), UNIT)
        (by_part,) = in_one_pass(looked, [lambda part: measure(part, self.keys)])
        asked = asked_of(by_part, UNIT)
        (answers,) = in_one_pass(looked, [lambda part: ask(asked, self.keys, part)])
        return noisy_part(asked, answers, ALPHA)


def _bound_before(bound: int) -> int:
    return BEGINS[BEGINS.index(bound) - 1] if bound in BEGINS[1:] else bound


def test_it_is_named_by_where_it_begins() -> None:
    run = Run(1)
    rounds = np.array([key.round for key in run.keys])[run.row]
    for by, bound, inside in (
        ("place", 64, run.place >= 64),
        ("prompt", 24, run.prompt >= 24),
        ("context", 64, run.prompt + run.place >= 64),
        ("round", 2, rounds == 2),
    ):
        found = run.found(2.5, inside)
        assert found is not None, by
        assert (found.by, found.bound) in {(by, bound), (by, _bound_before(bound))}  # by chance it may seem earlier
        most = inside.sum() if found.bound == bound else 1.5 * inside.sum()
        assert 0.85 * inside.sum() < found.tokens <= most  # some contexts are taken for others' by their hash
        assert found.ratio == pytest.approx(2.5, rel=0.25)
        assert found.ratio_elsewhere == pytest.approx(1.0, abs=0.1)


def test_samples_are_parts_as_rounds_are() -> None:
    run = Run(2)
    run.keys = [Key(one.request, 0, one.round) for one in run.keys]
    found = run.found(2.5, np.array([key.sample for key in run.keys])[run.row] == 1)
    assert found is not None
    assert (found.by, found.bound) == ("sample", 1)


def test_clean_arms_have_none_whatever_their_noise() -> None:
    assert not any(Run(seed).found() for seed in range(100))
    assert not any(Run(seed).found(everywhere=1.6) for seed in range(50))


def test_noise_that_is_larger_at_some_places_in_both_arms_is_none() -> None:
    run = Run(3)
    late = run.place >= 48
    run.sides = [np.where(late, 3.0, 1.0) * one for one in run.sides]
    assert run.found() is None


def test_loops_are_one_chance() -> None:
    late = Run(4).place >= 24
    assert all(Run(seed, loops=True).found(4.0, late & (Run(seed).row == 3)) is None for seed in range(10))


def test_what_arms_of_one_engine_may_differ_by_is_none() -> None:
    """However many tokens show it."""
    run = Run(5)
    late = run.place >= 48
    run.sides = [0.01 * np.sign(one) for one in run.sides]
    assert run.found(0.95 * LEAST_FACTOR, late) is None
    assert run.found(1.15 * LEAST_FACTOR, late) is not None


def test_few_completions_are_a_matter_of_rows() -> None:
    run = Run(6)
    longest = np.sort(np.unique(run.prompt))[-(LEAST_COMPLETIONS // 4)]
    few = run.prompt >= longest
    assert len(np.unique(run.row[few])) < LEAST_COMPLETIONS
    run.prompt = np.where(few, 200, 8)
    run.keys = []
    assert run.found(6.0, few) is None


class Rounds(Run):
    """Of `count` rounds each says the same; from round `turn` on all have other residuals than before, the same in
    each. With `fresh`, residuals of each round are its own; with `rare`, few are large."""

    def __init__(self, seed: int, count: int, turn: int, *, fresh: bool = False, rare: bool = False) -> None:
        super().__init__(seed)
        requests = 16
        size, rows = requests * TOKENS, requests * count
        self.row, self.place = np.repeat(np.arange(rows), TOKENS), np.tile(np.arange(TOKENS), rows)
        self.prompt = np.tile(np.repeat(self.rng.integers(4, 40, requests), TOKENS), count)
        each = [[self._drawn(size, rare) for _ in range(count if fresh else 2)] for _ in range(2)]
        of = [number if fresh else int(number >= turn) for number in range(count)]
        self.sides = [np.concatenate([side[which] for which in of]) for side in each]
        self.tokens = np.tile(self.rng.integers(0, 10**6, size), count)
        self.keys = [Key(f"r{row % requests}", row // requests, 0) for row in range(rows)]

    def _drawn(self, size: int, rare: bool) -> np.ndarray:
        return 0.001 + 0.15 * (self.rng.random(size) < 0.01) if rare else 0.01 * self.rng.standard_t(5, size)

    def noisy(self, residuals: PairedResiduals) -> NoisyPart | None:
        rounds = np.array([key.round for key in self.keys])
        looked = Looked(Residuals.of(residuals), UNIT, lambda some: rounds[some.row])
        return noisy_part(*of_numbers({"round": looked}, self.keys, UNIT), ALPHA)


@pytest.mark.parametrize(("count", "turn"), [(12, 8), (40, 30), (40, 33)])
def test_the_last_rounds_are_a_part(count: int, turn: int) -> None:
    run = Rounds(1, count, turn, fresh=True)
    rounds = np.array([key.round for key in run.keys])[run.row]
    found = run.found(2.0, rounds >= turn)
    assert found is not None
    assert found.by == "since"
    assert abs(found.bound - turn) <= 1  # only some numbers of last rounds are asked
    assert found.ratio == pytest.approx(2.0, rel=0.25)
    assert found.ratio_elsewhere == pytest.approx(1.0, abs=0.1)


def test_what_a_request_says_in_many_rounds_is_one_chance() -> None:
    """From some round on all residuals are others, as large as before, and the same in each round: ten rounds of them
    say no more than one. A few large residuals make the sums of those rounds 1.2 times as large by chance."""
    assert not any(Rounds(seed, 40, 30, rare=True).found() for seed in range(30))


# ------------------------------------------------------------------ the verdict


def late(broken: Broken, **header: str) -> Comparison:
    world = World(303, FLAT)
    asked = world.requests(64)
    arm = replace(speculating(2), broken=broken)
    base, other = (world.run(asked, one, max_tokens=160, ignore_eos=True).capture for one in (BASE, arm))
    scores = world.score(base, other)
    return compare(base, replace(other, header=replace(other.header, **header)), scores)


LEANING = Broken(bias=0.05, biased=256, start=120)


def test_wrong_numbers_late_in_completions_are_no_pass() -> None:
    result = late(LEANING)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert isinstance(result.stats.numerics, Numerics)
    assert not result.stats.numerics.failed
    found = result.stats.numerics.noisy_part
    assert found is not None
    assert found.ratio > 1.5 * found.ratio_elsewhere
    assert next(one.id for one in result.reasons) == "conclude.noisy_part"
    assert [one.step for one in result.next_steps] == [Step.LONGER]


@pytest.mark.parametrize(
    ("size", "by", "bound"), [("int8, last of 3 rounds", "round", 2), ("int8, prompts of 20 and more", "prompt", 20)]
)
def test_weights_of_less_bits_in_one_part_are_no_pass(size: str, by: str, bound: int) -> None:
    """In the last round most contexts are those of the rounds before it, and a third of the prompts have 20 tokens."""
    (fault,) = (one for one in unseen() if (one.name, one.size) == ("weights quantised", size))
    trial = Faulty(1710000, PEAKED, first=16).trial(fault, 3)
    result = compare(trial.baseline, trial.candidate, trial.scores)
    assert isinstance(result.stats.numerics, Numerics)
    found = result.stats.numerics.noisy_part
    assert found is not None
    assert (found.by, found.bound) == (by, bound)
    assert result.verdict is not Verdict.PASS


def test_weights_of_less_bits_in_the_last_rounds_are_no_pass() -> None:
    """No single round shows it, and all of them are asked the same, so that the rest is as it was."""
    world = World(5000001, FLAT)
    asked = world.requests(24)
    sides = (BASE, speculating(2), replace(speculating(2), broken=Broken(weights="int8")))
    base, sound, broken = (world.run(asked, one, max_tokens=64, rounds=40).capture for one in sides)
    late = {key: one for key, one in broken.completions.items() if key.round >= 30}
    candidate = replace(sound, completions={**sound.completions, **late})
    result = compare(base, candidate, world.score(base, candidate))
    assert isinstance(result.stats.numerics, Numerics)
    found = result.stats.numerics.noisy_part
    assert found is not None
    assert (found.by, found.bound) == ("since", 30)
    assert result.verdict is not Verdict.PASS


def test_rounds_that_say_the_same_in_both_arms_are_no_parts() -> None:
    world = World(305, FLAT)
    asked = world.requests(32)
    base, other = (world.run(asked, one, max_tokens=96, rounds=3).capture for one in (BASE, speculating(2)))
    result = compare(base, other, world.score(base, other))
    assert isinstance(result.stats.numerics, Numerics)
    assert result.stats.numerics.noisy_part is None
    assert result.verdict is Verdict.PASS


def test_other_kernels_leave_it_a_limit() -> None:
    result = late(LEANING, backend="cpu")
    assert result.verdict is Verdict.PASS
    assert "conclude.noisy_part" in {one.id for one in result.reasons}
