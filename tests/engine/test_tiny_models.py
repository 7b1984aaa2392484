"""Small checkpoints of other families on the real engine, with their prediction layers.

`mimo` runs in test_ray.py, the embedded checkpoint is Qwen3-Next; benchmarks/tiny_models.py runs all of them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from parity.tiny import FAMILIES, write_checkpoint

pytestmark = pytest.mark.engine


@pytest.mark.parametrize("name", ["deepseek_v3"])
def test_a_family_speculates_and_says_the_same_without(interpreter: Path, tmp_path: Path, name: str) -> None:
    """Multi-head latent attention and experts, chosen by a sigmoid: what no other test here runs."""
    write_checkpoint(name, tmp_path / name)
    settings = [f"--engine={key}={json.dumps(value)}" for key, value in FAMILIES[name].on_cpu.items()]
    done = subprocess.run(
        [sys.executable, "-m", "parity", "run", "--backends", "cpu", "-k", "1", "--model", str(tmp_path / name),
         "--suite", "smoke", "--max-tokens", "16", "--score", "differing", *settings,
         "--db", str(tmp_path / "db"), "--out", str(tmp_path / "run"), "--json"],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    stats = json.loads(done.stdout)["arms"]["cpu/mtp"]["stats"]
    assert stats["completions"] == stats["identical"] + stats["near_tie"] == 4
    assert stats["exercised"]["accepted_tokens"] > 0
