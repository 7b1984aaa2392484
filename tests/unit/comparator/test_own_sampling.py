"""Sampling parameters that a request has of its own: penalties, bans, ends, temperature."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from captures import EOS, TEXT, capture, completion, score, scores

from parity.comparator import Comparison, compare
from parity.records import Key, Kind, ScoreKey, TopLogprobs, Verdict

P0, P1 = Key("p0", 0, 0), Key("p1", 0, 0)


def both(tokens: list[int], other: list[int], top: TopLogprobs, finish: str = "length", **own: Any) -> Comparison:
    """Two requests with the same tokens and scores; the second has parameters of its own."""
    base = capture("cpu/base", completion(tokens, finish=finish), completion(tokens, "p1", finish=finish, **own))
    candidate = capture("cpu/mtp", completion(other, finish=finish), completion(other, "p1", finish=finish, **own))
    return compare(base, candidate, scores("cpu/mtp", p0=top, p1=top))


def test_a_penalty_of_one_request_is_in_its_gaps_alone() -> None:
    other = [100, 101, 102]
    top = TopLogprobs.from_json([[[100, -0.1]], [[100, -0.1], [101, -3.1]], [[102, -0.1]]])
    found = both([100, 103, 102], other, top, repetition_penalty=1.2)
    assert (found.candidate_gaps[P0].at(1), found.candidate_gaps[P1].at(1)) == (3.0, 0.0)
    assert {one.key for one in found.corrupt} == {P0}


def test_a_penalty_that_makes_tokens_likelier_is_in_its_gaps() -> None:
    top = TopLogprobs.from_json([[[100, -0.1]], [[103, -0.1], [100, -3.1]], [[102, -0.1]]])
    found = both([100, 101, 102], [100, 100, 102], top, presence_penalty=-2.0)
    assert found.candidate_gaps[P0].at(1) == 3.0
    assert found.candidate_gaps[P1].at(1) == 1.0


def test_a_bias_is_in_the_gaps() -> None:
    top = TopLogprobs.from_json([[[100, -0.1]], [[103, -0.1], [101, -3.1]], [[102, -0.1]]])
    found = both([100, 103, 102], [100, 101, 102], top, logit_bias={"101": 2.5, "102": -9})
    assert (found.candidate_gaps[P0].at(1), found.candidate_gaps[P1].at(1)) == (3.0, 0.5)
    assert found.candidate_gaps[P1].bounded.tolist() == [True, False, True]  # one that is not listed may be the best


def test_only_tokens_that_were_allowed_are_rivals() -> None:
    top = TopLogprobs.from_json([[[100, -0.1], [7, -4.0]], [[103, -0.1], [101, -3.1], [7, -4.0]]])
    found = both([100, 102], [100, 101], top, allowed_token_ids=[100, 101, 102])
    assert (found.candidate_gaps[P0].at(1), found.candidate_gaps[P1].at(1)) == (3.0, 0.0)


def test_a_list_that_ends_above_the_chosen_token_does_not_say_which_allowed_one_is_best() -> None:
    top = TopLogprobs.from_json([[[100, -0.1], [7, -4.0]], [[103, -0.1], [7, -1.0], [101, -3.1]]])
    found = both([100, 102], [100, 101], top, allowed_token_ids=[100, 101, 102])
    assert found.candidate_gaps[P1].at(1) is None


def test_own_lists_that_end_above_an_allowed_token_still_say_its_logprob() -> None:
    own = TopLogprobs.from_json([[[100, -0.1], [7, -4.0]], [[103, -0.1], [7, -1.0], [101, -3.1]]])
    made = completion([100, 101], logprobs=own)
    base, candidate = (capture(arm, made, allowed_token_ids=[100, 101, 102]) for arm in ("cpu/base", "cpu/mtp"))
    assert compare(base, candidate, scores("cpu/mtp", p0=own)).verdict is Verdict.PASS


def test_a_request_may_not_end_before_its_own_min_tokens() -> None:
    top = TopLogprobs.from_json([[[100, -0.1]], [[EOS, -0.1], [101, -3.1]], [[102, -0.1]]])
    found = both([100, 103, 102], [100, 101, 102], top, min_tokens=3)
    assert (found.candidate_gaps[P0].at(1), found.candidate_gaps[P1].at(1)) == (3.0, 0.0)


@pytest.mark.parametrize(
    ("own", "corrupt"),
    [({}, set()), ({"stop_token_ids": [105]}, {P1}), ({"stop_token_ids": [105], "min_tokens": 7}, set())],
)
def test_tokens_after_a_requests_own_stop_token(own: dict[str, Any], corrupt: set[Key]) -> None:
    other = [*TEXT[:9], 700]
    found = both(list(TEXT[:10]), other, score(other, {}), **own)
    assert {one.key for one in found.corrupt} == corrupt
    assert all(one.kind is Kind.OVERRUN and one.position == 6 for one in found.corrupt)


def test_eos_inside_a_completion_that_ignores_it() -> None:
    ignores = completion([100, EOS, 102], "p1", ignore_eos=True)
    base = capture("cpu/base", completion([100, 101, 102]), ignores)
    found = compare(base, capture("cpu/mtp", completion([100, EOS, 102]), ignores))
    assert [(one.key, one.kind) for one in found.corrupt] == [(P0, Kind.OVERRUN)]


def test_a_request_that_was_asked_otherwise_of_the_other_arm() -> None:
    base = capture("cpu/base", completion(TEXT), completion(TEXT, "p1", top_k=5, temperature=0.5))
    other = capture("cpu/mtp", completion(TEXT), completion(TEXT, "p1", top_k=9, temperature=0.5))
    (finding,) = compare(base, other).corrupt
    assert (finding.key, finding.kind) == (P1, Kind.INPUT_MISMATCH)
    assert "top_k" in str(finding.evidence.why)


def test_greedy_and_drawn_requests_in_one_run_are_judged_each_in_its_way() -> None:
    drawn, garbage = list(TEXT[:40]), [*TEXT[:20], *range(500, 520)]
    base = capture(
        "cpu/base",
        completion(TEXT[:40]),
        completion(drawn, "p1", temperature=1.0),
        completion(drawn, "p2", temperature=1.0),
    )
    other = capture(
        "cpu/mtp",
        completion([*TEXT[:39], 700]),
        completion(TEXT[10:50], "p1", temperature=1.0),
        completion(garbage, "p2", temperature=1.0),
    )
    found = compare(
        base,
        other,
        {
            ScoreKey("cpu/mtp", "p0", 0, 0): score([*TEXT[:39], 700], {39: 5.0}),
            ScoreKey("cpu/mtp", "p1", 0, 0): score(TEXT[10:50], {}),
            ScoreKey("cpu/mtp", "p2", 0, 0): score(garbage, dict.fromkeys(range(20, 40), 12.0)),
        },
    )
    assert found.verdict is Verdict.DIVERGED
    assert found.classes[P0] == "corrupt"
    assert found.classes[P1] == "sampled"
    assert found.classes[Key("p2", 0, 0)] == "corrupt"
    assert {(one.key.request, one.kind, one.position) for one in found.corrupt} == {
        ("p0", Kind.UNJUSTIFIED, 39),
        ("p2", Kind.GARBLED, 20),
    }
    assert found.stats.sampling
    assert found.stats.loops
    assert set(found.candidate_gaps) == {P0, P1, Key("p2", 0, 0)}
    assert np.isfinite(found.candidate_gaps[P1].gap).all()


@pytest.mark.parametrize("limit", [9, None])
def test_a_limit_may_stand_among_a_requests_own_parameters(limit: int | None) -> None:
    own = {} if limit is None else {"max_tokens": limit}
    text = list(TEXT[:9])
    ended = replace(completion([*text[:4], EOS], finish="stop"), sampling=own)
    goes_on = replace(completion(text), sampling=own)
    top = [[[token, -0.1]] if at != 4 else [[token, -0.8], [EOS, -0.7]] for at, token in enumerate(text)]
    found = compare(
        capture("cpu/base", ended), capture("cpu/mtp", goes_on), scores("cpu/mtp", p0=TopLogprobs.from_json(top))
    )
    assert [one.kind for one in found.corrupt] == ([] if limit else [Kind.EARLY_STOP])


@pytest.mark.parametrize("at_fault", ["base", "mtp"])
def test_a_drawn_completion_that_one_arm_broke_off_is_said_of_that_arm(at_fault: str) -> None:
    sides = []
    for arm in ("base", "mtp"):
        said = [completion(TEXT[row : row + 20], f"p{row}") for row in range(8)]
        if arm == at_fault:
            said[3] = completion(TEXT[3:9], "p3", finish="abort")
        sides.append(capture(f"cpu/{arm}", *said, temperature=1.0, max_tokens=20))
    found = compare(*sides)
    ends = [one for one in found.reasons if one.id == "conclude.baseline_ends"]
    assert len(ends) == (at_fault == "base")
    assert [one.kind for one in found.corrupt] == ([Kind.EARLY_STOP] if at_fault == "mtp" else [])
    assert "p3" in str(ends[0] if ends else found.corrupt[0].request)
