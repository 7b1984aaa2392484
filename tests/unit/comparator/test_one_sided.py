"""Only differing completions are scored, those of the candidate alone or of both arms: where a router moves logits
nobody is accused of it, whichever arm it hits; damaged rows are found, and nothing passes for it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from worlds import FLAT, ROUGH, Fault, catalogue, speculating
from worlds.seen_as import VIEWS
from worlds.trials import CUTS, PENALTIES, Faulty, Setting, Trial, clean, judge

from parity.comparator.reference.isolated import Isolated, explains, too_near
from parity.records import Key, ScoreKey, TopLogprobs, Verdict
from parity.records.next_steps import Step

Array = npt.NDArray[np.float64]

ALL = {f"{one.family}: {one.name}, {one.size}": one for one in catalogue()}
CLEAN = Fault("clean", "", "hunted", ())
NAMES = ("candidate scored", "candidate, no own")


def test_an_arm_of_which_more_is_scored_may_have_more_of_them() -> None:
    times = [0.5] * 14
    assert explains(Isolated(4, 0.9, 2.0), times)
    assert not explains(Isolated(1, 0.9, 1.0), times)
    far = [1.9] * 3
    assert explains(Isolated(4, 1.0, 2.0), far)
    assert not explains(Isolated(4, 1.0, 1.0), [*far, 1.9])


@pytest.mark.parametrize("seed", [2700061, 2700082, 2700068, 2700072, 2700077, 3400006, 3400012, 3400029])
def test_healthy_arms_whose_experts_lie_far_apart_are_not_accused(seed: int) -> None:
    """Also with seven of the candidate's beside two of the baseline's, or beside baselines of which no token lies
    beyond what is left in doubt anyway, but some beyond what rounding does."""
    nobody_is_accused(seed, *NAMES)


@pytest.mark.parametrize("seed", [3400006, 3400012, 3400029])
def test_nor_are_they_where_those_of_both_are_scored(seed: int) -> None:
    nobody_is_accused(seed, "differing, no own")


def test_nor_where_none_shows_more_than_rounding_and_the_engine_says_that_its_logits_moved() -> None:
    setting = Setting("three rounds", ROUGH, 32, {"max_tokens": 96}, rounds=3, logprobs=5)
    (trial,) = clean(setting, 74000, arms=(speculating(2),))
    for view in ("differing scored", NAMES[0]):
        result = judge(VIEWS[view](trial)).result
        assert not result.corrupt, view
        assert result.verdict is Verdict.INCONCLUSIVE
    nobody_is_accused(3900031, NAMES[0])


def test_nor_of_a_token_little_below_the_best_that_its_engine_holds_for_unlikely() -> None:
    """It is the best one's logit that moved."""
    nobody_is_accused(3900047, NAMES[0])


@pytest.mark.parametrize("seed", [2700073, 2700169, 3900031, 3900071])
def test_nor_of_single_tokens_nearer_the_best_than_damage_leaves_them(seed: int) -> None:
    """The baselines of these show rounding alone, and nobody recorded the engine's own logprobs."""
    nobody_is_accused(seed, NAMES[1])


@pytest.mark.parametrize(
    ("setting", "seed"),
    [
        (Setting("penalties", ROUGH, 64, {"max_tokens": 96}, PENALTIES, logprobs=5), 75000),
        (Setting("three rounds", ROUGH, 32, {"max_tokens": 96}, rounds=3, logprobs=5), 75001),
        (Setting("one alone", ROUGH, 32, {"max_tokens": 96}, rounds=3, logprobs=5), 8200002),
        (Setting("two", ROUGH, 32, {"max_tokens": 96}, rounds=3, logprobs=5), 8200000),
    ],
    ids=["penalties", "rounds", "one alone", "two"],
)
def test_nor_under_penalties_or_in_several_rounds(setting: Setting, seed: int) -> None:
    (trial,) = clean(setting, seed, arms=(speculating(2),))
    for view in NAMES:
        result = judge(VIEWS[view](trial)).result
        assert not result.corrupt, view
        assert result.verdict is Verdict.INCONCLUSIVE
        assert result.next_steps[0].step is Step.SCORE


def test_few_tokens_or_far_ones_may_be_damage() -> None:
    assert too_near([2.1, 0.3, 1.7])
    assert not too_near([2.2, 0.3, 1.7])
    assert too_near([0.9, 0.9])
    assert not too_near([0.3])
    assert not too_near([])


SINGLE = {"b0r1", "b3r47", "b3r60"}
"""Requests of seed 2700073 with a single token beyond the tolerance."""


