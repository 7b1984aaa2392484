"""An experiment with churn on real vLLM: rows really move, and after kill -9 and resume the table is the same."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.engine

EXPERIMENT = (
    "run", "--suite", "smoke", "--samples", "4", "--rounds", "4", "--max-tokens", "24", "--churn", "heavy",
    "--vary", "num_speculative_tokens=0", "--vary", "max_num_seqs=8,3", "--score", "differing",
)  # fmt: skip


def start(home: Path, *args: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "parity", *args],
        env={**os.environ, "PARITY_HOME": str(home)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def table(home: Path) -> dict[str, Any]:
    process = start(home, "table", "--format", "json")
    made: dict[str, Any] = json.loads(process.communicate(timeout=60)[0])
    made.pop("run")
    for row in made["rows"]:
        del row["tokens_per_second"], row["tokens_per_second_with_start"]
    return made


def test_churn_moves_rows_and_a_kill_changes_nothing(interpreter: Path, tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    process = start(whole, *EXPERIMENT)
    out, errors = process.communicate(timeout=300)
    assert process.returncode == 0, out + errors
    expected = table(whole)
    for row in expected["rows"]:
        batch = row["batch"]
        assert row["completions"] == row["expected"] == 4 * 4 * 4
        assert batch["rows_moved"] > 0
        assert batch["rows_joined"] > 0
        assert batch["arrivals_while_decoding"] > 0
        assert batch["aborted"] >= 4
        assert max(map(int, batch["batch_sizes"])) <= int(row["arm"].rpartition("=")[2])
        assert row["stops"]["abort"] == batch["aborted"]

    process = start(killed, *EXPERIMENT)
    until = time.monotonic() + 240
    while rounds(killed) < 2:  # in the middle of the first arm
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until, "no round came to its end"
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    process = start(killed, "run", "--resume")
    out, errors = process.communicate(timeout=300)
    assert process.returncode == 0, out + errors
    assert table(killed) == expected


def rounds(home: Path) -> int:
    return sum(path.read_bytes().count(b'"record":"round"') for path in home.glob("runs/*/cpu-k*.jsonl"))
