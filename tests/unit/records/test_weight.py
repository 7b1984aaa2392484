"""The heaviest finding first, the same everywhere."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from typing import Any

import pytest
from captures import VOCABULARY, capture, completion, header

from parity.comparator import compare
from parity.comparator.conclude.ruled import decided
from parity.comparator.reference.arbiter import rulings, with_rulings
from parity.comparator.stats import Stats
from parity.comparator.types import Comparison, run_finding
from parity.messages import message
from parity.pipeline.added import with_findings
from parity.pipeline.analyse import arm_result, for_store, plan_of_captures
from parity.records import Evidence, Finding, Kind, ScoreKey, Severity, TopLogprobs, Verdict
from parity.records.evidence import (
    EndEvidence,
    InvalidTokenEvidence,
    LeakEvidence,
    NearTieEvidence,
    Numbers,
    RunEvidence,
    TokensEvidence,
)
from parity.records.weight import CORRUPT, weight_of
from parity.report.format import Wanted
from parity.report.formats.json import report_value
from parity.report.formats.sarif import sarif_log
from parity.report.texts import Texts
from parity.store import NewRun, RunStatus, Store
from parity.store.browse import Browser
from parity.view import of_captures, of_store

WHY = message("test.why", "so")


def finding(kind: Kind, evidence: Evidence, length: int | None = 1, request: str = "p0", position: int = 3) -> Finding:
    severity = Severity.BENIGN if kind is Kind.NEAR_TIE else Severity.CORRUPT
    return Finding("cpu/mtp", "cpu/base", request, 0, 0, kind, severity, position, length, evidence)


def gap(nats: float, **more: Any) -> TokensEvidence:
    return TokensEvidence(why=WHY, numbers=Numbers(gap=nats), **more)


def leak(tokens: int, requests: int = 1) -> LeakEvidence:
    return LeakEvidence(
        why=WHY,
        numbers=Numbers(gap=6.0),
        donor_request="p1",
        donor_part="output",
        donor_start=4,
        donor_end=4 + tokens,
        expected_by_chance=1e-9,
        requests_with_this_span=requests,
    )


IN_ORDER = [
    finding(Kind.ROW_LEAK, leak(24), 24),
    finding(Kind.INVALID_TOKEN, InvalidTokenEvidence(why=WHY, token_ids=(5000,), vocab_size=1000)),
    finding(Kind.ROW_LEAK, leak(8), 8),
    finding(Kind.GARBLED, gap(14.0, unsupported_tokens=20), 20),
    finding(Kind.ROW_LEAK, leak(8, requests=4), 8),
    finding(Kind.UNJUSTIFIED, gap(14.0), 1),
    finding(Kind.UNJUSTIFIED, gap(9.0), 1),
    finding(Kind.UNJUSTIFIED, gap(9.0, ambiguous=WHY), 1),
    finding(Kind.EARLY_STOP, EndEvidence(why=WHY), None),
    finding(Kind.NEAR_TIE, NearTieEvidence(why=WHY, numbers=Numbers(gap=0.2))),
    finding(Kind.NEAR_TIE, NearTieEvidence(why=WHY, numbers=Numbers(gap=0.1))),
]


def test_donor_and_extent_then_gap_then_damage() -> None:
    weights = [one.weight for one in IN_ORDER]
    assert weights == sorted(weights, reverse=True)
    assert len(set(weights)) == len(weights)
    assert [one.severity is Severity.CORRUPT for one in IN_ORDER] == [weight >= CORRUPT for weight in weights]


def test_a_run_weighs_by_its_chance() -> None:
    likely, unlikely = (
        run_finding("cpu/mtp", "cpu/base", Kind.NONDETERMINISM, RunEvidence(why=WHY, p_value=p)) for p in (1e-4, 1e-12)
    )
    assert CORRUPT < likely.weight < unlikely.weight


@pytest.mark.parametrize("nats", [math.inf, math.nan, -math.inf, 1e300])
def test_no_number_breaks_the_order(nats: float) -> None:
    weight = finding(Kind.UNJUSTIFIED, gap(nats, p_value=nats)).weight
    assert math.isfinite(weight)
    assert weight >= CORRUPT


def test_an_unknown_kind_weighs_too() -> None:
    assert weight_of(Kind("of a plug-in"), "corrupt", None, Evidence(why=WHY)) == CORRUPT


def test_every_surface_has_the_same_order(tmp_path: Any) -> None:
    """Comparison, view, report, SARIF, store and the terminal interface's pages, with ties by request and position."""
    requests = [f"p{number}" for number in range(len(IN_ORDER) + 3)]
    base, other = (
        capture(header(arm), *(completion(range(5, 25), name) for name in requests)) for arm in ("cpu/base", "cpu/mtp")
    )
    findings = [replace(one, request=requests[number]) for number, one in enumerate(IN_ORDER)]
    tied = [finding(Kind.UNJUSTIFIED, gap(9.0), 1, requests[-1 - n], at) for n in range(3) for at in (9, 2)]
    mixed = [*findings, *tied]
    random.Random(3).shuffle(mixed)
    ordinals = {name: number for number, name in enumerate(requests)}
    expected = [
        (one.kind, one.request, one.position)
        for one in sorted(mixed, key=lambda one: (-one.weight, ordinals[one.request], one.position))
    ]
    result = Comparison("cpu/base", "cpu/mtp", Verdict.DIVERGED, (WHY,), tuple(mixed), {}, Stats())
    fresh = of_captures([base, other], {"cpu/mtp": result})
    assert [(one.kind, one.request, one.position) for one in fresh.findings] == expected
    path = tmp_path / "parity.db"
    with Store.open(path) as store:
        store.create_run(NewRun("r1", plan_of_captures(base, [other]), "parity", source="compare"))
        for one in (base, other):
            store.save_arm("r1", one.header.arm, one, "", arm_result(one))
        store.save_comparison("r1", "cpu/mtp", for_store(result))
        store.finish_run("r1", RunStatus.FINISHED, verdict="DIVERGED")
        stored = of_store(store, "r1")
        pages = [row for at in (0, 5, 10, 15) for row in store.page_findings("r1", offset=at, limit=5)]
        said = report_value(stored, Texts())["findings"]
        logged = json.loads(sarif_log(stored, Wanted(Texts())))["runs"][0]["results"]
    with Browser.open(path) as browser:
        browsed = browser.page_findings("r1", limit=-1)
    for rows in (stored.findings, pages, browsed):
        assert [(one.kind, one.request, one.position) for one in rows] == expected
    assert [one.weight for one in pages] == [one.weight for one in stored.findings]
    assert [(one["kind"], one["request"], one["position"]) for one in said] == expected
    corrupt = {one.kind for one in mixed if one.severity is Severity.CORRUPT}
    assert [one["ruleId"] for one in logged] == [kind for kind, _, _ in expected if kind in corrupt]


