"""What is said of a run that has not what somebody asks of it: a command that would have it, whole."""

from __future__ import annotations

import shlex
import sqlite3
from pathlib import Path

import pytest
from captures import TEXT, capture, completion, written
from click.testing import CliRunner

from parity.cli.main import cli
from parity.store import Store

ASKED = [["why"], ["locate"], ["power", "--run"], ["plot"]]


def run(*words: str) -> str:
    done = CliRunner().invoke(cli, list(words))
    assert done.exit_code in (2, 3), done.output
    return done.output


def compared(tmp_path: Path, *more: str) -> list[str]:
    """A run of two recordings; its id, and the options that name its database."""
    words = []
    for name in ("a", "b"):
        made = capture(f"cpu/{name}", completion(TEXT), model="tiny-qwen3-next-mtp")
        words += ["--replay", f"{name}={written(tmp_path / f'{name}.jsonl', made)}"]
    database = ["--db", str(tmp_path / "of.db")]
    CliRunner().invoke(cli, ["run", *words, *more, *database, "--out", str(tmp_path / "run")])
    with Store.open(tmp_path / "of.db") as store:
        return [store.run().id, *database]


@pytest.mark.parametrize("asked", ASKED, ids=" ".join)
def test_a_run_that_failed_is_said_to_have_failed(tmp_path: Path, asked: list[str]) -> None:
    target = compared(tmp_path, "--suite", "smoke")  # these are not in the recordings
    output = run(*asked, *target)
    assert f"run {target[0]} failed" in output
    (command,) = (line.split("`")[1] for line in output.splitlines() if line.startswith("hint: "))
    shown = CliRunner().invoke(cli, shlex.split(command)[1:]).output
    assert "failed while asking whether it answers" in " ".join(shown.split())


@pytest.mark.parametrize(("asked", "said"), [("why", "--write-recorder"), ("locate", "parity starts no engine of it")])
def test_where_parity_starts_no_engine_nothing_is_advised_that_needs_one(tmp_path: Path, asked: str, said: str) -> None:
    output = run(asked, *compared(tmp_path))
    assert said in output
    assert "run it again" not in output


@pytest.mark.parametrize(("asked", "options"), [("why", "--record"), ("locate", "--sketch parts")])
def test_what_was_not_recorded_is_recorded_by_a_whole_command(tmp_path: Path, asked: str, options: str) -> None:
    run_id, *database = compared(tmp_path)
    with sqlite3.connect(tmp_path / "of.db") as connection:
        connection.execute("UPDATE arms SET backend = 'cpu'")
    output = run(asked, run_id, *database)
    plan = tmp_path / "run" / "plan.json"
    assert f"`parity run --plan {plan} --db {tmp_path / 'of.db'} {options}`" in output
