"""The arbiter: whom it supports, and that it changes nothing else."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from captures import capture, completion

from parity.comparator import compare
from parity.comparator.reference.arbiter import Ruling, rulings, with_rulings
from parity.records import Capture, Key, ScoreKey, Scores, TopLogprobs

KEY = Key("p0", 0, 0)
A, B = [5, 6, 7, 8], [5, 6, 9, 8]


def said(arm: str, tokens: Sequence[int]) -> Capture:
    return capture(arm, completion(tokens))


def score(tokens: Sequence[int], gaps: Sequence[float]) -> TopLogprobs:
    """Each token so many nats below the best one."""
    return TopLogprobs.from_json(
        [[[50, -0.5], [token, -0.5 - gap]] if gap else [[token, -0.5]] for token, gap in zip(tokens, gaps, strict=True)]
    )


def rule(left: Sequence[float], right: Sequence[float]) -> Ruling:
    scores: Scores = {ScoreKey("base", *KEY): score(A, left), ScoreKey("other", *KEY): score(B, right)}
    return rulings(said("base", A), said("other", B), scores, 0.25)[KEY]


@pytest.mark.parametrize(
    ("left", "right", "supports"),
    [
        ([0, 0, 0, 0], [0, 0, 0.3, 0], "both"),
        ([0, 0, 0, 0], [0, 0, 4.0, 0], "baseline"),
        ([0, 0, 3.0, 0], [0, 0, 0, 0], "candidate"),
        ([0, 0, 3.0, 0], [0, 0, 0, 5.0], "neither"),
        ([9.0, 0, 0, 0], [9.0, 0, 0, 0], "both"),  # before they part, both said the same
    ],
)
def test_whom_it_supports(left: list[float], right: list[float], supports: str) -> None:
    ruling = rule(left, right)
    assert ruling.supports == supports
    assert ruling.position == 2
    assert ruling.candidate_gap == pytest.approx(right[2])


def test_equal_pairs_and_pairs_without_both_scores_have_no_ruling() -> None:
    base, same, other = said("base", A), said("same", A), said("other", B)
    half = {ScoreKey("other", *KEY): score(B, [0, 0, 0, 0])}
    assert rulings(base, same, half, 0.25) == {}
    assert rulings(base, other, half, 0.25) == {}
    wrong_length = {**half, ScoreKey("base", *KEY): score(A[:2], [0, 0])}
    assert rulings(base, other, wrong_length, 0.25) == {}


def test_a_stream_that_ends_early_is_looked_at_from_its_end_on() -> None:
    scores = {ScoreKey("base", *KEY): score(A, [0, 0, 0, 0]), ScoreKey("short", *KEY): score(A[:2], [0, 0])}
    ruling = rulings(said("base", A), said("short", A[:2]), scores, 0.25)[KEY]
    assert (ruling.position, ruling.candidate_gap, ruling.supports) == (2, None, "both")


def test_it_is_told_beside_the_verdict_and_does_not_change_it() -> None:
    base, other = said("base", A), said("other", B)
    scores = {ScoreKey("other", *KEY): score(B, [0, 0, 6.0, 0])}
    before = compare(base, other, scores)
    found = {KEY: rule([0, 0, 0, 0], [0, 0, 6.0, 0])}
    after = with_rulings(before, found, "transformers", 0.25)
    assert after.verdict is before.verdict
    assert after.stats.to_json()["arbiter"] == {
        "arm": "transformers", "tolerance": 0.5, "baseline": 1, "candidate": 0, "both": 0, "neither": 0
    }  # fmt: skip
    assert "supports the baseline in 1" in str(after.reasons[-1])
    told = after.findings[0].evidence.to_json()["arbiter"]
    assert told["supports"] == "baseline"
    assert "6.00 for the candidate" in told["why"]
    assert told["message"]["text"] == told["why"]
    assert told["message"]["parameters"]["finds"]["id"] == "arbiter.baseline"
    assert with_rulings(before, {}, "transformers", 0.25) is before
