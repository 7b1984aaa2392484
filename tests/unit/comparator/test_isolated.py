"""Single tokens that the scores reject in both arms alike accuse nobody; damaged stretches and more of them do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from worlds import ROUGH, catalogue, speculating
from worlds.trials import Faulty, Setting, clean, judge

from parity.comparator.reference.isolated import FARTHER, FEW, MOST, Isolated, are_single
from parity.records import Verdict

ALL = {f"{one.family}: {one.name}, {one.size}": one for one in catalogue()}
OWN = Isolated(completions=12, farthest=1.2)


def of(*pairs: tuple[int, float]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([at for at, _ in pairs]), np.array([gap for _, gap in pairs])


def test_single_tokens_are_few_and_apart() -> None:
    assert are_single(*of((3, 0.4)), length=96)
    assert are_single(*of((3, 0.4), (4, 1.2), (50, 0.9)), length=96)
    assert not are_single(*of((3, 0.4), (4, 1.2), (6, 0.9)), length=96)  # a stretch
    assert not are_single(*of(*((9 * at, 0.4) for at in range(FEW + 1))), length=30)
    assert are_single(*of(*((9 * at, 0.4) for at in range(FEW + 1))), length=96)
    assert not are_single(*of((3, MOST + 0.1)), length=96)


def test_they_are_like_the_baselines_up_to_a_multiple_of_its_farthest() -> None:
    assert OWN.covers(*of((3, FARTHER * 1.2)), length=96)
    assert not OWN.covers(*of((3, FARTHER * 1.2 + 0.01)), length=96)


@pytest.mark.parametrize(
    ("gaps", "explained"),
    [
        ([0.5] * 12, True),
        ([0.5] * 60, False),  # more completions than the baseline has
        ([1.3] * 5, True),
        ([1.3] * 12, False),  # too many beyond its farthest
        ([2.3] * 2, True),
        ([2.3] * 4, False),
        ([], True),
    ],
)
def test_no_more_and_no_farther_than_chance_makes_likely(gaps: list[float], explained: bool) -> None:
    assert OWN.explains(gaps) is explained


def test_arms_whose_experts_are_far_apart_are_not_accused_of_near_ties_of_the_router() -> None:
    left = 0
    for seed in (1, 2):
        setting = Setting("experts far apart", ROUGH, 192, {"max_tokens": 96})
        for trial in clean(setting, seed, arms=(speculating(2),)):
            result = judge(trial).result
            assert not result.corrupt, trial.name
            assert result.verdict is Verdict.INCONCLUSIVE
            left += "conclude.as_baseline" in {one.id for one in result.reasons}
    assert left  # of a token that would be a fault by itself


@pytest.mark.parametrize("name", ["rows: tokens replaced, 8 tokens", "rows: span of another row, 16 tokens"])
def test_damaged_rows_are_found_beside_such_tokens(name: str) -> None:
    judged = judge(Faulty(5, ROUGH, first=64, max_tokens=96).trial(replace(ALL[name], share=0.06), 1))
    assert judged.result.verdict is Verdict.DIVERGED
    assert judged.hit >= 3
    assert judged.found == judged.hit
    assert not judged.accused
