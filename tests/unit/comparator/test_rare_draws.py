"""Tokens that a sampler hardly ever draws, one in each of many completions: no completion shows anything by itself."""

from __future__ import annotations

import math

import numpy as np
import pytest
from captures import capture, completion

from parity.comparator import Comparison, compare
from parity.comparator.population.rare_draws import PROVEN, RARE, Rarest, rarest, too_many
from parity.records import RUN, Key, Kind, ScoreKey, TopLogprobs, Verdict
from tests.unit.comparator.test_sampled import LENGTH, REQUESTS, SAMPLES, Model

TEST = "rare_draws"


def compared(rare: int, *, in_baseline: int = 0, baseline_scored: bool = True, seed: int = 0) -> Comparison:
    """So many completions of each arm, of 96, have one token of the 300th rank or beyond."""
    rng = np.random.default_rng(seed)
    model = Model(rng)
    known: dict[ScoreKey, TopLogprobs] = {}
    arms = []
    for name, count in (("cpu/base", in_baseline), ("cpu/mtp", rare)):
        ranks = model.ranks(rng, 0.8)
        for number in rng.choice(REQUESTS * SAMPLES, count, replace=False):
            ranks[number // SAMPLES, number % SAMPLES, rng.integers(LENGTH)] = rng.integers(300, 400)
        arm, scores = model.arm(name, ranks)
        arms.append(arm)
        known |= scores if count == rare or baseline_scored else {}
    return compare(*arms, known)


def found(result: Comparison) -> list[str]:
    return [one.request for one in result.corrupt if one.evidence.to_json().get("test") == TEST]


def test_a_token_of_many_completions_is_a_fault_of_the_run() -> None:
    result = compared(30)
    assert found(result) == [RUN]
    (one,) = [one for one in result.corrupt if one.evidence.to_json().get("test") == TEST]
    assert one.kind is Kind.UNJUSTIFIED
    assert not [one for one in result.corrupt if one.request != RUN], "none of them shows it by itself"
    said = one.evidence.why.parameters
    assert said["of"] == REQUESTS * SAMPLES
    assert 12 <= said["some"] <= 36
    assert said["baseline"] < said["some"] / 4


@pytest.mark.parametrize("seed", range(6))
def test_clean_draws_have_no_more_than_are_due(seed: int) -> None:
    assert compared(0, seed=seed).verdict is Verdict.PASS


def test_what_the_baseline_does_as_well_is_no_fault_of_the_candidate() -> None:
    assert found(compared(30, in_baseline=30)) == []


def test_without_scores_of_the_baseline_nothing_is_said() -> None:
    assert found(compared(30, baseline_scored=False)) == []


def some(*nats: float, of: int = 64) -> list[Rarest]:
    rest = [2.0] * (of - len(nats))
    return [Rarest(Key(f"p{at}", 0, 0), one, 100) for at, one in enumerate([*nats, *rest])]


def test_the_proof_is_that_of_chernoff() -> None:
    result = too_many(some(), some(*[16.0] * 10))
    assert result is not None
    due = 64 * 100 * math.exp(-15)
    assert (result.nats, result.of, result.baseline) == (15.0, 64, 0)
    assert [key.request for key in result.keys] == [f"p{at}" for at in range(10)]
    assert result.due == pytest.approx(due)
    assert result.proof == pytest.approx(10 * math.log(10 / due) - 10 + due - math.log(len(RARE)))
    assert result.proof > PROVEN


@pytest.mark.parametrize(
    ("theirs", "mine", "is_found"), [(0, 8, False), (0, 9, True), (1, 11, False), (1, 12, True), (4, 20, True)]
)
def test_the_baseline_must_have_fewer_than_chance_leaves_it(theirs: int, mine: int, is_found: bool) -> None:
    """If both had as many, 9 of 9 in one arm come once in 512 runs."""
    assert (too_many(some(*[16.0] * theirs), some(*[16.0] * mine)) is not None) is is_found
    assert too_many([], some(*[16.0] * mine)) is None


def test_a_longer_baseline_would_have_more() -> None:
    assert too_many(some(of=80), some(*[25.0] * 3, of=8)) is not None
    assert too_many(some(of=8), some(*[25.0] * 3, of=8)) is None


def test_as_many_as_are_due_are_seldom_taken_for_more() -> None:
    """Tail probabilities that are uniform, as those of clean draws are at most."""
    rng = np.random.default_rng(0)
    for _ in range(1000):
        logs = np.log(rng.random((64, 100)))
        candidate = [rarest(Key(f"p{at}", 0, 0), row, 0.0) for at, row in enumerate(logs)]
        assert too_many(some(), [one for one in candidate if one is not None]) is None


def test_what_is_not_known_is_no_rare_token() -> None:
    key = Key("p0", 0, 0)
    assert rarest(key, np.array([np.nan, np.nan]), 0.1) is None
    assert rarest(key, np.array([]), 0.1) is None
    assert rarest(key, np.array([np.nan, -9.0, -1.0]), 0.5) == Rarest(key, 8.5, 2)


def drawn_cold(temperature: float, gap: float) -> Comparison:
    """In six of 32 completions the candidate drew a token that lies so little below the best."""
    rng = np.random.default_rng(1)
    known: dict[ScoreKey, TopLogprobs] = {}
    arms = []
    for name, count in (("cpu/base", 0), ("cpu/mtp", 6)):
        rows = []
        for number in range(32):
            best = np.arange(100, 140)
            tokens = best.copy()
            if number < count:
                tokens[rng.integers(40)] += 100
            rows.append(completion(tokens, f"p{number}"))
            ids = np.column_stack([best, best + 100])
            values = np.tile([-0.6, -0.6 - gap], (40, 1))
            known[ScoreKey(name, *rows[-1].key)] = TopLogprobs(ids, values)
        arms.append(capture(name, *rows, temperature=temperature))
    return compare(*arms, known)


@pytest.mark.parametrize(("temperature", "gap"), [(0.005, 0.22), (0.002, 0.15)])
def test_a_near_tie_at_a_temperature_next_to_nothing_is_no_rare_draw(temperature: float, gap: float) -> None:
    assert found(drawn_cold(temperature, gap)) == []


@pytest.mark.parametrize("columns", [1, 13])
def test_lists_of_other_lengths_show_other_rare_tokens(columns: int) -> None:
    """Here 30 completions of both arms have one, and the baseline's scores list the chosen token alone."""
    rng = np.random.default_rng(0)
    model, known, arms = Model(rng), dict[ScoreKey, TopLogprobs](), []
    for name in ("cpu/base", "cpu/mtp"):
        ranks = model.ranks(rng, 0.8)
        for number in rng.choice(REQUESTS * SAMPLES, 30, replace=False):
            ranks[number // SAMPLES, number % SAMPLES, rng.integers(LENGTH)] = rng.integers(300, 400)
        arm, scores = model.arm(name, ranks)
        arms.append(arm)
        if name == "cpu/base":
            alone = {key: arm.completions[Key(*key[1:])].token_ids[:, None] for key in scores}
            scores = {key: _of_chosen(top, alone[key], columns) for key, top in scores.items()}
        known |= scores
    assert found(compare(*arms, known)) == []


def _of_chosen(top: TopLogprobs, tokens: np.ndarray, columns: int) -> TopLogprobs:
    """`columns`: with room for as many tokens, as a table of both arms' scores has it."""
    ids, values = np.full((len(tokens), columns), -1), np.full((len(tokens), columns), np.nan)
    ids[:, :1], values[:, 0] = tokens, np.where(top.ids == tokens, top.values, -np.inf).max(axis=1)
    return TopLogprobs(ids, values)
