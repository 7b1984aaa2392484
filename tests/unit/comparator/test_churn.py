"""The proof that a batch churned: what the counters must show where the plan asked for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from captures import TEXT, capture, completion, texts

from parity.comparator import compare
from parity.comparator.inputs import churn
from parity.comparator.types import Remarks
from parity.records import Capture, Verdict

POISSON = {"arrival": "poisson", "every": 1.0}
MOVED = {"arrivals_while_decoding": 3, "rows_joined": 3, "rows_left": 2, "rows_moved": 1, "aborted": 0}


def made(asked: dict[str, Any] | None, counters: dict[str, Any], **engine: Any) -> Capture:
    one = capture("cpu/base2", completion(TEXT))
    header = replace(one.header, extra={} if asked is None else {"churn": asked}, engine=engine)
    return Capture(header, one.completions, {}, counters)


@pytest.mark.parametrize(
    ("asked", "counters", "reason"),
    [
        (POISSON, {**MOVED, "arrivals_while_decoding": 0}, "no request arrived while others were decoding"),
        (POISSON, {**MOVED, "rows_moved": 0}, "no row moved"),
        ({"abort_share": 0.1}, MOVED, "all had ended before"),
        ({"abort_share": 0.1}, {**MOVED, "aborted": 1, "rows_moved": 0}, "no row moved"),
        ({"kv_blocks": 9}, {**MOVED, "preemptions": 0}, "no request was preempted"),
    ],
)
def test_a_batch_that_stood_still_proves_nothing(asked: dict[str, Any], counters: dict[str, Any], reason: str) -> None:
    candidate = made(asked, counters)
    (why,) = churn.remarks(candidate).reasons
    assert reason in str(why)
    result = compare(capture("cpu/base", completion(TEXT)), candidate)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert any(reason in line for line in texts(result.reasons))


@pytest.mark.parametrize(
    ("asked", "counters"),
    [
        (None, {}),
        ({}, {}),
        (POISSON, MOVED),
        ({"shuffle": True}, {}),
        ({"abort_share": 0.1}, {**MOVED, "aborted": 2}),
        ({"kv_blocks": 9}, {**MOVED, "preemptions": 1}),
    ],
)
def test_a_batch_that_did_as_asked_passes(asked: dict[str, Any] | None, counters: dict[str, Any]) -> None:
    result = compare(capture("cpu/base", completion(TEXT)), made(asked, counters))
    assert result.verdict is Verdict.PASS
    assert result.stats.to_json()["exercised"].get("rows_moved") == counters.get("rows_moved")


def test_one_request_at_a_time_has_no_batch() -> None:
    assert churn.remarks(made(POISSON, {**MOVED, "rows_moved": 0}, max_num_seqs=1)) == Remarks()


@pytest.mark.parametrize(
    ("counters", "note"),
    [({}, "no counters of its batches"), ({"arrivals_while_decoding": 3}, "rows of its batches cannot be seen")],
)
def test_what_cannot_be_seen_is_a_note(counters: dict[str, Any], note: str) -> None:
    result = compare(capture("cpu/base", completion(TEXT)), made(POISSON, counters))
    assert result.verdict is Verdict.PASS
    assert any(note in line for line in texts(result.notes))
