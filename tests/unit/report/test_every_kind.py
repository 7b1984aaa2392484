"""A report of each kind, read as the maintainer who gets it: title, first lines, evidence and table say the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from lxml import html as lxml_html
from support.captures import TEXT, capture, completion

from parity.comparator import compare
from parity.messages import Message, verbatim
from parity.records import RUN, Evidence, Finding, Kind, Severity, Verdict
from parity.records.evidence import RunEvidence
from parity.records.kinds import CLAIMS, Family, kinds
from parity.report.format import Wanted
from parity.report.formats import md
from parity.report.formats.html import html_report
from parity.report.texts import Texts
from parity.view import RunView
from parity.view.captures import of_captures
from parity.view.finding import worst

WHY = "two numbers that should be one: 4812 and 17"
GIVEN: dict[str, Any] = {
    "donor_request": "p7", "donor_part": "output", "donor_start": 0, "donor_end": 4, "expected_by_chance": 1e-9,
    "requests_with_this_span": 1, "asked": 0.7, "looks_like": 0.0, "token_ids": (9999,), "vocab_size": 2048,
    "rule": "bad_words", "logprob": -3.5, "score": -0.2, "missing_from": "cpu/mtp", "copy_of_sample": 0,
    "log_likelihood": -80.0, "rounds": 2, "differs_from_rounds": (1,), "faulty_rounds": (0,), "invariant": "accepted",
    "step": 11, "row": 3, "expected": 2, "found": 1, "answer": "a", "module": "layers.0.linear_attn",
    "input_position": 9, "positions": (4,), "farthest": 0.3,
}  # fmt: skip
"""What evidence must have, whatever kind it is of."""
CORRUPT = [kind for kind in kinds() if kind.row.severity is Severity.CORRUPT]
CHANGED = frozenset({Family.TOKENS, Family.ENDS, Family.RULES})
"""Families of which a finding changes tokens."""


def evidence(kind: Kind, of_run: bool) -> Evidence:
    made = kind.row.evidence
    if of_run and not issubclass(made, RunEvidence):
        made = RunEvidence
    needed = set(made.__struct_fields__) & set(GIVEN)
    given = {name: GIVEN[name] for name in needed}
    if kind.row.name == "beyond_cutoff":
        given["asked"] = {"top_k": 20.0}
    if kind.row.name == "text_mismatch":
        given["expected"] = "a wall"
    return made(why=verbatim(WHY), **given)


def view_of(kind: Kind) -> RunView:
    """Three of eight completions with it; a kind about the run as a whole: one finding."""
    of_run = kind.row.family is Family.RUN
    changed = list(TEXT)
    changed[4] += 1
    base = [completion(TEXT, f"p{at}") for at in range(8)]
    other = [completion(changed if at < 3 and kind.row.family in CHANGED else TEXT, f"p{at}") for at in range(8)]
    left = capture("cpu/base", *base)
    right = capture("cpu/mtp", *(other[3:] if kind is Kind.MISSING_COMPLETION else other))
    if kind is Kind.MISSING_COMPLETION:  # what never came is counted by the comparison, not made up here
        return of_captures([left, right], {"cpu/mtp": compare(left, right)})
    plain = compare(left, right)
    requests = [RUN] if of_run else ["p0", "p1", "p2"]
    findings = tuple(
        Finding(
            "cpu/mtp", "cpu/base", request, 0, 0, kind, Severity.CORRUPT, None if of_run else 4, None if of_run else 1,
            evidence(kind, of_run),
        )
        for request in requests
    )  # fmt: skip
    struck = {one.key for one in findings}
    classes = {key: kind.row.completion_class if key in struck else "identical" for key in plain.classes}
    found = replace(plain, verdict=Verdict.DIVERGED, reasons=(verbatim("because"),), findings=findings, classes=classes)
    return of_captures([left, right], {"cpu/mtp": found})


def said(claim: Message) -> str:
    """A claim of several completions without its numbers."""
    return (claim.plural or claim.english).split("{completions}")[-1].split("{count}")[-1].strip()


@pytest.mark.parametrize("kind", CORRUPT, ids=str)
def test_title_first_lines_table_and_verdict_agree(kind: Kind) -> None:
    view = view_of(kind)
    (report,) = md.bug_reports(view, Wanted(Texts(), target="vllm"))
    title, text = report.title, report.markdown
    description = text.split("Describe the bug\n\n", 1)[1]
    first = description.splitlines()[:10]
    assert str(kind.row.title) in title
    assert title.startswith(md.MARK) is (kind.row.family is not Family.INPUT)
    of_run = kind.row.family is Family.RUN
    assert ("3 of 8 completions" in title) is not of_run, title
    claim = said(kind.row.claim or CLAIMS[kind.row.family])
    assert claim in first[0], first
    others = [said(one) for family, one in CLAIMS.items() if family is not kind.row.family]
    assert not [other for other in others if other != claim and other in description]
    if not of_run:
        assert "3 of 8" in first[0]
        rated = kind.row.family is not Family.INPUT  # what was asked is no rate of an engine
        assert any("37.5%" in line for line in first) is rated
        assert any(line.startswith("| `cpu/mtp`") and "| 3 (" in line for line in text.splitlines())
    assert "Verdict of the run: DIVERGED." in text
    assert ("did not return this completion" if kind is Kind.MISSING_COMPLETION else WHY) in description


def test_what_the_tokens_say_is_not_said_to_be_the_baselines_text() -> None:
    """The text that was expected is that of the completion's own token ids, which may be others than the baseline's."""
    (report,) = md.bug_reports(view_of(Kind.TEXT_MISMATCH), Wanted(Texts(), target="vllm"))
    expected = report.markdown.split("#### Expected", 1)[1].split("####", 1)[0]
    assert "The token ids of `cpu/mtp` say" in expected
    assert "a wall" in expected
    assert "cpu/base" not in expected


def test_the_example_is_what_a_completion_begins_with() -> None:
    """A text that is not its tokens weighs more than a token that nothing supports; here it follows from that."""
    view = view_of(Kind.UNJUSTIFIED)
    first = view.findings[0]
    follows = replace(
        first,
        kind=str(Kind.TEXT_MISMATCH),
        position=5,
        length=20,
        evidence=Kind.TEXT_MISMATCH.row.evidence(why=verbatim(WHY)),
    )
    assert follows.weight > first.weight
    chosen = worst([follows, *view.findings])
    assert chosen is not None
    assert (chosen.kind, chosen.position) == ("unjustified", 4)
    assert worst([follows]) is follows


@pytest.mark.parametrize("kind", CORRUPT, ids=str)
def test_what_shows_it_is_what_it_rests_on(kind: Kind) -> None:
    """No report says that a reference spoke where none did, or that tokens alone show what counts or rules show."""
    view = view_of(kind)
    (report,) = md.bug_reports(view, Wanted(Texts(), target="vllm"))
    text = report.markdown
    assert "What the reference thinks of that token" not in text, "nobody scored this run"
    assert "What the samples of the run say" not in text, "nothing was drawn"
    on_tokens = "rests on the tokens alone" in text
    assert not on_tokens or kind.row.family in CHANGED | {Family.SET}
    engine = kind.row.family is Family.ENGINE
    assert ("the fault left no trace in them" in text) is engine
    assert ("#### Expected" in text and engine) is False
    assert ("did not return this completion" if kind is Kind.MISSING_COMPLETION else WHY) in html_report(view)


@pytest.mark.parametrize("kind", CORRUPT, ids=str)
def test_no_report_denies_the_cause_that_it_names(kind: Kind) -> None:
    (report,) = md.bug_reports(view_of(kind), Wanted(Texts(), target="vllm"))
    names_one = "- Cause" in report.markdown or "- The first step that broke" in report.markdown
    assert ("Nothing is concluded about the cause" in report.markdown) is not (
        names_one or kind.row.family is Family.ENGINE
    )


@pytest.mark.parametrize("kind", CORRUPT, ids=str)
def test_a_card_names_the_run_where_no_request_is_meant(kind: Kind) -> None:
    page = lxml_html.document_fromstring(html_report(view_of(kind)))
    badges = [str(one.text) for one in page.iterfind(".//article//span[@class='badge']")]
    assert not [one for one in badges if one.startswith(RUN)], badges
    assert ("the run as a whole" in badges) is (kind.row.family is Family.RUN)
