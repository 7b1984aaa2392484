"""Findings in a file say the same as findings in memory, wherever they are asked."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import planted_set

from parity.comparator import Comparison
from parity.comparator.types import run_finding
from parity.messages import message
from parity.pipeline.added import with_findings
from parity.pipeline.analyse import analyse
from parity.pipeline.saving import save_comparison
from parity.records import Capture, Finding, Kind, Severity, many_findings
from parity.records.evidence import Numbers, RunEvidence, TokensEvidence
from parity.records.many_findings import (
    Gathering,
    ManyFindings,
    corrupt_of,
    each,
    gathered,
    heads,
    in_order,
    joined,
    least,
)
from parity.report.gate import judge_comparison
from parity.report.policy import Policy
from parity.store import Store
from parity.view.captures import of_captures


def damaged() -> tuple[Capture, Capture, dict[Any, Any]]:
    """World A with a fault in each request for which there is a case."""
    baseline, candidate, scores = planted_set.clean("A")
    completions, scored = dict(candidate.completions), dict(scores)
    for case in planted_set.cases("A"):
        if completions[case.key] is candidate.completions[case.key]:
            completions[case.key] = case.candidate.completions[case.key]
            scored |= {key: value for key, value in case.scores.items() if tuple(key[1:]) == tuple(case.key)}
    return baseline, replace(candidate, completions=completions), scored


def compared(monkeypatch: pytest.MonkeyPatch, *, held: int) -> tuple[Capture, Capture, Comparison]:
    monkeypatch.setattr(many_findings, "HELD", held)
    baseline, candidate, scores = damaged()
    return baseline, candidate, analyse(baseline, candidate, scores, tolerance=0.25, model=None)


def test_a_comparison_says_the_same(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    said = []
    for held in (0, 4096):
        baseline, candidate, comparison = compared(monkeypatch, held=held)
        assert isinstance(comparison.findings, ManyFindings) is (held == 0)
        assert len(comparison.corrupt) > 20
        assert len(comparison.findings) > len(comparison.corrupt)
        view = of_captures([baseline, candidate], {candidate.header.arm: comparison})
        with Store.open(tmp_path / f"{held}.db") as store:
            run = save_comparison(store, baseline, candidate, comparison)
            stored = [(row.fingerprint, row.kind, row.evidence) for row in store.page_findings(run, limit=-1)]
        added = with_findings(comparison, [comparison.findings[3]], comparison.verdict, comparison.reasons, ())
        said.append(
            json.dumps(
                [
                    comparison.to_json(),
                    [list(key) for key in comparison.classes.items()],
                    [(one.key, one.kind, one.evidence.to_json()) for one in view.findings],
                    [arm.corrupt for arm in view.arms],
                    stored,
                    added.to_json(),
                    judge_comparison(comparison, "plan", Policy()).to_json(),
                ],
                default=str,
            )
        )
    assert said[0] == said[1]


def test_a_view_has_the_worst(monkeypatch: pytest.MonkeyPatch) -> None:
    for held in (0, 4096):
        baseline, candidate, comparison = compared(monkeypatch, held=held)
        views = [of_captures([baseline, candidate], {candidate.header.arm: comparison}, limit=n) for n in (None, 5)]
        places = [[(one.key, one.kind, one.position) for one in view.findings] for view in views]
        assert places == [places[0], places[0][:5]]
        assert [one.total_findings for one in views] == [len(comparison.findings)] * 2


def finding(number: int, severity: Severity = Severity.CORRUPT) -> Finding:
    evidence = RunEvidence(why=message("test.why", "number {number}", number=number))
    return run_finding("b", "a", Kind.GARBLED, evidence, severity)


def numbers(findings: Any) -> list[int]:
    return [int(str(one.evidence.why).split()[-1]) for one in findings]


def test_numbers_of_numpy_are_kept_as_plain_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many_findings, "HELD", 0)
    evidence = TokensEvidence(
        why=message("test.why", "test"),
        candidate_token=np.int64(3),  # type: ignore[arg-type]
        numbers=Numbers(gap=np.float64(0.5)),
        unsupported_positions=(np.int32(4),),  # type: ignore[arg-type]
    )
    one = Finding("b", "a", "p0", 0, 0, Kind.GARBLED, Severity.CORRUPT, np.int64(4), 1, evidence)  # type: ignore[arg-type]
    (found,) = gathered(iter([one]))
    assert (found.position, found.evidence.candidate_token, found.evidence.gap) == (4, 3, 0.5)
    assert json.dumps(found.to_json())


@given(st.lists(st.integers(0, 5)), st.sampled_from([0, 3, 100]), st.data())
def test_as_lists_have_it(places: list[int], held: int, data: st.DataObject) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(many_findings, "HELD", held)
        found = Gathering()
        severities = [data.draw(st.sampled_from(list(Severity))) for _ in places]
        for number, (place, severity) in enumerate(zip(places, severities, strict=True)):
            found.append(place, finding(number, severity))
        many = found.in_order()
        order = sorted(range(len(places)), key=lambda number: places[number])
        assert numbers(many) == order
        cut = data.draw(st.slices(len(places)))
        assert numbers(many[cut]) == order[cut]
        assert numbers(corrupt_of(many)) == [one for one in order if severities[one] is Severity.CORRUPT]
        assert [one.severity for one in heads(many)] == [severities[one] for one in order]
        assert numbers(joined([finding(90)], many, many, [finding(91)])) == [90, *order, *order, 91]
        assert numbers(many) == order
        changed = each(many, lambda one: finding(100 + numbers([one])[0], one.severity))
        assert numbers(changed) == [100 + one for one in order]
        assert numbers(joined(many, changed, [finding(91)])) == [*order, *(100 + one for one in order), 91]
        by_severity = sorted(order, key=lambda number: severities[number])
        assert numbers(in_order(many, lambda one: str(one.severity))) == by_severity
        assert numbers(least(many, 2, lambda one: str(one.severity))) == by_severity[:2]
        assert numbers(gathered(one for one in many)) == order
