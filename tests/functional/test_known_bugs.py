"""Known bugs: a rule made on a finding takes those of later runs; the inbox, the list of runs, a finding's history."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

import planted_set
import real_run
from driving import Person, drive, squeezed
from test_two_runs import later

from parity.records import Severity
from parity.store import Store, TriageState

OLDER, NEWER = "20261120-100000-aaaa", "20261125-100000-abcd"
LINK = "vllm#45100"


def states(database: Path, run: str, kind: str) -> dict[str, str]:
    with Store.open(database) as store:
        return {row.request: str(row.state) for row in store.page_findings(run, limit=-1) if row.kind == kind}


def next_week(home: Path) -> None:
    """The same again with three prompts fewer, and p6's loop a token later."""
    baseline, _, _ = planted_set.clean("A")
    candidate, scores = real_run.damaged(real_run.MANY)
    gone = {"p0", "p2", "p3"}
    kept = real_run.recorded(candidate, real_run.MANY)
    found = [
        replace(one, position=one.position + 1)
        if one.request == "p6" and one.severity is Severity.CORRUPT and one.position is not None
        else one
        for one in kept.findings
        if one.request not in gone
    ]
    fewer = [
        replace(one, completions={key: value for key, value in one.completions.items() if key.request not in gone})
        for one in (baseline, candidate)
    ]
    said = replace(
        kept,
        findings=found,
        classes={key: value for key, value in kept.classes.items() if key.request not in gone},
        first_divergence={key: value for key, value in kept.first_divergence.items() if key.request not in gone},
    )
    scores = {key: value for key, value in scores.items() if key.request not in gone}
    real_run.save(home, "20261201-100000-ffff", fewer[0], [(fewer[1], said)], scores)


def test_a_known_bug_is_known_next_week_although_prompts_and_places_are_others(tmp_path: Path) -> None:
    database = later(tmp_path)

    async def task(person: Person) -> None:
        await person.press("down")
        await person.sees(OLDER)
        await person.press("enter")
        await person.sees("repetition")
        await person.press("slash")
        await person.type("p6")
        await person.press("enter")
        await person.until(lambda: "repetition" in person.row, "the loop")
        await person.press("B")
        await person.sees("The issue in which it is on file", "in all runs, repetition like it is known too", "period")
        assert "▐ ▌ in all runs" in person.screen, "not chosen, without colours too"
        await person.type(LINK)
        await person.press("tab", "space")
        await person.sees("▐X▌ in all runs")
        await person.press("enter")
        await person.told("more in all runs fit the rule")
        await person.press("q")
        await person.sees("runs in")

    drive(database, task, size=(120, 40))
    assert states(database, OLDER, "repetition") == states(database, NEWER, "repetition") == {"p6": "known"}
    next_week(tmp_path)
    assert states(database, "20261201-100000-ffff", "repetition") == {"p6": "known"}
    with Store.open(database) as store:
        (row,) = [one for one in store.page_findings("20261201-100000-ffff", limit=-1) if one.kind == "repetition"]
        assert store.triage(row.fingerprint).link == LINK
        assert row.state is TriageState.KNOWN

    async def looks(person: Person) -> None:
        screen = squeezed(await person.sees("20261201", "5 new, 1 known"))
        assert " found new known " in screen
        assert person.row.split()[4:7] == ["6", "5", "1"]
        await person.press("B")
        screen = squeezed(await person.sees("known bugs", LINK, "period"))
        assert person.row.split()[1:4] == ["3", "3", "repetition"]
        await person.press("enter")
        await person.sees("1/1", "| known repetition")
        await person.press("enter", "4")
        await person.sees("fits the rule of a known bug: repetition", "in 3 of the 3 newest runs", LINK)
        await person.press("q", "q", "D")
        await person.sees("Forget this rule of repetition?", "3 findings of 3 runs")
        await person.press("y")
        await person.sees("No bug is known by a rule yet")

    drive(database, looks, size=(120, 40))
    assert states(database, "20261201-100000-ffff", "repetition") == {"p6": "new"}
    assert states(database, NEWER, "repetition") == {"p6": "known"}, "what somebody decided about stays"


def test_where_a_finding_did_not_occur_is_said(tmp_path: Path) -> None:
    database = later(tmp_path)

    async def task(person: Person) -> None:
        await person.press("down")
        await person.sees(OLDER)
        await person.press("enter", "slash")
        await person.type("p48")
        await person.press("enter")
        await person.until(lambda: "row_leak" in person.row, "the leak")
        await person.press("enter", "4")
        screen = squeezed(await person.sees("in 1 of the 2 newest runs"))
        assert f"{NEWER} not found" in screen

    drive(database, task, size=(140, 40))


def test_the_inbox_empties_as_findings_are_decided_about(tmp_path: Path) -> None:
    database = later(tmp_path)

    async def task(person: Person) -> None:
        await person.sees(NEWER)
        await person.press("i")
        await person.sees("inbox", "groups of")
        before = person.app.screen.table.total  # type: ignore[attr-defined]
        assert before > 3
        assert "2" in person.row.split()
        await person.press("b")
        await person.told("marked benign")
        await person.until(lambda: person.app.screen.table.total == before - 1, "the group to go")  # type: ignore[attr-defined]
        await person.press("u")
        await person.told("undone")
        await person.until(lambda: person.app.screen.table.total == before, "the group to come back")  # type: ignore[attr-defined]

    drive(database, task, size=(120, 40))
    with sqlite3.connect(database) as raw:
        raw.execute("UPDATE findings SET state = 'benign'")
    raw.close()

    async def empty(person: Person) -> None:
        await person.sees(NEWER)
        await person.press("i")
        await person.sees("Nothing is new: every finding of every run has been decided about.")

    drive(database, empty)


def test_after_a_decision_in_the_inbox_the_next_group_comes(tmp_path: Path) -> None:
    database = later(tmp_path)

    async def task(person: Person) -> None:
        await person.press("i")
        await person.sees("inbox", "1/")
        lines = person.screen.splitlines()
        at = next(number for number, line in enumerate(lines) if line.startswith(">"))
        following = lines[at + 1].split()
        await person.press("c")
        await person.told("marked confirmed")
        await person.until(
            lambda: " ".join(lines[at].split()[1:]) not in squeezed(person.screen), "the inbox without it"
        )
        await person.settles()
        assert person.row.split()[1:] == following

    drive(database, task, size=(120, 40))
