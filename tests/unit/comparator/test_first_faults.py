"""First faults of completions, and what comes after them."""

from __future__ import annotations

from captures import TEXT, capture, completion, score, scores

from parity.comparator import compare
from parity.comparator.population.first_faults import first_faults
from parity.comparator.population.rates import rates
from parity.comparator.types import run_finding
from parity.messages import verbatim
from parity.records import Finding, Key, Kind, Severity
from parity.records.evidence import Evidence, RunEvidence
from parity.view.figures import figures_of

WHY = verbatim("a reason")


def finding(request: str, kind: Kind, position: int | None) -> Finding:
    return Finding("b", "a", request, 0, 0, kind, kind.row.severity, position, 1, Evidence(why=WHY))


def test_each_completion_counts_once_by_its_first_fault() -> None:
    found = [
        finding("p0", Kind.GARBLED, 9),
        finding("p0", Kind.ROW_LEAK, 3),
        finding("p1", Kind.EARLY_STOP, 5),
        finding("p1", Kind.ROW_LEAK, 5),
        finding("p2", Kind.UNJUSTIFIED, 7),
        finding("p3", Kind.NEAR_TIE, 1),
    ]
    assert list(first_faults(found).items()) == [("row_leak", 2), ("unjustified", 1)]


def test_a_fault_of_the_whole_completion_comes_first() -> None:
    found = [finding("p0", Kind.GARBLED, 0), finding("p0", Kind.DUPLICATE_COMPLETION, None)]
    assert first_faults(found) == {"duplicate_completion": 1}


def test_a_finding_about_the_run_counts_by_itself() -> None:
    whole = [run_finding("b", "a", kind, RunEvidence(why=WHY)) for kind in (Kind.REPETITION, Kind.UNJUSTIFIED)]
    assert first_faults([*whole, finding("p0", Kind.REPETITION, 2)]) == {"repetition": 2, "unjustified": 1}


def test_what_is_said_of_the_run_is_no_completion() -> None:
    whole = [run_finding("b", "a", Kind.UNJUSTIFIED, RunEvidence(why=WHY))] * 3
    found = rates({Key("p0", 0, 0): "corrupt"}, [*whole, finding("p0", Kind.REPETITION, 2)])
    assert {kind: one.completions for kind, one in found.rates.items()} == {"repetition": 1}
    assert (found.corrupt, found.of_run) == (1, {"unjustified": 3})
    arm = figures_of(found.to_json())
    assert (dict(arm.kinds), arm.of_run) == ({"repetition": 1}, {"unjustified": 3})


def test_the_statistics_have_them() -> None:
    wrong = [*TEXT[:10], 901, *TEXT[11:30], 902, *TEXT[31:]]
    tokens = [*wrong[:45], *TEXT[47:], 0]
    result = compare(
        capture("cpu/base", completion(TEXT)),
        capture("cpu/mtp", completion(tokens, finish="stop")),
        scores("cpu/mtp", p0=score(tokens, {10: 9.0, 30: 9.0, 45: 9.0}, TEXT)),
    )
    assert len([one for one in result.findings if one.severity is Severity.CORRUPT]) > 1
    assert result.stats.first_faults == {"unjustified": 1}
    assert result.stats.to_json()["first_faults"] == {"unjustified": 1}
