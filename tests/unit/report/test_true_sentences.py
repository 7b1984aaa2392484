"""Sentences of reports that once said what was not so."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from lxml import etree
from report_data import KEYS, MTP, arm_case, finding_case, make_case, run_of

from parity.messages import verbatim
from parity.report.finding_lines import finding_lines
from parity.report.format import Wanted
from parity.report.formats import md
from parity.report.formats.junit import junit_xml
from parity.report.sections import _own_text
from parity.report.texts import Texts
from parity.view import FindingView, RunView
from parity.view.figures import figures_of


def reported(view: RunView) -> str:
    (report, *_) = md.bug_reports(view, Wanted(Texts(), target="vllm"))
    return report.markdown


def clean(**changes: Any) -> RunView:
    arm = arm_case(MTP, corrupt=False, **changes)
    classes = dict.fromkeys(KEYS, "identical")
    return make_case(finding=None, chosen=None, arms=[arm_case("cpu/base"), arm], classes=classes)


def undecided(finding: FindingView | None = None) -> RunView:
    """A run that nothing was concluded of."""
    why = verbatim("the scores reject the baseline's own token in 1 completion")
    arm = arm_case(MTP, corrupt=False, verdict="INCONCLUSIVE", reasons=(why,))
    run = run_of(verdict="INCONCLUSIVE", reasons=(why,))
    asked = {"chosen": finding, "asked_for_finding": finding is not None}
    classes = dict.fromkeys(KEYS, "near_tie")
    return make_case(finding=finding, run=run, arms=[arm_case("cpu/base"), arm], classes=classes, **asked)


def near_tie() -> FindingView:
    return finding_case(kind="near_tie", severity="benign", evidence={"why": "both tokens are nearly as likely"})


def test_drawn_completions_do_not_part_at_near_ties() -> None:
    drawn = clean()
    drawn = replace(drawn, run=replace(drawn.run, verdict="PASS", sampling={"temperature": 1.0, "max_tokens": 6}))
    said = reported(drawn)
    assert "near-tie" not in said.split("#### All arms")[0]
    assert "no test tells its 2 completions, drawn at random, from those of `cpu/base`" in said
    assert "at near-ties" in reported(replace(drawn, run=replace(drawn.run, sampling={"temperature": 0.0})))


def test_a_finding_of_an_undecided_run_is_not_called_no_fault() -> None:
    said = reported(undecided(near_tie()))
    assert "not decided: the scores reject" in said.splitlines()[0]
    assert "**Not decided**" in said
    assert "no fault" not in said


def test_an_undecided_arm_is_no_green_suite() -> None:
    suite = etree.fromstring(junit_xml(undecided()).encode())[0]
    assert (suite.get("failures"), suite.get("skipped")) == ("0", "1")
    (whole,) = suite.findall("testcase[@name='the arm as a whole']/skipped")
    assert "the scores reject" in whole.get("message")
    assert etree.fromstring(junit_xml(clean()).encode())[0].get("skipped") == "0"


def test_the_noise_leaves_out_what_is_too_far_for_noise_and_says_so() -> None:
    floor = {"largest_gap": 0.125, "tokens": 1152, "rejected_tokens": 5}
    said = reported(clean(figures=figures_of({"floor": floor})))
    assert "at most 0.125 nats over 1147 tokens of the baseline; 5 more are too far below the best to be noise" in said
    said = reported(clean(figures=figures_of({"floor": {**floor, "rejected_tokens": None}})))
    assert "at most 0.125 nats over 1152 tokens of the baseline." in said


def test_a_rate_beside_a_finding_of_the_run_says_what_it_counts() -> None:
    figures = replace(arm_case(MTP).figures, of_run={"unjustified": 1})
    arms = [arm_case("cpu/base"), arm_case(MTP, figures=figures)]
    assert "each by itself; the run as a whole is off as well." in reported(make_case(arms=arms))
    assert "each by itself" not in reported(make_case())


@pytest.mark.parametrize(
    ("gap", "said"), [(2.5, "To end here lies 2.500 nats below the best token"), (None, "nothing")]
)
def test_an_end_says_how_unlikely_it_is(gap: float | None, said: str) -> None:
    evidence = {"why": "ends here", "finish_reason": "stop"} | ({} if gap is None else {"gap_of_ending_here": gap})
    ended = finding_case(kind="early_stop", gap=None, evidence=evidence)
    report = reported(make_case(finding=ended, chosen=ended))
    assert said in report
    assert ("The reference says nothing of this place" in report) == (gap is None)


def test_a_gap_after_penalties_is_set_apart_from_the_list() -> None:
    listed = {"reference": [[99, -0.5], [7, -0.9]], "candidate": None, "baseline": None}
    evidence = {"why": "x", "gap": 3.4, "tolerance": 0.25, "candidate_token": 99, "logprobs": listed}
    moved = finding_case(gap=3.4, evidence=evidence)
    assert "under the request's penalties" in reported(make_case(finding=moved, chosen=moved))
    assert "under the request's penalties" not in reported(make_case())


def test_all_at_another_temperature_share_no_place() -> None:
    def rows(kind: str) -> RunView:
        evidence = {"why": "x", "asked": 1.0, "looks_like": 1.4} if kind == "wrong_temperature" else {"why": "x"}
        found = [finding_case(request=f"p{at}", kind=kind, position=0, evidence=evidence) for at in range(3)]
        requests = [msgspec.structs.replace(found[0].asked, name=f"p{at}") for at in range(3)]
        return replace(
            make_case(finding=found[0], chosen=found[0]), findings=found, total_findings=3, requests=requests
        )

    assert "first go wrong at output token 0" in reported(rows("garbled"))
    assert "first go wrong" not in reported(rows("wrong_temperature"))


@pytest.mark.parametrize(
    ("mine", "other", "marked"),
    [
        ("one gica two", "one gibi two", "one >>gica<< two"),
        ("one two", "one six", "one >>two<<"),
        ("a, b", "a; b", "a>>,<< b"),
        ("你好吗", "你坏吗", "你>>好<<吗"),
        ("one", "one two", "one>>(end)<<"),
    ],
)
def test_a_whole_word_is_marked(mine: str, other: str, marked: str) -> None:
    assert _own_text(mine, other) == marked


def test_a_terminal_says_that_a_gap_counts_penalties_and_gives_none_to_an_id_that_is_no_token() -> None:
    listed = {"reference": [[99, -0.5], [7, -0.9]], "candidate": None, "baseline": None}
    evidence = {"why": "x", "gap": 3.4, "tolerance": 0.25, "candidate_token": 99, "logprobs": listed}

    def said(finding: FindingView) -> str:
        return " ".join(" ".join(finding_lines(1, finding, "cpu/base", make_case().text, 80)).split())

    moved = said(finding_case(gap=3.4, evidence=evidence))
    assert "3.40 nats below the best; up to 0.25 passes as rounding (penalties and biases counted)" in moved
    plain = said(finding_case())
    assert "nats below the best" in plain
    assert "penalties" not in plain
    assert "nats below" not in said(finding_case(kind="invalid_token", evidence=evidence | {"token_ids": [99]}))


def test_tokens_here_and_there_are_no_row_of_them() -> None:
    evidence = {"why": "3 tokens lie beyond", "asked": {"top_k": 20}, "positions": [4, 9, 41], "farthest": 2.5}
    finding = finding_case(kind="beyond_cutoff", position=4, length=38, evidence=evidence)
    said = " ".join(" ".join(finding_lines(1, finding, "cpu/base", make_case().text, 200)).split())
    assert "between tokens 4 and 41" in said
    assert "37 more" not in said


def test_one_verdict_is_no_pattern_that_points_at_anybody() -> None:
    """The run itself, and its terminal, name nobody then."""
    assert "pattern of verdicts" not in reported(make_case())
    arms = [arm_case("cpu/base"), arm_case(MTP), arm_case("cpu/eager", corrupt=False)]
    assert "pattern of verdicts points at speculation on cpu" in reported(make_case(arms=arms))
