"""The steps that a worker sends lie beside its capture, through deaths and replicas."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
from backend import FaultyBackend
from plans import fake_plan

from parity.capture import read_capture
from parity.capture.sealing import sealed
from parity.capture.step_table import pack_block
from parity.capture.steps import StepRequest, StepsBlock, read_steps, steps_path
from parity.errors import BackendError, ParityError
from parity.pipeline.capturing import anew
from parity.plan import Plan
from parity.plan.hosts import Host
from parity.records import Key
from parity.run import RefusedFile, Timeouts, run_arm
from parity.run.beside import LEAST_ROWS


def run(plan: Plan, capture: Path, backend: FaultyBackend, quick: Timeouts, **extra: object) -> None:
    log = capture.parent / "a.log"
    with run_arm(plan, "fake/base", capture, log, backend=backend, timeouts=quick, **extra) as session:  # type: ignore[arg-type]
        session.generate()


def test_nothing_is_recorded_unasked(tmp_path: Path, backend: FaultyBackend, quick: Timeouts) -> None:
    run(fake_plan(), tmp_path / "a.jsonl", backend, quick)
    assert not steps_path(tmp_path / "a.jsonl").exists()


def test_steps_lie_beside_the_capture(tmp_path: Path, backend: FaultyBackend, quick: Timeouts) -> None:
    capture = tmp_path / "a.jsonl"
    run(replace(fake_plan(rounds=3), record=True), capture, backend, quick)
    (steps,) = read_steps(steps_path(capture))
    assert (steps.header.arm, len(steps)) == ("fake/base", 3)
    assert steps.requests[0].key == Key("p0", 0, 0)
    assert len(read_capture(capture).completions) == 12


def test_a_run_that_goes_on_adds_to_them(tmp_path: Path, backend: FaultyBackend, quick: Timeouts) -> None:
    capture = tmp_path / "a.jsonl"
    with pytest.raises(BackendError):
        run(replace(fake_plan("die before footer"), record=True), capture, backend, quick)
    with steps_path(capture).open("ab") as file:
        file.write(b'{"record":"steps","cut off')
    run(replace(fake_plan(""), record=True), capture, backend, quick, resume=True)
    assert [len(one) for one in read_steps(steps_path(capture))] == [1, 1]


def test_replicas_keep_their_own(tmp_path: Path, backend: FaultyBackend, quick: Timeouts) -> None:
    capture = tmp_path / "a.jsonl"
    host = Host("fake", "fake", replicas=2)
    run(replace(fake_plan(rounds=2), record=True), capture, backend, quick, host=host)
    assert sorted((one.header.replica, len(one)) for one in read_steps(steps_path(capture))) == [(0, 2), (1, 2)]


def test_a_ring_counts_the_steps_of_every_round(tmp_path: Path, backend: FaultyBackend, quick: Timeouts) -> None:
    capture = tmp_path / "a.jsonl"
    run(replace(fake_plan(rounds=3), record="ring"), capture, backend, quick)
    starts = read_steps(steps_path(capture))
    assert {one.header.kept for one in starts} == {"ring"}
    (counted,) = [one.summary for one in starts if one.summary]
    assert (counted.row_steps, counted.kept, sum(map(len, starts))) == (3, 3, 3)


def test_a_ring_goes_on_after_a_death(tmp_path: Path, backend: FaultyBackend, quick: Timeouts) -> None:
    capture = tmp_path / "a.jsonl"
    with pytest.raises(BackendError):
        run(replace(fake_plan("die before footer"), record="ring"), capture, backend, quick)
    run(replace(fake_plan(""), record="ring"), capture, backend, quick, resume=True)
    assert [one.summary.row_steps for one in read_steps(steps_path(capture)) if one.summary] == [1, 1]


def test_replicas_have_a_ring_each(tmp_path: Path, backend: FaultyBackend, quick: Timeouts) -> None:
    capture = tmp_path / "a.jsonl"
    host = Host("fake", "fake", replicas=2)
    run(replace(fake_plan(rounds=2), record="ring"), capture, backend, quick, host=host)
    counted = [one.summary for one in read_steps(steps_path(capture)) if one.summary]
    assert sorted((one.replica, one.row_steps) for one in counted) == [(0, 2), (1, 2)]


def rows(count: int, request: int = 0) -> bytes:
    """A block of so many row-steps of one request."""
    zeros = np.zeros(count, dtype=np.int64)
    packed = pack_block({"step": zeros[:1], "rows": zeros[:1] + count, "request": zeros + request})
    requests = [StepRequest(number=0)]
    return sealed(msgspec.json.encode(StepsBlock(steps=1, rows=count, requests=requests, **packed)) + b"\n")


LEFT: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "more rows than the plan gives": (lambda text: text + rows(LEAST_ROWS) * 2, "more steps or sketches than"),
    "rows of nobody": (lambda text: text + rows(3, request=77), "request 77 is of nobody"),
    "no JSON": (lambda text: text + sealed(b'{"record":"x"}\n'), "not a line of a steps file"),
    "no header": (lambda text: text.split(b"\n", 1)[1], "before their header"),
    "a changed byte": (lambda text: text.replace(b'"rows":', b'"rowz":', 1), "checksum"),
}  # fmt: skip


@pytest.mark.parametrize("record", ["all", "ring"])
@pytest.mark.parametrize("name", LEFT)
def test_what_an_earlier_attempt_left_is_checked_again_and_put_aside(
    name: str, record: str, tmp_path: Path, backend: FaultyBackend, quick: Timeouts
) -> None:
    capture, (change, why) = tmp_path / "a.jsonl", LEFT[name]
    with pytest.raises(BackendError):
        run(replace(fake_plan("die before footer"), record=record), capture, backend, quick)
    beside = steps_path(capture)
    beside.write_bytes(change(beside.read_bytes()))
    left, starts, said = beside.read_bytes(), backend.starts, []
    plan = replace(fake_plan(""), record=record)
    with pytest.raises(RefusedFile, match=why):
        run(plan, capture, backend, quick, resume=True)
    assert backend.starts == starts
    anew(lambda: run(plan, capture, backend, quick, resume=True), lambda line: said.append(str(line)))
    assert beside.with_name(beside.name + ".refused").read_bytes() == left
    assert sum(len(one) for one in read_steps(beside)) == 1
    assert len(read_capture(capture).completions) == 4
    assert [why in line for line in said] == [True]


def test_a_pipe_in_the_place_of_steps_holds_no_resume_up(
    tmp_path: Path, backend: FaultyBackend, quick: Timeouts
) -> None:
    capture = tmp_path / "a.jsonl"
    with pytest.raises(BackendError):
        run(replace(fake_plan("die before footer"), record=True), capture, backend, quick)
    steps_path(capture).unlink()
    os.mkfifo(steps_path(capture))
    with pytest.raises(ParityError, match="a pipe or a device"):
        run(replace(fake_plan(""), record=True), capture, backend, quick, resume=True)
