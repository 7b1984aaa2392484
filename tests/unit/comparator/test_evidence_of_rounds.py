"""Rounds of one run: what changes in the middle is seen, and what does not is not, however often one looks."""

from __future__ import annotations

import numpy as np
import pytest
from captures import TEXT, capture, completion, texts

from parity.comparator import Comparison, compare
from parity.comparator.stats import OverRounds, Stats
from parity.records import Completion, TopLogprobs, Verdict
from parity.records.next_steps import Step

REQUESTS = 8
OTHER = (*TEXT[:-1], 777)


def made(tokens: tuple[int, ...], number: int, round_: int) -> Completion:
    ids = [[[token, -0.1]] for token in tokens[:-1]] + [[[tokens[-1], -0.7], [936 - tokens[-1], -0.75]]]
    return completion(tokens, f"p{number}", round=round_, logprobs=TopLogprobs.from_json(ids))


def judged(chances: list[float], seed: int = 0) -> Comparison:
    """In round r, each completion takes the other token of a near-tie with chance chances[r]."""
    rng = np.random.default_rng(seed)
    baseline, candidate = [], []
    for round_, chance in enumerate(chances):
        for number in range(REQUESTS):
            baseline.append(made(TEXT, number, round_))
            candidate.append(made(OTHER if rng.random() < chance else TEXT, number, round_))
    return compare(capture("cpu/base", *baseline), capture("cpu/mtp", *candidate))


def differing(result: Comparison) -> OverRounds:
    assert isinstance(result.stats.over_rounds, dict)
    return result.stats.over_rounds["differing"]


def test_a_run_that_changes_in_the_middle_is_no_pass() -> None:
    result = judged([0.05] * 120 + [0.9] * 30)
    found = differing(result)
    assert found.changed
    assert abs(found.since - 120) <= 2
    assert found.before < 0.2 < 0.6 < found.after
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "the share of completions that differ changed in the middle of the run" in texts(result.reasons)[0]
    assert Step.ROUNDS in {one.step for one in result.next_steps}
    assert Stats.from_json(result.stats.to_json()).over_rounds == result.stats.over_rounds


@pytest.mark.parametrize("chance", [0.0, 0.3, 1.0])
def test_a_run_that_stays_as_it_is_shows_nothing_however_many_its_rounds(chance: float) -> None:
    result = judged([chance] * 80, seed=3)
    assert result.verdict is Verdict.PASS
    assert not differing(result).changed
    assert differing(result).log10_e < 1


def test_one_round_says_nothing() -> None:
    assert not judged([0.3]).stats.over_rounds
