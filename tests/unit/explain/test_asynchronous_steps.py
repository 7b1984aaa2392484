"""Steps of vllm-ascend 0.23.0 on an emulated NPU under asynchronous scheduling: MTP with three drafts, a hybrid model,
requests that come, go, are aborted and preempted. `benchmarks/emulated_faults.py 13863` recorded them: as released, and
with the mend of vllm-ascend#13863 taken out. And steps of vLLM 0.32.0's second model runner (`cpu-v2`, the tiny
`qwen3_next` with random weights, two drafts, prompts in pieces of 128 tokens and a prefix cache), by `parity run`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
from step_world import changed

from parity.capture.step_table import NOTHING, Ragged
from parity.capture.steps import RowSteps, read_steps
from parity.explain.ledger import Ledger
from parity.explain.violations import check

DATA = Path(__file__).parents[2] / "data" / "asynchronous"


def steps_of(name: str) -> RowSteps:
    (found,) = read_steps(DATA / f"{name}.steps")
    return found


@pytest.fixture(scope="module")
def released() -> RowSteps:
    return steps_of("released")


def test_a_sound_engine_breaks_nothing(released: RowSteps) -> None:
    ledger, checked = Ledger(released), check(released)
    assert checked.violations == ()
    assert set(checked.unasked) == {"computed", "sampler_drafts", "kept", "buffer"}
    assert ledger.dropped.any(), "tokens of requests that had ended"
    assert (released.numbers("arrival") == 2).any(), "preempted requests"
    assert (released.numbers("computed") > ledger.computed).any(), "drafts that counted as accepted"
    assert ledger.without_drafts.any(), "requests that missed a step"


def test_it_is_known_how_the_engine_schedules(released: RowSteps) -> None:
    """By what it says of itself: the same steps of a synchronous engine would be wrong."""
    said = msgspec.structs.replace(released.header, asynchronous=False)
    broken = check(replace(released, header=said)).violations
    assert {"given", "end", "drafts"} <= {one.invariant for one in broken}


def test_the_fault_is_named() -> None:
    """A row that has moved gets another row's accepted count: three texts of 64 differ, 14 row-steps had it."""
    broken = check(steps_of("13863")).violations
    assert {one.invariant for one in broken} == {"accepted"}
    assert len(broken) == 14


def spoilt(steps: RowSteps, name: str, where: np.ndarray) -> tuple[RowSteps, int]:
    rows = np.flatnonzero(where & (steps.lists(name).counts > 0))
    row = int(rows[len(rows) // 2])
    return changed(steps, name, row, [*steps.lists(name).row(row)[:-1], 1999]), row


@pytest.mark.parametrize(
    ("name", "invariant"),
    [("drafts", "drafts"), ("inputs", "inputs"), ("given", "given"), ("sampled", "handed"), ("chosen", "chosen")],
)
def test_a_wrong_token_is_found(released: RowSteps, name: str, invariant: str) -> None:
    ledger = Ledger(released)
    where = ledger.running & ~ledger.dropped & ~ledger.without_drafts & (ledger.emitted > 0)
    where &= released.numbers("finish") == NOTHING
    wrong, row = spoilt(released, name, where)
    assert (invariant, row) in {(one.invariant, one.index) for one in check(wrong).violations}


def test_a_wrong_place_is_found(released: RowSteps) -> None:
    row = int(np.flatnonzero(Ledger(released).running)[40])
    for name, invariant in (("position", "position"), ("sequence_length/0", "sequence_length")):
        wrong = changed(released, name, row, int(released.numbers(name)[row]) + 1)
        assert (invariant, row) in {(one.invariant, one.index) for one in check(wrong).violations}


def test_lists_of_another_length_are_no_placeholders(released: RowSteps) -> None:
    row = int(np.flatnonzero(Ledger(released).without_drafts)[0])
    for wrong in ([], released.lists("inputs").row(row)[:1], [*released.lists("inputs").row(row), 5]):
        broken = check(changed(released, "inputs", row, wrong)).violations
        assert {(one.invariant, one.index) for one in broken} == {("inputs", row)}
    nothing = Ragged(np.zeros(len(released), dtype=np.int64), np.zeros(0, dtype=np.int64))
    assert check(replace(released, columns={**released.columns, "inputs": nothing})).violations


@pytest.fixture(scope="module")
def second_runner() -> RowSteps:
    return steps_of("second-runner")


def pieces(steps: RowSteps) -> np.ndarray:
    return steps.lists("sampled").counts == 0


def test_a_sound_second_runner_breaks_nothing(second_runner: RowSteps) -> None:
    ledger, checked = Ledger(second_runner), check(second_runner)
    assert checked.violations == ()
    assert set(checked.unasked) == {"computed"}
    assert second_runner.header.asynchronous
    assert ledger.dropped.any(), "tokens of requests that had ended"
    assert pieces(second_runner).any(), "prompts in pieces"
    assert set(second_runner.numbers("kept")[pieces(second_runner)].tolist()) == {1}


@pytest.mark.parametrize("of_a_piece", [True, False])
def test_another_count_of_accepted_tokens_is_found(second_runner: RowSteps, of_a_piece: bool) -> None:
    row = int(np.flatnonzero(pieces(second_runner) == of_a_piece)[2])
    wrong = changed(second_runner, "kept", row, int(second_runner.numbers("kept")[row]) + 1)
    assert ("kept", row) in {(one.invariant, one.index) for one in check(wrong).violations}
