"""Drafts among drawn tokens: accepted at their probability, or more often."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from captures import capture, completion, header
from worlds import FLAT, PEAKED, speculating
from worlds.seen_as import VIEWS
from worlds.trials import Faulty, Setting, clean, judge
from worlds.unseen import unseen

from parity.comparator.detect.draft_acceptance import Accepted, accepted_drafts, proposes_its_best, trials
from parity.comparator.detect.drawn_places import Drawn
from parity.comparator.reference.temperature import Cut, Draws
from parity.records import Key, SpecTrace, Verdict


def _trace(accepted: list[int], drafted: int) -> SpecTrace:
    return SpecTrace(np.array(accepted), np.full(len(accepted), drafted))


def test_what_became_of_the_draft_at_each_token() -> None:
    """The prefill's token; two accepted and a bonus; one accepted and one rejected; one rejected."""
    one = completion(list(range(8)), "a", spec=_trace([2, 1, 0], 2))
    found = trials(replace(one, token_ids=one.token_ids[:7]))
    assert found is not None
    assert found.tolist() == [-1, 1, 1, -1, 1, 0, 0]


def _arm(seed: int, chance: float, unchecked: float) -> Accepted | None:
    """200 steps of one draft each, of which `chance` is the target's probability; in two steps of three the token that
    comes after a rejection is another."""
    rng = np.random.default_rng(seed)
    accepted = (rng.random(200) < chance) | (rng.random(200) < unchecked)
    drawn, at = [0], [0]
    for taken in accepted.tolist():
        drawn += [0, 1] if taken else [1]
    at = list(range(len(drawn)))
    logs = np.log(np.tile([chance, 1 - chance], (len(drawn), 1)))
    draws = Draws(logs, np.zeros(len(drawn)), np.array(drawn), 1)
    head = header("cuda/mtp", engine={"speculative_config": {"method": "mtp", "num_speculative_tokens": 1}})
    one = completion(drawn, "a", spec=_trace(accepted.astype(int).tolist(), 1))
    return accepted_drafts(capture(head, one), {(1.0, Cut()): [Drawn(Key("a", 0, 0), draws, np.array(at))]}, ())


@pytest.mark.parametrize("chance", [0.55, 0.7, 0.95])
def test_drafts_that_are_checked_are_accused_no_more_often_than_is_said(chance: float) -> None:
    found = [_arm(seed, chance, 0.0) for seed in range(300)]
    assert sum(one is not None and one.p_value < 0.01 for one in found) <= 8  # 3 are due, at most
    assert np.mean([one.worth / one.drafts for one in found if one]) == pytest.approx(1.0, abs=0.04)


@pytest.mark.parametrize(("chance", "unchecked"), [(0.55, 1.0), (0.55, 0.7), (0.7, 1.0)])
def test_drafts_that_are_not_checked_are_seen(chance: float, unchecked: float) -> None:
    found = [_arm(seed, chance, unchecked) for seed in range(20)]
    assert sum(one is not None and one.p_value < 1e-6 for one in found) >= 18


@pytest.mark.parametrize(
    ("asked", "known"),
    [
        ({}, True),
        ({"draft_sample_method": "greedy", "rejection_sample_method": "standard"}, True),
        ({"draft_sample_method": "probabilistic"}, False),
        ({"rejection_sample_method": "synthetic"}, False),
        ({"rejection_sample_method": "block"}, False),
    ],
)
def test_other_ways_to_draft_or_to_accept_are_left_out(asked: dict[str, str], known: bool) -> None:
    engine = {"speculative_config": {"method": "mtp", "num_speculative_tokens": 2, **asked}}
    assert proposes_its_best(header("cuda/mtp", engine=engine)) is known
    assert not proposes_its_best(header("cuda/base"))


def test_an_arm_that_accepts_every_draft_is_seen_and_a_sound_one_is_not() -> None:
    (fault,) = [one for one in unseen() if (one.name, one.size) == ("draft accepted unchecked", "1 in 1")]
    trial = VIEWS["no own logprobs"](Faulty(78, FLAT, first=16).trial(replace(fault, family="hunted"), 3))
    result = judge(trial).result
    assert result.verdict is Verdict.DIVERGED
    assert result.stats.sampling.failed == ("drafts",)
    assert "accepted more often than at their probability" in str(result.corrupt[0].evidence.why)
    for shape in (FLAT, PEAKED):
        asked = {"temperature": 0.8, "max_tokens": 64}
        (sound,) = clean(Setting("drawn", shape, 48, asked), 700, arms=(speculating(3),))
        tests = judge(VIEWS["no own logprobs"](sound)).result.stats.sampling
        assert tests.p_values["drafts"] > 0.05
