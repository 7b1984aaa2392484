"""What goes wrong is said on the screen, nothing is lost, and nothing crashes."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from driving import Person, drive
from plans import rough_plan

from parity.records import Capture, Completion, Finding, Header, Key, Kind, Severity, evidence_from_json
from parity.records.kinds import kinds as all_kinds
from parity.store import ArmComparison, ArmResult, NewRun, RunStatus, Store, TriageState, connection
from parity.text import visible


def test_an_empty_database(tmp_path: Path) -> None:
    path = tmp_path / "parity.db"
    Store.open(path).close()

    async def task(person: Person) -> None:
        await person.sees("No runs in", "parity run --backends cpu")
        await person.press("enter", "D", "y", "r", "j", "question_mark")
        await person.sees("Keys")

    drive(path, task)


def test_no_database_yet(tmp_path: Path) -> None:
    path = tmp_path / "parity.db"

    async def task(person: Person) -> None:
        await person.sees("there is no database at", "ctrl+l tries again")
        Store.open(path).close()
        await person.press("ctrl+l")
        await person.sees("No runs in")

    drive(path, task)


@pytest.mark.parametrize("content", [b"this is not SQLite, it is a letter. " * 40, b"SQLite format 3\0" + b"\7" * 5000])
def test_a_file_that_is_no_database_is_said_and_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "parity.db"
    path.write_bytes(content)

    async def task(person: Person) -> None:
        await person.sees("is not a readable database", "ctrl+l tries again")

    drive(path, task)
    assert path.read_bytes() == content


@pytest.mark.parametrize("own", [True, False], ids=["own", "from elsewhere"])
def test_pages_damaged_underneath(database: Path, monkeypatch: pytest.MonkeyPatch, own: bool) -> None:
    """The header is whole; the pages of the findings are not. One of parity's own opens, others are looked through."""
    if own:
        monkeypatch.setenv("PARITY_HOME", str(database.parent))
    with sqlite3.connect(database) as raw:
        raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        size = raw.execute("PRAGMA page_size").fetchone()[0]
        roots = raw.execute("SELECT rootpage FROM sqlite_master WHERE name LIKE 'findings%'").fetchall()
    raw.close()
    with database.open("r+b") as file:
        for (root,) in roots:
            file.seek((root - 1) * size)
            file.write(b"\xff" * size)

    async def task(person: Person) -> None:
        await person.sees("DIVERGED")
        await person.press("enter")
        await person.told("is not a readable database")
        await person.press("enter", "z", "s", "c", "q")
        await person.sees("bbbb")

    async def refused(person: Person) -> None:
        await person.sees("is not taken: it is damaged", "ctrl+l tries again")

    drive(database, task if own else refused)


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE findings SET evidence = 'no JSON'",
        "UPDATE findings SET state = 'unheard of'",
        "UPDATE completions SET tokens = x''",
        "UPDATE completions SET tokens = x'09ff'",
        "UPDATE arms SET stats = '{'",
        "UPDATE requests SET prompt_tokens = x'02ff'",
    ],
)
def test_rows_damaged_underneath(database: Path, damage: str) -> None:
    with sqlite3.connect(database) as raw:
        raw.execute(damage)
    raw.close()

    async def task(person: Person) -> None:
        await person.sees("bbbb" if "arms" not in damage else "runs in")
        await person.settles()  # what is pressed before a list has its rows is lost
        await person.press("enter", "enter", "n", "1", "2", "3")
        await person.told("that cannot be read")

    drive(database, task)


def test_an_older_schema_is_brought_up_to_date(database: Path) -> None:
    with sqlite3.connect(database) as raw:
        raw.execute("ALTER TABLE triage DROP COLUMN label")
        raw.execute("DELETE FROM _sqlite_migrations WHERE name LIKE 'm002%'")
    raw.close()

    async def task(person: Person) -> None:
        await person.sees("bbbb")
        await person.press("enter")
        await person.sees("1/1 of 27")

    drive(database, task)


def test_a_newer_schema_is_refused_in_words(database: Path) -> None:
    with sqlite3.connect(database) as raw:
        raw.execute(
            "INSERT INTO _sqlite_migrations (migration_set, name, applied_at) VALUES ('parity', 'm999_future', 'x')"
        )
    raw.close()

    async def task(person: Person) -> None:
        await person.sees("was written by a newer parity", "upgrade parity")

    drive(database, task)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """As by a job that stores: nobody else may write."""
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        holder.execute("ROLLBACK")
        holder.close()


