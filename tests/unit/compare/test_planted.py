"""Faults planted one at a time in real completions: found, named, placed; and nobody else accused."""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import planting
from planted_set import Answer, ask, cases, clean

from parity.compare import CompareOptions, compare
from parity.records import Severity, Verdict


@pytest.fixture(scope="module")
def answers() -> dict[str, list[Answer]]:
    return {world: [ask(case) for case in cases(world)] for world in ("A", "B")}


def misses(answers: list[Answer], what: str) -> str:
    return "\n".join(
        f"{a.case.fault} {a.case.key.request} at {sorted(a.case.positions)} {a.case.kinds}: {a.said}"
        for a in answers
        if not getattr(a, what)
    )


@pytest.mark.parametrize("world", ["A", "B"])
@pytest.mark.parametrize("with_scores", [True, False])
def test_undamaged_completions_are_not_accused(world: str, with_scores: bool) -> None:
    baseline, candidate, scores = clean(world)
    result = compare(baseline, candidate, scores if with_scores else {}, CompareOptions())
    assert [f for f in result.findings if f.severity is Severity.CORRUPT] == []
    assert result.verdict is (Verdict.PASS if with_scores else Verdict.INCONCLUSIVE)


@pytest.mark.parametrize("world", ["A", "B"])
def test_every_fault_that_leaves_a_trace_is_found(world: str, answers: dict[str, list[Answer]]) -> None:
    seen = [a for a in answers[world] if not a.case.traceless]
    assert len(seen) > 100
    assert all(a.found for a in seen), misses(seen, "found")


@pytest.mark.parametrize("world", ["A", "B"])
def test_no_other_row_is_accused(world: str, answers: dict[str, list[Answer]]) -> None:
    assert [a.case.fault for a in answers[world] if a.accused] == []


@pytest.mark.parametrize("world", ["A", "B"])
def test_the_kind_and_the_first_token_are_right(world: str, answers: dict[str, list[Answer]]) -> None:
    seen = [a for a in answers[world] if not a.case.traceless]
    assert sum(a.kind for a in seen) >= 0.95 * len(seen), misses(seen, "kind")
    assert sum(a.position for a in seen) >= 0.90 * len(seen), misses(seen, "position")


def test_every_fault_is_named_rightly_more_often_than_not(answers: dict[str, list[Answer]]) -> None:
    by_fault: dict[str, list[bool]] = defaultdict(list)
    for answer in answers["A"]:
        if not answer.case.traceless:
            by_fault[answer.case.fault.split("+")[0]].append(answer.kind)
    assert {fault for fault, right in by_fault.items() if sum(right) * 2 < len(right)} == set()


def test_planting_says_where_the_tokens_first_differ() -> None:
    row = planting.Row("a", [1, 2], [5, 6, 7, 8, 5, 6, 7, 9])
    plant = planting.duplication(row, 4, 4, limit=12)
    assert plant.row.tokens == [5, 6, 7, 8, 5, 6, 7, 8, 5, 6, 7, 9]
    assert plant.position == 7
    assert plant.positions == {4, 5, 6, 7}
    assert plant.origin == (0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 6, 7)


def test_a_whole_period_taken_from_a_loop_is_marked_invisible() -> None:
    row = planting.Row("a", [1], [3, 4] * 20)
    assert not planting.duplication(row, 10, 2, limit=40).visible
    assert planting.omission(row, 10, 3).visible
