"""What the interface claims is so: of runs without findings, of selections, of undo, of a store that goes away."""

from __future__ import annotations

import shutil
import sqlite3
from collections import Counter
from dataclasses import replace
from pathlib import Path

import planted_set
import pytest
import real_run
from driving import Person, drive

from parity.cli.tui import _follow_ups
from parity.store import ArmComparison, Store, TriageState, connection, triage
from parity.store.browse import Browser
from parity.tui.outside import Outside
from parity.tui.screens.finding import FindingScreen
from parity.view.completion import CompletionView

RUN = "20261122-140000-eeee"


def without_findings(home: Path) -> Path:
    """A run in which 22 completions are identical, 2 could not be judged, and one is missing."""
    baseline, candidate, scores = planted_set.clean("A")
    keys = list(baseline.completions)
    kept = {key: baseline.completions[key] for key in keys[1:]}
    for key in keys[1:3]:
        one = kept[key]
        kept[key] = replace(one, token_ids=one.token_ids[::-1].copy())
    candidate = replace(candidate, completions=kept)
    classes = {key: "unjudged" if key in keys[1:3] else "identical" for key in keys[1:]}
    said = ArmComparison("INCONCLUSIVE", ["no scores"], {}, {}, classes, dict.fromkeys(keys[1:3], 0), [])
    return real_run.save(home, RUN, baseline, [(candidate, said)], scores)


STATES = {
    "PASS": (
        "verdict = 'PASS', reasons = '[]'",
        "No findings, though not every completion is identical",
    ),
    "INCONCLUSIVE": ("verdict = 'INCONCLUSIVE'", "No verdict: what there is does not tell a fault from noise"),
    "running": ("verdict = NULL, status = 'running', directory = NULL", "Still running: nothing was compared yet"),
    "interrupted": ("verdict = NULL, status = 'running'", "Interrupted before anything was compared"),
    "failed": ("verdict = NULL, status = 'failed'", "The run failed: nothing was compared"),
    "ERROR": ("verdict = 'ERROR'", "The run failed: nothing was compared"),
}


@pytest.fixture(scope="module")
def unjudged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return without_findings(tmp_path_factory.mktemp("unjudged"))


def changed(database: Path, home: Path, *statements: str) -> Path:
    for path in database.parent.glob("parity.db*"):
        shutil.copy(path, home / path.name)
    with sqlite3.connect(home / "parity.db") as raw:
        for statement in statements:
            raw.execute(statement)
    raw.close()
    return home / "parity.db"


@pytest.mark.parametrize("state", STATES)
def test_agreement_is_claimed_of_no_run_in_which_something_differs(unjudged: Path, tmp_path: Path, state: str) -> None:
    database = changed(unjudged, tmp_path, f"UPDATE runs SET {STATES[state][0]}")

    async def task(person: Person) -> None:
        await person.press("enter")
        screen = await person.sees(STATES[state][1], "1 missing", "2 unjudged", "C lists them")
        assert "agree" not in screen
        assert "nothing passes" not in screen

    drive(database, task)


def test_agreement_is_claimed_of_a_pass_in_which_all_is_identical(unjudged: Path, tmp_path: Path) -> None:
    database = changed(
        unjudged,
        tmp_path,
        "UPDATE runs SET verdict = 'PASS', reasons = '[]'",
        "UPDATE completions SET class = 'identical' WHERE class IS NOT NULL",
        "DELETE FROM completions WHERE class IS NULL AND request NOT IN"
        " (SELECT request FROM completions WHERE class IS NOT NULL)",
    )

    async def task(person: Person) -> None:
        await person.press("enter")
        await person.sees("No findings: the arms agree token by token")

    drive(database, task)


def test_every_completion_can_be_listed_and_opened(unjudged: Path) -> None:
    async def task(person: Person) -> None:
        await person.press("enter", "C")
        await person.sees("completions of", "1 missing", "2 unjudged", "identical")
        assert "missing" in person.row, "the worst first"
        await person.press("enter")
        await person.sees("This completion is missing")
        await person.press("n")
        await person.sees("This completion is unjudged")
        await person.press("n", "n")
        screen = await person.sees("This completion is identical")
        assert " ~" not in screen
        await person.press("q", "f")
        await person.sees("Show only", "identical")
        await person.press("space", "enter")
        await person.sees("1/1", "missing")
        await person.press("escape", "s", "slash", "p", "9")
        await person.sees('text "p9"')
        assert "p9" in person.row

    drive(unjudged, task)