def test_locked_by_a_running_job(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "BUSY_SECONDS", 0.3)

    async def task(person: Person) -> None:
        await person.press("enter")
        await person.sees("1/1 of 27")
        with locked(database):
            await person.press("c")
            await person.press("z")  # reading goes on meanwhile
            await person.sees("1/27 of 27")
            await person.told("nothing was changed")
            assert any("locked by another process" in told for told in person.heard)
        await person.press("c")
        await person.told("1 finding marked confirmed")

    drive(database, task)
    with Store.open(database) as store:
        assert len(store.triage_history()) == 1


def test_locked_before_an_older_schema_could_be_updated(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "BUSY_SECONDS", 0.3)
    with sqlite3.connect(database) as raw:
        raw.execute("ALTER TABLE triage DROP COLUMN label")
        raw.execute("DELETE FROM _sqlite_migrations WHERE name LIKE 'm002%'")
    raw.close()
    holder = sqlite3.connect(database, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")

    async def task(person: Person) -> None:
        await person.sees("is locked by another process", "ctrl+l tries again")
        holder.execute("ROLLBACK")
        await person.press("ctrl+l")
        await person.sees("bbbb")

    drive(database, task)
    holder.close()


def test_a_run_deleted_underneath(database: Path) -> None:
    async def task(person: Person) -> None:
        await person.press("enter", "z", "enter")
        await person.sees("emitted again")
        with Store.open(database) as other:
            other.delete_run("20261121-110000-bbbb")
        await person.sees("This run was deleted by another process")
        await person.press("c")
        await person.told("no longer in the database")
        await person.press("n", "f", "a", "right_square_bracket", "2", "4", "w", "r", "q")
        await person.sees("This run was deleted by another process", "Triage is kept")
        await person.press("j", "enter", "s", "z", "A", "e", "q")
        await person.sees("aaaa")

    drive(database, task)


def test_a_run_that_appears(database: Path) -> None:
    async def task(person: Person) -> None:
        await person.sees("bbbb")
        with Store.open(database) as other:
            other.create_run(
                NewRun("20991231-000000-zzzz", rough_plan({"model": {"name": "m"}, "baseline": "b"}), "parity run")
            )
        await person.sees("running")
        assert "running" in person.row, "the cursor was on the newest run and is still"
        await person.press("j", "j")
        assert "aaaa" in person.screen
        with Store.open(database) as other:
            other.create_run(NewRun("20991231-000001-yyyy", rough_plan({"model": {"name": "m"}, "baseline": "b"}), ""))
        await person.until(lambda: person.app.screen.table.total == 4, "the new run")  # type: ignore[attr-defined]
        await person.settles()
        assert "20261120-100000-aaaa" in person.screen, "still on the same run"

    drive(database, task)


def test_captures_that_are_gone(database: Path) -> None:
    with sqlite3.connect(database) as raw:
        raw.execute("UPDATE runs SET directory = '/nowhere'")
        raw.execute("UPDATE arms SET capture = '/nowhere/' || name")
        raw.execute("UPDATE findings SET evidence = '{}'")
        raw.execute("UPDATE runs SET plan = json_set(plan, '$.model.path', '/nowhere')")
    raw.close()

    async def task(person: Person) -> None:
        await person.press("enter", "enter")
        await person.sees("no scores at hand", "token ids are shown", "No logprobs for this token")

    drive(database, task)


HOSTILE = "\x1b]0;owned\x07\x1b[2J\x1b[31m[red]bold[/red][link=x]\u202eflip\u200b\x9b\r\n\t" + "\U000e0041" + "é" * 3
HUGE = "W" * 5000


def hostile_database(path: Path) -> Path:
    """Everything that comes from outside tries to reach the terminal."""
    keys = [Key(HOSTILE, 0, 0), Key(HUGE, 0, 0)]
    plan = {
        "model": {"name": HOSTILE},
        "sampling": {"temperature": HOSTILE},
        "requests": [{"id": key.request, "prompt": HOSTILE + HUGE, "prompt_token_ids": [1, 2]} for key in keys],
        "arms": [
            {"name": name, "backend": "cpu", "variant": "v", "engine": {HOSTILE: HOSTILE}} for name in (HOSTILE, "b")
        ],
        "baseline": HOSTILE,
    }
    tokens = np.array([5, 2**40, -7, 9], dtype=np.int64)
    with Store.open(path) as store:
        store.create_run(NewRun(HOSTILE, rough_plan(plan), HOSTILE, directory=HOSTILE))
        for name in (HOSTILE, "b"):
            header = Header(name, "cpu", "v", HOSTILE)
            completions = {
                key: Completion(key, tokens, tokens + (name == "b"), HOSTILE, HOSTILE, HOSTILE) for key in keys
            }
            store.save_arm(HOSTILE, name, Capture(header, completions, {}, {}), HOSTILE, ArmResult())
        told = {"why": HOSTILE + HUGE, "donor_request": HOSTILE, "donor_part": HOSTILE, HOSTILE: HOSTILE}
        evidence = evidence_from_json(Kind.ROW_LEAK, "p", told)
        found = [
            Finding("b", HOSTILE, key.request, 0, 0, Kind.ROW_LEAK, Severity.CORRUPT, 1, 2, evidence) for key in keys
        ]
        classes: dict[Key, str] = dict.fromkeys(keys, "corrupt")
        store.save_comparison(
            HOSTILE, "b", ArmComparison("DIVERGED", [HOSTILE], {HOSTILE: 2}, {}, classes, dict.fromkeys(keys, 1), found)
        )
        store.finish_run(HOSTILE, RunStatus.FINISHED, verdict="DIVERGED", reasons=[HOSTILE], message=HOSTILE)
    return path


@pytest.mark.parametrize("size", [(80, 24), (200, 50), (20, 5)])
def test_hostile_text_stays_text(tmp_path: Path, size: tuple[int, int]) -> None:
    async def task(person: Person) -> None:
        async def calm() -> None:
            await person.settles()
            shown = person.screen
            assert visible(shown, keep="\n") == shown, "no control, escape or bidirectional character on the screen"
            for line in shown.splitlines():
                assert len(line) <= size[0]

        await person.until(lambda: person.app.store is not None, "the database")
        await calm()
        for keys in (
            ["y"], ["escape"], ["D"], ["n"], ["enter"], ["f"], ["escape"], ["t"], ["escape"], ["enter"], ["1"], ["2"],
            ["3"], ["4"], ["5"], ["m"], ["m"], ["a"], ["n"], ["t"], ["escape"], ["r"], ["q"],
        ):  # fmt: skip
            await person.press(*keys)
            await calm()

    drive(hostile_database(tmp_path / "parity.db"), task, size=size)


def test_what_a_person_types_is_no_markup_either(database: Path) -> None:
    async def task(person: Person) -> None:
        await person.press("enter", "t")
        await person.sees("Triage of")
        await person.press("left_square_bracket", "b", "right_square_bracket", "enter")
        await person.told("marked new")
        await person.press("enter", "4")
        await person.sees("label: [b]")

    drive(database, task)
    with Store.open(database) as store:
        row = store.page_findings("20261121-110000-bbbb", limit=1)[0]
        assert (row.label, row.state) == ("[b]", TriageState.NEW)


@pytest.mark.parametrize("odd", [False, True])
def test_every_kind_opens_whatever_its_evidence_is(tmp_path: Path, odd: bool) -> None:
    """Also where a side is missing, nothing has a position, and numbers are not numbers."""
    kinds = all_kinds()
    keys = [Key(f"p{i}", 0, 0) for i in range(len(kinds))]
    plan = {
        "model": {"name": "m"},
        "requests": [{"id": key.request, "prompt": None, "prompt_token_ids": [1, 2]} for key in keys],
        "arms": [{"name": name, "backend": "cpu", "variant": "v", "engine": {}} for name in ("a", "b")],
        "baseline": "a",
    }
    names = ("donor_request", "donor_part", "donor_start", "donor_end", "period", "copies", "source_start", "gap",
             "tolerance", "baseline_tokens", "candidate_tokens", "logprobs", "why")  # fmt: skip
    tokens = np.arange(8, dtype=np.int64)
    with Store.open(tmp_path / "parity.db") as store:
        store.create_run(NewRun("r", rough_plan(plan), "parity run"))
        for name in ("a", "b"):
            completions = {key: Completion(key, tokens, tokens, None, None, None) for key in keys}
            completions.pop(keys[0 if name == "a" else 1])
            store.save_arm("r", name, Capture(Header(name, "cpu", "v", "m"), completions, {}, {}), None, ArmResult())
        values = [{"x": 1}, "p3", -5, None, ["a", None], True, 1e300]
        found = [
            Finding(
                "b", "a", key.request, 0, 0, kind, Severity.CORRUPT, (None, 3, 100, 0)[i % 4], (None, 2, 0, 500)[i % 4],
                evidence_from_json(
                    kind, "p", {name: values[(i + j) % len(values)] for j, name in enumerate(names)} if odd else {}
                ),
            )
            for i, (key, kind) in enumerate(zip(keys, kinds, strict=True))
        ]  # fmt: skip
        store.save_comparison("r", "b", ArmComparison("DIVERGED", [], {}, {}, {}, {}, found))
        store.finish_run("r", RunStatus.FINISHED)

    async def task(person: Person) -> None:
        await person.press("enter", "z")
        await person.sees(f"/{len(kinds)} of {len(kinds)}")
        await person.press("enter")
        for _ in kinds:
            await person.press("1", "2", "3", "4", "5", "m", "m", "f", "a", "n")
            await person.settles()
        assert not [told for told in person.heard if "failed" in told]

    drive(tmp_path / "parity.db", task)