def test_such_tokens_accuse_where_each_is_the_second_best_or_where_there_is_damage_besides() -> None:
    trial = VIEWS[NAMES[1]](Faulty(2700073, ROUGH, first=16, logprobs=5).trial(CLEAN, 4))
    for wrong in (with_seconds(trial), with_damage(trial)):
        assert {one.request for one in judge(wrong).result.corrupt} >= SINGLE


@pytest.mark.parametrize(
    ("seed", "view"),
    [*((74001, one) for one in ("no own logprobs", "differing, no own", "server, scored")), (74002, NAMES[1])],
)
def test_nor_under_penalties_that_do_not_explain_such_tokens(seed: int, view: str) -> None:
    setting = Setting("penalties", ROUGH, 64, {"max_tokens": 96}, PENALTIES, logprobs=5)
    (trial,) = clean(setting, seed, arms=(speculating(2),))
    result = judge(VIEWS[view](trial)).result
    assert not result.corrupt
    assert result.verdict is not Verdict.DIVERGED


def with_seconds(trial: Trial) -> Trial:
    """The scores, as if no token stood between the best and the one chosen."""

    def lifted(key: ScoreKey, top: TopLogprobs) -> TopLogprobs:
        chosen, values = _of_chosen(trial, key, top), top.values
        between = (values > chosen) & (values < np.nanmax(values, axis=1, keepdims=True))
        return TopLogprobs(top.ids, np.where(between, chosen - 0.01, values))

    return replace(trial, scores={key: lifted(key, top) for key, top in trial.scores.items()})


def with_damage(trial: Trial) -> Trial:
    """The score of one completion more holds its last token for impossible."""
    key = next(key for key in trial.scores if key.request not in SINGLE)
    top = trial.scores[key]
    values = np.where(top.values == _of_chosen(trial, key, top), -20.0, top.values)
    last = np.concatenate([top.values[:-1], values[-1:]])
    return replace(trial, scores={**trial.scores, key: TopLogprobs(top.ids, last)})


def _of_chosen(trial: Trial, key: ScoreKey, top: TopLogprobs) -> Array:
    """Logprobs of the chosen tokens, shape (T, 1)."""
    tokens = trial.candidate.completions[Key(*key[1:])].token_ids
    return np.where(top.ids == tokens[:, None], top.values, -np.inf).max(axis=1, keepdims=True)


def nobody_is_accused(seed: int, *views: str) -> None:
    trial = Faulty(seed, ROUGH, first=16, logprobs=5).trial(CLEAN, 4)
    for view in views:
        result = judge(VIEWS[view](trial)).result
        assert not result.corrupt, view
        assert result.verdict is Verdict.INCONCLUSIVE
        steps = [one.step for one in result.next_steps if one.settles == "conclude.by_few"]
        assert steps[0] is Step.SCORE


@pytest.mark.parametrize("shape", [FLAT, ROUGH], ids=["flat", "rough"])
@pytest.mark.parametrize("name", ["rows: token replaced, 1 token", "rows: span of another row, 16 tokens"])
def test_damaged_rows_are_found(shape: object, name: str) -> None:
    judged = judge(VIEWS[NAMES[1]](Faulty(5, shape, first=16).trial(replace(ALL[name], share=0.06), 4)))  # type: ignore[arg-type]
    assert judged.result.verdict is Verdict.DIVERGED
    assert judged.found >= 7 / 8 * judged.hit > 3
    assert not judged.accused


@pytest.mark.parametrize(("seed", "view"), [(502, NAMES[0]), (504, NAMES[1])])
def test_where_the_baseline_has_none_they_are_a_fault(seed: int, view: str) -> None:
    trial = Faulty(seed, FLAT, first=16, logprobs=5).trial(ALL["numerics: weights quantised, fp8"], 4)
    assert judge(VIEWS[view](trial)).result.verdict is Verdict.DIVERGED


@pytest.mark.parametrize("seed", [72000, 72001])
def test_one_drawn_token_beyond_its_cut_off_is_left_open(seed: int) -> None:
    """Nobody recorded the engine's own logprob of it, and a router moves logits as far."""
    setting = Setting("cut off", ROUGH, 96, {"max_tokens": 96, "temperature": 1.0}, CUTS, logprobs=5)
    (trial,) = clean(setting, seed, arms=(speculating(2),))
    result = judge(VIEWS["candidate, no own"](trial)).result
    assert not result.corrupt
    assert "conclude.cut_off" in {one.id for one in result.reasons}
