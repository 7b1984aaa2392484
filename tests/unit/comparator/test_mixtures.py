"""Completions of which some are drawn otherwise than asked: likelihood ratios, their mixtures, and what a PASS says."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from parity.comparator.population.mixtures import Mixed, ways_seen
from parity.comparator.population.mixtures import test_mixtures as mixtures_test
from parity.comparator.reference.drawn_lists import Cut, Draws
from parity.comparator.reference.other_draws import WAYS, ArmsOdds, Odds, odds_of
from parity.comparator.reference.temperature import drawn_from
from parity.comparator.statistics import FloatArray, holm
from parity.records import Key

ALPHA = 0.001 / 6
ROUNDING = 0.0005
NO_CUT = Cut()
WIDTH = 8


def _lists(rng: np.random.Generator, count: int) -> Draws:
    """Lists that name every token but one."""
    logits = rng.normal(0.0, 2.0, (count, WIDTH + 1))
    logits[:, :WIDTH] = -np.sort(-logits[:, :WIDTH], axis=1)
    logits[:, WIDTH] = logits[:, WIDTH - 1] - 0.5
    logs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return Draws(logs[:, :WIDTH], np.exp(logs[:, WIDTH]), np.zeros(count, dtype=np.int64), 1)


def _drawn(rng: np.random.Generator, lists: Draws, weights: FloatArray) -> Draws:
    reach = np.cumsum(weights, axis=1)
    return replace(lists, drawn=(reach < rng.random((len(lists), 1)) * reach[:, -1:]).sum(axis=1))


def _arm(
    seed: int, temperature: float, *, hot: float = 1.0, share: float = 0.0, cut: Cut = NO_CUT, rows: int = 60
) -> Odds:
    """Completions of 80 tokens; a share of them drawn at `hot` times the temperature."""
    rng = np.random.default_rng(seed)
    made = []
    for number in range(rows):
        lists = _lists(rng, 80)
        times = hot if number < share * rows else 1.0
        made.append(_drawn(rng, lists, drawn_from(lists, temperature * times, cut)))
    return odds_of(made, temperature, cut)


def _tested(base: Odds, arm: Odds) -> Mixed:
    found = mixtures_test(ArmsOdds(base, arm), ROUNDING)
    assert found is not None
    return found


@pytest.mark.parametrize("cut", [NO_CUT, Cut(top_k=4), Cut(top_p=0.8), Cut(min_p=0.1)], ids=str)
@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_each_ratio_is_one_on_average_where_tokens_are_drawn_as_asked(temperature: float, cut: Cut) -> None:
    rng = np.random.default_rng(3)
    lists = _lists(rng, 8_000)
    drawn = _drawn(rng, lists, drawn_from(lists, temperature, cut))
    odds = odds_of([drawn.where(slice(n, n + 1)) for n in range(len(drawn))], temperature, cut)
    ratios = np.exp(odds.logs)
    error = ratios.std(axis=0) / np.sqrt(len(ratios))
    assert (ratios.mean(axis=0) < 1 + 4 * error + 1e-9).all()
    assert (ratios.mean(axis=0) > 1 - 4 * error - 1e-9).all()


def test_clean_arms_are_accused_by_no_mixture() -> None:
    for seed in range(4):
        assert _tested(_arm(2 * seed, 0.8), _arm(2 * seed + 1, 0.8)).p_value > 0.001
        assert _tested(_arm(2 * seed, 1.0), _arm(2 * seed + 1, 1.0)).p_value > 0.001


@pytest.mark.parametrize(("hot", "share"), [(1.6, 0.1), (0.5, 0.15), (1.15, 1.0)])
def test_a_share_of_the_completions_is_enough(hot: float, share: float) -> None:
    found = _tested(_arm(1, 0.8), _arm(2, 0.8, hot=hot, share=share))
    assert found.p_value < ALPHA
    assert found.way.name in ("temperature", "best", "last", "redrawn")
    assert (found.share < 0.6) is (share < 0.6)


def test_what_a_pass_says_it_would_have_seen_is_seen() -> None:
    base, clean = _arm(1, 0.8), _arm(2, 0.8)
    said = {(one.way, one.size): one.share for one in ways_seen(ArmsOdds(base, clean), ROUNDING, ALPHA)}
    for size in (0.7, 1.6):
        share = said["temperature", size]
        assert share is not None
        seen = [_tested(base, _arm(100 + n, 0.8, hot=size, share=share)).p_value < ALPHA for n in range(6)]
        assert sum(seen) >= 4
    assert said["temperature", 1.6] < said["temperature", 1.15]  # type: ignore[operator]


def test_what_a_missed_fault_has_won_does_not_count_for_what_would_be_seen() -> None:
    """A fifth of the completions at 1.3 times the temperature: two runs that show it nearly."""
    for seed in (1002, 1028):
        arms = ArmsOdds(_arm(seed, 0.8), _arm(seed + 1, 0.8, hot=1.3, share=0.2))
        found = mixtures_test(arms, ROUNDING)
        assert found is not None
        assert found.p_value > ALPHA
        said = {(one.way, one.size): one.share for one in ways_seen(arms, ROUNDING, ALPHA)}["temperature", 1.3]
        assert said is None or said > 0.2


def test_what_the_baseline_does_as_well_is_its_habit() -> None:
    assert _tested(_arm(1, 0.8, hot=1.3, share=1.0), _arm(2, 0.8, hot=1.3, share=1.0)).p_value > 0.05


def test_penalties_that_some_completions_ignore_are_named() -> None:
    rng = np.random.default_rng(8)
    temperature, sides = 0.8, []
    for ignoring in (0, 12):
        made = []
        for number in range(60):
            raw = _lists(rng, 80)
            pushed = np.where(rng.random(raw.logs.shape) < 0.4, 1.0, 0.0)
            logs = raw.logs - pushed
            order = np.argsort(-logs, axis=1)
            logs, pushed = (np.take_along_axis(one, order, 1) for one in (logs, pushed))
            logs = logs - np.log(np.exp(logs).sum(axis=1, keepdims=True))
            lists = replace(raw, logs=logs, rest=np.zeros(80), pushed=pushed)
            seen = logs + pushed if number < ignoring else logs
            weights = np.concatenate([np.exp(seen / temperature), np.zeros((80, 1))], axis=1)
            made.append(_drawn(rng, lists, weights))
        sides.append(odds_of(made, temperature, NO_CUT))
    found = _tested(*sides)
    assert found.p_value < ALPHA
    assert (found.way.name, found.way.size) == ("penalties", 0.0)


def test_ways_that_are_none_of_the_requests_are_not_said() -> None:
    arm = _arm(1, 0.8)
    assert {one.way for one in ways_seen(ArmsOdds(arm, arm), ROUNDING, ALPHA)} == {one.name for one in WAYS} - {
        "penalties"
    }


def test_without_the_baseline_nothing_is_tested() -> None:
    assert mixtures_test(ArmsOdds(Odds.none(), _arm(1, 0.8)), ROUNDING) is None
    assert ways_seen(ArmsOdds(Odds.none(), _arm(1, 0.8)), ROUNDING, ALPHA) == ()


def test_weights_share_the_error_rate() -> None:
    adjusted = holm({"a": 0.001, "b": 0.001, "c": 0.02}, {"a": 2.0})
    assert adjusted == pytest.approx({"a": 0.002, "b": 0.002, "c": 0.02})


def _stuck(seed: int, rows: int, odd: int) -> ArmsOdds:
    """Of the candidate's completions the first `odd` hold tokens that no draw gives."""
    rng, lists = np.random.default_rng(seed), []
    for number in range(rows):
        some = _lists(rng, 80)
        drawn = drawn_from(some, 1.0, NO_CUT)
        one = _drawn(rng, some, drawn)
        if number < odd:
            least = np.argmin(one.logs, axis=1)
            one = replace(one, drawn=np.where(np.arange(len(one)) < 30, least, one.drawn))
        lists.append(one)
    keys = [Key(f"r{number}", 0, 0) for number in range(rows)]
    return ArmsOdds(_arm(seed + 1, 1.0), odds_of(lists, 1.0, NO_CUT), keys=keys)