def test_what_is_filtered_out_is_left_alone_and_comes_back(database: Path) -> None:
    async def task(person: Person) -> None:
        await person.press("enter", "z")
        await person.sees("1/27 of 27")
        await person.press("A")
        await person.sees("27 selected", "of them off the screen")
        await person.press("z")
        await person.sees("1 selected", "+26 filtered out, left alone")
        await person.press("c")
        await person.told("1 finding marked confirmed")
        await person.press("z")
        await person.sees("1/27 of 27")

    drive(database, task)
    with Store.open(database) as store:
        states = [row.state for row in store.page_findings("20261121-110000-bbbb", limit=-1)]
    assert states.count(TriageState.CONFIRMED) == 1
    assert states.count(TriageState.NEW) == 26


def test_a_selection_survives_a_locked_store(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "BUSY_SECONDS", 0.3)
    holder = sqlite3.connect(database, isolation_level=None)

    async def task(person: Person) -> None:
        await person.press("enter", "z")
        await person.sees("1/27 of 27")
        holder.execute("BEGIN IMMEDIATE")
        await person.press("space", "space", "b")
        await person.told("nothing was changed")
        assert "2 selected" in person.screen
        holder.execute("ROLLBACK")
        await person.press("b")
        await person.told("2 findings marked benign")
        await person.no_longer_sees("selected")

    drive(database, task)
    holder.close()


def test_undo_belongs_to_the_run_on_screen_and_is_named_and_redone(database: Path) -> None:
    async def task(person: Person) -> None:
        await person.press("j", "enter")
        await person.sees("aaaa", "1/6")
        await person.press("c")
        await person.told("1 finding marked confirmed")
        await person.press("q", "k", "enter")
        await person.sees("bbbb", "1/1 of 27")
        await person.press("u")
        await person.told("nothing to undo in this run")
        await person.press("b")
        await person.told("1 finding marked benign")
        await person.press("u")
        await person.told("undone: benign → new of duplication p63, made by")
        await person.press("U")
        await person.told("redone: new → benign of duplication p63")
        await person.press("U")
        await person.told("nothing to redo in this run")

    drive(database, task)
    with Store.open(database) as store:
        assert store.page_findings("20261120-100000-aaaa", limit=1)[0].state is TriageState.CONFIRMED
        assert store.page_findings("20261121-110000-bbbb", limit=1)[0].state is TriageState.BENIGN
        (last, *_) = store.triage_history(limit=1)
        assert (last.author, last.run) == (triage.user(), "20261121-110000-bbbb")


