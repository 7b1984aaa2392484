"""Whole completions, or their rest, that are another request's: real ones, copied and scored.

The rows of tests/data/leaks.json.gz were drawn by tests/leaking.py in the worlds of the planted set and scored by
transformers in float32; where a row goes on after the copied tokens, it is with the model's own greedy text.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections import defaultdict
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from captures import TEXT, capture, completion, score, scores

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import leaking
from planted_set import clean

from parity.comparator import CompareOptions, Comparison, compare
from parity.comparator.detect import leak
from parity.records import Completion, Finding, Key, Kind, ScoreKey, Severity, TopLogprobs
from parity.records.evidence import LeakEvidence

DATA = Path(__file__).resolve().parents[2] / "data" / "leaks.json.gz"


@cache
def rows() -> list[dict[str, Any]]:
    with gzip.open(DATA) as file:
        found: list[dict[str, Any]] = json.load(file)
    return found


def asked(row: dict[str, Any]) -> tuple[Finding | None, set[Key]]:
    """The row's first corrupt finding, and who else is accused."""
    baseline, candidate, known = clean(row["world"])
    key = Key(row["request"], 0, 0)
    tokens = row["tokens"]
    finish = "stop" if tokens[-1] == 0 else "length"
    made = replace(candidate.completions[key], token_ids=np.array(tokens, dtype=np.int64), finish_reason=finish)
    best = np.array(row["best"], dtype=np.float64).reshape(len(tokens), 2, 2)
    ids = np.concatenate([best[:, :, 0], np.array(tokens)[:, None]], axis=1).astype(np.int64)
    values = np.concatenate([best[:, :, 1], np.array(row["chosen"])[:, None]], axis=1) / 1000
    candidate = replace(candidate, completions={**candidate.completions, key: made})
    result = compare(baseline, candidate, {**known, ScoreKey("cpu/mtp", *key): TopLogprobs(ids, values)})
    corrupt = [one for one in result.findings if one.severity is Severity.CORRUPT]
    mine = sorted((one for one in corrupt if one.key == key), key=lambda one: one.position or 0)
    return (mine[0] if mine else None), {one.key for one in corrupt} - {key}


@pytest.fixture(scope="module")
def answers() -> list[tuple[dict[str, Any], Finding | None, set[Key]]]:
    return [(row, *asked(row)) for row in rows()]


def is_named(row: dict[str, Any], found: Finding | None) -> bool:
    return (
        found is not None
        and isinstance(found.evidence, LeakEvidence)
        and found.evidence.donor_request in row["holders"]
        and found.position == row["start"]
    )


def test_every_row_is_found_and_nobody_else_is_accused(answers: list[Any]) -> None:
    assert len(answers) > 100
    assert [row["request"] for row, found, _ in answers if found is None] == []
    assert [others for _, _, others in answers if others] == []


def test_the_donor_is_named_in_most_of_each_extent(answers: list[Any]) -> None:
    """What is missed are donors that say one token over and over: their text could be anybody's."""
    by_extent: dict[str, list[bool]] = defaultdict(list)
    for row, found, _ in answers:
        by_extent[row["extent"]].append(is_named(row, found))
    assert set(by_extent) == set(leaking.EXTENTS)
    shares = {extent: sum(named) / len(named) for extent, named in by_extent.items()}
    assert all(share >= 0.6 for share in shares.values()), shares
    assert sum(map(sum, by_extent.values())) >= 0.8 * len(answers), shares


LOOP = [*range(300, 306), *range(400, 404)]
"""What a donor begins with, and the piece of its loop."""


def looping(request: str, prompt: list[int]) -> Completion:
    return completion((LOOP[:6] + LOOP[6:] * 20)[:60], request, prompt=prompt)


