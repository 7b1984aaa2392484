"""Triage by hand: a look beside the list, groups, the next one that nobody has decided about, known bugs, panels."""

from __future__ import annotations

import re
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import planted_set
import pytest
import real_run
from driving import Person, drive
from rich.style import Style

from parity.records import Kind
from parity.store import Store, TriageState, triage
from parity.tui import connected
from parity.tui.screens import findings, selecting
from parity.tui.widgets.paneltext import PanelText
from parity.tui.widgets.table import VirtualTable

RUN = "20261120-100000-aaaa"


def test_a_look_at_the_finding_beside_the_list(database: Path) -> None:
    async def task(person: Person) -> None:
        await person.press("j", "enter")
        screen = await person.sees("1/6", "row_leak  cpu/mtp  p48", "donor p0", ">>")
        assert "▸" in screen
        await person.press("j")
        await person.sees("invalid_token  cpu/mtp  p49")
        await person.press("P")
        await person.no_longer_sees("invalid_token  cpu/mtp  p49")
        await person.press("P")
        await person.sees("invalid_token  cpu/mtp  p49")

    drive(database, task, size=(130, 44))


def test_the_state_is_seen_beside_a_look(database: Path) -> None:
    async def task(person: Person) -> None:
        await person.press("j", "enter")
        await person.sees("1/6", "row_leak  cpu/mtp  p48", "state")
        await person.press("c")
        await person.told("marked confirmed")
        await person.until(
            lambda: "confirmed" in next(line for line in person.screen.splitlines() if "p48" in line), "the state"
        )

    drive(database, task, size=(120, 40))


def test_no_look_where_there_is_no_room_for_it(database: Path) -> None:
    async def task(person: Person) -> None:
        await person.press("j", "enter")
        await person.sees("1/6", "row_leak")
        await person.settles()
        assert "row_leak  cpu/mtp  p48" not in person.screen

    drive(database, task, size=(100, 30))


def test_small_terminals_show_fourteen_tokens_and_panels_open_zoom_and_hide(database: Path) -> None:
    def tokens(screen: str) -> int:
        return len(re.findall(r"^[> ][!= ] +\d+ ", screen, flags=re.M))

    async def task(person: Person) -> None:
        await person.press("enter", "enter")
        screen = await person.sees("emitted again", "reference scores candidate")
        assert tokens(screen) >= 14
        await person.press("1")
        screen = await person.sees("more than the tolerance of 0.25")
        assert tokens(screen) < 14
        await person.press("1")
        await person.no_longer_sees("more than the tolerance")
        assert tokens(person.screen) >= 14
        await person.press("z")
        screen = await person.sees("more than the tolerance of 0.25")
        assert not tokens(screen)
        await person.press("z", "Z")
        screen = await person.no_longer_sees("logprobs")
        assert tokens(screen) >= 16
        await person.press("plus")
        await person.sees("logprobs")

    drive(database, task)


def test_after_a_decision_the_next_one_comes_and_i_finds_what_is_undecided(database: Path) -> None:
    async def task(person: Person) -> None:
        await person.press("j", "enter")
        await person.sees("1/6")
        await person.press("c")
        await person.told("1 finding marked confirmed")
        await person.sees("2/6")
        await person.press("enter")
        await person.sees("p49")
        await person.press("b")
        await person.told("1 finding marked benign")
        await person.sees("repetition", "p6")
        await person.press("q", "g")
        await person.sees("1/6")
        await person.press("i")
        await person.sees("3/6")
        await person.press("enter", "i")
        await person.sees("p45")

    drive(database, task)


def test_known_bugs_have_a_link_and_offer_it_again(database: Path) -> None:
    async def task(person: Person) -> None:
        await person.press("j", "enter")
        await person.sees("1/6")
        await person.press("B")
        await person.sees("A known bug: 1 finding")
        await person.type("vllm 1")
        await person.press("enter")
        await person.told("1 finding marked known")
        await person.press("B", "enter")
        await person.until(lambda: sum("marked known" in told for told in person.heard) == 2, "the second")

    drive(database, task)
    with Store.open(database) as store:
        rows = store.page_findings(RUN, limit=2)
        assert [row.state for row in rows] == [TriageState.KNOWN] * 2
        assert {store.triage(row.fingerprint).link for row in rows} == {"vllm 1"}


