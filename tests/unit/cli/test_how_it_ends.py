"""Exit code 1 means DIVERGED and nothing else, whatever dies how."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import parity.__main__
import parity.cli.main


def run(script: str, *args: str, home: Path | str, **how: object) -> subprocess.CompletedProcess[bytes]:
    """The command's own entry, after `script` has been run in its process."""
    code = f"import sys\nsys.argv = ['parity', *{list(args)!r}]\n{script}\nfrom parity.__main__ import entry\nentry()\n"
    env = {**os.environ, "PARITY_HOME": str(home)}
    return subprocess.run(  # type: ignore[call-overload, no-any-return]
        [sys.executable, "-c", code], env=env, check=False, timeout=60,
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **how},
    )  # fmt: skip


@pytest.mark.parametrize(
    "error", ["type('Panic', (BaseException,), {})('a panic')", "MemoryError()", "GeneratorExit()"]
)
def test_what_is_no_exception_is_a_fault_of_parity(tmp_path: Path, error: str) -> None:
    raising = f"import parity.cli.capture as c\ndef no(*_, **__): raise {error}\nc.check.callback = no"
    done = run(raising, "capture", "check", "x.jsonl", home=tmp_path)
    assert done.returncode == 70, done.stderr
    assert b"failed unexpectedly" in done.stderr
    assert b"Traceback" not in done.stderr


def test_an_import_that_fails_is_no_verdict(tmp_path: Path) -> None:
    done = run("sys.modules['click'] = None", "--version", home=tmp_path)
    assert done.returncode == 70
    assert b"failed unexpectedly: ModuleNotFoundError" in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("args", [("--help",), ("doctor", "replay", "--json"), ("demo",)])
def test_a_stdout_that_takes_nothing_is_said(tmp_path: Path, args: tuple[str, ...]) -> None:
    with Path("/dev/full").open("wb") as full:
        done = run("", *args, home=tmp_path, stdout=full)
    assert done.returncode == 2, done.stderr
    assert b"cannot write to stdout: No space left on device" in done.stderr


def test_a_closed_stdout_is_said_and_nothing_else_is_written_into(tmp_path: Path) -> None:
    done = run("", "doctor", "replay", "--json", home=tmp_path, stdout=None, preexec_fn=lambda: os.close(1))
    assert done.returncode == 2, done.stderr
    assert b"cannot write to stdout: Bad file descriptor" in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_stderr_loses_talk_alone(tmp_path: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        assert run("", "runs", "show", "nothing", home=tmp_path, stderr=full).returncode == 2
        done = run("", "demo", home=tmp_path, stderr=full)
    assert done.returncode == 1
    assert b"DIVERGED" in done.stdout


def test_a_closed_stderr_loses_talk_alone(tmp_path: Path) -> None:
    done = run("", "doctor", "replay", "--json", home=tmp_path, preexec_fn=lambda: os.close(2))
    assert done.returncode == 0
    assert done.stdout.startswith(b"{")


def test_a_word_that_is_no_text_is_refused_before_anything_is_done(tmp_path: Path) -> None:
    done = run("", "runs", "list", "--db", os.fsdecode(b"x\xff.db"), home=tmp_path)
    assert done.returncode == 2, done.stderr
    assert b"is not text: some of its bytes are no utf-8" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("home", ["~nobody-at-all/x", "/" + "x" * 5000, os.fsdecode(b"/tmp/x\xff")])
def test_a_home_that_no_system_takes_is_refused_in_words(home: str) -> None:
    done = run("", "runs", "list", home=home)
    assert done.returncode == 2, done.stderr
    assert b"error: the data directory cannot be used: " in done.stderr
    assert b"PARITY_HOME" in done.stderr


def test_a_working_directory_that_is_no_text_is_refused(tmp_path: Path) -> None:
    odd = os.fsencode(tmp_path) + b"/x\xff"
    os.mkdir(odd)
    done = run("", "runs", "list", home=tmp_path, cwd=odd)
    assert done.returncode == 2, done.stderr
    assert b"is not text" in done.stderr


def test_a_crash_says_no_secret_of_the_command(tmp_path: Path) -> None:
    words = (
        "capture",
        "check",
        "x.jsonl",
        "--webhook",
        "https://h/services/T0Zugang",
        "--engine",
        "hf_token=Zugang7Geheim",
    )
    raising = "import parity.cli.main as m\ndef no(*_): raise ValueError(sys.argv)\nm.refuse_odd_words = no"
    done = run(raising, *words, home=tmp_path)
    assert done.returncode == 70, done.stderr
    (written,) = tmp_path.glob("crash-*.txt")
    for said in (done.stderr.decode(), written.read_text()):
        assert "ValueError" in said
        assert "Zugang" not in said


def test_both_say_the_same_code() -> None:
    assert parity.__main__.CRASHED == parity.cli.main.CRASHED


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_progress_on_a_full_stderr_is_lost_and_the_arm_goes_on(tmp_path: Path) -> None:
    showing = """
import sys
from parity.run.display import progress
from parity.run.events import ArmEvent, Phase
with progress(["a"], sys.stderr) as show:
    for done in range(3):
        show(ArmEvent("a", Phase.GENERATING, done=done, total=3))
print("went on")
"""
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run([sys.executable, "-c", showing], stdout=subprocess.PIPE, stderr=full, check=False)
    assert (done.returncode, done.stdout) == (0, b"went on\n")


@pytest.mark.parametrize("args", [("trust", ".", "--forget"), ("demo", "--out", "x")])
def test_a_working_directory_that_is_gone_is_said(tmp_path: Path, args: tuple[str, ...]) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    leaving = f"import os\nos.chdir({str(gone)!r})\nos.rmdir({str(gone)!r})"
    done = run(leaving, *args, home=tmp_path / "home")
    assert done.returncode == 2, done.stderr
    assert b"the directory that this was started in is gone" in done.stderr
