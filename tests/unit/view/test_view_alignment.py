"""What is drawn of a finding is what the comparison found: every fault of the planted set, against its evidence."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import planted_set

from parity.records import Finding, Kind, Severity, TokenIds
from parity.records.kinds import Stretch
from parity.store import FindingRow, TriageState
from parity.view.alignment import DELETED, EQUAL, INSERTED, SHOWN, SUBSTITUTED, Alignment, align, stretch_of
from parity.view.completion import CompletionView


def drawn(a: TokenIds, b: TokenIds, findings: list[FindingRow]) -> Alignment:
    return align(a, b, [one for finding in findings if (one := stretch_of(finding)) is not None])


def stored(finding: Finding) -> FindingRow:
    """As it comes out of the store."""
    said = finding.to_json()
    assert finding.position is not None
    assert finding.length is not None
    return found(finding.kind, finding.position, finding.length, **said["evidence"])  # type: ignore[arg-type]


def says_what_was_found(picture: Alignment, finding: FindingRow, a: TokenIds) -> None:
    """Raises AssertionError where the picture and the evidence say different things."""
    assert finding.position is not None
    assert finding.length is not None
    evidence, length = finding.evidence, finding.length
    hits = np.flatnonzero(picture.right == finding.position)
    row = int(hits[0]) if len(hits) else len(picture)
    after = row
    if Kind(finding.kind).row.stretch is Stretch.LOST:
        assert picture.op[row - length : row].tolist() == [DELETED] * length
        if evidence.get("baseline_tokens"):  # they are not known where the streams had parted before
            lost = a[picture.left[row - length : row]].tolist()
            assert lost[:SHOWN] == evidence["baseline_tokens"]
    elif "agree_again_for" in evidence:
        after = row + length
        lost = [i for i in picture.left[row:after].tolist() if i >= 0]
        assert a[lost].tolist() == evidence["baseline_tokens"]
        assert EQUAL not in picture.op[row:after]
    elif finding.kind == Kind.DUPLICATION:
        assert picture.op[row : row + length].tolist() == [INSERTED] * length
    agree = evidence.get("agree_again_for", 0)
    assert picture.op[after : after + agree].tolist() == [EQUAL] * agree


@pytest.mark.parametrize("world", ["A", "B"])
def test_every_planted_fault_is_drawn_as_it_was_found(world: str) -> None:
    baseline, _, _ = planted_set.clean(world)
    seen: Counter[str] = Counter()
    for case, result in zip(planted_set.cases(world), planted_set.compared(world), strict=True):
        a, b = baseline.completions[case.key].token_ids, case.candidate.completions[case.key].token_ids
        findings = [
            stored(one)
            for one in result.findings
            if one.key == case.key and one.severity is Severity.CORRUPT and one.position is not None
        ]
        picture = drawn(a, b, findings)
        assert picture.left[picture.left >= 0].tolist() == list(range(len(a)))
        assert picture.right[picture.right >= 0].tolist() == list(range(len(b)))
        same = picture.op == EQUAL
        assert np.array_equal(a[picture.left[same]], b[picture.right[same]])
        view = CompletionView(None, "m", case.key, None, None, None, None, {}, findings, alignment=picture)  # type: ignore[arg-type]
        gone = sum(one.length or 0 for one in findings if Kind(one.kind).row.stretch is Stretch.LOST)
        assert len(view.lost) == gone, "each lost token is marked, and nothing else"
        assert view.lost <= set(picture.left[picture.right < 0].tolist())
        for finding in findings:
            says_what_was_found(picture, finding, a)
            seen[finding.kind] += 1
    assert {"omission", "duplication", "repetition", "row_leak", "garbled", "unjustified"} <= set(seen)
    assert seen[Kind.OMISSION] >= 10


def found(kind: Kind, position: int, length: int, **evidence: object) -> FindingRow:
    return FindingRow(
        0,
        "r",
        "m",
        0,
        "p",
        0,
        0,
        kind,
        "corrupt",
        position,
        length,
        None,
        TriageState.NEW,
        evidence,
        "f",  # type: ignore[arg-type]
    )


def test_of_several_copies_the_one_that_was_lost_is_the_one_drawn() -> None:
    """A realignment alone would take the shortest way: the streams agree again after one token too."""
    a = np.array([1, 2, 3, 9, 4, 5, 6, 7, 9, 8, 10, 11, 12, 13])
    b = np.array([1, 2, 3, 9, 8, 10, 11, 12, 13])
    lost = found(Kind.OMISSION, 4, 5, baseline_tokens=[4, 5, 6, 7, 9], agree_again_for=5)
    picture = drawn(a, b, [lost])
    assert picture.op.tolist() == [EQUAL] * 4 + [DELETED] * 5 + [EQUAL] * 5
    moved = found(Kind.OMISSION, 3, 5, baseline_tokens=[9, 4, 5, 6, 7], agree_again_for=6)
    assert drawn(a, b, [moved]).op.tolist() == [EQUAL] * 3 + [DELETED] * 5 + [EQUAL] * 6


def test_two_findings_of_one_completion_are_both_drawn() -> None:
    a = np.arange(100, 140)
    b = np.concatenate([a[:10], a[13:20], a[18:20], a[20:]])
    lost = found(Kind.OMISSION, 10, 3, baseline_tokens=[110, 111, 112], agree_again_for=7)
    twice = found(Kind.DUPLICATION, 17, 2, baseline_tokens=[], candidate_tokens=[118, 119], agree_again_for=20)
    picture = drawn(a, b, [twice, lost])
    assert picture.op.tolist() == [EQUAL] * 10 + [DELETED] * 3 + [EQUAL] * 7 + [INSERTED] * 2 + [EQUAL] * 20


def test_evidence_that_the_tokens_contradict_is_not_drawn() -> None:
    """A database may come from anywhere."""
    a, b = np.arange(100, 120), np.arange(200, 220)
    for finding in (
        found(Kind.OMISSION, 5, 3, baseline_tokens=[1, 2, 3], agree_again_for=4),
        found(Kind.OMISSION, 90, 3, baseline_tokens=[105], agree_again_for=4),
        found(Kind.DUPLICATION, 18, 50),
        found(Kind.OMISSION, 5, 3, baseline_tokens="x", agree_again_for="y"),
        replace(found(Kind.OMISSION, 5, 3), position=None),
    ):
        picture = drawn(a, b, [finding])
        assert picture.right[picture.right >= 0].tolist() == list(range(20))
        assert picture.left[picture.left >= 0].tolist() == list(range(20))
        assert set(picture.op.tolist()) <= {SUBSTITUTED, INSERTED, DELETED}
