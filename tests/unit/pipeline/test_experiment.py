"""An experiment of many arms and rounds as one command: its table, and the same table after being killed."""

from __future__ import annotations

import json
import os
import signal
import time
from typing import Any

from cli_process import Parity

EXPERIMENT = (
    "run", "--backends", "fake", "--max-tokens", "24", "--vary", "k=0,2", "--vary", "seqs=4,8",
    "--samples", "2", "--rounds", "4", "--score", "differing",
)  # fmt: skip
COMPLETIONS = 64 * 2 * 4


def table(parity: Parity) -> dict[str, Any]:
    """The table without what no two runs have in common: the run's name, how fast it was."""
    value: dict[str, Any] = json.loads(parity("table", "--format", "json").stdout)
    value.pop("run")
    for row in value["rows"]:
        for name in ("tokens_per_second", "tokens_per_second_with_start"):
            row.pop(name)
        row["notes"] = [note for note in row["notes"] if "tokens/s" not in note]
    return value


def test_killed_in_the_middle_and_resumed_the_table_is_the_same(parity: Parity) -> None:
    whole = parity(*EXPERIMENT, FAKE="corrupt")
    assert whole.returncode == 1, whole.stderr
    expected = table(parity)
    other = Parity(parity.home.with_name("other"), parity.site, parity.starts_file)
    kills = 0
    for after in (60, 700, 1500):
        process = other.start(*(("run", "--resume") if kills else EXPERIMENT), FAKE="corrupt", FAKE_STEP="0.002")
        until = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < until and captured(other) < after:
            time.sleep(0.02)
        assert process.poll() is None, "it was over before it could be killed"
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=60)
        kills += 1
    done = other("run", "--resume", FAKE="corrupt")
    assert done.returncode == 1, done.stderr
    assert kills == 3
    assert table(other) == expected


def captured(parity: Parity) -> int:
    return sum(path.read_bytes().count(b'"record":"completion"') for path in (parity.home).glob("runs/*/fake-k*.jsonl"))


def test_the_table_of_an_experiment(parity: Parity) -> None:
    done = parity(*EXPERIMENT, FAKE="corrupt")
    assert "64 requests" not in done.stdout
    assert "128 requests × 4 rounds = 512 completions an arm, up to 24 tokens each" in " ".join(done.stdout.split())
    made = json.loads(parity("table", "--format", "json").stdout)
    assert made["schema"] == "parity.table/1"
    rows = {row["arm"]: row for row in made["rows"]}
    assert list(rows) == ["fake/k=0+seqs=4", "fake/k=0+seqs=8", "fake/k=2+seqs=4", "fake/k=2+seqs=8"]
    assert all(row["completions"] == row["expected"] == COMPLETIONS for row in rows.values())
    assert all(row["tokens"] == COMPLETIONS * 24 for row in rows.values())
    assert rows["fake/k=0+seqs=4"]["baseline"]
    assert rows["fake/k=0+seqs=4"]["corrupt"] is None
    clean, bad = rows["fake/k=0+seqs=8"], rows["fake/k=2+seqs=8"]
    assert clean["corrupt"] == 0
    assert 0 < clean["not_excluded"] < 0.01
    # One request is hit in each of four rounds.
    assert bad["corrupt"] == 4
    low, high = bad["corrupt_interval"]
    assert low < 4 / COMPLETIONS < high
    assert {kind["completions"] for kind in bad["kinds"]} == {4}
    assert bad["acceptance_rate"] == 0.5
    assert bad["acceptance_length"] == 2.0
    assert bad["stops"] == {"length": COMPLETIONS}
    assert bad["batch"] == {"steps": 4 * 24, "batch_sizes": {"128": 4 * 24}}
    assert bad["config"] == "k=2, seqs=8"
    corrupt = [output for output in made["outputs"] if output["corrupt"]]
    assert {output["arm"] for output in corrupt} == {"fake/k=2+seqs=4", "fake/k=2+seqs=8"}

    markdown = parity("table", "--format", "md").stdout
    lines = [line for line in markdown.splitlines() if line.startswith("|")]
    assert len(lines) == 2 + 4
    assert all(line.count(" | ") == lines[0].count(" | ") for line in lines)
    assert "`fake/k=2+seqs=8`" in lines[-1]
    shown = parity("table").stdout
    assert f"4 corrupt, a rate of {low:.2%} to {high:.2%} (95 %)" in " ".join(shown.split())
    assert all(len(line) <= 80 for line in shown.splitlines())

    captures = sorted(str(path) for path in parity.run_directory.glob("fake-*.jsonl"))
    alone = json.loads(parity("table", *captures, "--format", "json").stdout)
    assert [row["completions"] for row in alone["rows"]] == [COMPLETIONS] * 4
    assert {row["corrupt"] for row in alone["rows"]} == {None}


def test_what_cannot_be_shown_is_said(parity: Parity) -> None:
    assert parity("table").returncode == 2
    parity(*EXPERIMENT[:5])
    assert "is not a file" in parity("table", "nothing", str(parity.run_directory / "fake-base.jsonl")).stderr
    assert "several runs" in parity("table", "a", "b").stderr
    assert "there is no run" in parity("table", "nothing").stderr
