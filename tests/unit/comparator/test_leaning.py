"""Residuals that lean to one side by the token's id or its place: found, and not where they only scatter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from worlds import BASE, FLAT, PEAKED, SURE, WIDE, Fault, Shape, World, speculating
from worlds.engine import Broken

from parity.comparator import Comparison, compare
from parity.comparator.population.first_contexts import FirstContexts
from parity.comparator.population.leaning import BOTH, ask, by_id, leaning, learn
from parity.comparator.population.residual_tests import Arm
from parity.comparator.population.stretches import Stretch
from parity.comparator.reference.residuals import PairedResiduals
from parity.comparator.stats import Numerics
from parity.records import Verdict

IDS = 200


def scattered(rng: np.random.Generator, completions: int, tokens: int) -> dict[str, np.ndarray]:
    """Heavy tails, ids as frequent as words are, neighbours that share a part."""
    size = completions * tokens
    frequent = 1 / (np.arange(IDS) + 5)
    shared = np.repeat(rng.standard_normal(completions), tokens)
    return {
        "ids": rng.choice(IDS, size, p=frequent / frequent.sum()),
        "baseline": 0.01 * rng.standard_t(3, size) + 0.002 * shared,
        "candidate": 0.01 * rng.standard_t(3, size) + 0.002 * rng.permutation(shared),
        "unit": np.repeat(np.arange(completions), tokens),
    }


def asked(made: dict[str, np.ndarray], allowed: float = 0.0) -> tuple[float, float]:
    sides, unit, ids = (made["baseline"], made["candidate"]), made["unit"], made["ids"]
    score = np.full(len(unit), -1.0)
    residuals = PairedResiduals(*sides, score, score, unit, unit, unit, ids, ids, by_scores=True)
    arms = Arm.of(sides[0], score, 1 / 16), Arm.of(sides[1], score, 1 / 16)
    part = Stretch(residuals, arms, np.ones((3, len(unit)), dtype=np.bool_), 0)
    found = leaning(ask(by_id, BOTH, learn(by_id, BOTH, part), allowed, part))
    return found.p_value, found.size


def test_the_error_rate_holds() -> None:
    rng = np.random.default_rng(1)
    p_values = np.array([asked(scattered(rng, 80, 48))[0] for _ in range(300)])
    assert (p_values < 0.05).mean() <= 0.05 + 2 * (0.05 * 0.95 / 300) ** 0.5
    assert p_values.min() > 0.001 / 10


def test_a_bias_of_some_ids_is_seen_where_the_mean_of_all_stays_what_it_was() -> None:
    made = scattered(np.random.default_rng(2), 80, 48)
    up, down = made["ids"] % 10 == 3, made["ids"] % 10 == 4
    made["candidate"] = made["candidate"] + np.where(up, 0.02, 0.0) - np.where(down, 0.02 * up.sum() / down.sum(), 0.0)
    p_value, size = asked(made, allowed=0.001)
    assert p_value < 1e-6
    assert 0.005 < size < 0.03


def test_what_is_allowed_is_not_seen() -> None:
    made = scattered(np.random.default_rng(3), 400, 48)
    made["candidate"] = made["candidate"] + np.where(made["ids"] % 10 == 3, 0.008, 0.0)
    assert asked(made)[0] < 0.001
    assert asked(made, allowed=0.008)[0] > 0.1


def test_nothing_to_learn_from_says_nothing() -> None:
    made = scattered(np.random.default_rng(4), 1, 48)
    assert asked(made) == (1.0, 0.0)


# ------------------------------------------------------------------ in a run


def judged(broken: Broken, shape: Shape, rows: int) -> Comparison:
    world = World(11, shape)
    requests = world.requests(rows, seed=11)
    base = world.run(requests, BASE, max_tokens=64).capture
    fault = Fault("broken", "", "numerics", ("numerics",), broken=broken)
    other = world.run(requests, speculating(2), fault=fault, max_tokens=64).capture
    return compare(base, other, world.score(base, other))


def numbers(result: Comparison) -> Numerics:
    assert isinstance(result.stats.numerics, Numerics)
    return result.stats.numerics


@pytest.mark.parametrize("shape", [FLAT, PEAKED], ids=["flat", "peaked"])
def test_a_small_bias_on_32_ids_is_found_in_12288_tokens(shape: Shape) -> None:
    result = judged(Broken(bias=0.05), shape, 192)
    assert result.verdict is Verdict.DIVERGED
    assert "ids" in numbers(result).failed
    assert any("the same way each time" in str(reason) for reason in result.reasons)


@pytest.mark.parametrize("shape", [FLAT, PEAKED], ids=["flat", "peaked"])
def test_noise_on_every_logit_does_not_lean(shape: Shape) -> None:
    found = numbers(judged(Broken(noise=1.0), shape, 192))
    assert not {"ids", "places"} & set(found.failed)
    assert found.p_values.keys() >= {"ids", "places"}


def test_after_the_same_tokens_a_place_counts_once() -> None:
    tokens = np.array([1, 2, 3, 4, 5, 1, 2, 3, 4, 1, 2, 3, 4, 9])
    row = np.array([0] * 9 + [1] * 5)
    place = np.array([*range(9), *range(5)])
    kept = FirstContexts(len(tokens)).of(tokens, row, place)
    assert np.flatnonzero(~kept).tolist() == [8, 12]


def test_completions_that_end_in_the_same_loop_are_no_evidence() -> None:
    """In a loop an engine rounds the same way each time, in one completion and in another."""
    world = World(7001, SURE)
    requests = world.requests(48)
    rules: dict[str, Any] = {"max_tokens": 256, "ignore_eos": True}
    base, other = (world.run(requests, arm, **rules).capture for arm in (BASE, WIDE))
    result = compare(base, other, world.score(base, other))
    assert result.verdict is Verdict.PASS
    assert numbers(result).p_values["ids"] > 0.01
