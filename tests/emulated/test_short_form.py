"""docs/emulated.md in short: the main job on the emulated NPU passes, and a fault in vllm-ascend's own code is found.

The long form: `benchmarks/emulated_npu.py`, `emulated_faults.py`, `emulated_hunt.py`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from parity.capture import read_capture
from parity.plan import load_suite
from parity.run import load_backend

pytestmark = [pytest.mark.engine, pytest.mark.long]

BACKEND, CONTROL = "ascend-emulated", "row_swap"
ARM = f"{BACKEND}/mtp"
PROMPTS = 16


def run(at: Path, *options: str) -> tuple[int, str, dict[str, Any]]:
    """`parity run` of a tiny MiMo: its exit code, what it showed and its result."""
    out = at / f"run-{len(list(at.glob('run-*')))}"
    command = [sys.executable, "-m", "parity", "run", "--model", str(at / "tiny")]
    command += ["--prompts", str(at / "prompts.jsonl")]
    command += ["--max-tokens", "16", "-k", "2", "--out", str(out), *options]
    pythons = {
        "PARITY_CPU_PYTHON": str(load_backend("cpu").interpreter(print)),
        "PARITY_ASCEND_EMULATED_PYTHON": str(load_backend(BACKEND).interpreter(print)),
    }
    environment = {**os.environ, **pythons, "PARITY_HOME": str(at / "home")}
    done = subprocess.run(command, capture_output=True, text=True, timeout=1700, env=environment)
    assert "Traceback" not in done.stderr, done.stderr
    assert (out / "result.json").exists(), done.stderr
    return done.returncode, done.stdout, json.loads((out / "result.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def at(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny checkpoint and short prompts."""
    folder = tmp_path_factory.mktemp("emulated")
    command = [sys.executable, "-m", "parity", "model", "tiny", "--arch", "mimo", "-o", str(folder / "tiny")]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    texts = [prompt.text for prompt in load_suite("mixed") if prompt.text and len(prompt.text) < 160][:PROMPTS]
    lines = [json.dumps({"id": f"p{number}", "prompt": text}) + "\n" for number, text in enumerate(texts)]
    (folder / "prompts.jsonl").write_text("".join(lines), encoding="utf-8")
    return folder


@pytest.mark.timeout(1800)
def test_the_main_job_passes_and_a_planted_swap_is_found(at: Path) -> None:
    control = f"{CONTROL}:rate=0.4"
    code, shown, result = run(at, "--backends", "cpu,ascend-emulated", "--record", "--positive-control", control)
    assert code == 0, shown
    assert shown.startswith("PASS")
    assert "ran on an emulated NPU" in shown
    for name in (f"{BACKEND}/base", ARM):
        assert result["arms"][name]["verdict"] == "PASS"
        assert result["arms"][name]["stats"]["completions"] == PROMPTS
    capture = read_capture(at / "run-0" / f"{ARM.replace('/', '-')}.jsonl")
    assert capture.header.environment["emulated"]
    assert capture.counters is not None
    assert capture.counters["accepted_tokens"] > 0
    controls = [reason for reason in result["reasons"] if control in reason]
    assert len(controls) == 2
    assert all(f"positive control {control}: caught in " in reason for reason in controls)


@pytest.mark.timeout(900)
def test_a_fault_in_its_triton_kernel_is_found(at: Path, faults: ModuleType) -> None:
    checkout = faults.checkout(faults.FAULTS["bonus"].edits[faults.PLANTED], at / "vllm-ascend")
    code, shown, result = run(at, "--backends", BACKEND, "--vllm-ascend", str(checkout))
    assert code == 1, shown
    assert result["arms"][ARM]["verdict"] == "DIVERGED"
    assert any(one["severity"] == "corrupt" for one in result["arms"][ARM]["findings"])
