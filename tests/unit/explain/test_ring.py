"""A ring keeps what surrounds violations, counts everything, and stays as small however long the run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from step_world import World, changed

from parity.capture.step_table import Ragged, pack_block, split_name
from parity.capture.steps import RowSteps, StepsBlock, StepsStopped, StepsSummary, read_steps
from parity.explain.ring import Limits, Ring, ringed
from parity.explain.violations import check
from parity.pipeline.inside import look_inside


def blocks(steps: RowSteps, size: int) -> Iterator[StepsBlock]:
    """As a worker sends them: whole steps, of `size` row-steps or a little more."""
    ends = np.cumsum(steps.rows)
    begin, known = 0, set[int]()
    while begin < len(steps.rows):
        before = int(ends[begin - 1]) if begin else 0
        end = min(len(steps.rows), int(np.searchsorted(ends, before + size)) + 1)
        rows = slice(before, int(ends[end - 1]))
        columns = {}
        for name, values in steps.columns.items():
            part = slice(begin, end) if split_name(name)[0].level == "step" else rows
            columns[name] = values.take(part) if isinstance(values, Ragged) else values[part]
        numbers = set(columns["request"].tolist()) - known
        known |= numbers
        packed = pack_block(columns)
        yield StepsBlock(
            steps=end - begin,
            rows=rows.stop - rows.start,
            requests=[steps.requests[number] for number in sorted(numbers)],
            columns=packed["columns"],
            data=packed["data"],
        )
        begin = end


def kept(world: World, steps: RowSteps, size: int, limits: Limits, path: Path) -> tuple[RowSteps, ...]:
    """What a file of the ring has."""
    lines = ringed(steps.header, list(blocks(steps, size)), world.prompts, limits)
    path.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    return read_steps(path)


def summed(starts: Sequence[RowSteps]) -> StepsSummary:
    (found,) = [one.summary for one in starts if one.summary is not None]
    return found


def places(steps: RowSteps, world: World) -> set[tuple[int, int, str]]:
    return {(one.step, one.row, one.invariant) for one in check(steps, world.prompts).violations}


def planted(steps: RowSteps, seed: int, count: int) -> RowSteps:
    for index in np.random.default_rng(seed).choice(len(steps), count, replace=False).tolist():
        steps = changed(steps, "kept", index, int(steps.numbers("kept")[index]) + 1)
    return steps


@settings(deadline=None, max_examples=15)
@given(
    seed=st.integers(0, 10**6), size=st.integers(1, 90), last=st.integers(0, 300), checked=st.integers(1, 200),
    count=st.integers(0, 4),
)  # fmt: skip
def test_it_counts_what_a_whole_file_would_and_keeps_every_violation(
    tmp_path_factory: pytest.TempPathFactory, seed: int, size: int, last: int, checked: int, count: int
) -> None:
    world = World(seed, steps=60)
    steps = planted(world.recorded(), seed, count)
    whole = check(steps, world.prompts)
    starts = kept(world, steps, size, Limits(last, 10**6, checked), tmp_path_factory.mktemp("ring") / "a.steps")
    counted = summed(starts)
    assert (counted.row_steps, counted.steps) == (len(steps), len(steps.rows))
    assert counted.asked == whole.asked
    assert counted.broken == len({one.index for one in whole.violations})
    assert set().union(*(places(one, world) for one in starts)) == places(steps, world)
    assert counted.kept == sum(map(len, starts))
    assert not counted.let_go


def test_however_long_the_run_the_file_is_as_small(tmp_path: Path) -> None:
    """A request that was preempted waits for long in this world: of it no more is asked."""
    sizes = []
    for steps_of in (200, 1200):
        world = World(3, steps=steps_of, budget=200)
        steps = world.recorded()
        limits = Limits(last=200, checked=100, held=300)
        ring = Ring(steps.header, world.prompts, limits)
        for block in blocks(steps, 20):
            ring.add(block)
            assert sum(one.block.rows for one in ring._held) < 700
        starts = kept(world, steps, 20, limits, tmp_path / f"{steps_of}.steps")
        assert 0.95 * len(steps) < summed(starts).row_steps <= len(steps)
        assert not summed(starts).broken
        assert sum(map(len, starts)) < 400
        sizes.append((tmp_path / f"{steps_of}.steps").stat().st_size)
    assert sizes[1] < 1.3 * sizes[0]


def test_where_everything_breaks_the_first_is_kept_and_the_rest_counted(tmp_path: Path) -> None:
    world = World(5, steps=600, budget=200)
    steps = planted(world.recorded(), 5, 150)
    starts = kept(world, steps, 20, Limits(last=100, broken=400, checked=50), tmp_path / "a.steps")
    counted = summed(starts)
    there = set().union(*(places(one, world) for one in starts))
    assert counted.broken == 150
    assert counted.let_go == 150 - len({one[:2] for one in there})
    assert 0 < counted.let_go < 150
    assert sum(map(len, starts)) < 700
    assert min(places(steps, world)) in there


def test_what_cannot_be_known_of_a_stretch_is_not_asked(tmp_path: Path) -> None:
    """Its first steps hold requests that began before: their own past is not there."""
    world = World(8, steps=300, budget=200)
    steps = world.recorded()
    (last,) = [one for one in kept(world, steps, 10, Limits(last=60, checked=30), tmp_path / "a.steps") if len(one)]
    assert last.header.kept == "ring"
    found = check(last, world.prompts)
    assert found.violations == ()
    assert 0 < found.row_steps < len(last)


def test_a_verdict_states_the_bound_over_all_row_steps(tmp_path: Path) -> None:
    world = World(9, steps=200, budget=200)
    steps = world.recorded()
    inside = look_inside(world.capture("cpu/mtp", steps), kept(world, steps, 20, Limits(60, 10**6, 30), tmp_path / "a"))
    assert inside.row_steps == len(steps)
    assert len(inside.asked) == len(check(steps, world.prompts).asked)
    assert not inside.broken


def test_a_recorder_that_gave_up_is_still_said(tmp_path: Path) -> None:
    world = World(1, steps=30)
    steps = world.recorded()
    lines = [*blocks(steps, 20), StepsStopped(step=29, why="lost")]
    found = list(ringed(steps.header, lines, world.prompts, Limits()))
    assert [one.why for one in found if isinstance(one, StepsStopped)] == ["lost"]
