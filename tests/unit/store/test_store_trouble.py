"""Databases that cannot be used: each one message that names the file and a remedy."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from store_data import REQUESTS, make_finding, store_run

from parity.errors import ParityError
from parity.store import Store, TriageState, connection


def test_a_newer_schema(path: Path) -> None:
    Store.open(path).close()
    with sqlite3.connect(path) as raw:
        raw.execute(
            "INSERT INTO _sqlite_migrations (migration_set, name, applied_at) VALUES ('parity', 'm999_future', 'x')"
        )
    with pytest.raises(ParityError, match=r"newer parity.*m999_future") as caught:
        Store.open(path)
    assert "upgrade" in str(caught.value.hint)


def test_somebody_elses_database(path: Path) -> None:
    path.parent.mkdir()
    with sqlite3.connect(path) as raw:
        raw.execute("CREATE TABLE dogs (name TEXT)")
    with pytest.raises(ParityError, match="dogs"):
        Store.open(path)
    with sqlite3.connect(path) as raw:
        assert [row[0] for row in raw.execute("SELECT name FROM sqlite_master")] == ["dogs"]


def test_what_is_decided_after_another_program_closed_the_store_is_kept(path: Path) -> None:
    """The last one to close a database deletes its log: no other is that while this process has it open twice."""
    script = (
        "import sqlite3, sys; conn = sqlite3.connect(sys.argv[1]); conn.execute('SELECT * FROM runs'); conn.close()"
    )
    with Store.open(path) as first:
        store_run(first, "r1", [make_finding(1)])
        with Store.open(path) as second:
            subprocess.run([sys.executable, "-c", script, str(path)], check=True)
            (row,) = second.page_findings("r1", limit=-1)
            second.amend([row.fingerprint], run="r1", state=TriageState.CONFIRMED)
            asked = "SELECT state FROM triage"
            script = f"import sqlite3, sys; print(sqlite3.connect(sys.argv[1]).execute({asked!r}).fetchall())"
            said = subprocess.run([sys.executable, "-c", script, str(path)], check=True, capture_output=True, text=True)
    assert said.stdout.strip() == "[('confirmed',)]"


def test_not_a_database(path: Path) -> None:
    path.parent.mkdir()
    path.write_text("this is a shopping list, and long enough to have a header\n" * 20)
    with pytest.raises(ParityError, match="not a readable database") as caught:
        Store.open(path)
    assert "--db" in str(caught.value.hint)
    assert path.read_text().startswith("this is")


def test_a_damaged_database(path: Path) -> None:
    with Store.open(path) as store:
        store_run(store, "r1", [make_finding(1)])
        store._db.conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    data = bytearray(path.read_bytes())
    data[4096:] = b"\xff" * (len(data) - 4096)
    path.write_bytes(bytes(data))
    with pytest.raises(ParityError, match="not a readable database"), Store.open(path) as store:
        store.runs()


def test_a_directory_and_a_place_that_cannot_be_created(tmp_path: Path) -> None:
    with pytest.raises(ParityError, match="is a directory"):
        Store.open(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(ParityError, match="cannot be created"):
        Store.open(tmp_path / "file" / "parity.db")


def test_a_missing_database_is_not_created_for_reading(path: Path) -> None:
    with pytest.raises(ParityError, match="no database"):
        Store.open(path, create=False)
    assert not path.exists()


def test_a_locked_database(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "BUSY_SECONDS", 0.2)
    with Store.open(path) as store:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(ParityError, match="locked by another process"):
            store_run(store, "r1", [])
        other.execute("ROLLBACK")
        store_run(store, "r1", [])  # the store is usable again
        assert store.count_runs() == 1


_PRELUDE = f"""
import sys, time
sys.path[:0] = [{str(Path(__file__).parent)!r}, {str(Path(__file__).parents[2] / "support")!r}]
from store_data import *
from parity.store import *
path = sys.argv[1]
"""


def _python(code: str, path: Path, **options: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _PRELUDE + textwrap.dedent(code), str(path)],
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **options,  # type: ignore[call-overload]
    )


def test_two_processes_create_and_write_at_once(path: Path) -> None:
    code = """
    name = sys.argv[1] and sys.stdin.read()
    with Store.open(path) as store:
        for i in range(20):
            store_run(store, f"{name}-{i}", [make_finding(i % 7)])
            store.finish_run(f"{name}-{i}", RunStatus.FINISHED, verdict="DIVERGED")
    """
    writers = [_python(code, path, stdin=subprocess.PIPE) for _ in range(3)]
    for name, writer in zip("abc", writers, strict=True):
        assert writer.stdin is not None
        writer.stdin.write(name)
        writer.stdin.close()
    for writer in writers:
        assert writer.stderr is not None
        errors = writer.stderr.read()
        assert writer.wait(timeout=60) == 0, errors
        writer.stdout.close() if writer.stdout else None
        writer.stderr.close()
    with Store.open(path) as store:
        assert store.count_runs() == 60
        assert all(store.count_findings(run.id) == 1 for run in store.runs())
        assert store._read("PRAGMA integrity_check")[0][0] == "ok"


@pytest.mark.parametrize("delay", [0.0, 0.02, 0.05, 0.1, 0.2])
def test_killed_in_the_middle_of_a_write(path: Path, delay: float) -> None:
    """After kill -9 the database opens, and every stage in it is whole."""
    code = """
    store = Store.open(path)
    print("ready", flush=True)
    i = 0
    while True:
        store_run(store, f"r{i}", [make_finding(i % 7) for _ in range(200)])
        i += 1
    """
    writer = _python(code, path)
    assert writer.stdout is not None
    assert writer.stdout.readline() == "ready\n"
    time.sleep(delay)
    writer.kill()
    _, errors = writer.communicate(timeout=30)
    assert writer.returncode == -signal.SIGKILL, errors
    with Store.open(path) as store:
        assert store._read("PRAGMA integrity_check")[0][0] == "ok"
        for run in store.runs():
            assert len(store.arms(run.id)) == 2
            for arm in store.arms(run.id):
                whole = {"pending": 0, "captured": REQUESTS, "compared": REQUESTS}[arm.status]
                assert len(store.completions(run.id, arm.name)) == whole
            compared = store.arms(run.id)[1].status == "compared"
            assert store.count_findings(run.id) == (200 if compared else 0)
        store_run(store, "after", [])


def test_a_full_disk(path: Path) -> None:
    """No room for the write: the stage is not there, what was there before is."""
    code = """
    import resource, signal
    store = Store.open(path)
    store_run(store, "before", [make_finding(1)])
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, resource.RLIM_INFINITY))
    try:
        store_run(store, "big", [make_finding(1, filler="x" * 10_000) for _ in range(500)])
    except Exception as error:
        print(type(error).__name__, error)
    """
    pytest.importorskip("resource", reason="the size of files cannot be limited here")
    out, errors = _python(code, path).communicate(timeout=60)
    assert out.startswith("ParityError"), (out, errors)
    assert str(path) in out
    with Store.open(path) as store:
        assert store.count_findings("before") == 1
        assert store.count_findings("big") == 0
