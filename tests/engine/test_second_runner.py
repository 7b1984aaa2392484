"""vLLM's second model runner by Triton's interpreter, scheduled asynchronously as on CUDA: its steps are recorded, its
drafter is sketched, and a fault in it located."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import parity_faults
import pytest
from fault_lab import ENGINE, SPECULATION, planted, run_engine, short_requests
from msgspec.json import encode
from parity_backends.vllm.cpu import CpuBackend
from parity_backends.vllm.cpu_v2 import SWITCHES, TRITON, second_runner_spec
from parity_backends.vllm.local import worker_source

from parity.capture import read_capture
from parity.capture.sketches import read_sketches
from parity.capture.steps import read_steps
from parity.explain.aligned import align
from parity.explain.located import Locating, locate_drafter
from parity.explain.violations import check

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

FAULTS = {"drafter_off": "drafter.model.layers.0", "drafter_input_off": "drafter.model.fc"}
"""The module that shows it first."""


@pytest.fixture(scope="module")
def lab(interpreter: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One engine start: Triton beside the environment of `cpu`, where `cpu-v2` would take a second one."""
    folder = tmp_path_factory.mktemp("second")
    overlay = folder / "overlay"
    command = [str(interpreter), "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(overlay), TRITON]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    for name, text in second_runner_spec().overlay:
        path = overlay / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    model = CpuBackend().default_model()
    assert model is not None
    (folder / "worker.py").write_bytes(worker_source())
    job: dict[str, Any] = {
        "model": str(model),
        "sampling": {"temperature": 0.0, "max_tokens": 12},
        "requests": short_requests(model)[:12],
        "engine": {**ENGINE, **SPECULATION, "async_scheduling": True},
        "variant": "mtp",
        "out": str(folder),
        "recorder": str(folder / "worker.py"),
        "sketcher": str(folder / "worker.py"),
        "captures": [
            {"name": "none", "fault": "none"},
            *({"name": name, "fault": f"{name}:rate=0.4:seed=3:permille=1000:max=3"} for name in FAULTS),
        ],
    }
    (folder / "mtp.json").write_bytes(encode(job))
    found = parity_faults.unpacked(folder)
    variables = {**SWITCHES, "PYTHONPATH": f"{found['PYTHONPATH']}:{overlay}"}
    run_engine(interpreter, ["-m", "parity_faults.lab", str(folder / "mtp.json")], folder / "mtp.log", **variables)
    shutil.rmtree(overlay)  # 600 MB, and pytest keeps three of its folders
    return folder


def of_drafter(folder: Path) -> Locating:
    starts = read_sketches(folder / "mtp.sketches")
    assert [one.header.prefill for one in starts] == [False, True]
    return locate_drafter(align(read_capture(folder / "mtp.jsonl"), starts[:1], starts[1:], drafter=True))


def test_its_steps_are_recorded_though_the_scheduler_is_ahead(lab: Path) -> None:
    (steps,) = read_steps(lab / "none" / "mtp.steps")
    checked = check(steps)
    assert steps.header.asynchronous
    assert (checked.violations, set(checked.unasked)) == ((), {"computed"})
    assert checked.row_steps >= 12 * 4


def test_its_drafter_is_seen_and_accused_of_nothing(lab: Path) -> None:
    assert "Using V2 Model Runner" in (lab / "mtp.log").read_text(encoding="utf-8")
    found = of_drafter(lab / "none")
    capture = read_capture(lab / "none" / "mtp.jsonl")
    tokens = sum(len(one.prompt_token_ids) + len(one.token_ids) - 1 for one in capture)
    assert (found.judged, found.completions, found.located, dict(found.unpaired)) == (True, 12, (), {})
    assert found.tokens == tokens
    noise = {one.module: one for one in found.noise}
    assert noise["drafter.model.pre_fc_norm_embedding"].high == 0  # the same token: equal to the last bit
    assert 0 <= noise["drafter.model.fc"].middle < 0.02


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_its_drafter_is_located_at_its_module(lab: Path, fault: str) -> None:
    (steps, _) = read_sketches(lab / fault / "mtp.sketches")
    names = {one.engine_id: one.request for one in steps.requests.values()}
    due: dict[Any, int] = {}
    for one in planted(lab / fault):
        assert one["module"] == FAULTS[fault]
        due.setdefault(names[one["request"]], one["at"])
    assert len(due) == 3  # of twelve: what hits half of the completions is the run's own noise
    found = of_drafter(lab / fault).located
    assert found
    assert {(one.key.request, one.module, one.position) for one in found} <= {
        (request, FAULTS[fault], at) for request, at in due.items()
    }
