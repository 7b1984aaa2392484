"""What a person does with findings, each task from the first key to the last."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import planted_set
import pytest
import real_run
from driving import Person, drive, squeezed
from plans import rough_plan
from textual.widgets import Input

from parity.cli.tui import _follow_ups, _report
from parity.pipeline.directory import RunDirectory
from parity.records import Kind, Severity
from parity.store import FindingRow, NewRun, Store, Triage, TriageState
from parity.tui.app import ParityApp
from parity.tui.outside import Outside


def finding(database: Path, request: str, run: str = "20261121-110000-bbbb") -> FindingRow:
    with Store.open(database) as store:
        rows = [row for row in store.page_findings(run, limit=-1) if row.request == request]
        return rows[0]


def test_find_the_corrupt_one_read_why_mark_it_and_write_the_report(database: Path, tmp_path: Path) -> None:
    async def task(person: Person) -> None:
        await person.sees("bbbb", "DIVERGED")
        await person.press("enter")
        # Near-ties are hidden: one finding is left of 27.
        screen = await person.sees("1/1 of 27", "26 near-ties hidden, z shows")
        assert "near_tie" not in screen
        assert "duplication" in person.row
        assert "p63" in person.row
        await person.press("enter")
        screen = await person.sees("Gap 9.85 nats, tolerance 0.25", "emitted again")
        assert person.row.split()[1] == "64"
        assert person.row.split()[2].startswith("+"), "what was emitted again is marked without colour"
        await person.sees("reference scores candidate")
        assert "9.85!" in person.row, "the gap stands beside the token"
        await person.press("1")
        await person.sees("more than the tolerance of 0.25")
        await person.press("c")
        await person.told("1 finding marked confirmed")
        await person.sees("CONFIRMED")
        await person.press("w")
        await person.sees("Write the bug report to")
        await person.press("enter")
        await person.told("written to")

    drive(database, task, outside=Outside(_report, _follow_ups))
    row = finding(database, "p63")
    assert row.state is TriageState.CONFIRMED
    report = (tmp_path / "cwd" / f"report-{row.run}-{row.id}.md").read_text(encoding="utf-8")
    assert "duplication" in report
    assert "vllm" in report.lower()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("~nosuchuser/report.md", "there is no user"),
        ("x" * 300, "cannot be written"),
        ("/proc/none/report.md", "cannot be written"),
        ("missing/report.md", "cannot be written"),
        ("..", "Overwrite"),
        ("报告 \u202e.md", "written to"),
    ],
)
def test_a_name_that_no_file_has_is_said(database: Path, name: str, said: str) -> None:
    async def task(person: Person) -> None:
        await person.press("enter", "enter")
        await person.sees("emitted again")
        await person.press("w")
        await person.sees("Write the bug report to")
        for field in person.pilot.app.screen.query(Input):
            field.value = name
        await person.press("enter")
        await (person.sees(said) if said == "Overwrite" else person.told(said))

    drive(database, task, size=(60, 15), outside=Outside(_report, _follow_ups))


def test_near_ties_come_and_go_with_one_key(database: Path) -> None:
    async def task(person: Person) -> None:
        await person.press("enter")
        await person.sees("1/1 of 27")
        await person.press("z")
        screen = await person.sees("1/27 of 27", "near_tie")
        assert "hidden" not in screen
        await person.press("z")
        await person.sees("1/1 of 27")
        assert "near_tie" not in squeezed(person.screen).split("state")[1]

    drive(database, task)


def test_undo_history_label_note_and_link(database: Path) -> None:
    async def task(person: Person) -> None:
        await person.press("enter")
        await person.sees("1/1 of 27")
        await person.press("t")
        await person.sees("Triage of duplication", "label", "note", "link")
        await person.type("bonus")
        await person.press("tab")
        await person.type("seen twice")
        await person.press("tab")
        await person.type("https")
        await person.press("ctrl+s")
        await person.told("1 finding marked new")
        await person.press("c")
        await person.told("marked confirmed")
        await person.press("enter", "4")
        await person.sees("label: bonus", "note: seen twice", "link: https", "new → confirmed")
        await person.press("u")
        await person.told("undone: confirmed → new of duplication p63")
        await person.sees("confirmed → new", "(undone)")
        await person.press("q", "slash")
        await person.type("bonus")
        await person.sees('text "bonus"', "1/1")
        await person.type("x")
        await person.sees("No finding passes the filter")

    drive(database, task)
    row = finding(database, "p63")
    with Store.open(database) as store:
        said = store.triage(row.fingerprint)
    assert (said.state, said.label, said.note, said.link) == (TriageState.NEW, "bonus", "seen twice", "https")


def test_a_finding_that_comes_back_is_recognised(database: Path, tmp_path: Path) -> None:
    with Store.open(database) as store:
        store.set_triage([finding(database, "p63").fingerprint], Triage(TriageState.REPORTED))
    real_run.store_run(tmp_path, "20261122-120000-cccc", real_run.NEEDLE)

    async def task(person: Person) -> None:
        await person.sees("cccc")
        await person.press("enter")
        await person.sees("cccc", "1/1 of 27")
        assert "reported" in person.row
        await person.press("enter", "4", "z")
        await person.sees("in 3 of the 3 newest runs", "20261122-120000-cccc", "20261121-110000-bbbb")

    drive(database, task)


def test_decide_about_many_at_once_and_take_it_back(database: Path) -> None:
    async def task(person: Person) -> None:
        await person.press("enter", "z")
        await person.sees("1/27 of 27")
        await person.press("f")
        await person.sees("Show only", "near_tie")
        await person.press("space", "enter")  # the most frequent kind comes first
        await person.sees("1/26", "near_tie")
        await person.press("A")
        await person.sees("26 selected")
        await person.press("b")
        await person.told("26 findings marked benign")
        await person.press("u")
        await person.told("and 25 more")
        await person.press("space", "j", "j", "v")
        await person.sees("selected")

    drive(database, task)
    with Store.open(database) as store:
        assert store.count_findings("20261121-110000-bbbb") == 27
        assert len(store.triage_history(limit=1000)) == 52, "26 changes and 26 entries that undo them"
        assert {row.state for row in store.page_findings("20261121-110000-bbbb", limit=-1)} == {TriageState.NEW}


def test_many_at_once_keep_what_each_has(database: Path) -> None:
    with Store.open(database) as store:
        first, second = store.page_findings("20261120-100000-aaaa", limit=2)
        store.set_triage([first.fingerprint], Triage(TriageState.REPORTED, note="mine", link="https://example.org/1"))

    async def task(person: Person) -> None:
        await person.press("j", "enter")
        await person.sees("1/6")
        await person.press("space", "space", "t")
        await person.sees("Triage of 2 findings; what is left empty stays as it is", "as it is")
        await person.type("loops")
        await person.press("enter")
        await person.told("2 findings have another label")

    drive(database, task)
    with Store.open(database) as store:
        assert store.triage(first.fingerprint) == Triage(
            TriageState.REPORTED, note="mine", link="https://example.org/1", label="loops"
        )
        assert store.triage(second.fingerprint) == Triage(label="loops")
        assert len(store.undo_triage()) == 2
        assert store.triage(first.fingerprint).note == "mine"
        assert store.triage(second.fingerprint) == Triage()


def test_duplicates_name_their_original(database: Path) -> None:
    async def task(person: Person) -> None:
        await person.press("j", "enter")
        await person.sees("aaaa", "1/6")
        await person.press("d")
        await person.told("press o on the original first")
        await person.press("o", "j", "d")
        await person.told("1 finding marked duplicate")
        await person.sees("duplicate")

    drive(database, task)
    with Store.open(database) as store:
        first, second = store.page_findings("20261120-100000-aaaa", limit=2)
        assert second.state is TriageState.DUPLICATE
        assert store.triage(second.fingerprint).duplicate_of == first.fingerprint


def test_sort_and_filter(database: Path) -> None:
    async def task(person: Person) -> None:
        await person.press("j", "enter")
        await person.sees("1/6")
        for _ in range(4):
            await person.press("s")
        await person.sees("by gap", "gap↓")
        assert "14.84" in person.row, "the widest gap first"
        await person.press("S")
        await person.sees("by gap reversed", "gap↑")
        assert "14.84" not in person.row
        await person.press("S")
        await person.press("slash")
        await person.type("p48")
        await person.sees("1/1", "row_leak")
        await person.press("enter", "escape")
        await person.sees("4/6")  # still on the same finding

    drive(database, task)


def test_jump_between_findings_arms_and_rows(database: Path) -> None:
    async def task(person: Person) -> None:
        await person.press("j", "enter")
        await person.sees("1/6")
        await person.press("j", "j", "enter")
        await person.sees("repetition", "p6", "2 findings in this completion")
        await person.press("f")
        await person.sees("near_tie")
        assert "p6" in person.screen.splitlines()[0]
        await person.press("F")
        await person.sees("repetition")
        await person.press("a")
        await person.sees("cpu/mtp3", "near_tie")
        await person.press("a", "right_square_bracket")
        await person.sees("no finding", "p7", "This completion is identical")
        await person.press("left_square_bracket", "n")
        await person.sees("duplication", "p45")
        await person.press("p")
        await person.sees("repetition", "p6")

    drive(database, task)


def test_the_donor_stands_beside_the_leak(database: Path) -> None:
    async def task(person: Person) -> None:
        await person.press("j", "enter")
        await person.sees("1/6")
        await person.press("enter")  # a leak with its donor is the heaviest
        screen = await person.sees("row_leak", "donor p")
        leaked = [line for line in screen.splitlines() if line[1:2] == "!"]
        assert leaked
        assert all("│ =" in line for line in leaked), "each leaked token stands opposite the same token of the donor"
        await person.press("2")
        await person.sees("donor:", "victim: p48")

    drive(database, task)


def test_the_period_of_a_repetition_is_marked(database: Path) -> None:
    async def task(person: Person) -> None:
        await person.press("j", "enter")
        await person.sees("1/6")
        await person.press("j", "j", "enter")
        screen = await person.sees("repetition", "period of 3 tokens")
        starts = [int(line.split()[1]) for line in screen.splitlines() if line[1:2] == "="]
        assert len(starts) > 1
        assert {later - earlier for earlier, later in pairwise(starts)} == {3}

    drive(database, task)


def test_tokens_and_plain_text_and_panels(database: Path) -> None:
    async def task(person: Person) -> None:
        await person.press("enter", "enter")
        await person.sees("gap, nats")
        await person.press("m")
        screen = await person.no_longer_sees("gap, nats")
        assert "▸" in screen, "a stretch that differs is marked without colour"
        await person.press("m", "3")
        await person.sees("[3 prompt]", "prompt (60 tokens)", "sampling temperature 0.0", "ended by length")
        await person.settles()  # laid out, so that it can be scrolled
        await person.press("J", "J")
        await person.sees("drafts accepted, step by step 2 2 2", "engine ")
        await person.press("5")
        await person.sees("[5 evidence]", '"why"')
        await person.press("tab")
        await person.sees("[1 logprobs]")
        await person.sees("2/2 accepted")  # the decode step of the token under the cursor

    drive(database, task)


def test_a_wide_terminal_shows_the_panels_beside_the_tokens(database: Path) -> None:
    async def task(person: Person) -> None:
        await person.press("enter", "enter")
        screen = await person.sees("reference scores candidate", "[2 origin]", "cpu/base")
        header = next(line for line in screen.splitlines() if "gap, nats" in line)
        assert "reference scores candidate" in header, "on the same line"

    drive(database, task, size=(200, 50))


def test_export_the_selection(database: Path, tmp_path: Path) -> None:
    target = tmp_path / "cwd" / "findings-20261121-110000-bbbb.json"

    async def task(person: Person) -> None:
        await person.press("enter", "z", "A", "e")
        await person.sees("Export 27 findings to")
        await person.press("enter")
        await person.told("written to")
        target.write_text("precious", encoding="utf-8")
        await person.press("e")
        await person.sees("Export 27 findings to")
        await person.press("enter")
        await person.sees("Overwrite")
        await person.press("n")
        await person.no_longer_sees("Overwrite")
        assert target.read_text(encoding="utf-8") == "precious"
        await person.press("e", "enter")
        await person.sees("Overwrite")
        await person.press("y")
        await person.until(lambda: target.read_text(encoding="utf-8") != "precious", "the file")

    drive(database, task)
    document = json.loads(target.read_text(encoding="utf-8"))
    assert document["schema"] == "parity.findings/1"
    assert len(document["findings"]) == 27
    assert document["findings"][0]["triage"]["state"] == "new"


def test_copy_the_command(database: Path) -> None:
    async def task(person: Person) -> None:
        await person.press("enter", "y")
        await person.sees("parity run --backends cpu --max-tokens 128")
        assert person.app.clipboard == "parity run --backends cpu --max-tokens 128"

    drive(database, task)


def test_delete_a_run_asks_first(database: Path) -> None:
    async def task(person: Person) -> None:
        await person.sees("bbbb")
        await person.press("D")
        await person.sees("Delete run 20261121-110000-bbbb", "27 findings go", "Triage stays")
        await person.press("n")
        await person.no_longer_sees("Delete run")
        await person.press("D", "y")
        await person.told("deleted 20261121-110000-bbbb")
        await person.no_longer_sees("bbbb")

    drive(database, task)
    with Store.open(database) as store:
        assert [run.id for run in store.runs()] == ["20261120-100000-aaaa"]


def test_help_palette_themes_and_mouse(database: Path) -> None:
    async def task(person: Person) -> None:
        await person.press("enter")
        await person.sees("1/1 of 27")
        await person.press("question_mark")
        screen = await person.sees("Keys", "Findings", "Show or hide near-ties")
        assert "Space" in screen
        await person.press("escape", "ctrl+p")
        await person.type("reverse")
        await person.sees("Reverse the order")
        await person.press("enter")
        await person.sees("by severity reversed")
        before = person.app.theme
        await person.press("ctrl+t")
        assert person.app.theme != before
        assert not person.app.current_theme.dark
        place = person.screen.splitlines()[-1].index("Near-ties")
        await person.pilot.click(offset=(place, 23))
        await person.sees("/27 of 27")
        header = person.screen.splitlines()[3]
        await person.pilot.click(offset=(header.index("token"), 3))
        await person.sees("by token")
        await person.pilot.click(offset=(10, 7))
        await person.sees("4/27")
        await person.pilot.click(offset=(10, 7), times=2)
        await person.sees("Gap")

    drive(database, task)


def test_commands_to_go_on_with(database: Path) -> None:
    row = finding(database, "p63")

    async def task(person: Person) -> None:
        await person.press("enter", "enter")
        await person.sees("emitted again")
        await person.press("r")
        await person.sees("Go on with", "Reduce it", f"parity reduce {row.id}")
        await person.press("y")
        await person.sees("Copied")
        assert person.app.clipboard.startswith(f"parity reduce {row.id} --db ")

    drive(database, task, outside=Outside(_report, _follow_ups))


def test_progress_of_a_run_of_another_process(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path / "runs" / "r")
    directory.logs.mkdir(parents=True)
    directory.log("cpu/mtp").write_text("starting", encoding="utf-8")
    requests = [{"id": f"p{i}", "prompt": "x", "prompt_token_ids": [1]} for i in range(4)]
    arms = [{"name": name, "backend": "cpu", "variant": name[4:], "engine": {}} for name in ("cpu/base", "cpu/mtp")]
    plan = {"model": {"name": "m"}, "rounds": 2, "requests": requests, "arms": arms, "baseline": "cpu/base"}
    database = tmp_path / "parity.db"
    with Store.open(database) as store:
        store.create_run(
            NewRun("20261121-120000-cccc", rough_plan(plan), "parity run --out r", directory=str(directory.root))
        )

    async def task(person: Person) -> None:
        with directory.locked():
            await person.sees("running", "cpu/mtp", "the engine starts", "cpu/base", "waits")
            await person.press("D")
            await person.told("another process is working on this run")
            directory.capture("cpu/mtp").write_text("header\n1\n2\n", encoding="utf-8")
            await person.sees("2 of 8", "███ ")
            directory.capture("cpu/mtp").write_text("header\n1\n2\n3\n4\n", encoding="utf-8")
            await person.sees("4 of 8", "██████ ")
        await person.sees("interrupted", "finish it with: parity run --resume 20261121-120000-cccc --db")
        await person.press("r")
        await person.sees("Finish the run", "parity run --resume 20261121-120000-cccc --db")

    drive(database, task, outside=Outside(_report, _follow_ups))


def test_a_run_again_does_not_go_into_the_old_directory(database: Path) -> None:
    with sqlite3.connect(database) as raw:
        raw.execute("UPDATE runs SET command = 'parity run --out old --max-tokens 8 --out=older -k 2'")
    raw.close()
    with Store.open(database) as store:
        (again,) = _follow_ups(database, store.run("20261121-110000-bbbb"), None)
    assert again.line == "parity run --max-tokens 8 -k 2"


def test_a_failed_run_can_be_finished_or_run_again_wherever_one_is(database: Path, tmp_path: Path) -> None:
    """By its plan: the paths of its command may be those of another directory."""
    plan = tmp_path / "run" / "plan.json"
    plan.parent.mkdir()
    plan.write_text("{}", encoding="utf-8")
    with sqlite3.connect(database) as raw:
        raw.execute("UPDATE runs SET status = 'failed', verdict = 'ERROR', directory = ?", [str(plan.parent)])
    raw.close()
    with Store.open(database) as store:
        finish, again = _follow_ups(database, store.run("20261121-110000-bbbb"), None)
    assert finish.line == f"parity run --resume 20261121-110000-bbbb --db {database}"
    assert again.line == f"parity run --plan {plan} --db {database}"


def test_a_finding_is_named_so_that_it_is_no_run(database: Path) -> None:
    """`2` is the beginning of every run of this century."""
    row = finding(database, "p63")
    with Store.open(database) as store:
        commands = [one.line for one in _follow_ups(database, store.run(row.run), row)]
    assert [one for one in commands if one.startswith(f"parity repro finding:{row.id} -o ")]


def test_a_bisect_asks_for_the_versions(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []
    monkeypatch.setattr(ParityApp, "_start", lambda app, choice: started.append(choice.line))

    async def task(person: Person) -> None:
        await person.press("enter", "enter")
        await person.sees("emitted again")
        await person.press("r")
        await person.sees("Bisect the versions")
        await person.press("j", "j", "enter")
        await person.sees("A version that is good and one that is bad")
        await person.type("1 2")
        await person.press("enter")
        await person.until(lambda: started, "the start")

    drive(database, task, outside=Outside(_report, _follow_ups))
    assert started[0].startswith("parity bisect versions --run 20261121-110000-bbbb --arm cpu/mtp --db ")
    assert started[0].endswith(" 1 2")


def test_the_first_fault_of_a_completion_leads(tmp_path: Path) -> None:
    """What follows in the same completion is counted beside it, and shown by a key."""
    baseline, _, _ = planted_set.clean("A")
    candidate, scores = real_run.damaged(real_run.NEEDLE)
    kept = real_run.recorded(candidate, real_run.NEEDLE)
    fault = next(one for one in kept.findings if one.severity is Severity.CORRUPT)
    assert fault.position is not None
    more = [replace(fault, kind=Kind.GARBLED, position=fault.position + step) for step in (20, 30)]
    found = replace(kept, findings=[*kept.findings, *more], counts={**kept.counts, "garbled": 2})
    database = real_run.save(tmp_path, "20261122-130000-dddd", baseline, [(candidate, found)], scores)

    async def task(person: Person) -> None:
        await person.press("enter")
        await person.sees("1/1 of 29", "2 that follow, Z shows")
        assert "duplication" in person.row
        assert "+2" in person.row
        await person.press("Z")
        screen = await person.sees("1/3 of 29", "garbled")
        assert screen.count("↳") == 2
        await person.press("Z")
        await person.sees("1/1 of 29")
        await person.press("f")
        await person.sees("Show only", "garbled")
        await person.press("j", "space", "enter")  # what is asked for by its kind is shown wherever it stands
        await person.sees("1/2 of 29", "garbled")

    drive(database, task)
