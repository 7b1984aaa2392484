"""What is kept is whole or it is said: `parity runs check`, and resumed runs that begin again where they must."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_process import Parity

from parity.pipeline.checking import check
from parity.store import Store

RUN = ("run", "--backends", "fake", "--suite", "smoke", "--max-tokens", "16")


def run_in(home: Path) -> Path:
    (directory,) = (home / "runs").iterdir()
    return directory


def capture(home: Path) -> Path:
    return run_in(home) / "fake-mtp.jsonl"


def replaced(name: str, old: bytes, new: bytes) -> Callable[[Path], None]:
    def change(home: Path) -> None:
        path = run_in(home) / name
        data = path.read_bytes()
        assert old in data
        path.write_bytes(data.replace(old, new, 1))

    return change


def unsealed(home: Path) -> None:
    """The second record without its checksum."""
    lines = capture(home).read_bytes().splitlines(keepends=True)
    lines[1] = lines[1].partition(b',"crc32"')[0] + b"}\n"
    capture(home).write_bytes(b"".join(lines))


def without(name: str) -> Callable[[Path], None]:
    return lambda home: (run_in(home) / name).unlink()


def sql(statement: str) -> Callable[[Path], None]:
    def change(home: Path) -> None:
        with sqlite3.connect(home / "parity.db") as database:
            database.execute("PRAGMA ignore_check_constraints = ON")
            database.execute(statement)
        database.close()

    return change


def another_arm(home: Path) -> None:
    shutil.copy(run_in(home) / "fake-base.jsonl", capture(home))


def another_run(home: Path) -> None:
    shutil.copytree(run_in(home), run_in(home).with_name("20200101-000000-abcd"))


FAULTS: dict[str, Callable[[Path], None]] = {
    "capture.checksum_wrong": replaced("fake-mtp.jsonl", b'"round":0', b'"round":1'),
    "capture.checksum_missing": unsealed,
    "check.no_capture": without("fake-mtp.jsonl"),
    "check.other_capture": another_arm,
    "check.completions": sql("DELETE FROM completions WHERE id = (SELECT max(id) FROM completions)"),
    "check.findings": sql("DELETE FROM findings WHERE id = 1"),
    "check.other_plan": replaced("plan.json", b'"max_tokens": 16', b'"max_tokens": 17'),
    "check.damaged": replaced("result.json", b"{", b""),
    "check.verdict": sql("UPDATE runs SET verdict = 'PASS'"),
    "check.gone": lambda home: shutil.rmtree(run_in(home)),
    "check.unknown": another_run,
    "store.check.json": sql("UPDATE findings SET evidence = '{' WHERE id = 1"),
    "store.check.strangers": sql("UPDATE completions SET arm = 99 WHERE id = 1"),
    "store.check.lacks": sql("DROP INDEX findings_by_gap"),
    "store.check.stranger": sql("CREATE TABLE other (x)"),
}


def ids(home: Path) -> set[str]:
    """What is wrong, by the ids of its sentences and of those inside them."""
    from parity.messages import within

    with Store.open(home / "parity.db") as store:
        return {one.id for fault in check(store).faults for one in within(fault.what)}


def test_each_fault_is_found_and_a_whole_run_has_none(
    parity: Parity, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = parity(*RUN, FAKE="corrupt")
    assert done.returncode == 1, done.stderr
    monkeypatch.setenv("PARITY_HOME", str(parity.home))
    assert ids(parity.home) == set()
    shown = parity("runs", "check")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "1 run, everything is whole" in shown.stdout
    kept = parity.home.with_name("kept")
    shutil.copytree(parity.home, kept)
    missed = {}
    for name, change in FAULTS.items():
        shutil.rmtree(parity.home)
        shutil.copytree(kept, parity.home)
        change(parity.home)
        if name not in (found := ids(parity.home)):
            missed[name] = found
    assert missed == {}
    said = parity("runs", "check", "--json")
    assert said.returncode == 2
    assert [one["what"]["id"] for one in json.loads(said.stdout)["faults"]] == ["store.check.stranger"]


def test_what_mends_a_run_of_another_database_names_it(parity: Parity, tmp_path: Path) -> None:
    """And a run of another database is no stranger to this one."""
    other = str(tmp_path / "other place.db")
    assert parity(*RUN, "--db", other).returncode == 0
    assert parity(*RUN).returncode == 0
    run = parity.json("runs", "list", "--db", other)[0]["run"]
    assert parity("runs", "check", "--db", other).returncode == parity("runs", "check").returncode == 0
    (parity.home / "runs" / run / "fake-mtp.jsonl").unlink()
    said = parity("runs", "check", "--db", other).stdout
    (command,) = {line.split("`")[1] for line in said.splitlines() if "`" in line}
    assert command == f"parity run --resume {run} --db '{other}'"
    assert parity(*shlex.split(command)[1:]).returncode == 0
    assert parity("runs", "check", "--db", other).returncode == 0


def test_a_damaged_capture_is_put_aside_and_made_anew(parity: Parity) -> None:
    """Whatever somebody did to the file since, or a far side said last time: resuming gets past it."""
    assert parity(*RUN).returncode == 0
    (run,) = parity.json("runs", "list")
    before = capture(parity.home).read_bytes()
    replaced("fake-mtp.jsonl", b'"round":0', b'"round":1')(parity.home)
    replaced("scores.jsonl", b'"logprobs":[[[', b'"logprobs":[[[1')(parity.home)
    assert "its checksum is wrong" in parity("runs", "check").stdout
    (run_in(parity.home) / "result.json").unlink()
    done = parity("run", "--resume", run["run"])
    assert done.returncode == 0, done.stderr
    assert "its checksum is wrong" in done.stderr
    assert "fake-mtp.jsonl.refused" in done.stderr
    assert "scores.jsonl.refused" in done.stderr
    assert len(capture(parity.home).read_bytes()) == len(before)
    assert parity("runs", "check").returncode == 0


def test_a_header_that_lied_does_not_hold_a_run_up(parity: Parity) -> None:
    parity(*RUN, FAKE_ARM="fake/base")  # the baseline dies; the candidate's capture is whole
    path = capture(parity.home)
    lines = path.read_bytes().splitlines(keepends=True)
    header = {**json.loads(lines[0]), "model": "another", "engine": {"asked": {"dtype": "float64"}}}
    header.pop("crc32")
    path.write_bytes(json.dumps(header).encode() + b"\n" + lines[1] + b'{"record":"comp')
    done = parity("run", "--resume")
    assert done.returncode == 0, done.stderr
    assert "was made by another plan" in done.stderr
    assert path.with_name("fake-mtp.jsonl.refused").exists()
    assert parity("runs", "check").returncode == 0


@pytest.mark.parametrize("name", ["fake-mtp.jsonl", "logs/fake-mtp.log", "logs"])
def test_a_run_directory_of_others_says_not_where_is_written(parity: Parity, tmp_path: Path, name: str) -> None:
    out = tmp_path / "theirs"
    assert parity(*RUN, "--out", str(out)).returncode == 0
    shutil.rmtree(parity.home / "trusted")
    (out / "result.json").unlink()
    place = out / name
    shutil.rmtree(place) if place.is_dir() else place.unlink()
    place.symlink_to(tmp_path / "elsewhere", target_is_directory=name == "logs")
    (tmp_path / "elsewhere").mkdir() if name == "logs" else None
    done = parity("run", "--resume", "--out", str(out))
    assert done.returncode == 2
    assert "is a link, a pipe or a device" in done.stderr
    assert not (tmp_path / "elsewhere").exists() or os.listdir(tmp_path / "elsewhere") == []
