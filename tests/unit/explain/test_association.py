"""Conditions against faults: exact p-values, the true condition first, no alarm where there is none."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from step_world import World

from parity.explain.association import SURE, associate, holm, tail
from parity.explain.hypotheses import Form, log_factors
from parity.explain.ledger import Ledger
from parity.explain.predicates import CIRCUMSTANCES, PREDICATES, asked_of, prior_of
from parity.records import Key
from parity.view.why import explained


@settings(deadline=None, max_examples=100)
@given(data=st.data(), total=st.integers(1, 60))
def test_the_tail_is_the_exact_one(data: st.DataObject, total: int) -> None:
    faults = data.draw(st.integers(0, total))
    holds = data.draw(st.integers(0, total))
    both = data.draw(st.integers(0, min(faults, holds)))
    ways = sum(math.comb(holds, x) * math.comb(total - holds, faults - x) for x in range(both, min(holds, faults) + 1))
    assert tail(faults, holds, total, both) == pytest.approx(ways / math.comb(total, faults), rel=1e-6, abs=1e-12)


def test_holm_by_hand() -> None:
    assert holm([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])


@pytest.fixture(scope="module")
def ledger() -> Ledger:
    world = World(11, rows=6, steps=400, budget=20)
    return Ledger(world.recorded(), world.prompts)


def test_every_condition_is_a_mask_of_its_own(ledger: Ledger) -> None:
    masks = asked_of(ledger)
    assert list(masks) == [one.name for one in PREDICATES]
    assert all(mask.shape == (len(ledger),) and mask.dtype == bool for mask in masks.values())
    assert len({mask.tobytes() for mask in masks.values() if mask.any()}) >= len(masks) - 8


@pytest.mark.parametrize("true", ["moved", "first decode", "position % 16 == 0", "all accepted", "preempted"])
def test_the_true_condition_comes_first_with_five_faults(ledger: Ledger, true: str) -> None:
    masks = asked_of(ledger)
    among = ledger.emitted > 0
    able = np.flatnonzero(masks[true] & among)
    first = 0
    for seed in range(20):
        faults = np.array(sorted(random.Random(seed).sample(able.tolist(), 5)))
        best = associate(masks, faults, among).ranked[0]
        first += (true,) in (best.names, *best.same) or best.p == pytest.approx(
            tail(5, len(able), int(among.sum()), 5), rel=1e-9
        )
    assert first >= 16


def test_random_faults_alarm_nobody(ledger: Ledger) -> None:
    masks = asked_of(ledger)
    among = ledger.emitted > 0
    able = np.flatnonzero(among).tolist()
    alarms = sum(
        associate(masks, np.array(sorted(random.Random(seed).sample(able, 5))), among).sure for seed in range(100)
    )
    assert alarms == 0


def test_with_three_faults_it_says_how_many_it_takes(ledger: Ledger) -> None:
    masks = asked_of(ledger)
    among = ledger.emitted > 0
    faults = np.flatnonzero(masks["mixed"] & among)[:3]
    found = associate({"mixed": masks["mixed"]} | masks, faults, among)
    assert not found.sure
    assert found.needed is not None
    best = found.ranked[0]
    enough = tail(found.needed, best.row_steps, found.row_steps, found.needed) * found.asked
    assert enough < SURE <= tail(found.needed - 1, best.row_steps, found.row_steps, found.needed - 1) * found.asked


def test_two_conditions_together_where_one_is_not_enough(ledger: Ledger) -> None:
    masks = asked_of(ledger)
    among = ledger.emitted > 0
    both = masks["even step"] & masks["row 1"] & masks["even request"]
    able = np.flatnonzero(masks["even step"] & masks["row 1"] & among)
    assert both.any()
    faults = np.array(sorted(random.Random(1).sample(able.tolist(), 10)))
    best = associate({name: masks[name] for name in ("even step", "row 1", "full", "waiting")}, faults, among).ranked[0]
    assert (best.form, set(best.names), best.with_fault) == (Form.BOTH, {"even step", "row 1"}, 10)


def test_two_causes_that_share_the_faults_are_said(ledger: Ledger) -> None:
    masks = asked_of(ledger)
    among = ledger.emitted > 0
    causes = ("moved", "position % 16 == 0")
    faults: set[int] = set()
    for name, other in (causes, causes[::-1]):
        able = np.flatnonzero(masks[name] & ~masks[other] & among)
        faults |= set(random.Random(name).sample(able.tolist(), 6))
    best = associate(masks, np.array(sorted(faults)), among).ranked[0]
    assert (best.form, set(best.names), best.with_fault) == (Form.EITHER, set(causes), 12)


def test_a_narrow_condition_that_misses_a_fault_does_not_go_before_the_cause() -> None:
    """By its p-value alone the narrow one would: 4 of 5 in 9 % against 5 of 5 in 20 %."""
    among = np.ones(1000, dtype=bool)
    cause, narrow = np.zeros(1000, dtype=bool), np.zeros(1000, dtype=bool)
    cause[:200], narrow[:4], narrow[500:584] = True, True, True
    faults = np.array([0, 1, 2, 3, 100])
    assert tail(5, 88, 1000, 4) < tail(5, 200, 1000, 5)
    found = associate({"cause": cause, "narrow": narrow}, faults, among)
    assert next(one for one in found.ranked if one.form is Form.ONE).names == ("cause",)


@settings(deadline=None, max_examples=50)
@given(total=st.integers(2, 400), data=st.data())
def test_bayes_factors_average_to_one_where_nothing_is_the_cause(total: int, data: st.DataObject) -> None:
    """Over all ways that independent faults fall, a factor's mean is 1: K times as likely comes once in K at most."""
    holds, faults = data.draw(st.integers(1, total - 1)), data.draw(st.integers(1, 12))
    share = holds / total
    inside = np.arange(faults + 1, dtype=np.float64)
    factors = np.exp(log_factors(inside, np.full(faults + 1, float(holds)), faults, total))
    chance = np.array([math.comb(faults, n) * share**n * (1 - share) ** (faults - n) for n in range(faults + 1)])
    assert float(chance @ factors) == pytest.approx(1.0, rel=1e-6)


