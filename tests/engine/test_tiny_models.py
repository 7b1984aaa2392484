"""Small checkpoints of other families on the real engine, with their prediction layers.

What vLLM's CPU build runs: `mimo` in test_ray.py, Qwen3-Next as the embedded checkpoint everywhere, the rest here.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from parity.tiny import FAMILIES, write_checkpoint

pytestmark = pytest.mark.engine


ELSEWHERE = ("mimo", "qwen3_next")
IN_EACH_RUN = ("deepseek_v3",)
"""Of three engines that differ little, the one whose attention is latent."""

NAMES = [
    pytest.param(name, marks=() if name in IN_EACH_RUN else pytest.mark.long)
    for name, family in FAMILIES.items()
    if not family.not_on_cpu and name not in ELSEWHERE
]


@pytest.mark.parametrize("name", NAMES)
def test_a_family_speculates_and_says_the_same_without(interpreter: Path, tmp_path: Path, name: str) -> None:
    """Latent attention, experts chosen by a sigmoid, other prediction layers: what no other test here runs."""
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
