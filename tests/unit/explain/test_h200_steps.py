"""Steps recorded on an NVIDIA H200: vLLM 0.23.0, asynchronous scheduling, two drafts (docs/what-has-run.md).

A small `deepseek_v3` with random weights and a repetition penalty, 128 completions, on two attention backends; and a
`mimo`, 256 completions, on the second model runner with compilation and full graphs, in process and in one of its own.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from parity.capture.steps import RowSteps, read_steps
from parity.explain.violations import check
from parity.view.why import explained

DATA = Path(__file__).parents[2] / "data" / "h200"


def steps_of(name: str) -> RowSteps:
    (found,) = read_steps(DATA / f"{name}.steps")
    return found


def test_lengths_that_count_rejected_drafts_are_found_on_a_gpu() -> None:
    """TRITON_MLA decodes single tokens alone: a real fault of that release (reports/async-mla)."""
    steps = steps_of("triton-mla")
    checked = check(steps)
    assert {one.invariant for one in checked.violations} == {"sequence_length"}
    assert sum(checked.broken.values()) == 122
    assert all(one.found > one.expected for one in checked.violations)
    found = explained("cuda/triton-mla", (steps,), {}, {}).associated
    assert (found.faults, found.sure) == (74, True)
    assert (found.ranked[0].names, found.ranked[0].with_fault) == (("rejected",), 74)


@pytest.mark.parametrize(
    ("name", "row_steps", "unasked"),
    [
        (
            "flash-mla",
            2344,
            {"computed", "path", "accepted", "state_slot", "first_state", "split", "sampler_drafts", "kept", "buffer"},
        ),
        ("v2-async-full", 4641, {"computed", "path", "accepted", "state_slot", "first_state", "split", "kept"}),
        (
            "v2-deployed",
            4636,
            {"computed", "path", "accepted", "state_slot", "first_state", "split", "given", "kept", "end"},
        ),
    ],
)
def test_sound_engines_break_nothing_on_a_gpu(name: str, row_steps: int, unasked: set[str]) -> None:
    checked = check(steps_of(name))
    assert checked.violations == ()
    assert checked.row_steps == row_steps
    assert set(checked.unasked) - {"state_kept", "kv_kept"} == unasked