def test_a_comparison_has_the_order_of_what_is_drawn_of_it() -> None:
    """Findings of equal weight: p2 before p10, both rounds of a request together."""
    keys = [(f"p{n}", n_round) for n_round in (0, 1) for n in range(12)]
    wrong = [5, 6, VOCABULARY + 7, *range(8, 25)]
    base = [completion(range(5, 25), name, round=number) for name, number in keys]
    more = completion(wrong, "only here")
    other = [completion(wrong if key[0] != "p3" else range(5, 25), key[0], round=key[1]) for key in keys]
    captures = [capture(header("cpu/base"), *base), capture(header("cpu/mtp"), *other, more)]
    result = compare(*captures)
    drawn = of_captures(captures, {"cpu/mtp": result})
    places = [(one.kind, one.request, one.round, one.position) for one in result.findings]
    assert places == [(one.kind, one.request, one.key.round, one.position) for one in drawn.findings]
    broken = [key[1:3] for key in places if key[0] is Kind.INVALID_TOKEN]
    assert broken[:4] == [("p0", 0), ("p0", 1), ("p1", 0), ("p1", 1)]
    assert [name for name, number in broken if number == 0] == [f"p{n}" for n in range(12) if n != 3]


def test_findings_that_are_added_and_those_of_an_arbiter_have_that_order_too() -> None:
    """What recorded steps show beside tokens; what an arbiter rejects where nothing else judged."""
    names = [f"p{n}" for n in range(12)]
    base = capture("cpu/base", *(completion(range(5, 25), name) for name in names))
    other = capture("cpu/mtp", *(completion([*range(5, 15), 900 + n], name) for n, name in enumerate(names)))
    compared = compare(base, base)
    broken = [finding(Kind.VIOLATION, EndEvidence(why=WHY), request=name) for name in reversed(names)]
    added = with_findings(compared, broken, Verdict.DIVERGED, compared.reasons, ())
    assert [one.request for one in added.findings] == names
    rejected = TopLogprobs.from_json([*([[n, -0.5]] for n in range(5, 15)), [[7, -0.1], [900, -8.1]]])
    scores = {
        ScoreKey("cpu/base", *one.key): TopLogprobs.from_json([[[int(t), -0.5]] for t in one.token_ids]) for one in base
    }
    scores |= {ScoreKey("cpu/mtp", *one.key): rejected for one in other}
    found = rulings(base, other, scores, 0.25)
    turned = dict(reversed(found.items()))
    judged = compare(base, other)
    assert judged.verdict is Verdict.INCONCLUSIVE
    ruled = decided(with_rulings(judged, turned, "hf", 0.25), turned, "hf")
    assert (ruled.verdict, [one.request for one in ruled.findings]) == (Verdict.DIVERGED, names)


def test_the_examples_have_each_kind_in_the_order_of_all_findings() -> None:
    captures = [
        capture(header(arm), *(completion(range(5, 25), f"p{n}") for n in range(4))) for arm in ("cpu/base", "cpu/mtp")
    ]
    kinds = [Kind.ROW_LEAK, Kind.ROW_LEAK, Kind.ROW_LEAK, Kind.UNJUSTIFIED]
    evidence = [leak(16), leak(15), leak(14), gap(1.0)]
    findings = [finding(*one, request=f"p{n}") for n, one in enumerate(zip(kinds, evidence, strict=True))]
    result = Comparison("cpu/base", "cpu/mtp", Verdict.DIVERGED, (WHY,), tuple(findings), {}, Stats())
    drawn = of_captures(captures, {"cpu/mtp": result})
    assert [one.key.request for one in drawn.findings] == ["p0", "p1", "p2", "p3"]
    assert [one.key.request for one in drawn.examples] == ["p0", "p1", "p3"]