def test_findings_of_tokens_are_placed_in_the_steps_that_made_them() -> None:
    world = World(4, steps=60)
    steps = world.recorded()
    ledger = Ledger(steps)
    places: dict[Key, list[int]] = {}
    due = set()
    for index in np.flatnonzero(ledger.emitted > 1)[:6].tolist():
        key = ledger.request_of(index).key
        assert key is not None
        if key not in places:
            places[key] = [int(ledger.emitted_before[index]) + 1]  # the second token of the step
            due.add(index)
    found = explained("cpu/mtp", [steps], world.prompts, {**places, Key("stranger", 0, 0): [3]})
    assert found.associated.faults == len(due)
    assert found.unplaced == 1
    even = sum(1 for index in due if steps.step[index] % 2 == 0)
    ranked = {one.names[0]: one for one in found.associated.ranked}
    if "even step" in ranked:
        assert ranked["even step"].with_fault == even


def test_circumstances_are_conditions_and_less_likely_from_the_start() -> None:
    names = {one.name for one in PREDICATES}
    assert names > CIRCUMSTANCES
    assert {prior_of(name) < 1 for name in CIRCUMSTANCES} == {True}
    assert prior_of("mixed") == 1


def test_of_two_conditions_alike_the_mere_circumstance_comes_after_and_is_named() -> None:
    holds = np.zeros(200, dtype=bool)
    holds[:40] = True
    found = associate({"joined": holds, "mixed": holds.copy()}, np.arange(5), np.ones(200, dtype=bool))
    assert (found.ranked[0].names, found.ranked[0].same) == (("mixed",), (("joined",),))


def test_a_condition_under_which_faults_are_rarer_explains_none() -> None:
    """However many faults lie outside of it."""
    wide, true = np.ones(1000, dtype=bool), np.zeros(1000, dtype=bool)
    wide[:100], true[:110] = False, True
    found = associate({"drawn": wide, "moved": true}, np.arange(100), np.ones(1000, dtype=bool))
    assert [one.names for one in found.ranked] == [("moved",)]


@pytest.mark.parametrize("count", [1, 3, 8])
def test_what_a_request_had_lately_is_of_its_own_row_steps_before(ledger: Ledger, count: int) -> None:
    values = np.random.default_rng(5).random(len(ledger)) < 0.1
    found = ledger.lately(values, count)
    for number in np.unique(ledger.request).tolist():
        own = np.flatnonzero(ledger.request == number)
        wanted = [values[own[max(0, at - count) : at]].any() for at in range(len(own))]
        assert found[own].tolist() == wanted
