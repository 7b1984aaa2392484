"""Two runs beside each other, and the list of runs as a tool."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import replace
from pathlib import Path

import planted_set
import real_run
from driving import Person, drive

from parity.records import Severity


def later(home: Path) -> Path:
    """The run `aaaa` again with another plan: p48's leak is gone, p9's garbled place moved, p63 has a fault more."""
    baseline, _, _ = planted_set.clean("A")
    candidate, scores = real_run.damaged(real_run.MANY)
    kept = real_run.recorded(candidate, real_run.MANY)
    found = []
    for one in kept.findings:
        if one.severity is Severity.CORRUPT and one.request == "p48":
            continue
        if one.severity is Severity.CORRUPT and one.request == "p9":
            assert one.position is not None
            one = replace(one, position=one.position + 1)
        found.append(one)
        if one.severity is Severity.CORRUPT and one.request == "p63":
            found.append(replace(one, request="p1"))
    real_run.store_run(home, "20261120-100000-aaaa", real_run.MANY)
    return real_run.save(home, "20261125-100000-abcd", baseline, [(candidate, replace(kept, findings=found))], scores)


def test_what_is_new_changed_and_gone_and_which_settings_differ(tmp_path: Path) -> None:
    database = later(tmp_path)
    with sqlite3.connect(database) as raw:
        (engine,) = raw.execute("SELECT engine FROM arms WHERE name = 'cpu/mtp' LIMIT 1").fetchone()
        changed = json.dumps({**json.loads(engine), "async_scheduling": True})
        raw.execute("UPDATE arms SET engine = ? WHERE id = (SELECT max(id) FROM arms)", (changed,))
    raw.close()

    async def task(person: Person) -> None:
        await person.sees("2026-11-25" if "2026-11-25" in person.screen else "DIVERGED")
        await person.press("equals_sign")
        await person.told("Space marks one run")
        await person.press("space", "equals_sign")
        screen = await person.sees("1 new", "1 changed", "1 gone", "async_scheduling", "None → True")
        lines = screen.splitlines()
        assert "20261120-100000-aaaa" in lines[0].split("→")[0], "the older one first"
        assert person.row.split()[1:4] == ["new", "duplication", "p1"]
        assert next(line for line in lines if " gone " in line and "row_leak" in line)
        moved = next(line for line in lines if " changed " in line and "garbled" in line)
        assert "→" in moved
        await person.press("z")
        await person.sees("same", "repetition")
        await person.press("enter")
        await person.sees("duplication", "p1")

    drive(database, task, size=(100, 40))


def test_what_a_run_does_not_judge_is_not_said_to_be_gone(tmp_path: Path) -> None:
    database = later(tmp_path)
    with sqlite3.connect(database) as raw:
        of_last = "run = (SELECT max(number) FROM runs)"
        arms = f"arm IN (SELECT id FROM arms WHERE {of_last})"
        raw.execute(f"UPDATE completions SET class = 'unjudged' WHERE request = 'p6' AND {arms}")
        raw.execute(f"DELETE FROM findings WHERE request = 'p6' AND {of_last}")
    raw.close()

    async def task(person: Person) -> None:
        await person.press("space", "equals_sign")
        await person.sees("1 gone", "1 not judged")
        lines = person.screen.splitlines()
        assert next(line for line in lines if " gone " in line and "p48" in line)
        assert next(line for line in lines if " not judged " in line and "p6" in line)

    drive(database, task, size=(100, 40))


def test_the_list_of_runs_is_searched(database: Path) -> None:
    async def task(person: Person) -> None:
        await person.sees("bbbb")
        await person.press("slash")
        await person.type("aaaa")
        await person.sees("20261120-100000-aaaa")
        await person.until(lambda: person.app.screen.table.total == 1, "one run")  # type: ignore[attr-defined]
        await person.type("x")
        await person.sees('No run has "aaaax"')
        await person.press("enter", "escape")
        await person.sees("bbbb")
        await person.until(lambda: person.app.screen.table.total == 2, "both runs")  # type: ignore[attr-defined]

    drive(database, task)


def test_runs_are_named_tagged_sorted_and_filtered(database: Path) -> None:
    async def task(person: Person) -> None:
        await person.sees("2 arms")
        await person.press("n")
        await person.sees("a name, and tags as #nightly")
        await person.type("good")
        await person.press("space", "number_sign", "w", "2", "6", "enter")
        await person.told("named 20261121-110000-bbbb")
        await person.sees("good #w26")
        await person.press("s")
        await person.sees("| by verdict")
        await person.press("S", "slash")
        await person.type("good")
        await person.until(lambda: person.app.screen.table.total == 1, "the run of that name")  # type: ignore[attr-defined]
        await person.press("enter", "escape", "f")
        await person.sees("Show only", "w26")
        await person.press("j", "space", "enter")
        await person.sees("w26")
        await person.until(lambda: person.app.screen.table.total == 1, "the run of that tag")  # type: ignore[attr-defined]

    drive(database, task, size=(120, 40))


def test_all_that_is_stored_of_a_run_can_be_read(database: Path) -> None:
    async def task(person: Person) -> None:
        await person.sees("acceptance", "tok/step")
        await person.press("a")
        await person.sees(
            "About run 20261121-110000-bbbb", "Reasons", "made for the tests", "Command", "cpu/mtp", "Files"
        )

    drive(database, task, size=(120, 50))