def leaked_into(tokens: list[int], wrong: list[int], *rest: Completion, own: tuple[int, ...] = TEXT) -> Comparison:
    """Request p0 with these tokens, of which the reference rejects those at `wrong`."""
    return compare(
        capture("cpu/base", completion(own, prompt=[7, 8, 9]), *rest),
        capture("cpu/mtp", completion(tokens, prompt=[7, 8, 9]), *rest),
        scores("cpu/mtp", p0=score(tokens, dict.fromkeys(wrong, 9.0), own)),
    )


def test_a_donor_that_loops_is_named() -> None:
    donor = looping("p1", [4, 5, 6])
    tokens = donor.token_ids.tolist()
    result = leaked_into(tokens, [0, 1, 2, 6, 7], donor)
    (found,) = result.corrupt
    assert (found.kind, found.position, found.length) == (Kind.ROW_LEAK, 0, 60)
    assert isinstance(found.evidence, LeakEvidence)
    assert found.evidence.donor_request == "p1"


def test_the_rest_of_a_short_completion_is_a_leak_and_no_omission() -> None:
    donor = completion(range(500, 560), "p1", prompt=[4, 5, 6])
    tokens = [*TEXT[:20], *range(520, 550)]
    result = leaked_into(tokens, [20, 21, 22, 25], donor)
    assert [(one.kind, one.position) for one in result.corrupt] == [(Kind.ROW_LEAK, 20), (Kind.EARLY_STOP, 50)]


def test_a_loop_of_the_requests_own_is_no_leak() -> None:
    """Another request says the same, and the victim repeats what it had said itself."""
    piece = list(TEXT[10:20])
    tokens = [*TEXT[:20], *(piece * 4)]
    donor = completion([*TEXT[10:20]] * 6, "p1", prompt=[4, 5, 6])
    (found,) = leaked_into(tokens, list(range(20, 60)), donor).corrupt
    assert found.kind is Kind.REPETITION


def test_prompts_alike_may_have_the_same_answer() -> None:
    """The candidate takes the other branch of a near-tie, and says what a prompt like its own was answered."""
    donor = completion([*TEXT[:8], *range(500, 552)], "p1", prompt=[7, 8, 10])
    result = leaked_into(donor.token_ids.tolist(), [], donor)
    assert result.corrupt == []


@pytest.mark.parametrize("own", [(*TEXT[:20], *range(500, 540)), TEXT])
def test_one_wrong_token_and_an_answer_alike_are_no_leak(own: tuple[int, ...]) -> None:
    """After one wrong token the model itself goes on as it does after a prompt like this one."""
    shared = list(range(500, 540))
    donor = completion([*TEXT[:19], 998, *shared], "p1", prompt=[3, 7, 8, 9])
    tokens = [*TEXT[:19], 998, *shared]
    (found,) = leaked_into(tokens, [19], donor, own=own).corrupt
    assert found.kind is Kind.UNJUSTIFIED


def test_clean_completions_are_not_accused_of_sharing() -> None:
    for world in "AB":
        baseline, candidate, known = clean(world)
        assert compare(baseline, candidate, known, CompareOptions()).corrupt == []


def test_a_copy_that_the_baseline_goes_on_with_is_looked_for_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = np.resize(np.array(TEXT[:7]), 600)
    hurt = np.delete(loop, 300)
    rejected = dict.fromkeys(range(300, 599), 9.0)
    asked: list[int] = []
    monkeypatch.setattr(leak.Donors, "search", lambda _, queries: asked.append(len(queries)) or [None] * len(queries))
    found = compare(
        capture("cpu/base", *(completion(loop, request) for request in "abc"), max_tokens=600),
        capture("cpu/mtp", *(completion(hurt, request) for request in "abc"), max_tokens=600),
        {ScoreKey("cpu/mtp", request, 0, 0): score(hurt, rejected, loop) for request in "abc"},
    ).findings
    assert {one.kind for one in found if one.severity is Severity.CORRUPT} == {Kind.DUPLICATION}
    assert sum(asked) == 0
