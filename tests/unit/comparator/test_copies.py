"""Chunks of drawn completions that stand twice in a row: how likely is that?"""

from __future__ import annotations

import numpy as np
import pytest
from worlds import FLAT, Fault
from worlds.choosing import Lapse
from worlds.faults import double
from worlds.seen_as import VIEWS
from worlds.trials import Faulty, judge

from parity.comparator.detect.trials import with_entries
from parity.comparator.reference.copies import chance_logs, find_copy
from parity.comparator.reference.drawn_lists import Cut
from parity.comparator.reference.surprisal import tail_logs
from parity.records import Kind, TopLogprobs

ALPHA = 0.001


@pytest.mark.parametrize("weights", [[0.5, 0.3, 0.2], [0.9, 0.06, 0.04], [0.02] * 50], ids=["few", "sure", "flat"])
def test_drawn_tokens_stand_twice_by_chance_as_seldom_as_it_says(weights: list[float]) -> None:
    """2,000 runs of one completion, at an error rate of 5 %: many of them repeat themselves."""
    rng, chance = np.random.default_rng(7), np.array(weights)
    streams = rng.choice(len(chance), size=(2_000, 96), p=chance)
    found = [find_copy(one, np.log(chance)[one], 96, 0.05, 0.0) for one in streams]
    assert sum(one is not None for one in found) <= 120


def test_a_chunk_that_stands_twice_is_named_with_its_place() -> None:
    tokens = np.array([*range(10, 40), *range(32, 40), *range(50, 80)])
    found = find_copy(tokens, np.full(len(tokens), -2.5), len(tokens), ALPHA, 0.1)
    assert found is not None
    assert (found.position, found.length) == (38 - 8, 8)
    assert found.p_value == pytest.approx(np.exp(-8 * 2.4) * len(tokens) * 18)
    likely = np.full(len(tokens), -2.5)
    likely[30:38] = -0.3  # the model says it again by itself
    assert find_copy(tokens, likely, len(tokens), ALPHA, 0.1) is None
    unknown = np.full(len(tokens), np.nan)
    assert find_copy(tokens, unknown, len(tokens), ALPHA, 0.1) is None


@pytest.mark.parametrize("more", [{}, {"top_p": 0.9, "top_k": 30}], ids=["all", "cut off"])
def test_tokens_said_twice_are_found_in_drawn_rows_of_a_server(more: dict[str, float]) -> None:
    """Each of them by itself is as likely as others are."""
    rules = {"temperature": 1.0, "ignore_eos": True, **more}
    fault = Fault("double 8", "", "", (), damage=double(8), again=True, share=0.1, rules=rules)
    trial = VIEWS["server, scored"](Faulty(12, FLAT, first=64).trial(fault, 1))
    judged = judge(trial)
    assert judged.seen
    assert not judged.accused
    assert judged.hit == 6
    assert judged.place == judged.found >= 5
    assert {one.kind for one in judged.result.corrupt} == {Kind.DUPLICATION}


def test_greedy_rows_that_end_in_loops_are_named_by_their_temperature() -> None:
    """From the first token on: a loop says its chunks again, as a duplication would."""
    lapse = Lapse(values={"temperature": 0.0})
    fault = Fault("greedy", "", "", ("wrong_temperature",), lapse=lapse, share=0.1, rules={"temperature": 1.0})
    judged = judge(Faulty(4_500_000, FLAT, first=64, max_tokens=256).trial(fault, 1))
    assert not judged.accused
    assert judged.kind == judged.found == judged.hit == 6
    rows = [one for one in judged.result.corrupt if one.key in judged.trial.truth.rows]
    assert {one.position for one in rows} == {0}


@pytest.mark.parametrize(
    ("cut", "kept"),
    [(Cut(), 1.0), (Cut(top_p=0.8), 0.8), (Cut(top_k=2), 0.8), (Cut(min_p=0.5), 0.8), (Cut(2, 0.5, 0.1), 0.4)],
)
def test_the_chance_of_a_token_is_bounded_by_what_a_cut_off_keeps(cut: Cut, kept: float) -> None:
    chances = np.array([0.5, 0.3, 0.15, 0.05])
    top = TopLogprobs(np.tile(np.arange(4), (5, 1)), np.tile(np.log(chances), (5, 1)))
    said = chance_logs(top, np.array([0, 1, 2, 3, 9]), 1.0, cut)
    assert np.exp(said[:4]) == pytest.approx(np.minimum(1.0, chances / kept))
    assert np.isnan(said[4])


def test_a_token_that_a_list_names_twice_counts_once() -> None:
    """vLLM's flat lists have the chosen token first, and again among the best."""
    once = TopLogprobs(np.array([[3, 5, -1], [7, 5, 9]]), np.log([[0.7, 0.2, 1.0], [0.1, 0.6, 0.2]]))
    twice = TopLogprobs(
        np.array([[3, 5, 3], [7, 5, 9]]),
        np.concatenate([once.values[:, :2], [[np.log(0.7)], [np.log(0.2)]]], axis=1),
    )
    tokens = np.array([3, 7])
    for logs in (
        lambda top: chance_logs(top, tokens, 0.8, Cut()),
        lambda top: tail_logs(top, tokens, 0.8, 100),
        lambda top: np.exp(with_entries(top, np.array([11, 11]), 100).values[:, -1]),
    ):
        assert logs(twice) == pytest.approx(logs(once))
