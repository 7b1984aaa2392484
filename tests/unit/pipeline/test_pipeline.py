"""`parity run` from plan to report, with an engine of a few lines behind the real worker."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest
from cli_process import Parity

from parity.capture import read_capture
from parity.store import Store

RUN = ("run", "--backends", "fake", "--max-tokens", "24", "--suite", "smoke")


def result(parity: Parity) -> dict[str, Any]:
    """result.json without what differs from run to run."""
    value: dict[str, Any] = json.loads((parity.run_directory / "result.json").read_text())
    for name in ("run", "directory"):
        del value[name]
    return value


def stored(parity: Parity) -> list[tuple[Any, ...]]:
    """Completions and findings in the database, without ids."""
    with Store.open(parity.home / "parity.db", create=False) as store:
        (run,) = store.runs()
        rows: list[tuple[Any, ...]] = [("run", run.status, run.verdict)]
        for arm in store.arms(run.id):
            rows.append((arm.name, arm.status, arm.verdict, dict(arm.counts)))
            rows += [(c.key, c.cls, c.token_ids.tolist()) for c in store.completions(run.id, arm.name)]
        rows += [(f.key, f.kind, f.position, f.fingerprint) for f in store.page_findings(run.id)]
        return rows


def test_a_run_that_passes(parity: Parity) -> None:
    done = parity(*RUN)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("PASS")
    assert "fake/mtp" in done.stdout
    assert "could have been missed" in done.stdout
    assert all(len(line) <= 80 for line in done.stdout.splitlines() if "/" not in line)
    assert parity.starts == ["fake/mtp", "fake/base"]
    directory = parity.run_directory
    expected = {
        "plan.json",
        "run.json",
        "result.json",
        "fake-base.jsonl",
        "fake-mtp.jsonl",
        "scores.jsonl",
        "logs",
        "lock",
    }
    assert {path.name for path in directory.iterdir()} == expected
    assert "run 2" in done.stderr
    assert result(parity)["verdict"] == "PASS"


def test_corruption_is_reported_with_its_place(parity: Parity) -> None:
    done = parity(*RUN, "--json", FAKE="corrupt")
    assert done.returncode == 1
    outcome = json.loads(done.stdout)
    findings = outcome["arms"]["fake/mtp"]["findings"]
    corrupt = [f for f in findings if f["severity"] == "corrupt"]
    assert [(f["request"], f["position"]) for f in corrupt] == [("capital", 11)]
    assert {f["request"] for f in findings if f["severity"] == "benign"} == {"president"}
    reference = corrupt[0]["evidence"]["logprobs"]["reference"]
    assert reference == [[5, -0.1], [1900, -9.0]]
    shown = parity("runs", "show").stdout
    assert ">>" in shown
    assert "The capital of France is" in shown
    assert "DIVERGED" in shown


def test_a_path_that_was_not_exercised_is_inconclusive(parity: Parity) -> None:
    assert parity(*RUN, FAKE="idle").returncode == 4


def test_resuming_a_finished_run_starts_nothing_and_says_the_same(parity: Parity) -> None:
    parity(*RUN)
    before, rows = result(parity), stored(parity)
    for run in (parity.run_directory.name, str(parity.run_directory)):
        again = parity("run", "--resume", run)
        assert again.returncode == 0, again.stderr
    assert parity.starts == ["fake/mtp", "fake/base"]
    assert (result(parity), stored(parity)) == (before, rows)


def test_resuming_by_the_directory_that_out_named(parity: Parity, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    assert parity(*RUN, "--out", str(elsewhere)).returncode == 0
    starts = list(parity.starts)
    again = parity("run", "--resume", str(elsewhere))
    assert again.returncode == 0, again.stderr
    assert parity.starts == starts
    unknown = parity("run", "--resume", str(tmp_path))
    assert unknown.returncode == 2
    assert "no directory of a run" in unknown.stderr


def test_a_baseline_with_speculation_is_scored_without_it(parity: Parity) -> None:
    done = parity(*RUN, "--baseline", "fake/mtp", "--json")
    assert parity.starts == ["fake/base", "fake/mtp", "fake/score"]
    header = json.loads((parity.run_directory / "scores.jsonl").read_text().splitlines()[0])
    assert header["arm"] == "fake/score"
    assert "speculative_config" not in header["engine"]["asked"]
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("mode", "scores"), [("all", 8), ("differing", 2), ("none", 0)])
def test_what_is_scored(parity: Parity, mode: str, scores: int) -> None:
    parity(*RUN, "--score", mode)
    path = parity.run_directory / "scores.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    assert sum('"record":"score"' in line for line in lines) == scores


def test_an_engine_that_dies_at_start(parity: Parity) -> None:
    done = parity(*RUN, FAKE="die at start")
    assert done.returncode == 3
    assert "hint: the remedy" in done.stderr
    assert done.stdout == ""
    (run,) = parity.json("runs", "list")
    assert (run["status"], run["verdict"]) == ("failed", "ERROR")


def test_a_worker_that_is_killed_and_resumed(parity: Parity) -> None:
    parity(*RUN)
    expected, rows = result(parity), stored(parity)
    other = Parity(parity.home.with_name("other"), parity.site, parity.starts_file)
    failed = other(*RUN, FAKE="die")
    assert failed.returncode == 3
    assert "which are kept" in failed.stderr
    done = other("run", "--resume")
    assert done.returncode == 0, done.stderr
    assert _without_counters(result(other)) == _without_counters(expected)
    assert stored(other) == rows


def _without_counters(value: Any) -> Any:
    return {**value, "arms": {name: {**arm, "stats": None} for name, arm in value["arms"].items()}}


def test_killed_at_any_moment_and_resumed(parity: Parity) -> None:
    """kill -9 of parity and its workers, again and again, until it gets through: the same result."""
    parity(*RUN)
    expected, rows = result(parity), stored(parity)
    other = Parity(parity.home.with_name("other"), parity.site, parity.starts_file)
    draw = random.Random(7)
    command: tuple[str, ...] = RUN
    kills = 0
    for attempt in range(40):
        process = other.start(*command, FAKE_STEP="0.05")
        time.sleep(draw.uniform(0.3, 1.2 * 1.15**attempt))  # in the end long enough for any machine
        finished = process.poll() is not None
        if not finished:
            os.killpg(process.pid, signal.SIGKILL)
            kills += 1
        _, errors = process.communicate(timeout=60)
        if finished:
            assert process.returncode == 0, errors
            break
        if (other.home / "runs").is_dir() and any((d / "plan.json").exists() for d in (other.home / "runs").iterdir()):
            command = ("run", "--resume")
        if list(other.home.glob("runs/*/result.json")):
            break  # it was over, only the report was still to be printed
        if (other.home / "parity.db").exists():
            with sqlite3.connect(other.home / "parity.db") as raw:
                assert raw.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            assert other("runs", "list").returncode == 0
    else:
        pytest.fail("never got through")
    assert kills >= 1
    assert _without_counters(result(other)) == _without_counters(expected)
    assert stored(other) == rows


def test_ctrl_c_says_how_to_go_on(parity: Parity) -> None:
    process = parity.start(*RUN, FAKE_STEP="0.3")
    deadline = time.monotonic() + 30
    capture = parity.home / "runs"
    while not any(b'"completion"' in file.read_bytes() for file in capture.glob("*/fake-mtp.jsonl")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "--resume" in err
    assert "Traceback" not in err
    assert out == ""
    (run,) = parity.json("runs", "list")
    assert run["status"] == "interrupted"
    assert parity("run", "--resume").returncode == 0


def test_a_killed_run_is_listed_as_interrupted(parity: Parity) -> None:
    """Its first completion would take ten minutes: it cannot end while the two commands look at it."""
    process = parity.start(*RUN, FAKE_STEP="600")
    while not list((parity.home / "runs").glob("*/fake-mtp.jsonl")):
        time.sleep(0.05)
    (running,) = parity.json("runs", "list")
    taken = parity("run", "--resume", parity.run_directory.name)
    assert taken.returncode == 2
    assert "another parity is working" in taken.stderr
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=30)
    (killed,) = parity.json("runs", "list")
    assert (running["status"], killed["status"]) == ("running", "interrupted")


def test_a_store_that_fails_does_not_lose_captures(parity: Parity) -> None:
    """The database goes bad during the run: the captures are complete, --resume stores them."""
    process = parity.start(*RUN, FAKE_STEP="0.1")
    database = parity.home / "parity.db"
    while not list((parity.home / "runs").glob("*/fake-mtp.jsonl")):
        time.sleep(0.02)
    with sqlite3.connect(database) as raw:
        raw.execute("DROP TABLE completions")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "not stored" in err
    assert "captures are safe" in err
    assert "Traceback" not in err
    capture = read_capture(parity.run_directory / "fake-base.jsonl")  # raises where it is not complete
    assert len(capture.completions) == 4
    for leftover in parity.home.glob("parity.db*"):
        leftover.unlink()
    starts = len(parity.starts)
    done = parity("run", "--resume")
    assert done.returncode == 0, done.stderr
    assert len(parity.starts) == starts
    assert stored(parity)[0] == ("run", "finished", "PASS")


def test_a_plan_runs_like_the_options_it_was_made_of(parity: Parity, tmp_path: Path) -> None:
    parity(*RUN, "-k", "3")
    file = tmp_path / "plan.json"
    made = parity("plan", *RUN[1:], "-k", "3", "-o", str(file))
    assert made.returncode == 0, made.stderr
    assert json.loads(file.read_text()) == json.loads((parity.run_directory / "plan.json").read_text())
    other = Parity(parity.home.with_name("other"), parity.site, parity.starts_file)
    assert other("run", "--plan", str(file)).returncode == 0
    assert result(other) == result(parity)
    refused = other("run", "--plan", str(file), "--max-tokens", "9")
    assert refused.returncode == 2
    assert "--max-tokens" in refused.stderr


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (("--backends", "fake,nope"), 2, "unknown backend 'nope'"),
        (("--backends", "fake", "--variants", "base,xx"), 2, "no variant 'xx'"),
        (("--backends", "fake", "--model", "/no/such"), 2, "/no/such does not exist"),
        (("--backends", "fake", "--prompts", "/no/such"), 2, "/no/such does not exist"),
        (("--backends", "fake", "--suite", "nope"), 2, "unknown suite"),
        (("--backends", "fake", "--baseline", "cpu/base"), 2, "none of the arms"),
        (("--backends", "fake", "--max-model-len", "9"), 2, "longer than max_model_len of 9"),
        (("--backends", "fake", "--max-tokens", "5000"), 2, "--max-tokens to at most"),
        (("--backends", "fake", "--n", "4"), 2, "greedy decoding gives the same sample"),
        (("--backends", "fake", "--engine", "speculative_config={}"), 2, "cannot be set for every arm"),
        (("--backends", "fake", "--db", "/dev/null/x.db"), 2, "cannot be created"),
        (("--backends", "fake", "--out", "/dev/null/x"), 2, "cannot write"),
        (("--backends", "cuda,ascend"), 3, "PARITY_ASCEND_PYTHON"),
        (("--resume",), 2, "no unfinished run"),
        (("--resume", "--seed", "3"), 2, "cannot be changed with --resume"),
    ],
)
def test_mistakes(parity: Parity, args: tuple[str, ...], code: int, message: str) -> None:
    done = parity("run", *args)
    assert (done.returncode, done.stdout) == (code, "")
    assert message in done.stderr
    assert "hint:" in done.stderr or "Usage:" in done.stderr
    assert parity.starts == []


def test_all_backends_are_looked_for_before_anything_starts(parity: Parity) -> None:
    done = parity("run", "--backends", "fake,cuda", FAKE="absent")
    assert done.returncode == 3
    assert "no fake hardware" in done.stderr
    assert "backend 'cuda'" in done.stderr
    assert not (parity.home / "runs").exists()


def test_a_full_disk_ends_in_a_message(parity: Parity) -> None:
    import resource

    def small() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (3000, resource.RLIM_INFINITY))

    import subprocess
    import sys

    done = subprocess.run(
        [sys.executable, "-m", "parity", *RUN],
        env=parity.environment(),
        capture_output=True,
        text=True,
        preexec_fn=small,
        timeout=60,
    )
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("error: ")
    assert parity(*RUN).returncode == 0


def test_a_run_elsewhere_is_resumed_into_its_own_database(parity: Parity, tmp_path: Path) -> None:
    place, database = tmp_path / "place", tmp_path / "mine.db"
    assert parity(*RUN, "--out", str(place), "--db", str(database), FAKE="die").returncode == 3
    assert parity("run", "--resume").returncode == 2  # the default database knows nothing of it
    done = parity("run", "--resume", "--out", str(place))
    assert done.returncode == 0, done.stderr
    with Store.open(database, create=False) as store:
        (run,) = store.runs()
        assert (run.verdict, run.directory) == ("PASS", str(place))
    assert not (parity.home / "parity.db").exists()
    again = parity("run", "--resume", run.id[:-1], "--db", str(database), "--json")
    assert json.loads(again.stdout)["run"] == run.id
    taken = parity(*RUN, "--out", str(place))
    assert taken.returncode == 2
    assert "is not empty" in taken.stderr


def test_two_runs_at_once(parity: Parity) -> None:
    processes = [parity.start(*RUN, FAKE_STEP="0.02") for _ in range(3)]
    for process in processes:
        _, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
    assert [run["verdict"] for run in parity.json("runs", "list")] == ["PASS"] * 3


@pytest.mark.parametrize(
    ("fault", "code", "sentence"),
    [
        ("corrupt", 0, "caught in fake/mtp-control-corrupt: planted in 1 step of 1 request, found in 1 ("),
        ("overlooked", 4, "planted in 1 step of 1 request and found in none: this run would have missed that fault"),
        ("unfit", 4, "never came to be planted"),
        ("misplaced", 4, "the plugin never said that it was there"),
        ("none", 0, "control none: not reported, as it should be"),
    ],
)
def test_a_positive_control_counts_where_it_was_planted(parity: Parity, fault: str, code: int, sentence: str) -> None:
    done = parity(*RUN, "--positive-control", fault, "--json")
    assert done.returncode == code, done.stdout + done.stderr
    reasons = json.loads(done.stdout)["reasons"]
    assert sentence in reasons[0 if code else -1]  # one that takes the PASS away leads
    if fault == "corrupt":
        assert "planted on purpose" in parity("runs", "show").stdout
