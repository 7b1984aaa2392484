"""Scores of which a few completions' are of another text: what both arms said before they part shows it."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from message_ids import ids_in
from worlds import PEAKED, Fault, catalogue, speculating
from worlds.seen_as import VIEWS
from worlds.trials import Faulty, Setting, Trial, clean, differing, judge

from parity.records import Capture, Key, ScoreKey, Scores, TopLogprobs, Verdict

SETTING = Setting("", PEAKED, 40, {"max_tokens": 80})


@cache
def sound(seed: int) -> Trial:
    return next(iter(clean(SETTING, seed, arms=(speculating(2),))))


def shifted(trial: Trial) -> Scores:
    """One completion's lists stand a place too late."""
    first, *_ = scored(trial)
    top = trial.scores[first]
    return {**trial.scores, first: TopLogprobs(np.roll(top.ids, 1, 0), np.roll(top.values, 1, 0))}


def exchanged(trial: Trial) -> Scores:
    """Two completions have each other's lists."""
    first, second, *_ = scored(trial)
    return {**trial.scores, first: trial.scores[second], second: trial.scores[first]}


def scored(trial: Trial) -> list[ScoreKey]:
    name = trial.candidate.header.arm
    parted = ((trial.baseline.completions[key], trial.candidate.completions[key]) for key in differing(*arms(trial)))
    late = (b.key for a, b in parted if len(a.token_ids) > 8 and np.array_equal(a.token_ids[:8], b.token_ids[:8]))
    return [ScoreKey(name, *key) for key in sorted(late)]


def arms(trial: Trial) -> tuple[Capture, Capture]:
    return trial.baseline, trial.candidate


@pytest.mark.parametrize("view", ["scored", "no own logprobs", "differing scored", "candidate, no own"])
@pytest.mark.parametrize("wrong", [shifted, exchanged])
@pytest.mark.parametrize("seed", [1, 3])
def test_a_score_that_rejects_what_both_said_accuses_nobody(seed: int, wrong: object, view: str) -> None:
    trial = sound(seed)
    assert callable(wrong)
    found = judge(VIEWS[view](replace(trial, scores=wrong(trial)))).result
    assert not found.corrupt, [str(one.evidence.why) for one in found.corrupt]
    assert found.verdict is Verdict.INCONCLUSIVE
    assert {"conclude.unjudged", "scores.records" if wrong is shifted else "scores.records_of_others"} <= ids_in(found)


def of_rows(name: str) -> Fault:
    return next(one for one in catalogue() if one.name == name)


@pytest.mark.parametrize("name", ["token replaced", "rest of another row", "tokens lost"])
def test_faults_beside_such_a_score_are_found(name: str) -> None:
    trial = Faulty(1, PEAKED).trial(of_rows(name), 3)
    spared = [key for key in scored(trial) if key[1:] not in trial.truth.rows]
    top = trial.scores[spared[0]]
    scores = {**trial.scores, spared[0]: TopLogprobs(np.roll(top.ids, 1, 0), np.roll(top.values, 1, 0))}
    found = judge(replace(trial, scores=scores))
    assert (found.found, found.accused) == (found.hit, ())


@pytest.mark.parametrize("alone", [False, True])
def test_a_fault_of_both_arms_that_the_scores_show_is_no_pass(alone: bool) -> None:
    """Both arms say four wrong tokens in one completion. A score of the candidate's is one of the baseline's there."""
    trial = sound(1)
    equal = min(set(trial.candidate.completions) - set(differing(*arms(trial))))
    names = [trial.candidate.header.arm, *([] if alone else [trial.baseline.header.arm])]
    known = {key: top for key, top in trial.scores.items() if key.arm in names}
    sound_ones = replace(trial, scores={**known, ScoreKey(names[0], *equal): trial.scores[of_baseline(trial, equal)]})
    assert judge(sound_ones).result.verdict is Verdict.PASS
    wrong = {ScoreKey(name, *equal): damaged(trial, equal) for name in names}
    found = judge(replace(trial, scores={**known, **wrong})).result
    assert not found.corrupt
    assert found.verdict is Verdict.INCONCLUSIVE
    assert any("lie more than 1 nat below the best" in str(one) for one in found.reasons), found.reasons


def of_baseline(trial: Trial, key: Key) -> ScoreKey:
    return ScoreKey(trial.baseline.header.arm, *key)


def damaged(trial: Trial, key: Key) -> TopLogprobs:
    """The score of this completion, in which four of its tokens lie 9 nats lower."""
    top, tokens = trial.scores[of_baseline(trial, key)], trial.baseline.completions[key].token_ids
    values = top.values.copy()
    values[20:24][top.ids[20:24] == tokens[20:24, None]] -= 9.0
    return TopLogprobs(top.ids, values)
