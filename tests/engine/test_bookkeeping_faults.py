"""What the engine's bookkeeping or its drafter has wrong in one row-step, planted: found there, and nowhere else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fault_lab import ENGINE, SPECULATION, planted, run_job, short_requests
from parity_backends.vllm.cpu import CpuBackend
from parity_backends.vllm.local import worker_source
from parity_faults import bookkeeping

from parity.capture import read_capture
from parity.capture.sketches import read_sketches
from parity.capture.steps import read_steps
from parity.explain.aligned import align
from parity.explain.located import Locating, locate_drafter
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
OF_DRAFTER = {"drafter_off": "drafter.model.layers.0", "drafter_input_off": "drafter.model.fc"}
"""The module that shows it first."""


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
        "sketcher": str(folder / "worker.py"),
        "captures": [
            *({"name": name, "fault": f"{name}:rate=0.1:seed=3", "sketch": False} for name in BREAKS),
            *({"name": name, "fault": f"{name}:rate=0.1:seed=3:permille=1000"} for name in OF_DRAFTER),
            {"name": "none", "fault": "none"},
        ],
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


def of_drafter(folder: Path) -> Locating:
    starts = read_sketches(folder / "mtp.sketches")
    assert [one.header.prefill for one in starts] == [False, True]
    return locate_drafter(align(read_capture(folder / "mtp.jsonl"), starts[:1], starts[1:], drafter=True))


def test_a_healthy_drafter_is_seen_and_accused_of_nothing(lab: Path) -> None:
    found = of_drafter(lab / "none")
    assert (found.judged, found.completions, found.located) == (True, 24, ())
    noise = {one.module: one for one in found.noise}
    assert noise["drafter.model.pre_fc_norm_embedding"].high == 0  # the same token: equal to the last bit
    assert 0 < noise["drafter.model.fc"].middle < 0.02


@pytest.mark.parametrize("fault", OF_DRAFTER)
def test_a_fault_of_the_drafter_is_located_at_its_module(lab: Path, fault: str) -> None:
    (steps, _) = read_sketches(lab / fault / "mtp.sketches")
    names = {one.engine_id: one.request for one in steps.requests.values()}
    due: dict[Any, int] = {}
    for one in planted(lab / fault):
        assert one["module"] == OF_DRAFTER[fault]
        due.setdefault(names[one["request"]], one["at"])
    found = of_drafter(lab / fault).located
    assert found
    assert {(one.key.request, one.module, one.position) for one in found} <= {
        (request, OF_DRAFTER[fault], at) for request, at in due.items()
    }
