"""A short round of benchmarks/wide.py: clean arms of the small engine are not accused, and faults are seen."""

from __future__ import annotations

from dataclasses import replace

import pytest
from worlds import FLAT, Fault, catalogue, speculating
from worlds.trials import SETTINGS, Faulty, Setting, clean, judge

from parity.records import Verdict

ALL = {f"{one.family}: {one.name}, {one.size}": one for one in catalogue()}


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda one: one.name)
def test_clean_arms_are_not_accused(setting: Setting) -> None:
    small = replace(setting, requests=16, sampling={**setting.sampling, "max_tokens": 48})
    for trial in clean(small, 77, arms=(speculating(2),)):
        judged = judge(trial)
        assert not judged.result.corrupt, trial.name


@pytest.mark.parametrize("tokens", [2, 3, 48])
def test_a_first_token_without_noise_of_the_baseline_accuses_nobody(tokens: int) -> None:
    """An engine that scores its own output makes the same prefill twice. The other arm's was cut otherwise."""
    setting = Setting("first as scored", FLAT, 1024 if tokens < 48 else 512, {"max_tokens": tokens}, first_exact=True)
    for trial in clean(setting, 78, arms=(speculating(2),)):
        judged = judge(trial)
        assert judged.result.verdict is Verdict.PASS, judged.result.reasons
        found = judged.result.stats.numerics
        assert found is not None
        assert not found.failed


@pytest.mark.parametrize(
    "name",
    [
        "rows: tokens replaced, 8 tokens",
        "rows: tokens replaced, engine goes on, 8 tokens",
        "rows: tokens lost, 12 tokens",
        "rows: span of another row, 16 tokens",
        "rows: early end, ",
        "rows: completion missing, ",
    ],
)
def test_damaged_rows_are_found_and_named_and_no_others(name: str) -> None:
    judged = judge(Faulty(78, FLAT).trial(_at(ALL[name], 0.1), 1))
    assert judged.hit == 3
    assert judged.found == judged.hit
    assert judged.kind >= judged.hit - 1
    assert not judged.accused


def _at(fault: Fault, share: float) -> Fault:
    return replace(fault, share=share)
