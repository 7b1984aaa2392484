"""The device of the emulated environment, and the release's own kernels and operators on it.

Skipped where the environment is not built: `parity env create ascend-emulated` takes some minutes and 3 GB.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
from pathlib import Path

import pytest

from parity.run import EngineEnv, load_backend

HERE = Path(__file__).parent
NAME = "ascend-emulated"

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def python() -> Path:
    backend = load_backend(NAME)
    spec = backend.env_spec()
    assert spec is not None
    if not backend.detect().available and not EngineEnv(spec).installed():
        pytest.skip(f"no environment for {NAME}: parity env create {NAME}")
    return backend.interpreter(print)


def test_faults_of_the_benchmark_fit_the_release(python: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `benchmarks/emulated_faults.py` replaces stands in the release, once, and leaves Python that compiles."""
    monkeypatch.syspath_prepend(str(HERE.parents[1] / "benchmarks"))
    benchmark = importlib.import_module("emulated_faults")
    package = next((python.parent.parent / "lib").glob("python3*/site-packages/vllm_ascend"))
    for fault in benchmark.FAULTS.values():
        for edits in fault.edits.values():
            texts = {edit.file: (package / edit.file).read_text(encoding="utf-8") for edit in edits}
            for name, text in benchmark.edited(texts, edits).items():
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
