"""Each number of the engine's bookkeeping, planted wrong in one row-step: found there, and nowhere else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fault_lab import ENGINE, SPECULATION, planted, run_job, short_requests
from parity_backends.vllm.cpu import CpuBackend
from parity_backends.vllm.local import worker_source
from parity_faults import bookkeeping

from parity.capture.steps import read_steps
from parity.explain.violations import Checked, check

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1800)]

BREAKS = {
    "computed_off": "computed",
    "drafts_off": "drafts",
    "position_off": "position",
    "input_off": "inputs",
    "logits_off": "logits",
    "sampler_drafts_off": "sampler_drafts",
    "query_start_off": "length",
    "row_map": "row",
    "block_table_off": "block_table",
    "sequence_length_off": "sequence_length",
    "slot_off": "slots",
    "slot_shared": "owner",
    "state_slots_exchanged": "state_slot",
    "state_overwritten": "state_kept",
    "kv_overwritten": "kv_kept",
    "kept_off": "kept",
    "buffer_off": "buffer",
}
"""The invariant that says what was planted; others may say more of the same row-step."""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One engine start for all of them."""
    folder = tmp_path_factory.mktemp("bookkeeping")
    model = CpuBackend().default_model()
    assert model is not None
    (folder / "worker.py").write_bytes(worker_source())
    job: dict[str, Any] = {
        "model": str(model),
        "sampling": {"temperature": 0.0, "max_tokens": 16},
        "requests": short_requests(model)[:24],
        "engine": {**ENGINE, **SPECULATION},
        "recorder": str(folder / "worker.py"),
        "states": True,
        "captures": [{"name": name, "fault": f"{name}:rate=0.1:seed=3"} for name in BREAKS],
    }
    run_job(CpuBackend().interpreter(print), folder, "mtp", job)
    return folder


def checked(lab: Path, fault: str) -> Checked:
    (steps,) = read_steps(lab / fault / "mtp.steps")
    assert steps.stopped is None
    return check(steps)


def test_every_one_has_its_invariant() -> None:
    assert BREAKS.keys() == set(bookkeeping.ALL)


@pytest.mark.parametrize("fault", BREAKS)
def test_it_is_found_at_its_step_and_row_and_nowhere_else(lab: Path, fault: str) -> None:
    due = {(one["step"], one["row"], one["request"]) for one in planted(lab / fault)}
    assert due, "nothing was planted"
    found = checked(lab, fault).violations
    places = {(one.step, one.row, one.request.engine_id) for one in found if one.invariant == BREAKS[fault]}
    every = {(one.step, one.row, one.request.engine_id) for one in found}
    if fault == "computed_off":  # and the next one does not follow from what it said
        assert due <= places
        assert {name for _, _, name in every} == {name for _, _, name in due}
        return
    assert places == due
    assert every == due
