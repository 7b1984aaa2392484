"""A process of its own packs the same blocks as a thread does, and its end is the end of the recording alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from parity_backends.vllm.local import worker_source
from step_world import World

from tests.unit.backends.test_step_sight import said_by, sights, steps_of


@pytest.fixture(scope="module")
def worker() -> ModuleType:
    module = ModuleType("worker_that_packs")
    exec(compile(worker_source(), "worker.py", "exec"), module.__dict__)
    return module


@pytest.fixture
def apart(worker: ModuleType) -> Iterator[Any]:
    packing = worker.PackingApart()
    yield packing
    packing.end()


def seen(worker: ModuleType, seed: int) -> list[Any]:
    """What a recorder hands over of a run, tables of blocks and all."""
    world = World(seed)
    steps = world.recorded()
    found = sights(worker, world, steps)
    for number, (sight, rows) in enumerate(zip(found, steps_of(steps), strict=True)):
        sight.said, sight.finished = [said_by(worker, steps, number, rows)[0]], []
        sight.said[0].computed[:] = [
            int(steps.numbers("computed")[row]) for row in rows if steps.numbers("arrival")[row] != 1
        ]
        sight.lists = {name: worker.Ragged(*lists) for name, lists in sight.lists.items()}
        sight.held["given"] = worker.held([[1, number]] * len(rows))
        sight.numbers["kept"] = [*map(np.int64, sight.numbers["kept"])]  # numpy's numbers in a list
        sight.groups[0]["table"] = np.asfortranarray(np.full((len(rows), 5), number, dtype=np.int32))
    return found


def blocks(packing: Any, worker: ModuleType, seed: int, cuts: list[int]) -> list[Any]:
    """The same steps by one who packs, in blocks that end at the cuts."""
    packing.begin(1)
    every = seen(worker, seed)
    return [packing.pack(every[begin:end]) for begin, end in zip([0, *cuts], [*cuts, len(every)], strict=True)]


@pytest.mark.parametrize("seed", range(6))
def test_blocks_are_those_that_a_thread_makes(
    worker: ModuleType, apart: Any, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether all steps have room or not, and in one file after another."""
    cuts = sorted(np.random.default_rng(seed).choice(np.arange(1, 20), 3, replace=False).tolist())
    due = blocks(worker.PackingInThread(), worker, seed, cuts)
    assert all(block["rows"] > 0 and error is None for block, error in due)
    assert due[0][0]["requests"]
    for room in (worker.ROOM, 9000, 0):
        monkeypatch.setitem(vars(worker), "ROOM", room)
        assert blocks(apart, worker, seed, cuts) == due


@pytest.mark.parametrize("number", [0, 7])
def test_a_step_that_is_no_use_ends_the_block_and_says_why(worker: ModuleType, apart: Any, number: int) -> None:
    said = []
    for packing in (worker.PackingInThread(), apart):
        every = seen(worker, 1)
        every[number].said[-1].scheduled.clear()
        packing.begin(1)
        block, error = packing.pack(every)
        said.append((block, str(error)))
    (block, why), (same, where) = said
    assert (block, f"RuntimeError: {why}") == (same, where)
    assert (block is None) == (number == 0)


@pytest.mark.parametrize("thing", [object(), np.array([object()]), [object()], {"a": {1}}])
def test_what_cannot_be_handed_over_is_refused(worker: ModuleType, thing: Any) -> None:
    with pytest.raises(TypeError, match="cannot be handed"):
        worker.as_plain(thing)


def test_a_recorder_whose_packing_is_killed_says_so(worker: ModuleType, apart: Any) -> None:
    lines: list[Any] = []
    held = worker.StepBlocks(lines.append, lambda columns: {"record": "steps_header"}, 1, apart)
    every = seen(worker, 2)
    for sight in every[:5]:
        held.add(sight)
    held.close(wait=True)
    os.kill(apart.process.pid, signal.SIGKILL)
    for sight in every[5:]:
        held.add(sight)
    with pytest.raises(worker.Unpackable, match=r"has ended \(exit code -9\)"):
        held.close(wait=True)
    assert [one["record"] for one in lines] == ["steps_header", "steps"]


def test_it_does_not_outlive_the_engines_process(tmp_path: Path) -> None:
    (tmp_path / "worker.py").write_bytes(worker_source())
    starts = "import os, worker; print(worker.PackingApart().process.pid, flush=True); os.kill(os.getpid(), 9)"
    made = subprocess.run([sys.executable, "-c", starts], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert made.returncode == -9, made.stderr
    until, there = time.monotonic() + 60, Path(f"/proc/{int(made.stdout)}")
    while there.exists() and "Z" not in (there / "stat").read_text().rpartition(")")[2][:3]:
        assert time.monotonic() < until
