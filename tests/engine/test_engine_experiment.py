"""An experiment with churn on real vLLM: rows really move, and after an interruption the table is the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from parity.capture import read_capture

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


@pytest.mark.long
def test_churn_moves_rows_and_an_interruption_changes_nothing(
    interpreter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PARITY_CPU_PYTHON", str(interpreter))  # a home of its own has no environment
    process = start(tmp_path, *EXPERIMENT)
    out, errors = process.communicate(timeout=300)
    assert process.returncode == 0, out + errors
    expected = table(tmp_path)
    for row in expected["rows"]:
        batch = row["batch"]
        assert row["completions"] == row["expected"] == 4 * 4 * 4
        assert batch["rows_moved"] > 0
        assert batch["rows_joined"] > 0
        assert batch["arrivals_while_decoding"] > 0
        assert batch["aborted"] >= 4
        assert max(map(int, batch["batch_sizes"])) <= int(row["arm"].rpartition("=")[2])
        assert row["stops"]["abort"] == batch["aborted"]

    (directory,) = (tmp_path / "runs").iterdir()
    before = cut_in_round(directory / "cpu-k=0+seqs=3.jsonl", 2)
    (directory / "result.json").unlink()
    process = start(tmp_path, "run", "--resume")
    out, errors = process.communicate(timeout=300)
    assert process.returncode == 0, out + errors
    assert table(tmp_path) == expected
    capture = read_capture(directory / "cpu-k=0+seqs=3.jsonl")
    assert capture.counters is not None
    assert capture.counters["resumed_completions"] == before
    assert capture.counters["replay_differences"] == 0


def cut_in_round(path: Path, round_: int) -> int:
    """Leave what kill -9 in the middle of a round leaves: whole lines, and one that is cut off. Says how many
    completions those are. (tests/unit/pipeline kills for real, with an engine that takes no time.)"""
    lines = path.read_bytes().splitlines(keepends=True)
    inside = [number for number, line in enumerate(lines) if b'"round":%d,"sample"' % round_ in line]
    last = inside[len(inside) // 2]
    path.write_bytes(b"".join(lines[:last]) + lines[last][:40])
    return sum(b'"record":"completion"' in line for line in lines[:last])