@pytest.mark.parametrize("odd", [1, 2, 3])
def test_what_few_completions_hold_is_said_of_these(odd: int) -> None:
    found = mixtures_test(_stuck(7, 60, odd), ROUNDING)
    assert found is not None
    assert found.p_value < 1e-6
    assert set() < {one.request for one in found.of_few} <= {f"r{n}" for n in range(odd)}


def test_what_many_completions_hold_is_said_of_the_run() -> None:
    hot = ArmsOdds(_arm(1, 0.8), _arm(2, 0.8, hot=1.6, share=0.5), keys=[Key(f"r{n}", 0, 0) for n in range(60)])
    for arms in (hot, _stuck(7, 60, 12), _stuck(7, 6, 1)):
        found = mixtures_test(arms, ROUNDING)
        assert found is not None
        assert found.p_value < 1e-6
        assert found.of_few == ()


def test_a_little_in_all_completions_is_not_said_of_few() -> None:
    keys = [Key(f"r{n}", 0, 0) for n in range(60)]
    found = [
        mixtures_test(ArmsOdds(_arm(seed, 0.8), _arm(seed + 1, 0.8, hot=1.12, share=1.0), keys=keys), ROUNDING)
        for seed in range(0, 24, 2)
    ]
    seen = [one for one in found if one is not None and one.p_value < 0.001]
    assert len(seen) > 3
    assert [one.of_few for one in seen if one.of_few] == []
