"""The truth about planted rows, and how a comparison is set against it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from captures import capture, completion
from fault_judge import gaps, judge, shifted, truths
from parity_faults import prompt_key

from parity.records import Capture, ScoreKey, TopLogprobs

PROMPT = (5, 6, 7)


def _capture(tokens: Sequence[int]) -> Capture:
    return capture("cpu/mtp", completion(tokens, prompt=PROMPT))


def _scores(tokens: Sequence[int], bad: Sequence[int]) -> dict[ScoreKey, TopLogprobs]:
    """The reference supports every token but those at `bad`, 2 nats below its best."""
    entries = [
        [[token, -2.5], [900, -0.5]] if place in bad else [[token, -0.5], [900, -2.5]]
        for place, token in enumerate(tokens)
    ]
    return {ScoreKey("cpu/mtp", "p0", 0, 0): TopLogprobs.from_json(entries)}


def _planted(fault: str, position: int, **more: object) -> dict[str, object]:
    return {"record": "planted", "fault": fault, "prompt": prompt_key(PROMPT), "position": position, **more}


def test_gaps_are_nats_below_the_best_and_infinite_where_not_listed() -> None:
    entries = TopLogprobs.from_json([[[1, -0.5], [2, -1.5]], [[1, -0.5], [2, -1.5]], [[3, -0.1]]])
    assert gaps(entries, np.array([1, 2, 9])).tolist() == pytest.approx([0.0, 1.0, np.inf])


def test_a_row_whose_tokens_the_reference_supports_is_not_damaged() -> None:
    tokens = [1, 2, 3, 4]
    [truth] = truths([_planted("row_swap", 1)], _capture(tokens), _scores(tokens, [0]), 0.25)
    assert (truth.request, truth.planted, truth.damaged) == ("p0", 1, False)


def test_the_first_offending_token_lies_between_the_planting_and_the_first_unsupported_one() -> None:
    tokens = [1, 2, 3, 4, 5]
    planted = [_planted("accepted_counts", 3), _planted("accepted_counts", 1)]
    [truth] = truths(planted, _capture(tokens), _scores(tokens, [2, 4]), 0.25)
    assert (truth.first, truth.last) == (1, 2)


def test_chunks_in_periodic_text_have_more_than_one_right_place() -> None:
    assert shifted([1, 2, 3, 4], 1, 1) == (1, 1)
    assert shifted([9, 7, 7, 7, 8], 2, 1) == (1, 3)
    # 1 2 | 1 2 | 3: the second of two equal chunks; taking out either leaves the same.
    assert shifted([1, 2, 1, 2, 3], 2, 2) == (0, 2)
    tokens = [4, 7, 7, 8]  # one 7 of three was lost
    planted = _planted("bonus_lost", 3, before=[7, 7, 7], after=[7, 7])
    [truth] = truths([planted], _capture(tokens), _scores(tokens, []), 0.25)
    assert (truth.first, truth.last) == (1, 3)


def _finding(request: str, kind: str, position: int | None, severity: str = "corrupt") -> dict[str, object]:
    return {"request": request, "kind": kind, "position": position, "severity": severity}


def test_judgement_counts_caught_accused_kind_and_token() -> None:
    tokens = [1, 2, 3, 4, 5]
    planted = [_planted("early_eos", 2)]
    comparison = {
        "verdict": "DIVERGED",
        "findings": [
            _finding("p0", "garbled", 4),
            _finding("p0", "early_stop", 2),
            _finding("p0", "near_tie", 0, "benign"),
            _finding("p9", "garbled", 0),
            _finding("p8", "near_tie", 0, "benign"),
        ],
    }
    result = judge("early_eos", comparison, planted, _capture(tokens), _scores(tokens, [2]))
    assert result.found["p0"] == ("early_stop", 2)
    assert result.accused == ["p9"]
    assert len(result.caught) == len(result.right_kind) == len(result.right_token) == 1
    comparison["findings"] = [_finding("p0", "garbled", 3)]
    result = judge("early_eos", comparison, planted, _capture(tokens), _scores(tokens, [2]))
    assert (len(result.caught), result.right_kind, result.right_token) == (1, [], [])
    comparison["findings"] = []
    result = judge("early_eos", comparison, planted, _capture(tokens), _scores(tokens, [2]))
    assert (len(result.damaged), result.caught) == (1, [])


def test_wrong_logprobs_begin_where_they_first_differ_from_the_scores() -> None:
    tokens = [1, 2, 3, 4]
    capture = _capture(tokens)
    [key] = capture.completions
    own = TopLogprobs.from_json([[[1, -0.5]], [[2, -0.6]], [[3, -3.5]], [[4, -3.5]]])
    capture = replace(capture, completions={key: replace(capture.completions[key], logprobs=own)})
    [truth] = truths([_planted("wrong_logprobs", 1)], capture, _scores(tokens, []), 0.25)
    assert (truth.first, truth.last) == (1, 2)
