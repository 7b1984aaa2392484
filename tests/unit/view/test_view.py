"""One view of a run: the same from the store and from memory, and the same numbers on every surface."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import msgspec
import numpy as np
import pytest
from captures import capture, completion
from lxml import etree
from lxml import html as lxml_html
from rich.console import Console

import parity
import parity.records as records
from parity.capture import write_capture
from parity.comparator import Comparison
from parity.language import render
from parity.messages import Message
from parity.pipeline.analyse import analyse, arm_result, for_store, plan_of_captures
from parity.records import Capture, Finding, Key, Kind, ScoreKey, SpecTrace, TopLogprobs
from parity.report.format import Wanted
from parity.report.formats import format_named, names
from parity.report.plots import plots
from parity.report.terminal import print_summary
from parity.report.texts import Texts
from parity.store import NewRun, RunStatus, Store
from parity.view import RunView, of_captures, of_store

BASE, MTP = "cpu/base", "cpu/mtp"
P0 = Key("p0", 0, 0)
AT, LEAKED = 10, 16
GAP = 5.8667
"""Nats below the best token with the repetition penalty taken off, at least, whatever the logits are: 7.04 divided by
1.2, by which the penalty magnifies their noise. The lists alone say 7.17."""


def traced(arm: str, streams: Mapping[str, Sequence[int]]) -> Capture:
    steps = np.ones(20, dtype=np.int64)
    spec = SpecTrace(steps, steps) if arm == MTP else None
    counters = {"drafts": 20, "draft_tokens": 20, "accepted_tokens": 15, "tokens_per_second": 12.5}
    return capture(
        arm,
        *(completion(tokens, request, spec=spec) for request, tokens in streams.items()),
        counters=counters if arm == MTP else {},
        model="tiny",
        engine={"num_speculative_tokens": 1} if arm == MTP else {},
        environment={"versions": {"vllm": "0.32.0"}},
        max_tokens=40,
        repetition_penalty=1.2,
    )


@dataclass(frozen=True)
class Compared:
    """The same comparison in memory, in files, and in a store."""

    baseline: Capture
    candidate: Capture
    scores: Mapping[ScoreKey, TopLogprobs]
    comparison: Comparison
    store: Store

    @property
    def finding(self) -> Finding:
        (found,) = self.comparison.corrupt
        return found

    @property
    def fresh(self) -> RunView:
        return of_captures([self.baseline, self.candidate], {MTP: self.comparison})

    @property
    def stored(self) -> RunView:
        return of_store(self.store)


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compared]:
    """A leak of p1's tokens into p0, with a repetition penalty, and a near-tie in p2."""
    folder = tmp_path_factory.mktemp("view")
    own, other, third = list(range(100, 140)), list(range(200, 240)), list(range(300, 340))
    leaked = [*own[:AT], *other[5 : 5 + LEAKED], *own[AT + LEAKED :]]
    tie = [*third[:20], 777, *third[21:]]

    def scored(tokens: Sequence[int], unlike: Mapping[int, list[list[Any]]]) -> TopLogprobs:
        return TopLogprobs.from_json([unlike.get(at, [[token, -0.1], [998, -4.0]]) for at, token in enumerate(tokens)])

    wrong = {at: [[own[AT - 1], -0.65], [own[at], -1.0], [leaked[at], -7.82]] for at in range(AT, AT + LEAKED)}
    scores = {
        ScoreKey(MTP, "p0", 0, 0): scored(leaked, wrong),
        ScoreKey(MTP, "p2", 0, 0): scored(tie, {20: [[third[20], -0.6], [777, -0.7]]}),
        ScoreKey(BASE, "p1", 0, 0): scored(other, {}),
    }
    base = traced(BASE, {"p0": own, "p1": other, "p2": third})
    mtp = traced(MTP, {"p0": leaked, "p1": other, "p2": tie})
    files = {}
    for one in (replace(base, scores=scores), mtp):
        files[one.header.arm] = folder / f"{one.header.variant}.jsonl"
        write_capture(files[one.header.arm], one)
    captures = [parity.read_capture(path) for path in files.values()]
    comparison = analyse(*captures, {}, tolerance=0.25, model=None)
    with Store.open(folder / "parity.db") as store:
        store.create_run(NewRun("20261122-000000-aaaa", plan_of_captures(captures[0], [captures[1]]), "x", "compare"))
        for one in captures:
            store.save_arm("20261122-000000-aaaa", one.header.arm, one, str(files[one.header.arm]), arm_result(one))
        store.save_comparison("20261122-000000-aaaa", MTP, for_store(comparison))
        verdict = str(comparison.verdict)
        reasons = comparison.reasons
        store.finish_run("20261122-000000-aaaa", RunStatus.FINISHED, verdict=verdict, reasons=reasons)
        yield Compared(*captures, captures[0].scores, comparison, store)


