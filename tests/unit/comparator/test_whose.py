"""Arms that differ by a test of both: the candidate is not accused of what the baseline has done."""

from __future__ import annotations

from dataclasses import replace

import pytest
from worlds import FLAT, PEAKED, Fault, Shape
from worlds.choosing import Lapse
from worlds.seen_as import VIEWS
from worlds.trials import Faulty, Trial, judge
from worlds.unseen import unseen

from parity.comparator import Comparison
from parity.records import Verdict
from parity.records.next_steps import Step


def planted(name: str, size: str, shape: Shape, seed: int = 77) -> Trial:
    fault = next(one for one in unseen() if (one.name, one.size) == (name, size))
    return Faulty(seed, shape, first=16, logprobs=5).trial(replace(fault, family="hunted"), 3)


def turned(trial: Trial) -> Trial:
    """The fault is the baseline's."""
    return replace(trial, baseline=trial.candidate, candidate=trial.baseline)


def left_open(result: Comparison) -> tuple[str, ...]:
    assert result.stats.sampling is not None
    return result.stats.sampling.of_either


@pytest.mark.parametrize("side", ["candidate", "baseline"])
def test_early_ends_at_a_high_temperature_are_nobody_s(side: str) -> None:
    """No list shows there whether an end is likely."""
    trial = VIEWS["scored"](planted("early end, drawn", "50% of rows, temperature 10", FLAT))
    result = judge(trial if side == "candidate" else turned(trial)).result
    assert left_open(result) == ("finish_reason", "length")
    assert (result.verdict, result.corrupt) == (Verdict.INCONCLUSIVE, [])
    reason = next(one for one in result.reasons if one.id == "conclude.of_either")
    assert [one.step for one in result.next_steps if one.settles == reason.id] == [Step.REFERENCE, Step.SWAP]


def test_early_ends_of_the_baseline_that_rows_show_accuse_nobody() -> None:
    trial = planted("early end, drawn", "50% of rows, temperature 1", PEAKED)
    mine = judge(VIEWS["no own logprobs"](trial)).result
    assert mine.verdict is Verdict.DIVERGED
    assert left_open(mine) == ()
    theirs = judge(turned(VIEWS["no own logprobs"](trial))).result
    assert (theirs.verdict, theirs.corrupt) == (Verdict.INCONCLUSIVE, [])
    assert left_open(theirs)


def test_without_scores_the_arm_that_says_the_same_again_is_off() -> None:
    trial = VIEWS["nothing"](planted("rounds alike", "3", FLAT))
    assert judge(trial).result.verdict is Verdict.DIVERGED
    result = judge(turned(trial)).result
    assert (result.verdict, result.corrupt) == (Verdict.INCONCLUSIVE, [])
    assert left_open(result) == ("wording",)


def test_loops_that_the_baseline_has_broken_accuse_nobody_without_scores() -> None:
    fault = next(one for one in unseen() if (one.name, one.size) == ("second best token", "the last of 128"))
    trial = Faulty(2500010, FLAT, first=16, logprobs=5).trial(replace(fault, family="hunted"), 3)
    result = judge(turned(VIEWS["nothing"](trial))).result
    assert not result.corrupt
    assert "conclude.loops_of_either" in [one.id for one in result.reasons]


@pytest.mark.parametrize(
    ("asked", "shape"),
    [({"presence_penalty": -1.0}, PEAKED), ({"presence_penalty": 0.5}, FLAT), ({"repetition_penalty": 1.1}, FLAT)],
)
def test_a_baseline_that_ignores_its_penalties_accuses_nobody(asked: dict[str, float], shape: Shape) -> None:
    """By scores it is named; by lists of its own, which say that it takes the best of them, nobody is accused."""
    ignored = {name: float(name == "repetition_penalty") for name in asked}
    fault = Fault("ignored", "", "hunted", ("unjustified",), lapse=Lapse(values=ignored), rules=asked)
    trial = Faulty(6, shape, first=16, logprobs=5).trial(fault, 3)
    result = judge(turned(VIEWS["scored"](trial))).result
    assert (result.verdict, result.corrupt) == (Verdict.INCONCLUSIVE, [])
    assert "conclude.baseline_penalties" in [one.id for one in result.reasons]
    unscored = judge(turned(VIEWS["lists, unscored"](trial))).result
    assert (unscored.verdict, unscored.corrupt) == (Verdict.INCONCLUSIVE, [])
    assert "logprobs.hidden_choices" in [one.id for one in unscored.notes]
    steps = {one.step for one in unscored.next_steps if one.settles == "conclude.unjudged_hidden"}
    assert steps == {Step.SCORE, Step.ARBITER, Step.REFERENCE}  # more of such logprobs decide nothing
    assert "--logprobs" not in str(unscored.reasons[0])
    assert judge(VIEWS["scored"](trial)).result.verdict is Verdict.DIVERGED
