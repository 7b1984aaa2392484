"""`parity run` with backends on hosts: what parity.toml says, arms at the same time, failures that end the others."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from cli_process import Parity

from parity.capture import read_capture

SHORT = ("--max-tokens", "24", "--suite", "smoke")


@pytest.fixture
def there(parity: Parity, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Parity:
    """Runs in a directory of its own, where parity.toml may lie."""
    directory = tmp_path / "work"
    directory.mkdir()
    monkeypatch.chdir(directory)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    assert parity("trust", ".").returncode == 0
    return parity


def configure(parity: Parity, **more: Any) -> None:
    """Two far backends of the fake adapter beside the one here."""
    env = f'PYTHONPATH = "{Path(__file__).parent}", FAKE_STARTS = "{parity.starts_file}"'
    lines = ["[plan]", 'suite = "smoke"', "max-tokens = 24", ""]
    for name in ("far", "away"):
        lines += [
            f"[backends.{name}]",
            'adapter = "fake"',
            f'command = ["env", "PARITY_PLACE={name}"]',
            f'place = "{name}"',
            f'python = "{sys.executable}"',
            f"env = {{ {env}, {more.get(name, 'FAKE_NONE = 1')} }}",
            "",
        ]
    Path("parity.toml").write_text("\n".join(lines))


def test_a_backend_of_the_file_runs_like_the_one_here(there: Parity) -> None:
    assert there("run", "--backends", "fake", *SHORT, "--out", "here").returncode == 0
    configure(there)
    done = there("run", "--backends", "far", "--out", "there")
    assert done.returncode == 0, done.stderr
    for variant in ("base", "mtp"):
        here, far = read_capture(f"here/fake-{variant}.jsonl"), read_capture(f"there/far-{variant}.jsonl")
        assert [c.token_ids.tolist() for c in far] == [c.token_ids.tolist() for c in here]
        assert (far.header.arm, far.header.backend) == (f"far/{variant}", "fake")
    plan = json.loads(Path("there/plan.json").read_text())
    assert [(arm["name"], arm["backend"]) for arm in plan["arms"]] == [("far/base", "fake"), ("far/mtp", "fake")]
    assert plan["sampling"]["max_tokens"] == 24


def test_flags_do_what_the_file_does(there: Parity) -> None:
    prefix = f"env -i PATH={os.environ['PATH']} PYTHONPATH={Path(__file__).parent} FAKE_STARTS={there.starts_file}"
    done = there("run", *SHORT, "--backends", "fake", "--host", f"fake={prefix}", "--python", f"fake={sys.executable}")
    assert done.returncode == 0, done.stderr


def test_hosts_work_at_the_same_time_and_one_takes_turns(there: Parity) -> None:
    configure(there, far='FAKE_STEP = "0.2"', away='FAKE_STEP = "0.2"')
    done = there("run", "--backends", "far,away", "--out", "out")
    assert done.returncode == 0, done.stderr
    assert len(there.starts) == 4  # one engine per arm, the baseline's scores too
    assert set(there.starts[:2]) == {"far/mtp", "away/base"}  # at the same time; the baseline's host is not idle
    assert set(there.starts[2:]) == {"far/base", "away/mtp"}
    scores = [json.loads(line) for line in Path("out/scores.jsonl").read_text().splitlines()]
    assert {each["arm"] for each in scores if each["record"] == "score"} == {
        "far/base", "far/mtp", "away/base", "away/mtp",
    }  # fmt: skip


def test_without_the_baseline_the_others_end_in_order(there: Parity) -> None:
    configure(there, far='FAKE_STEP = "0.2"', away='FAKE = "die at start"')
    failed = there("run", "--backends", "far,away", "--baseline", "away/base", "--out", "out")
    assert failed.returncode == 3, failed.stderr
    assert "error: away/base: the worker ended while starting" in failed.stderr
    assert "ended since another arm failed" in failed.stderr
    assert failed.stdout == ""


def test_the_arms_of_one_host_fail_and_the_others_go_on(there: Parity) -> None:
    configure(there, far='FAKE_STEP = "0.2"', away='FAKE = "die at start"')
    failed = there("run", "--backends", "far,away", "--out", "out")
    assert failed.returncode == 3, failed.stderr
    for arm in ("away/base", "away/mtp"):
        assert f"{arm} failed, the other arms go on: the worker ended while starting" in failed.stderr
    assert "hint: the remedy" in failed.stderr
    assert sorted(there.starts) == ["away/base", "away/mtp", "far/base", "far/mtp"]
    assert "also: away/mtp failed: " in " ".join(failed.stdout.split())
    assert "also: far/mtp: " in " ".join(failed.stdout.split())
    configure(there)
    done = there("run", "--resume", "--out", "out")
    assert done.returncode == 3, done.stderr  # the run's own record says where its backends are
    mended = json.loads(Path("out/run.json").read_text())
    mended["hosts"]["away"]["env"].pop("FAKE")
    Path("out/run.json").write_text(json.dumps(mended))
    done = there("run", "--resume", "--out", "out")
    assert done.returncode == 0, done.stderr
    assert len(there.json("runs", "list")) == 1


def test_ctrl_c_ends_all_of_them(there: Parity) -> None:
    configure(there, far='FAKE_STEP = "0.3"', away='FAKE_STEP = "0.3"')
    process = there.start("run", "--backends", "far,away", "--out", "out")
    captures = [Path("out/far-mtp.jsonl"), Path("out/away-base.jsonl")]
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not all(path.exists() and path.stat().st_size for path in captures):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "--resume" in err
    assert "Traceback" not in err
    assert out == ""
    assert _workers(there.starts_file) == []
    configure(there)
    assert there("run", "--resume", "--out", "out").returncode == 0


def _workers(starts_file: Path) -> list[str]:
    mark = f"FAKE_STARTS={starts_file}".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (entry / "environ").read_bytes().split(b"\0") and (entry / "cmdline").read_bytes():
                found.append(entry.name)
        except OSError:
            continue
    return found


def test_the_host_of_a_plan_file_is_said_when_it_is_run(there: Parity) -> None:
    configure(there)
    assert there("plan", "--backends", "far", "-o", "plan.json").returncode == 0
    assert "PARITY_PLACE" not in Path("plan.json").read_text()  # a plan says what is asked, not where
    done = there("run", "--plan", "plan.json", "--out", "out")
    assert done.returncode == 0, done.stderr
    assert json.loads(Path("out/run.json").read_text())["hosts"]["far"]["place"] == "far"


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("[plan]\nmax_token = 3\n", 2, "[plan] has no setting 'max_token'"),
        ("[plan]\nbackends = ['nope']\n", 2, "unknown backend 'nope'"),
        ("[plan]\nmax_tokens = 'many'\n", 2, "--max-tokens"),
        ("[backend.cuda]\n", 2, "no setting 'backend'"),
        ("[plan\n", 2, "parity.toml is not TOML"),
        ("plan = 3\n", 2, "plan must be a table"),
        ("[backends.fake]\ncommand = 'no-such-command-here'\n", 3, "cannot run no-such-command-here"),
        ("[backends.fake]\ncommand = 'env'\npython = '/no/python'\n", 3, "--python fake=PATH"),
        ("[backends.fake]\ncommand = 'sh -c \"echo 7\"'\n", 3, "answered in another tongue"),
    ],
)
def test_mistakes_in_the_file(there: Parity, text: str, code: int, words: str) -> None:
    Path("parity.toml").write_text(text)
    done = there("run", *(() if "backends = [" in text else ("--backends", "fake")), "--suite", "smoke")
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert words in done.stderr
    assert "hint:" in done.stderr or "Usage:" in done.stderr
    assert not (there.home / "runs").exists()


def test_settings_of_a_backend_are_its_arms_defaults(there: Parity) -> None:
    Path("parity.toml").write_text("[backends.a]\nadapter = 'fake'\nengine = { max_num_seqs = 3, seed = 5 }\n")
    made = json.loads(there("plan", "--backends", "a,fake", "--suite", "smoke").stdout)
    asked = {arm["name"]: (arm["engine"]["max_num_seqs"], arm["engine"]["seed"]) for arm in made["arms"]}
    assert asked == {"a/base": (3, 0), "a/mtp": (3, 0), "fake/base": (8, 0), "fake/mtp": (8, 0)}  # --seed is on top
    made = json.loads(there("plan", "--backends", "a", "--suite", "smoke", "--max-num-seqs", "2").stdout)
    assert {arm["engine"]["max_num_seqs"] for arm in made["arms"]} == {2}


def test_flags_that_name_no_backend(there: Parity) -> None:
    done = there("run", "--backends", "fake", "--host", "gpu=ssh gpu1")
    assert done.returncode == 2
    assert "names no backend of this run" in done.stderr
    assert there("run", "--backends", "fake", "--host", "ssh gpu1").returncode == 2
    assert there("run", "--config", "none.toml").returncode == 2


def test_other_files_can_be_named(there: Parity) -> None:
    configure(there)
    Path("parity.toml").rename("lab.toml")
    assert there("plan", "--backends", "far").returncode == 2
    assert there("plan", "--backends", "far", "--config", "lab.toml").returncode == 0


def test_what_a_far_host_lacks_is_found_before_anything_starts(there: Parity, tmp_path: Path) -> None:
    """An interpreter without the engine, and no checkpoint where the plan says."""
    done = subprocess.run(
        [sys.executable, "-m", "parity", "run", "--backends", "cpu", "--host", "cpu=env", "--python",
         f"cpu={sys.executable}", "--suite", "smoke"],
        env=there.environment(), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 3, done.stderr
    assert "has no vllm" in done.stderr
    assert "--python cpu=PATH" in done.stderr
    assert not (there.home / "runs").exists()


def test_a_configuration_of_somebody_else_runs_nothing(there: Parity) -> None:
    configure(there)
    assert there("trust", ".", "--forget").returncode == 0
    Path("parity.toml").write_text(Path("parity.toml").read_text() + 'setup = "touch PWNED"\n')
    for command in (("run", "--backends", "far"), ("doctor",), ("plan", "--backends", "far")):
        refused = there(*command)
        assert refused.returncode == 2, refused.stderr
        assert "parity.toml is not trusted, and would have set:" in refused.stderr
        assert "setup = touch PWNED" in refused.stderr
        assert f"parity trust {Path.cwd()}" in refused.stderr
    assert not Path("PWNED").exists()
    assert there.starts == []
    named = there("doctor", "far", "--config", "parity.toml")
    assert named.returncode == 0, named.stderr


def test_a_run_directory_of_somebody_else_runs_nothing(there: Parity) -> None:
    assert there("run", "--backends", "fake", *SHORT, "--out", "out").returncode == 0
    Path("out/result.json").unlink()
    assert there("run", "--resume", "--out", "out").returncode == 0  # ours
    about = json.loads(Path("out/run.json").read_text())
    about["hosts"] = {"fake": {"command": ["sh", "-c", "touch PWNED"]}}
    about["db"] = str(Path("elsewhere.db").absolute())
    Path("out/run.json").write_text(json.dumps(about))
    Path("out/result.json").unlink()
    there("trust", ".", "--forget")
    for command in (("run", "--resume", "--out", "out"), ("run", "--plan", "out/plan.json")):
        refused = there(*command)
        assert refused.returncode == 2, refused.stderr
        assert "command = sh -c touch PWNED" in refused.stderr
    assert not Path("PWNED").exists()
    assert not Path("elsewhere.db").exists()


def test_only_our_own_runs_are_deleted(there: Parity) -> None:
    assert there("run", "--backends", "fake", *SHORT).returncode == 0
    (run,) = there.json("runs", "list")
    own = Path(run["directory"])
    victim = Path("victim")
    victim.mkdir()
    (victim / "plan.json").write_text("{}")
    with sqlite3.connect(there.home / "parity.db") as database:
        database.execute("UPDATE runs SET directory = ?", (str(victim.absolute()),))
    refused = there("runs", "delete", run["run"], "--files", "--yes")
    assert refused.returncode == 2, refused.stderr
    assert "parity deletes nothing else" in refused.stderr
    assert (victim / "plan.json").exists()
    (there.home / "runs" / "link").symlink_to(victim.absolute())
    with sqlite3.connect(there.home / "parity.db") as database:
        database.execute("UPDATE runs SET directory = ?", (str(there.home / "runs" / "link"),))
    assert there("runs", "delete", run["run"], "--files", "--yes").returncode == 2
    assert (victim / "plan.json").exists()
    with sqlite3.connect(there.home / "parity.db") as database:
        database.execute("UPDATE runs SET directory = ?", (str(own),))
    assert there("runs", "delete", run["run"], "--files", "--yes").returncode == 0
    assert not own.exists()


def test_text_of_a_database_cannot_drive_a_terminal(there: Parity) -> None:
    assert there("run", "--backends", "fake", *SHORT).returncode == 0
    with sqlite3.connect(there.home / "parity.db") as database:
        database.execute("UPDATE runs SET created = 'x\x1b]0;owned\x07', id = 'r\x1b[2J'")
    asked = there("runs", "delete", "r")
    assert "\x1b" not in asked.stderr + asked.stdout