def plain(value: Any) -> Any:
    """What two views are compared by: arrays as lists, what is read later left out."""
    if isinstance(value, records.Evidence):
        return plain(value.to_json())
    if isinstance(value, Message):
        return value.to_json()  # one that was stored has its text for a template
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: plain(getattr(value, one.name)) for one in fields(value) if one.compare}
    if isinstance(value, msgspec.Struct):
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, np.ndarray):
        return [None if item != item else item for item in value.tolist()]
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return value


def test_a_view_from_memory_is_the_view_from_the_store(compared: Compared) -> None:
    fresh, stored = compared.fresh, compared.stored
    of_the_store = ("id", "created", "status", "command", "plan_hash", "duration", "score_files")
    assert stored.run.id
    assert {one.id for one in stored.findings} != {None}
    stored = replace(
        stored,
        run=replace(stored.run, **{name: getattr(fresh.run, name) for name in of_the_store}),
        findings=tuple(replace(one, id=None, fingerprint=None) for one in stored.findings),
        chosen=replace(stored.chosen, id=None, fingerprint=None) if stored.chosen else None,
        siblings=(),
        arms=tuple(replace(arm, capture=None, status="") for arm in stored.arms),
    )
    fresh = replace(fresh, arms=tuple(replace(arm, capture=None, status="") for arm in fresh.arms))
    first, second = plain(fresh), plain(stored)
    for name in first:
        assert first[name] == second[name], name
    assert plain(fresh.evidence) == plain(stored.evidence)
    assert {arm.name: fresh.classes_of(arm.name) for arm in fresh.arms} == {
        arm.name: stored.classes_of(arm.name) for arm in stored.arms
    }


def test_the_comparison_finds_the_leak_with_the_penalty_in_its_gap(compared: Compared) -> None:
    finding = compared.finding
    assert (finding.kind, finding.position, finding.length) == (Kind.ROW_LEAK, AT, LEAKED)
    assert finding.evidence.gap == GAP
    assert finding.evidence.to_json()["donor_request"] == "p1"
    assert compared.comparison.candidate_gaps[P0].at(AT) == GAP


