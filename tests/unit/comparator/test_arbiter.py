"""The arbiter: whom it supports, and what follows where that is one side throughout."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from captures import capture, completion

from parity.comparator import Comparison, compare, triangulate
from parity.comparator.conclude.ruled import decided
from parity.comparator.reference.arbiter import Ruling, rulings, with_rulings
from parity.records import Capture, Key, ScoreKey, Scores, TopLogprobs, Verdict
from parity.records.evidence import JudgedBy
from parity.records.next_steps import Step

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


# --------------------------------------------------------------------------- what follows for the verdict


def judged(
    streams: Sequence[tuple[Sequence[float], Sequence[float]]], scores: Scores | None = None, **head: object
) -> Comparison:
    """Completions that differ, with the arbiter's gaps of each side, compared without the baseline's scores."""
    base = capture("cpu/base", *(completion(A, f"p{n}") for n in range(len(streams))))
    other = capture("cpu/other", *(completion(B, f"p{n}") for n in range(len(streams))), **head)
    ruled: Scores = {
        ScoreKey(arm, f"p{n}", 0, 0): score(tokens, gaps)
        for n, both in enumerate(streams)
        for arm, tokens, gaps in zip(("cpu/base", "cpu/other"), (A, B), both, strict=True)
    }
    found = rulings(base, other, ruled, 0.25)
    return decided(with_rulings(compare(base, other, scores), found, "hf", 0.25), found, "hf")


FINE = [0.0, 0.0, 0.0, 0.0]
WRONG = [0.0, 0.0, 6.0, 0.0]
A_LITTLE = [0.0, 0.0, 0.8, 0.0]


def test_without_its_word_the_run_is_open() -> None:
    open_ = compare(said("cpu/base", A), said("cpu/other", B))
    assert open_.verdict is Verdict.INCONCLUSIVE
    assert Step.ARBITER in {one.step for one in open_.next_steps}


def test_noise_is_a_pass() -> None:
    result = judged([(FINE, FINE), (FINE, [0, 0, 0.4, 0])])
    assert (result.verdict, result.next_steps) == (Verdict.PASS, ())
    assert str(result.reasons[0]) == "hf finds both sides' tokens likely in 2 completions that differ: noise"
    numbers = result.stats.to_json()
    assert (numbers["near_tie"], numbers["unjudged"], numbers["judged"]) == (2, 0, 2)


def test_what_its_pass_could_have_missed_follows_from_what_it_would_have_supported() -> None:
    """At most exp(0.5) / p of 1,000 tokens lie within its tolerance of 0.5 nats of a token with this p."""
    result = judged([(FINE, FINE)] * 40)
    (missed,) = result.stats.missed
    chance = np.exp(0.5 + 0.5) / 1000
    assert (missed.fault, missed.size) == ("wrong_token", 0.5)
    assert missed.seen == pytest.approx(1 - chance)
    assert missed.rate == pytest.approx(1 - 0.05 ** (1 / (40 * (1 - chance))))
    assert result.stats.fault_rate_not_excluded == missed.rate
    assert "more than 0.5 nats below the best in fewer than 7.23%" in str(result.reasons[1])


def test_noise_is_no_pass_where_something_else_is_open() -> None:
    result = judged([(FINE, FINE)], engine={"speculative_config": {"method": "mtp"}}, counters={"draft_tokens": 0})
    assert result.verdict is Verdict.INCONCLUSIVE
    assert {one.settles for one in result.next_steps} == {"conclude.unjudged", "inputs.nothing_proposed"}


def test_a_candidate_that_it_rejects_is_at_fault_and_has_findings() -> None:
    result = judged([(FINE, WRONG), (FINE, FINE)])
    assert result.verdict is Verdict.DIVERGED
    assert str(result.reasons[0]).startswith("hf supports cpu/base and not cpu/other in 1 completion")
    (finding,) = result.corrupt
    assert (finding.key, finding.position, finding.evidence.judged_by) == (KEY, 2, JudgedBy.ARBITER)
    assert finding.evidence.gap == pytest.approx(6.0)
    assert result.classes == {KEY: "corrupt", Key("p1", 0, 0): "near_tie"}
    assert not result.stats.baseline_at_fault


def test_a_baseline_that_it_rejects_is_at_fault_and_the_candidate_is_not_accused() -> None:
    result = judged([(WRONG, FINE), (FINE, FINE)])
    assert result.verdict is Verdict.DIVERGED
    assert str(result.reasons[0]).startswith("it is the baseline that is at fault: hf supports cpu/other")
    assert result.corrupt == []
    assert result.stats.baseline_at_fault
    suspect = triangulate({"cpu/other": result.verdict}, "cpu/base", ["cpu/other"])
    assert suspect is not None
    assert str(suspect.name) == "the baseline cpu/base"


def test_it_overrules_a_baseline_that_scores_the_candidate_itself() -> None:
    """The faulty engine finds the right tokens wrong."""
    result = judged([(WRONG, FINE)], {ScoreKey("cpu/other", *KEY): score(B, WRONG)})
    assert result.verdict is Verdict.DIVERGED
    assert str(result.reasons[0]).startswith("it is the baseline that is at fault")


@pytest.mark.parametrize(
    "streams",
    [
        [(FINE, WRONG), (WRONG, FINE)],  # now this side, now that
        [(WRONG, WRONG)],  # neither
        [(FINE, A_LITTLE)],  # one token little beyond: rounding of two engines
        [(A_LITTLE, FINE)],
    ],
)
def test_a_divided_opinion_decides_nothing(streams: list[tuple[list[float], list[float]]]) -> None:
    result = judged(streams)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert not result.corrupt
    assert result.next_steps
    assert Step.ARBITER not in {one.step for one in result.next_steps}  # it was asked
    reason = result.reasons[0]
    assert (reason.id, reason.parameters["number"]) == ("arbiter.open", len(streams))
    assert {one.settles for one in result.next_steps} <= {one.id for one in result.reasons}


def test_what_it_finds_to_be_noise_is_counted_though_it_decides_nothing() -> None:
    result = judged([(FINE, FINE), (FINE, A_LITTLE), (FINE, FINE)])
    assert result.verdict is Verdict.INCONCLUSIVE
    assert (result.reasons[0].parameters["both"], result.reasons[0].parameters["open"]) == (2, 1)
    assert (result.stats.near_tie, result.stats.unjudged) == (2, 1)


def test_many_small_ones_on_one_side_decide() -> None:
    assert judged([(FINE, A_LITTLE)] * 6).verdict is Verdict.INCONCLUSIVE
    assert judged([(FINE, A_LITTLE)] * 7).verdict is Verdict.DIVERGED


def test_what_was_asked_differently_stays_open() -> None:
    base, other = said("cpu/base", A), capture("cpu/other", completion(B), max_tokens=7)
    scores: Scores = {ScoreKey("cpu/base", *KEY): score(A, FINE), ScoreKey("cpu/other", *KEY): score(B, WRONG)}
    found = rulings(base, other, scores, 0.25)
    result = decided(with_rulings(compare(base, other), found, "hf", 0.25), found, "hf")
    assert result.verdict is Verdict.INCONCLUSIVE
    assert Step.SAME_QUESTIONS in {one.step for one in result.next_steps}


def test_tokens_that_it_did_not_score_leave_the_run_open() -> None:
    base, other = said("cpu/base", A), said("cpu/other", B)
    holes = TopLogprobs.from_json([[[token, -0.5 if token != 9 else None]] for token in B])
    scores: Scores = {ScoreKey("cpu/base", *KEY): score(A, FINE), ScoreKey("cpu/other", *KEY): holes}
    found = rulings(base, other, scores, 0.25)
    assert not found[KEY].whole
    assert decided(with_rulings(compare(base, other), found, "hf", 0.25), found, "hf").verdict is Verdict.INCONCLUSIVE


def test_a_token_in_doubt_of_which_nobody_recorded_a_logprob_is_asked_of_it() -> None:
    """A server that gives none would give none in a longer run either."""
    scores: Scores = {ScoreKey("cpu/base", *KEY): score(A, FINE), ScoreKey("cpu/other", *KEY): score(B, [0, 0, 0.6, 0])}
    open_ = compare(said("cpu/base", A), said("cpu/other", B), scores)
    assert open_.reasons[0].id == "conclude.doubtful_silent"
    assert [one.step for one in open_.next_steps] == [Step.LOGPROBS, Step.ARBITER, Step.LONGER]
    assert judged([(FINE, [0, 0, 0.4, 0])], scores).verdict is Verdict.PASS
    assert judged([(FINE, A_LITTLE)], scores).verdict is Verdict.INCONCLUSIVE
    assert judged([(FINE, WRONG)], scores).verdict is Verdict.DIVERGED