def test_a_group_of_forty_is_decided_with_two_keys(tmp_path: Path) -> None:
    baseline, _, _ = planted_set.clean("A")
    candidate, scores = real_run.damaged(real_run.NEEDLE)
    kept = real_run.recorded(candidate, real_run.NEEDLE)
    fault = next(one for one in kept.findings if one.kind == Kind.DUPLICATION)
    requests = [key.request for key in baseline.completions][:40]
    many = [replace(fault, request=request, position=20) for request in requests]
    odd = replace(fault, length=7, position=90)
    found = replace(kept, findings=[*many, odd], counts={"duplication": 41})
    database = real_run.save(tmp_path, "20261122-150000-ffff", baseline, [(candidate, found)], scores)

    async def task(person: Person) -> None:
        await person.press("enter")
        await person.sees("ffff")
        await person.press("equals_sign")
        await person.sees("groups of 41 findings, 41 new", "length 5", "length 7")
        assert person.row.split()[1:3] == ["40", "40"]
        await person.press("c")
        await person.told("40 findings marked confirmed")
        await person.sees("groups of 41 findings, 1 new")
        await person.press("g", "i")
        assert "length 7" in person.row
        await person.press("k", "enter", "n")
        await person.sees("token 20+5")
        await person.press("q", "u")
        await person.told("duplication p")
        await person.sees("41 new")

    drive(database, task, size=(120, 30))


def test_a_change_of_many_says_how_far_it_is_and_can_be_stopped(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(triage, "AT_ONCE", 1)
    monkeypatch.setattr(selecting, "AT_ONCE", 5)
    monkeypatch.setattr(connected, "SAY_SECONDS", 0.0)
    written = triage._record

    def slowly(*arguments: Any, **options: Any) -> Any:
        if begun.is_set():
            assert stopped.wait(20)
        begun.set()
        return written(*arguments, **options)

    begun, stopped = threading.Event(), threading.Event()
    monkeypatch.setattr(triage, "_record", slowly)

    async def task(person: Person) -> None:
        await person.press("j", "enter", "z")
        await person.sees("/58 of 58")
        await person.press("A")
        await person.told("selecting 58 findings")
        await person.sees("58 selected")
        await person.press("b")
        await person.until(begun.is_set, "the first")
        await person.told("1 of 58 so far; ctrl+x stops")
        await person.press("ctrl+x")
        await person.until(person.app._stopped.is_set, "the key's turn")
        stopped.set()
        await person.told("stopped: changed 2 of 58")
        await person.press("u")
        await person.told("and 1 more")

    drive(database, task)
    with Store.open(database) as store:
        assert {row.state for row in store.page_findings(RUN, limit=-1)} == {TriageState.NEW}


def test_help_scrolls_with_the_keys_of_vi(database: Path) -> None:
    async def task(person: Person) -> None:
        await person.press("enter")
        await person.sees("1/1 of 27")
        await person.press("question_mark")
        await person.sees("Keys", "Look at the finding")
        await person.press("G")
        await person.no_longer_sees("Look at the finding")
        await person.sees("Copy the command that reproduces")
        await person.press("g")
        await person.sees("Look at the finding")
        await person.press("j", "j", "j", "j")
        await person.no_longer_sees("Look at the finding")

    drive(database, task)


def test_a_theme_is_switched_wholly(database: Path) -> None:
    """The bars of a panel too, which are drawn as text with colours of the theme."""

    async def task(person: Person) -> None:
        await person.press("enter", "enter")
        await person.sees("reference scores candidate")
        panel = person.app.screen.query_one("#panel-text", PanelText)
        before = {span.style.color for span in panel._said.spans if isinstance(span.style, Style)}
        await person.press("ctrl+t")
        await person.until(lambda: not person.app.current_theme.dark, "the light theme")
        await person.settles()
        after = {span.style.color for span in panel._said.spans if isinstance(span.style, Style)}
        assert before - {None}
        assert not (before - {None}) & after

    drive(database, task)


def test_no_column_lies_under_the_scrollbar(database: Path) -> None:
    """A gap of 16.20 was shown as 16.2, and another of 116.20 would have been."""

    async def task(person: Person) -> None:
        await person.press("enter")
        await person.sees("1/1 of 27")
        table = person.app.screen.query_one("#table", VirtualTable)
        start, width, _ = table._layout()[-1]
        assert start + width <= table.scrollable_content_region.width < table.size.width

    drive(database, task, size=(120, 40))


def test_a_list_says_which_findings_are_of_positive_controls(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(findings, "controls", lambda run: {"cpu/mtp": "loop"})

    async def task(person: Person) -> None:
        await person.press("enter")
        await person.sees("in positive controls")

    drive(database, task, size=(120, 40))
