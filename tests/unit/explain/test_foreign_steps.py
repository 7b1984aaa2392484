"""Steps and sketches of somebody else: no number in them makes memory, and a damaged file ends nothing."""

from __future__ import annotations

import base64
import dataclasses
import tracemalloc
import zlib
from pathlib import Path

import msgspec
import numpy as np
import pytest
import sketch_world
from step_world import World, changed, steps_lines

from parity.capture.problems import CaptureError
from parity.capture.sketches import read_sketches
from parity.capture.step_table import pack_block
from parity.capture.steps import RowSteps, StepsBlock, read_steps
from parity.explain.aligned import align
from parity.explain.violations import MOST_OF_EACH, check
from parity.pipeline.inside import look_inside

WORLD = World(1)
STEPS = WORLD.recorded()


def written(path: Path, of: RowSteps, **block: object) -> Path:
    header, line, *_ = steps_lines(of)
    path.write_bytes(header + msgspec.json.encode({**msgspec.json.decode(line), **block}) + b"\n")
    return path


def test_rows_whose_sum_is_right_only_when_it_overflows_are_refused(tmp_path: Path) -> None:
    packed = pack_block({"rows": np.full(4, 1 << 62), "step": np.arange(4), "request": np.zeros(0, dtype=np.int64)})
    path = written(tmp_path / "a.steps", STEPS, **packed, steps=4, rows=0)
    with pytest.raises(CaptureError, match="that no engine has"):
        read_steps(path)


def test_a_row_of_a_request_that_no_line_describes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="request 77 is of nobody"):
        read_steps(written(tmp_path / "a.steps", changed(STEPS, "request", 5, 77)))


def test_a_request_whose_number_would_make_a_table_is_refused(tmp_path: Path) -> None:
    requests = [{"number": 1 << 40}]
    with pytest.raises(CaptureError):
        read_steps(written(tmp_path / "a.steps", STEPS, requests=requests))


def test_a_file_that_unpacks_to_many_times_its_size_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    rows = 1 << 22
    data = base64.b64encode(zlib.compress(bytes(2 * rows), 9)).decode()
    line = StepsBlock(steps=1, rows=rows, columns=[("x", "<i1", rows), ("y", "<i1", rows)], data=data)
    header = next(steps_lines(STEPS))
    (tmp_path / "a.steps").write_bytes(header + msgspec.json.encode(line) + b"\n")
    tracemalloc.start()
    with pytest.raises(CaptureError, match="unpacks to more"):
        read_steps(tmp_path / "a.steps")
    assert tracemalloc.get_traced_memory()[1] < 4 << 20
    tracemalloc.stop()


def test_sketches_of_a_few_tokens_and_many_modules_take_no_more_memory_than_their_file_is_worth(tmp_path: Path) -> None:
    world = sketch_world.World(completions=2, length=12)
    header, block = sketch_world.write_sketches(tmp_path / "a.sketches", world.candidate()).read_bytes().splitlines()
    modules = [{"name": str(number), "order": number} for number in range(4096)]
    tokens = 1 << 18
    names = ("step", "row", "request", "position", "token")
    data = base64.b64encode(zlib.compress(bytes(4 * tokens * len(names)), 9)).decode()
    lines = [
        {**msgspec.json.decode(header), "modules": modules},
        {**msgspec.json.decode(block), "tokens": tokens, "columns": [[name, 1] for name in names], "data": data},
    ]
    (tmp_path / "a.sketches").write_bytes(b"".join(msgspec.json.encode(one) + b"\n" for one in lines))
    with pytest.raises(CaptureError, match="unpacks to more"):
        read_sketches(tmp_path / "a.sketches")


def test_tokens_that_a_row_says_it_computes_make_no_list_of_that_length() -> None:
    many = STEPS
    for index in range(len(STEPS)):
        many = changed(many, "scheduled", index, (1 << 24) - 1)
    tracemalloc.start()
    found = check(many, WORLD.prompts)
    assert tracemalloc.get_traced_memory()[1] < 256 << 20
    tracemalloc.stop()
    assert "inputs" in {one.invariant for one in found.violations}


def test_what_is_not_listed_is_counted() -> None:
    wrong = STEPS
    for index in range(len(STEPS)):
        wrong = changed(wrong, "index_row", index, 50)
    capture = WORLD.capture("cpu/mtp", STEPS)
    few, all_of_them = check(wrong, WORLD.prompts, most=2), check(wrong, WORLD.prompts, most=None)
    assert sum(few.broken.values()) == len({one.index for one in all_of_them.violations}) == len(STEPS)
    assert len(few.violations) < len(all_of_them.violations)
    inside = look_inside(capture, [wrong])
    assert inside.broken == len(STEPS)
    assert sum(inside.broken_of.values()) == len(STEPS)
    assert max(few.broken.values()) <= MOST_OF_EACH  # nothing of this world is cut where all is listed
    listed = {one.index for one in check(wrong, WORLD.prompts).violations}
    assert len(listed) == len(STEPS)


def test_an_invariant_that_rests_on_a_column_that_is_not_there_is_not_asked() -> None:
    without = dataclasses.replace(STEPS, columns={n: v for n, v in STEPS.columns.items() if n != "computed"})
    assert {"prefix", "inputs"} <= set(check(without, WORLD.prompts).unasked)


def test_sketches_of_nothing_are_no_error(tmp_path: Path) -> None:
    world = sketch_world.World(completions=2, length=12)
    header, _ = sketch_world.write_sketches(tmp_path / "a.sketches", world.candidate()).read_bytes().splitlines()
    (tmp_path / "a.sketches").write_bytes(header + b"\n")
    found = align(world.capture(), read_sketches(tmp_path / "a.sketches"), [world.reference()])
    assert set(found.unpaired.values()) == {"no sketches"}
