"""`parity profile` of what was not sketched: the command that would sketch it, complete."""

from __future__ import annotations

import shlex

from cli_process import Parity

RUN = ("run", "--backends", "fake", "--suite", "smoke", "--max-tokens", "16")


def test_the_command_sketches_that_very_plan(parity: Parity) -> None:
    assert parity(*RUN).returncode == 0
    (run,) = parity.json("runs", "list")
    done = parity("profile")
    assert done.returncode == 2
    said = " ".join(done.stderr.split())
    assert f"nothing was sketched in run {run['run']}" in said
    words = shlex.split(said.split("`")[1])
    assert words[:2] == ["parity", "run"]
    assert words[-2:] == ["--sketch", "parts"]
    assert f"{run['run']}/plan.json" in words[3]


def test_of_a_failed_run_it_says_that_it_failed(parity: Parity) -> None:
    assert parity(*RUN, FAKE="die at start").returncode == 3
    done = parity("profile")
    assert done.returncode == 2
    assert "failed, and there is nothing of it to look at" in " ".join(done.stderr.split())
