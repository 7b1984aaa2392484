"""Rows whose choices are those of other penalties, though each of them is a near-tie."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from worlds import FLAT, World, catalogue, speculating
from worlds.trials import SETTINGS, Faulty, clean, judge

from parity.comparator import compare
from parity.comparator.reference.choices import at_most, evidence, turned
from parity.comparator.reference.gaps import TokenGaps
from parity.records import Verdict

UNIT = 1 / 16
LEAK = next(one for one in catalogue() if one.name == "another row's frequency penalty" and one.size == "0.4")


def gaps(gap: np.ndarray) -> TokenGaps:
    return TokenGaps(gap, np.zeros(len(gap), bool), np.arange(len(gap)) % 7 + 500, -gap, -gap, gap)


def drawn(rng: np.random.Generator, places: int) -> tuple[np.ndarray, TokenGaps, TokenGaps]:
    """An engine that keeps to its rules and rounds as badly as it may; two rules that ask for other tokens at a third
    of the places."""
    telling = rng.random(places) < 0.3
    apart, other = rng.exponential(0.15, places) + 1e-3, rng.exponential(0.15, places) + 1e-3
    broken = telling & (rng.random(places) < turned(apart, UNIT))
    own = np.where(broken, apart, 0.0)
    return np.arange(places), gaps(own), gaps(np.where(telling & ~broken, other, 0.0))


def test_the_evidence_has_a_mean_of_at_most_one() -> None:
    rng = np.random.default_rng(3)
    said = [evidence(*drawn(rng, 96), UNIT)[0] for _ in range(4_000)]
    assert np.exp(np.minimum(said, 50.0)).mean() < 1.0
    assert max(said) < np.log(4_000 / 0.01)


def test_no_rule_has_more_evidence_than_the_bound() -> None:
    rng = np.random.default_rng(4)
    for _ in range(100):
        tokens, own, other = drawn(rng, 64)
        assert evidence(tokens, own, other, UNIT)[0] <= at_most(own, UNIT) + 1e-9


def test_rows_with_a_penalty_of_another_request_are_found() -> None:
    judged = judge(Faulty(7300, FLAT, first=8).trial(LEAK, 4))
    assert judged.hit == judged.found == 3
    assert not judged.accused
    assert "choices" in {str(one.evidence.why.id).rpartition(".")[2] for one in judged.result.corrupt}


def test_a_baseline_that_does_so_too_accuses_nobody() -> None:
    """Both engines apply the penalty to every request: that is how they are, whatever was asked."""
    world = World(7300, FLAT)
    asked = world.requests(24, own=LEAK.own)
    everywhere = replace(LEAK, share=1.0)
    base = world.run(asked, replace(speculating(1), name="cuda/base", draft=0), fault=everywhere, max_tokens=96).capture
    other = world.run(asked, speculating(2), fault=everywhere, max_tokens=96).capture
    found = compare(base, other, world.score(base, other)).corrupt
    assert not [one for one in found if "choices" in str(one.evidence.why.id)]


@pytest.mark.parametrize("name", ["penalties", "penalties, peaked"])
def test_clean_rows_are_not_accused(name: str) -> None:
    setting = next(one for one in SETTINGS if one.name == name)
    small = replace(setting, requests=24, sampling={**setting.sampling, "max_tokens": 96})
    for trial in clean(small, 79, arms=(speculating(2),)):
        assert judge(trial).result.verdict is not Verdict.DIVERGED
