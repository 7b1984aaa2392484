"""What a comparison carries for all who show it: the gap of each token, and where streams first differ."""

from __future__ import annotations

import numpy as np
import pytest
from captures import EOS, TEXT, capture, completion, score, scores

from parity.comparator import compare
from parity.records import Key, TopLogprobs
from parity.records.steps import PREFILL, steps_of

P0 = Key("p0", 0, 0)


def test_the_gap_of_a_token_is_the_one_in_the_evidence() -> None:
    tokens = [*TEXT[:10], 500, *TEXT[11:20]]
    found = compare(
        capture("cpu/base", completion(TEXT[:20])),
        capture("cpu/mtp", completion(tokens)),
        scores("cpu/mtp", p0=score(tokens, {10: 3.1234567})),
    )
    (finding,) = found.corrupt
    assert finding.position == 10
    assert found.candidate_gaps[P0].at(10) == finding.evidence.to_json()["gap"] == 3.1235
    assert int(found.candidate_gaps[P0].best_id[10]) == finding.evidence.to_json()["best_token"]
    assert found.candidate_gaps[P0].at(9) == 0.0
    assert found.candidate_gaps[P0].at(20) is None
    assert found.first_divergence == {P0: 10}
    assert not found.baseline_gaps


@pytest.mark.parametrize(("penalty", "gap"), [({}, 3.0), ({"repetition_penalty": 1.2}, 0.0)])
def test_penalties_of_the_request_are_in_the_gap(penalty: dict[str, float], gap: float) -> None:
    tokens = [100, 101, 102]
    top = TopLogprobs.from_json([[[100, -0.1]], [[100, -0.1], [101, -3.1]], [[102, -0.1]]])
    pair = capture("cpu/base", completion(tokens), **penalty), capture("cpu/mtp", completion(tokens), **penalty)
    found = compare(*pair, scores("cpu/base", p0=top))
    assert found.baseline_gaps[P0].at(1) == gap
    assert found.candidate_gaps[P0].at(1) == gap, "equal streams are scored once"
    assert found.first_divergence == {}


def test_a_completion_equal_to_the_baselines_may_be_scored_itself() -> None:
    pair = capture("cpu/base", completion(TEXT)), capture("cpu/mtp", completion(TEXT))
    found = compare(*pair, scores("cpu/mtp", p0=score(TEXT, {3: 0.1})))
    assert found.candidate_gaps[P0].at(3) == 0.1
    assert not found.baseline_gaps


def test_gaps_are_of_the_tokens_that_the_capture_holds() -> None:
    base = capture("cpu/base", *(completion([*TEXT[:5], EOS], name, finish="stop") for name in ("p0", "p1")))
    other = capture("cpu/mtp", *(completion(TEXT[:5], name, finish="stop") for name in ("p0", "p1")))
    found = compare(base, other, scores("cpu/base", p0=score([*TEXT[:5], EOS])))
    assert len(found.baseline_gaps[P0]) == 6
    assert found.baseline_gaps[P0].at(4) == 0.0
    assert found.baseline_gaps[P0].at(5) is None, "the EOS token was left out of the comparison"
    assert len(found.candidate_gaps[P0]) == 5


def test_a_shorter_stream_parts_where_it_ends() -> None:
    base = capture("cpu/base", completion(TEXT[:9]), completion(TEXT, "p1"))
    other = capture("cpu/mtp", completion(TEXT[:7]), completion(TEXT, "p1"))
    assert compare(base, other).first_divergence == {P0: 7}


def test_sampled_completions_have_gaps_too() -> None:
    base = capture("cpu/base", completion(TEXT[:9]), temperature=1.0)
    other = capture("cpu/mtp", completion(TEXT[9:18]), temperature=1.0)
    found = compare(base, other, scores("cpu/mtp", p0=score(TEXT[9:18], {2: 0.5})))
    assert found.candidate_gaps[P0].at(2) == 0.5


def test_steps_of_tokens() -> None:
    steps = steps_of([2, 0, 1])
    assert steps.step.tolist() == [PREFILL, 0, 0, 0, 1, 2, 2]
    assert steps.place.tolist() == [0, 0, 1, 2, 0, 0, 1]
    assert steps.is_draft.tolist() == [False, True, True, False, False, True, False]
    assert len(steps_of(np.array([2, 0, 1]), 3)) == 3
    assert steps_of([], 5).step.tolist() == [PREFILL]