@pytest.mark.parametrize("made", ["fresh", "stored"])
def test_every_surface_shows_the_numbers_of_the_comparison(compared: Compared, made: str) -> None:
    view: RunView = getattr(compared, made)
    (found,) = view.corrupt
    assert (found.gap, found.first_divergence, found.length) == (GAP, AT, LEAKED)
    gaps = view.evidence.gap(MTP, P0)
    assert gaps is not None
    assert gaps.at(AT) == GAP
    assert view.evidence.divergences == {MTP: [AT, 20]}

    out = io.StringIO()
    print_summary(Console(file=out, width=200), view)
    assert f"token {AT} and {LEAKED - 1} more" in out.getvalue()
    assert f"{GAP:.2f} nats below the best" in out.getvalue()
    assert "7.17" not in out.getvalue()

    written = {name: format_named(name).write(view, Wanted(Texts()))[0].text for name in names()}
    assert f"lies {GAP:.3f} nats below" in written["md"]
    assert f"output token {AT}" in written["md"]
    assert f"| {AT} | {GAP:.2f} |" in written["github"]
    assert "7.17" not in written["md"] + written["github"]
    (card,) = lxml_html.document_fromstring(written["html"]).findall(".//article[@class='corrupt']")
    assert f"{GAP:.2f} nats" in [badge.text for badge in card.findall(".//span[@class='badge']")]
    _, marked = card.findall(".//div[@class='stream']")
    tokens = "".join(one.text or "" for one in marked.findall("i") if one.get("class") in ("x", "f"))
    assert tokens.replace("][", "] [") == " ".join(f"[{205 + at}]" for at in range(LEAKED))
    assert f"[{205 + LEAKED - 1}]\n\n205 206" in "".join(card.itertext()), "text over several lines stays so"
    lines = [line for line in card.iter("title") if (line.text or "").startswith(f"{AT}:")]
    assert [line.text for line in lines] == [f"{AT}: {GAP:.3f}"]

    value = json.loads(written["json"])["findings"][0]
    assert (value["gap"], value["first_divergence"], value["length"]) == (GAP, AT, LEAKED)
    assert value["evidence"]["donor_request"] == "p1"
    result = json.loads(written["sarif"])["runs"][0]["results"][0]
    assert (result["properties"]["gap"], result["properties"]["first_divergence"]) == (GAP, AT)
    assert result["properties"]["length"] == LEAKED
    junit = etree.fromstring(written["junit"].encode())
    assert f"row_leak at token {AT}" in (junit.findtext(".//failure") or "")

    # One bin holds the leaked tokens.
    drawn = etree.fromstring(plots(view.evidence)["gaps"].encode())
    titles = [one.text or "" for one in drawn.iter("{http://www.w3.org/2000/svg}title")]
    assert any(f"{MTP}" in title and title.endswith(f": {LEAKED}") for title in titles), titles


def test_rows_show_the_numbers_of_the_comparison(compared: Compared) -> None:
    result = parity.compare(compared.baseline, compared.candidate)
    (token,) = [row for row in result.token_rows() if (row["arm"], row["request"], row["position"]) == (MTP, "p0", AT)]
    assert token["gap"] == GAP
    (finding,) = [row for row in result.to_rows() if row["kind"] == "row_leak"]
    assert (finding["gap"], finding["position"], finding["length"]) == (GAP, AT, LEAKED)
    (whole,) = [row for row in result.completion_rows() if row["request"] == "p0"]
    assert whole["first_divergence"] == AT
    assert whole["largest_gap"] == pytest.approx(GAP)


@pytest.mark.parametrize("made", ["fresh", "stored"])
def test_reasons_are_said_in_the_readers_language(compared: Compared, made: str) -> None:
    view: RunView = getattr(compared, made)
    (reason,) = view.run.reasons
    said = render(reason, "zh")
    assert said != str(reason)
    for name in ("md", "html", "github"):
        text = format_named(name).write(view, Wanted(Texts("zh")))[0].text
        assert said in text.replace("\\_", "_"), name
        assert str(reason) not in text.replace("\\_", "_")
    value = json.loads(format_named("json").write(view, Wanted(Texts()))[0].text)
    assert value["run"]["reasons"] == [message["text"] for message in value["messages"]["reasons"]]


def test_rounds_of_captures_are_those_that_they_have(tmp_path: Any) -> None:
    """The plan of captures that are compared knows no number of rounds."""
    rows = [completion([5, 6, 7], "p0", round=at) for at in range(3)]
    captures = [capture(BASE, *rows), capture(MTP, *rows[:2])]
    plan = plan_of_captures(captures[0], [captures[1]])
    with Store.open(tmp_path / "parity.db") as store:
        store.create_run(NewRun("20261122-000000-bbbb", plan, "x", "compare"))
        for one in captures:
            store.save_arm("20261122-000000-bbbb", one.header.arm, one, None, arm_result(one))
        assert "1 request × 3 rounds = 3 completions an arm" in render(of_store(store).question)
