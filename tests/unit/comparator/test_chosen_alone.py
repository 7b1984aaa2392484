"""Scores of the chosen tokens alone reject no token: the engines' own longer lists do, where they have some."""

from __future__ import annotations

from dataclasses import replace

import pytest
from worlds import FLAT, PEAKED, ROUGH, Fault, Shape, catalogue
from worlds.trials import Faulty, Trial, judge

from parity.records import TopLogprobs, Verdict

ALL = {f"{one.family}: {one.name}, {one.size}": one for one in catalogue()}
CLEAN = Fault("clean", "", "hunted", ())


def alone(trial: Trial) -> Trial:
    """Lists as they are, scores of the chosen tokens alone."""
    rows = {(arm.header.arm, *key): one for arm in (trial.baseline, trial.candidate)
            for key, one in arm.completions.items()}  # fmt: skip
    scores = {}
    for key, top in trial.scores.items():
        tokens = rows[tuple(key)].token_ids[:, None]
        known = (top.ids == tokens).any(axis=1, keepdims=True)
        assert known.all()
        values = top.values[top.ids == tokens].reshape(-1, 1)
        scores[key] = TopLogprobs(tokens, values)
    return replace(trial, scores=scores)


@pytest.mark.parametrize("shape", [FLAT, PEAKED])
@pytest.mark.parametrize(
    "name",
    ["tokens replaced, engine goes on, 8 tokens", "tokens lost, engine goes on, 3 tokens", "tokens doubled, 12 tokens"],
)
def test_rows_that_lists_reject_are_found_beside_such_scores(shape: Shape, name: str) -> None:
    trial = Faulty(5, shape, first=32, logprobs=5, max_tokens=96).trial(replace(ALL[f"rows: {name}"], share=0.06), 1)
    by_lists = judge(replace(trial, scores={}))
    judged = judge(alone(trial))
    assert by_lists.found >= 1
    assert judged.found >= by_lists.found
    assert not judged.accused
    assert judged.result.verdict is Verdict.DIVERGED


@pytest.mark.parametrize("shape", [FLAT, PEAKED, ROUGH])
def test_healthy_arms_are_not_accused_beside_them(shape: Shape) -> None:
    for seed in (5, 6):
        trial = Faulty(seed, shape, first=16, logprobs=5).trial(CLEAN, 4)
        assert not judge(alone(trial)).result.corrupt
