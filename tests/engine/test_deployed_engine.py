"""Production's own settings on the real engine, scored by the pinned baseline.

But for compiling, which takes a CPU minutes and was left out here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from parity.capture import read_capture
from parity.capture.steps import read_steps
from parity.explain.violations import check
from parity.run import Backend

pytestmark = pytest.mark.engine


def test_the_engine_by_its_own_defaults_says_and_does_what_the_pinned_one_does(
    cpu: Backend, interpreter: Path, tmp_path: Path
) -> None:
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("In the beginning God\nThe capital of France is\n")
    done = subprocess.run(
        [sys.executable, "-m", "parity", "run", "--variants", "base,deployed", "--prompts", str(prompts),
         "--max-tokens", "16", "--engine", "enforce_eager=true", "--record", "--out", str(tmp_path / "run"), "--json"],
        env={**os.environ, "PARITY_HOME": str(tmp_path / "home"), "PARITY_CPU_PYTHON": str(interpreter)},
        capture_output=True, text=True, timeout=500,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    stats = json.loads(done.stdout)["arms"]["cpu/deployed"]["stats"]
    assert stats["exercised"]["accepted_tokens"] > 0
    deployed = read_capture(tmp_path / "run" / "cpu-deployed.jsonl").header.engine
    base = read_capture(tmp_path / "run" / "cpu-base.jsonl").header.engine
    assert (deployed["multiprocessing"], base["multiprocessing"]) == (True, False)
    assert "max_num_seqs" not in deployed["asked"]
    assert deployed["max_num_seqs"] != base["max_num_seqs"]
    (steps,) = read_steps(tmp_path / "run" / "cpu-deployed.steps")  # of an engine in a process of its own
    checked = check(steps)
    assert (checked.violations, set(checked.unasked)) == ((), {"given", "end"})
    assert checked.row_steps > 2 * 5
