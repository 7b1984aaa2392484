"""Comparisons kept in a file are the ones that went in, and the result is written as one JSON would be."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs

from parity.comparator import Comparison
from parity.comparator.stats import Rate, Stats
from parity.errors import ParityError
from parity.messages import message, verbatim
from parity.pipeline.compared import Compared
from parity.pipeline.controls import Control
from parity.pipeline.directory import write_json, write_whole
from parity.pipeline.outcome import Outcome, conclude
from parity.records import Finding, Key, Kind, Severity, Verdict, evidence_from_json, many_findings
from parity.records.many_findings import ManyFindings, each, gathered
from parity.records.words import of_arms


def comparison(arm: str, verdict: Verdict = Verdict.PASS) -> Comparison:
    evidence = {"why": 'two lines\nand "quotes"', "gap": 0.1 + 0.2, "logprobs": {"reference": [[5, -0.1]]}}
    finding = Finding(
        arm, "x/a", "p0", 1, 2, Kind.NEAR_TIE, Severity.BENIGN, 3, None, evidence_from_json("near_tie", "p0", evidence)
    )
    classes = {Key("p0", 1, 2): "near_tie", Key("p1", 0, 0): "identical"}
    rate = Rate(completions=3, rate=0.5, interval_95=(0.1, 0.9))
    stats = Stats(drift=None, rates={"garbled": rate}, tolerance=np.float64(0.25))
    reasons, notes = (message("test.as_it_is", "{arm} is as it is", arm=arm),), (verbatim("a note"),)
    return Comparison("x/a", arm, verdict, reasons, (finding,), classes, stats, notes)  # type: ignore[arg-type]


def test_what_comes_back_is_what_went_in(tmp_path: Path) -> None:
    compared = Compared(tmp_path)
    for arm in ("x/b", "x/c"):
        compared.add(arm, comparison(arm))
    assert list(compared) == ["x/b", "x/c"]
    assert len(compared) == 2
    back, given = compared["x/c"], comparison("x/c")
    assert (back.findings, back.corrupt, back.counts) == (given.findings, [], {"near_tie": 1})
    assert back.classes == given.classes
    assert (back.verdict, back.notes, back.stats) == (given.verdict, given.notes, given.stats)
    assert [one.to_json() for one in back.reasons] == [one.to_json() for one in given.reasons]
    assert list(tmp_path.iterdir()) == []


def test_the_result_is_written_piece_by_piece_as_if_it_were_one(tmp_path: Path) -> None:
    compared = Compared(tmp_path)
    for arm in ("x/b", 'x/"odd"'):
        compared.add(arm, comparison(arm))
    for comparisons in (compared, {arm: comparison(arm) for arm in compared}):
        outcome = Outcome("id", tmp_path, Verdict.PASS, (verbatim("a reason"),), comparisons)
        write_whole(tmp_path / "pieces.json", outcome.json_pieces())
        write_json(tmp_path / "whole.json", outcome.to_json())
        assert (tmp_path / "pieces.json").read_bytes() == (tmp_path / "whole.json").read_bytes()
    assert list(json.loads((tmp_path / "pieces.json").read_bytes())["arms"]) == list(compared)


def many(arm: str) -> Comparison:
    given = comparison(arm)
    evidence = given.findings[0].evidence
    found = (
        replace(given.findings[0], position=at, evidence=structs.replace(evidence, gap_of_baseline_token=at / 7))
        for at in range(600)
    )
    return replace(given, findings=gathered(found))


def test_very_many_findings_are_written_as_few_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what holds on to the captures (`each`) goes with the comparison."""
    few = Compared(tmp_path)
    few.add("x/b", many("x/b"))
    assert few._kept["x/b"].many is None
    monkeypatch.setattr(many_findings, "HELD", 16)
    given, compared = many("x/b"), Compared(tmp_path)
    assert isinstance(given.findings, ManyFindings)
    asked = []

    def shown(one: Finding) -> Finding:
        asked.append(one.position)
        return replace(one, length=7)

    compared.add("x/b", replace(given, findings=each(given.findings, shown)))
    compared.add("x/c", comparison("x/c"))
    few.add("x/c", comparison("x/c"))
    assert len(asked) == 600
    pieces = [Outcome("id", tmp_path, Verdict.PASS, (), one) for one in (few, compared)]
    longest = max(map(len, pieces[1].json_pieces()))
    texts = [b"".join(one.json_pieces()) for one in pieces]
    assert texts[0].replace(b'"length": null', b'"length": 7', 600) == texts[1]
    assert longest < len(texts[1]) // 2
    assert json.loads(texts[1]) == json.loads(json.dumps(pieces[1].to_json()))
    assert compared["x/b"].findings[599].length == 7
    assert compared["x/b"].counts == {"near_tie": 600}
    assert len(asked) == 600
    assert list(tmp_path.iterdir()) == []


def test_a_failed_arm_is_an_error_and_says_what_the_others_came_to(tmp_path: Path) -> None:
    compared = Compared(tmp_path)
    compared.add("x/b", comparison("x/b", Verdict.DIVERGED))
    compared.add("x/c", comparison("x/c"))
    outcome = conclude("id", tmp_path, "x/a", compared, [], {"x/d": verbatim("it died\nthe end of its log")})
    assert outcome.verdict is Verdict.ERROR
    assert [str(reason) for reason in outcome.reasons[:2]] == ["x/d failed: it died", "x/b: x/b is as it is"]
    assert outcome.to_json()["failed"] == {"x/d": "it died\nthe end of its log"}
    assert "failed" not in conclude("id", tmp_path, "x/a", compared, [], {}).to_json()


def test_a_control_that_is_missed_leaves_no_pass(tmp_path: Path) -> None:
    compared = Compared(tmp_path)
    compared.add("x/b", comparison("x/b"))
    missed = [Control("x/b-control", "loop", False, verbatim("NOT caught"))]
    outcome = conclude("id", tmp_path, "x/a", compared, missed, {})
    assert outcome.verdict is Verdict.INCONCLUSIVE
    # Why it is no PASS comes first.
    assert [str(reason) for reason in outcome.reasons] == ["NOT caught", "x/b is as it is"]


def test_a_directory_that_is_gone(tmp_path: Path) -> None:
    with pytest.raises(ParityError, match="cannot write") as caught:
        Compared(tmp_path / "gone")
    assert "--resume" in str(caught.value.hint)


def test_a_sentence_that_begins_with_its_arm_gets_no_second_name() -> None:
    own = message("x.own", "{arm}: no row moved", arm="x/b")
    assert str(of_arms(["x/b"], own)) == "x/b: no row moved"
    assert str(of_arms(["x/c"], own)) == "x/c: x/b: no row moved"
    assert str(of_arms(["x/b", "x/c"], message("x.any", "none"))) == "x/b, x/c: none"
