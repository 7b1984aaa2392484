"""What a worker says of steps: no more than the plan gives, in order; a recorder that gives up ends nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
from plans import fake_plan
from step_world import World, steps_lines

from parity.capture.problems import CaptureError
from parity.capture.step_table import Ragged, pack_block
from parity.capture.steps import StepRequest, StepsBlock, StepsHeader, StepsStopped, read_steps
from parity.explain.ring import NUMBERS_OF_A_ROW, Limits, Ring
from parity.run.beside import LEAST_BYTES, LEAST_UNPACKED, StepsAllowed
from parity.run.messages import ProtocolError
from parity.run.ringing import RingFile

WORLD = World(1)
HEADER, BLOCK, *_ = steps_lines(WORLD.recorded())
PLAN = replace(fake_plan(), record="ring")


def header() -> StepsHeader:
    return msgspec.json.decode(HEADER, type=StepsHeader)


def block() -> StepsBlock:
    return msgspec.json.decode(BLOCK, type=StepsBlock)


def test_more_than_the_tokens_of_the_plan_give_is_refused() -> None:
    small, large = StepsAllowed(PLAN), StepsAllowed(replace(PLAN, rounds=1000))
    for _ in range(4):
        small.take(header(), LEAST_BYTES // 4)
        large.take(header(), LEAST_BYTES // 4)
    with pytest.raises(ProtocolError, match="more steps or sketches"):
        small.take(header(), LEAST_BYTES // 4)
    large.take(header(), LEAST_BYTES // 4)


def test_what_packs_better_than_any_engine_s_is_refused() -> None:
    allowed = StepsAllowed(PLAN)
    allowed.take(block(), len(BLOCK))
    with pytest.raises(ValueError, match="unpacks to more"):
        allowed.take(msgspec.structs.replace(block(), columns=[("step", "<i1", LEAST_UNPACKED // 16)]), len(BLOCK))


def test_a_recorder_that_gives_up_before_its_first_block_ends_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.steps"
    file = RingFile(path, keep_bytes=0, plan=PLAN)
    file.add(StepsStopped(step=1, why="KeyError: 'x'"), 0)
    file.pause(0)
    file.end()
    file.close()
    with pytest.raises(CaptureError, match="gave up in its first steps: KeyError: 'x'"):
        read_steps(path)


def test_a_ring_takes_its_lines_in_order(tmp_path: Path) -> None:
    file = RingFile(tmp_path / "a.steps", keep_bytes=0, plan=PLAN)
    with pytest.raises(ProtocolError, match="before their header"):
        file.add(block(), 0)
    file.add(header(), 0)
    with pytest.raises(ProtocolError, match="begin twice"):
        file.add(header(), 0)
    file.close()


def one_row(length: int) -> StepsBlock:
    """A block of one row-step, with a list of so many numbers."""
    one, values = np.zeros(1, dtype=np.int64), np.zeros(length, dtype=np.int64)
    columns = {"rows": one + 1, "step": one, "request": one, "inputs": Ragged(one + length, values)}
    return StepsBlock(steps=1, rows=1, requests=[StepRequest(number=0)], **pack_block(columns))


def test_a_block_of_long_lists_counts_as_more_rows() -> None:
    def kept(length: int) -> int:
        ring = Ring(header(), WORLD.prompts, Limits(last=20, checked=2, held=20))
        for _ in range(100):
            ring.add(one_row(length))
        return len([one for one in ring.rest(whole=True) if isinstance(one, StepsBlock)])

    assert kept(1) >= 20
    assert kept(10 * NUMBERS_OF_A_ROW) <= 6


def test_blocks_of_no_rows_are_let_go() -> None:
    nothing = np.zeros(0, dtype=np.int64)
    empty = StepsBlock(steps=0, rows=0, **pack_block({"rows": nothing, "step": nothing, "request": nothing}))
    ring = Ring(header(), WORLD.prompts, Limits(last=10, checked=5))
    for _ in range(200):
        ring.add(empty)
    assert len([one for one in ring.rest(whole=True) if isinstance(one, StepsBlock)]) < 20
