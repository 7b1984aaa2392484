"""A kit's baseline on the real engine: its rehearsal and its rounds in one engine start, elsewhere."""

from __future__ import annotations

import json
import os
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

from parity.capture import check_capture, read_capture
from parity.capture.sketches import read_sketches
from parity.capture.steps import read_steps
from parity.kit.write import KitRequest, write_kit
from parity.pipeline.inside import look_inside
from parity.run import Backend

pytestmark = pytest.mark.engine


def only(archive: Path, arm: str, target: Path) -> None:
    """The same kit with one arm: one engine start."""
    with zipfile.ZipFile(archive) as source, zipfile.ZipFile(target, "w") as made:
        for name in source.namelist():
            data = source.read(name)
            if name == "plan.json":
                plan = json.loads(data)
                data = json.dumps({**plan, "arms": [one for one in plan["arms"] if one["name"] == arm]}).encode()
            made.writestr(name, data)


def test_the_baseline_of_a_kit_with_the_python_that_has_vllm_alone(
    cpu: Backend, interpreter: Path, tmp_path: Path
) -> None:
    request = KitRequest("cpu", rounds=2, samples=2, max_tokens=16, suite="smoke", sketch_tokens=100)
    write_kit(request, cpu, tmp_path / "all.pyz")
    only(tmp_path / "all.pyz", "cpu/base", tmp_path / "kit.pyz")
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(interpreter), "kit.pyz"], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=400
    )
    assert "failed" not in done.stderr, done.stderr
    with tarfile.open(tmp_path / "parity-kit-result.tar.gz") as archive:
        archive.extractall(tmp_path / "result", filter="data")
    about = json.loads((tmp_path / "result" / "about.json").read_text())
    assert about["rehearsal"]["scored_tokens"] > 16
    assert check_capture(tmp_path / "result" / "cpu-base.jsonl") == []
    capture = read_capture(tmp_path / "result" / "cpu-base.jsonl")
    inside = look_inside(capture, read_steps(tmp_path / "result" / "cpu-base.steps"))
    assert inside.row_steps > 50
    assert inside.asked
    assert inside.violations == []
    (sketches,) = read_sketches(tmp_path / "result" / "cpu-base.sketches")  # none of the rehearsal's
    assert sketches.stopped is not None
    assert sketches.stopped.enough
    assert 100 <= len(sketches) < sum(len(one.prompt_token_ids) + len(one.token_ids) for one in capture)
    assert {sketches.requests[int(number)].request for number in sketches.columns["request"]} <= {
        one.key.request for one in capture
    }
    assert [one.name for one in sketches.modules if one.role == "layer" and one.order >= 0]
