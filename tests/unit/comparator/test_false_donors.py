"""Tokens that are wrong by themselves are no other request's, whoever says the same by chance."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from worlds import BASE, FLAT, PEAKED, Fault, World, speculating
from worlds.choosing import Lapse
from worlds.faults import rows, substitute
from worlds.model import Shape
from worlds.seen_as import VIEWS
from worlds.trials import Judged, Trial, judge
from worlds.world import WORDS

from parity.comparator import CompareOptions
from parity.records import Kind

UNSCORED, SCORED = "lists, unscored", "scored"


def judged(
    fault: Fault, view: str, seed: int, requests: int, temperature: float = 0.0, shape: Shape = PEAKED
) -> Judged:
    world = World(seed, shape)
    asked = world.requests(requests)
    same: dict[str, Any] = {"max_tokens": 64, "logprobs": 5, "temperature": temperature}
    base = world.run(asked, BASE, **same).capture
    made = world.run(asked, speculating(2), fault=replace(fault, rules={}), fault_seed=seed, **same)
    scores = {} if view == UNSCORED else world.score(base, made.capture)
    trial = Trial("", seed, base, made.capture, scores, made.truth, CompareOptions(detokenize=WORDS))
    return judge(VIEWS[view](trial))


def named(said: Judged) -> list[str]:
    return [str(one) for one in said.result.findings if one.kind is Kind.ROW_LEAK]


def second_best(start: int, count: int) -> Fault:
    lapse = Lapse(second=True, start=start, stop=start + count)
    return Fault("second", str(count), "rows", ("unjustified",), lapse=lapse, share=0.2)


def test_what_an_engine_goes_on_with_after_a_wrong_token_is_its_own() -> None:
    """Nothing is scored, and several other requests say the same after the same two tokens."""
    said = judged(second_best(7, 1), UNSCORED, 4100000, 256)
    assert said.found > 40
    assert named(said) == []
    assert any(getattr(one.evidence, "ambiguous", None) for one in said.result.corrupt), "whose they could be is said"


@pytest.mark.parametrize(("seed", "start", "temperature"), [(4100000, 31, 0.0), (4150010, 3, 1.0)])
def test_two_completions_with_the_same_wrong_tokens_name_nobody(seed: int, start: int, temperature: float) -> None:
    """Each says what the other does, and it is wrong in both."""
    said = judged(second_best(start, 2), SCORED, seed, 256, temperature)
    assert said.found > 5
    assert named(said) == []


@pytest.mark.parametrize(("start", "count", "most"), [(22, 2, 0), (25, 3, 1)])
def test_second_best_tokens_of_a_flat_model_are_hardly_anybodys(start: int, count: int, most: int) -> None:
    """Two such completions go on alike to their ends; three tokens in a row stand elsewhere."""
    said = judged(second_best(start, count), SCORED, 4150020, 512, shape=FLAT)
    assert said.found > 90
    assert len(named(said)) <= most


def test_among_drawn_tokens_only_those_speak_that_are_unlikely() -> None:
    wrong = Fault("random", "1", "rows", ("unjustified",), damage=substitute(1), share=0.2)
    said = judged(wrong, SCORED, 4100010, 256, temperature=1.0)
    assert said.found > 20
    assert named(said) == []


@pytest.mark.parametrize("name", ["rest of another row", "all of another row", "completions swapped"])
def test_what_was_taken_over_has_its_donor_without_scores(name: str) -> None:
    fault = next(one for one in rows() if one.name == name).at(0.1)
    said = judged(fault, UNSCORED, 4100100, 96)
    assert said.donor >= 0.7 * said.hit > 5
