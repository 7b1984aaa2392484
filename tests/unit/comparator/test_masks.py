"""Requests that only forbid tokens (bad words, grammars): what the scores say in spite of it."""

from __future__ import annotations

from typing import Any

import pytest
from captures import TEXT, capture, completion, score, texts
from worlds import FLAT
from worlds.trials import ARMS, Setting, clean, judge

from parity.comparator import Comparison, compare
from parity.records import ScoreKey, Verdict
from parity.records.next_steps import NextStep, Step
from parity.records.sampling import needs_long_lists

OTHER = (*TEXT[:20], 777, *range(300, 339))


def judged(gap: float, tolerance: float = 0.25, **sampling: Any) -> Comparison:
    """The candidate parts at token 20, where its token lies so far below the best of all."""
    base, other = (
        capture(arm, completion(tokens, "p0"), completion(TEXT, "p1"), **sampling)
        for arm, tokens in (("cpu/base", TEXT), ("cpu/mtp", OTHER))
    )
    known = {
        ScoreKey("cpu/base", "p0", 0, 0): score(TEXT),
        ScoreKey("cpu/mtp", "p0", 0, 0): score(OTHER, {20: gap}, TEXT),
    }
    return compare(base, other, known)


@pytest.mark.parametrize("rule", [{"bad_words": ["never"]}, {"structured_outputs": {"regex": ".*"}}], ids=str)
def test_what_is_near_the_best_of_all_is_near_the_best_that_was_allowed(rule: dict[str, Any]) -> None:
    result = judged(0.1, **rule)
    assert result.verdict is Verdict.PASS
    assert result.stats.near_tie == 1


def test_what_lies_far_below_may_be_the_best_that_was_allowed() -> None:
    result = judged(3.0, bad_words=["never"])
    assert result.verdict is Verdict.INCONCLUSIVE
    assert not result.corrupt
    assert any("bad_words changed" in reason for reason in texts(result.reasons))


def test_what_scores_cannot_say_is_not_to_be_scored_again() -> None:
    """Every reason's first step leads somewhere: a tokenizer reads the words, else the same without the rule."""
    result = judged(3.0, bad_words=["never"])
    first: dict[str, list[NextStep]] = {}
    for one in result.next_steps:
        first.setdefault(one.settles, []).append(one)
    assert {"conclude.shaped", "conclude.unjudged_by_rules"} == first.keys()
    steps = {tuple((one.step, one.names) for one in those[:2]) for those in first.values()}
    assert steps == {((Step.TOKENIZER, ()), (Step.UNSHAPED, ("bad_words",)))}


def test_lists_without_any_token_that_is_allowed_are_to_be_longer() -> None:
    few = Setting("few", FLAT, 16, {"max_tokens": 48}, ({"allowed_token_ids": [401, 412, 423, 434, 445, 456]},))
    arm = next(one for one in ARMS if one.name == "cuda/seqs256")
    (trial,) = clean(few, 5, [arm])
    result = judge(trial).result
    assert result.verdict is Verdict.INCONCLUSIVE
    assert {one.id for one in result.reasons} == {"conclude.unjudged_lists"}
    assert [(one.step, one.number) for one in result.next_steps] == [(Step.SCORE_TOP, 1_000), (Step.REFERENCE, None)]


@pytest.mark.parametrize(
    ("sampling", "long"),
    [
        ({"bad_words": ["never"]}, True),
        ({"allowed_token_ids": [1, 2]}, True),
        ({"presence_penalty": 0.5}, True),
        ({"temperature": 0.8}, True),
        ({"structured_outputs": {"regex": "[a-z]+"}}, True),
        ({"stop": ["."]}, False),
        ({"bad_words": []}, False),
    ],
    ids=str,
)
def test_what_is_forbidden_stands_among_the_best_so_scores_list_more(sampling: dict[str, Any], long: bool) -> None:
    assert needs_long_lists(sampling) is long


def test_logits_that_somebody_moved_say_nothing_of_what_is_near() -> None:
    assert judged(0.1, logits_processors=["their.own"]).verdict is Verdict.INCONCLUSIVE


def test_a_request_that_is_not_shaped_keeps_nobody_from_a_verdict() -> None:
    """Of two requests the one with bad words is the same in both arms."""
    base, other = (
        capture(arm, completion(tokens, "p0"), completion(TEXT, "p1", bad_words=["never"]))
        for arm, tokens in (("cpu/base", TEXT), ("cpu/mtp", OTHER))
    )
    known = {
        ScoreKey("cpu/base", "p0", 0, 0): score(TEXT),
        ScoreKey("cpu/mtp", "p0", 0, 0): score(OTHER, {20: 0.1}, TEXT),
    }
    assert compare(base, other, known).verdict is Verdict.PASS
