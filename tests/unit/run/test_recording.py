"""The steps that a worker sends lie beside its capture, through deaths and replicas."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from backend import FaultyBackend
from plans import fake_plan

from parity.capture import read_capture
from parity.capture.steps import read_steps, steps_path
from parity.errors import BackendError
from parity.plan import Plan
from parity.plan.hosts import Host
from parity.records import Key
from parity.run import Timeouts, run_arm


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
