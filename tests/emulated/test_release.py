"""The device of the emulated environment, and the release's own kernels and operators on it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

HERE = Path(__file__).parent

pytestmark = pytest.mark.engine


def test_faults_of_the_benchmark_fit_the_release(python: Path, faults: ModuleType) -> None:
    """What `benchmarks/emulated_faults.py` replaces stands in the release, once, and leaves Python that compiles."""
    package = next((python.parent.parent / "lib").glob("python3*/site-packages/vllm_ascend"))
    for fault in faults.FAULTS.values():
        for edits in fault.edits.values():
            texts = {edit.file: (package / edit.file).read_text(encoding="utf-8") for edit in edits}
            for name, text in faults.edited(texts, edits).items():
                assert text != texts[name]
                compile(text, name, "exec")


@pytest.mark.parametrize("checks", ["device", "kernels"])
def test_the_device_and_its_kernels(checks: str, python: Path) -> None:
    command = [str(python), str(HERE / "run_checks.py"), str(HERE / "checks_of_release" / f"{checks}.py")]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, env=env)
    assert done.returncode == 0, done.stderr[-3000:]
    results: dict[str, str | None] = json.loads(done.stdout)
    assert len(results) > 1
    assert not {name: error for name, error in results.items() if error}