def test_what_somebody_else_decided_is_undone_only_after_asking(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch, Store.open(database) as store:
        patch.setattr(triage, "user", lambda: "anna")
        row = store.page_findings("20261121-110000-bbbb", limit=1)[0]
        store.amend([row.fingerprint], run=row.run, state=TriageState.CONFIRMED)

    async def task(person: Person) -> None:
        await person.press("enter")
        await person.sees("1/1 of 27")
        await person.press("u")
        await person.sees("This is anna's", "new → confirmed of duplication p63, made by anna")
        await person.press("n")
        await person.no_longer_sees("anna's")
        assert "confirmed" in person.row
        await person.press("u", "y")
        await person.told("undone: confirmed → new")

    drive(database, task)


@pytest.mark.parametrize("gone", [True, False], ids=["deleted", "replaced"])
def test_a_store_that_goes_away_is_noticed_before_a_decision_is_lost(
    database: Path, monkeypatch: pytest.MonkeyPatch, gone: bool
) -> None:
    monkeypatch.setattr("parity.tui.app.POLL_SECONDS", 1000.0)

    async def task(person: Person) -> None:
        await person.press("enter")
        await person.sees("1/1 of 27")
        other = database.with_name("other.db")
        shutil.copy(database, other)
        for path in database.parent.glob("parity.db*"):
            path.unlink()
        if not gone:
            other.rename(database)
        await person.press("c")
        await person.told("was deleted or replaced")
        assert any("nothing was changed" in told for told in person.heard)
        assert not any("marked" in told for told in person.heard)
        if not gone:
            await person.until(lambda: person.app.store is not None, "the new database")
            await person.press("c")
            await person.told("1 finding marked confirmed")

    with sqlite3.connect(database) as raw:
        raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    raw.close()
    drive(database, task)


def test_what_cannot_work_on_a_recording_is_not_offered(database: Path) -> None:
    with sqlite3.connect(database) as raw:
        raw.execute('UPDATE runs SET plan = replace(plan, \'"backend":"cpu"\', \'"backend":"replay"\')')
    raw.close()

    async def task(person: Person) -> None:
        await person.press("enter", "enter")
        await person.sees("emitted again")
        await person.press("r")
        screen = await person.sees("Reduce it", "cpu/mtp is a recording, and answers nothing new", "Run it again")
        assert "parity reduce" not in screen

    drive(database, task, outside=Outside(lambda path, row: "", _follow_ups))


def test_old_triage_is_migrated_and_can_be_undone(database: Path) -> None:
    with Store.open(database) as store:
        row = store.page_findings("20261121-110000-bbbb", limit=1)[0]
        store.amend([row.fingerprint], run=row.run, state=TriageState.CONFIRMED, note="mine")
    with sqlite3.connect(database) as raw:
        for column in ("author", "redoes"):
            raw.execute(f"ALTER TABLE triage_history DROP COLUMN {column}")
        raw.execute("DROP INDEX triage_history_by_run")
        raw.execute("ALTER TABLE triage_history DROP COLUMN run")
        raw.execute("DELETE FROM _sqlite_migrations WHERE name LIKE 'm006%'")
    raw.close()
    with Store.open(database) as store:
        assert store.triage(row.fingerprint).note == "mine"
        assert store.next_undo("20261120-100000-aaaa") is None
        assert len(store.undo_triage(row.run)) == 1
        store.amend([row.fingerprint], state=TriageState.KNOWN)
        assert store.triage(row.fingerprint).state is TriageState.KNOWN


def test_completions_that_an_arm_lacks_are_listed(unjudged: Path) -> None:
    with Browser.open(unjudged) as store:
        lines = store.completion_lines(RUN)
        counts = Counter(one.cls for one in lines)
        assert (counts["missing"], counts["unjudged"]) == (1, 2)
        assert len(lines) == len(store.completions(RUN, "cpu/base"))
        assert all(one.findings == 0 for one in lines)


def test_keys_that_can_do_nothing_are_not_offered(unjudged: Path) -> None:
    async def task(person: Person) -> None:
        await person.press("enter")
        await person.sees("C lists them")
        await person.until(lambda: " z " not in person.screen.splitlines()[-1], "the line of keys without near-ties")
        keys = person.screen.splitlines()[-1]
        for dead in ("Enter Open", "Filter", "Confirm", "Known", "Export"):
            assert dead not in keys, "there is no finding"
        assert "C Completions" in keys
        await person.press("t", "c", "slash")
        assert not person.app.screen.query_one("#search").has_class("open")
        assert not [said for said in person.heard if "marked" in said]
        await person.press("C", "enter")
        await person.sees("This completion is missing")
        assert "Confirm" not in person.screen.splitlines()[-1]

    drive(unjudged, task, size=(200, 30))


def test_keys_come_with_what_they_are_for(database: Path) -> None:
    async def task(person: Person) -> None:
        await person.sees("Enter Findings", "Space Select")
        await person.press("slash", *"nosuch")
        await person.no_longer_sees("Enter Findings")
        assert "Search" in person.screen.splitlines()[-1]
        await person.press("enter", "escape")
        await person.sees("Enter Findings")
        await person.press("enter")
        await person.sees("c Confirm", "Enter Open")

    drive(database, task, size=(200, 30))


def test_while_tokens_are_read_nothing_else_is_said(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A completion that is aligned in a thread which does not end before the test does."""
    monkeypatch.setattr(CompletionView, "long", property(lambda _: True))
    monkeypatch.setattr(FindingScreen, "align", lambda *_: None)

    async def task(person: Person) -> None:
        await person.press("enter", "enter")
        screen = await person.sees("Reading and aligning the tokens")
        assert "no scores" not in screen
        assert "No logprobs" not in screen
        for key in ("colon", "slash", "f"):
            person.heard.clear()
            await person.press(key)
            assert await person.told("Reading and aligning")
        assert isinstance(person.app.screen, FindingScreen), "no window asks for what cannot be found yet"

    drive(database, task)
