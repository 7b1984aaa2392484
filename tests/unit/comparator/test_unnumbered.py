"""null for the logprobs of chosen tokens: a habit of scripts and servers that have it throughout, else a fault."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest
from captures import TEXT, capture, completion

from parity.comparator import compare
from parity.records import Capture, Kind, TopLogprobs

RUN_BY_PARITY = {"asked": {"seed": 0}}


def arm(name: str, lacking: Collection[int], engine: Any = None) -> Capture:
    """Twelve completions of one text, of which these give null for their second token."""
    made = []
    for number in range(12):
        rows = [[[token, None if number in lacking and n == 1 else -0.5]] for n, token in enumerate(TEXT)]
        made.append(completion(TEXT, f"p{number}", logprobs=TopLogprobs.from_json(rows)))
    return capture(name, *made, engine=engine or {})


@pytest.mark.parametrize(
    ("of_baseline", "of_candidate", "engine", "accused"),
    [
        ([], range(12), None, []),
        ([], range(7), None, []),
        ([], range(3), None, range(3)),
        ([], range(12), RUN_BY_PARITY, range(12)),
        (range(6, 9), range(3), None, []),  # both do it, wherever
        ([5], range(3), None, range(3)),
    ],
)
def test_null_throughout_is_a_habit_and_in_few_a_fault(
    of_baseline: Collection[int], of_candidate: Collection[int], engine: Any, accused: Collection[int]
) -> None:
    result = compare(arm("own/one", of_baseline), arm("own/two", of_candidate, engine))
    found = {one.request for one in result.corrupt if one.kind is Kind.LOGPROB_MISMATCH}
    assert found == {f"p{number}" for number in accused}
    assert ("inputs.no_number" in [one.id for one in result.notes]) is not bool(accused)
