"""A database from elsewhere: looked through before anything is asked of it."""

from __future__ import annotations

import os
import sqlite3
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from store_data import make_plan

from parity.errors import ParityError
from parity.pipeline.checking import check
from parity.store import NewRun, Store, guard
from parity.store.decode import request_row
from parity.store.packing import pack_tokens
from parity.trust import trust
from parity.view import of_store

ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x FROM c"


def made(path: Path, *statements: str) -> Path:
    Store.open(path).close()
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA journal_mode = DELETE")
        for statement in statements:
            database.execute(statement)
    database.close()
    return path


@pytest.mark.parametrize(
    "statement",
    [
        f"CREATE VIEW extra AS {ENDLESS}",
        "CREATE TRIGGER t AFTER DELETE ON runs BEGIN DELETE FROM findings; END",
        "CREATE VIRTUAL TABLE v USING fts5(x)",
        "ALTER TABLE runs ADD COLUMN more BLOB AS (zeroblob(1000000000))",
        "CREATE INDEX i ON runs (zeroblob(1000000000))",
    ],
)
def test_what_parity_never_makes_is_refused(tmp_path: Path, statement: str) -> None:
    path = made(tmp_path / "evil.db", statement)
    with pytest.raises(ParityError, match="is not taken: it holds"):
        Store.open(path)


def test_a_value_longer_than_any_of_parity_s_is_an_error_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = "INSERT INTO _sqlite_migrations (migration_set, name, applied_at) VALUES ('parity', zeroblob(70000), 'x')"
    path = made(tmp_path / "evil.db", long)
    monkeypatch.setattr(guard, "LONGEST_CELL", 60_000)
    with pytest.raises(ParityError, match="too big"):
        Store.open(path)


def test_a_view_without_end_in_the_place_of_a_table_is_refused(tmp_path: Path) -> None:
    path = made(tmp_path / "evil.db", "ALTER TABLE runs RENAME TO others", f"CREATE VIEW runs AS {ENDLESS}")
    with pytest.raises(ParityError, match="view runs"):
        Store.open(path)


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    path = made(tmp_path / "evil.db")
    data = bytearray(path.read_bytes())
    for at in range(3 * 4096, len(data), 4096):
        data[at : at + 64] = b"\xff" * 64
    path.write_bytes(bytes(data))
    with pytest.raises(ParityError, match=r"damaged|not a readable database"):
        Store.open(path)


def test_looking_through_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = made(tmp_path / "large.db")
    monkeypatch.setattr(guard, "CHECK_SECONDS", -1.0)
    monkeypatch.setattr(guard, "PROGRESS_STEPS", 1)
    with pytest.raises(ParityError, match="takes more than"):
        Store.open(path)


def test_a_database_is_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "er" / "some.db"
    Store.open(path).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.parent.stat().st_mode) == 0o700


def looked_through(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Which databases are read whole from now on."""
    looked: list[Path] = []
    real = guard._check_damage

    def check(conn: sqlite3.Connection, path: Path) -> None:
        looked.append(path)
        real(conn, path)

    monkeypatch.setattr(guard, "_check_damage", check)
    return looked


def test_one_that_has_not_changed_is_read_whole_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARITY_HOME", str(tmp_path / "home"))
    path, looked = made(tmp_path / "theirs.db"), looked_through(monkeypatch)
    Store.open(path).close()
    first = len(looked)  # an opening that goes over to a write-ahead log changes it
    Store.open(path).close()
    Store.open(path).close()
    assert (first, len(looked)) in ((1, 1), (1, 2))
    before = len(looked)
    Store.open(path).close()
    assert len(looked) == before
    data = bytearray(path.read_bytes())
    path.write_bytes(bytes(data))
    times = path.stat()
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    Store.open(path).close()
    assert len(looked) == before + 1


def test_one_that_is_our_own_is_not_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARITY_HOME", str(tmp_path / "home"))
    looked = looked_through(monkeypatch)
    for path in (tmp_path / "home" / "own.db", tmp_path / "new.db"):
        Store.open(path).close()
    assert looked == []
    folder = tmp_path / "named"
    folder.mkdir()
    path = made(folder / "known.db")
    before = len(looked)
    trust(folder)
    Store.open(path).close()
    assert len(looked) == before


def test_what_parity_alone_has_written_is_not_read_whole_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database beside one's captures (`--db`) of a million findings takes seconds to read."""
    monkeypatch.setenv("PARITY_HOME", str(tmp_path / "home"))
    looked = looked_through(monkeypatch)
    path = made(tmp_path / "theirs.db")
    for change in (lambda store: None, written_into, written_into):
        with Store.open(path) as store:
            change(store)
    assert len(looked) == 1
    with Store.open(path) as store:
        written_into(store)
        with sqlite3.connect(path) as other:
            other.execute("UPDATE runs SET model = 'x'")
        other.close()
    Store.open(path).close()
    assert len(looked) == 2


def test_one_that_parity_made_is_not_read_whole_at_its_next_opening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PARITY_HOME", str(tmp_path / "home"))
    looked = looked_through(monkeypatch)
    for _ in range(3):
        with Store.open(tmp_path / "new.db") as store:
            written_into(store)
    assert looked == []


def written_into(store: Store) -> None:
    store.create_run(NewRun(f"r{store.count_runs()}", make_plan(), "test"))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("UPDATE arms SET verdict = 'MAYBE'", "MAYBE"),
        ("UPDATE runs SET verdict = 'MAYBE'", "MAYBE"),
        ("UPDATE runs SET number = 0", "has no arms"),
        ("UPDATE requests SET ordinal = -5 WHERE ordinal = 0", "ordinal is -5"),
        ("UPDATE runs SET model = printf('%.*c', 2000000, 'x')", "model has more than"),
    ],
)
def test_a_run_that_parity_never_wrote_is_an_error_in_words(tmp_path: Path, change: str, said: str) -> None:
    """Found by fuzzing: a report of it ended with a fault of parity's own."""
    with Store.open(tmp_path / "theirs.db") as store:
        written_into(store)
        store._db.conn.execute("PRAGMA ignore_check_constraints = ON")  # their tables need not have any
        store._db.conn.execute("PRAGMA foreign_keys = OFF")
        store._db.conn.execute(change)
        with pytest.raises(ParityError, match=said):
            of_store(store)


def test_cells_of_another_type_are_an_error_in_words() -> None:
    """The tables of somebody else need not be strict."""
    row: dict[str, Any] = {"ordinal": 0, "name": "p0", "prompt": None, "prompt_tokens": pack_tokens(np.arange(2))}
    assert request_row(row).name == "p0"  # type: ignore[arg-type]
    for column, value in (("name", b"\xff"), ("ordinal", "x"), ("prompt", 5), ("name", None)):
        with pytest.raises(ParityError, match=f"{column} is {type(value).__name__}"):
            request_row({**row, column: value})  # type: ignore[arg-type]


def test_paths_that_no_system_takes_lead_nowhere(tmp_path: Path) -> None:
    """Found by fuzzing: a directory with a name of 3,000 characters ended a report."""
    with Store.open(tmp_path / "theirs.db") as store:
        for path in ("x" * 3000, "a\0b", "/dev/zero"):
            store.create_run(NewRun(path[:9], make_plan(), "test", directory=path))
            store._db.conn.execute("UPDATE arms SET capture = ?", (path,))
            assert of_store(store, path[:9]).run.score_files == ()
            assert check(store, path[:9]).faults  # its directory is gone
