"""Benchmarks that stand in for the engine: a door of the recorder that reads more than they have breaks them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.engine
ROOT = Path(__file__).parents[2]


def test_the_recorder_reads_a_stand_in_at_every_door() -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "recorder_step.py"), "--rows=4", "--steps=3", "--longest=128"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    said = json.loads(run.stdout)
    assert said["bytes_a_row_step"] > 0
    doors = {"scheduled", "_forward", "_before_sampling", "_after_sampling", "_handed", "taken", "_given"}
    assert set(said["doors"]) == doors
