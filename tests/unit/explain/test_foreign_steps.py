"""Steps and sketches of somebody else: no number in them makes memory, and a damaged file ends nothing."""

from __future__ import annotations

import base64
import dataclasses
import tracemalloc
import zlib
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest
import sketch_world
from step_world import World, changed, steps_lines

from parity.capture import room
from parity.capture.problems import CaptureError
from parity.capture.room import steps_room
from parity.capture.sketches import read_sketches
from parity.capture.step_table import Ragged, pack_block
from parity.capture.steps import RowSteps, StepRequest, StepsBlock, read_steps
from parity.explain.aligned import align
from parity.explain.drafted import drafted
from parity.explain.ledger import Ledger
from parity.explain.predicates import asked_of
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


def test_a_run_that_is_too_long_for_memory_is_refused_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path / "x.steps", STEPS)
    assert read_steps(path)
    monkeypatch.setattr(room, "MOST_NUMBERS", 100)
    with pytest.raises(CaptureError, match="record a ring"):
        read_steps(path)
    steps_room().of_a_writer().take(1 << 20, numbers=200)


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


def many_numbers(blocks: int, numbers: int) -> Iterator[bytes]:
    """Lines of blocks of one row-step each, with lists of numbers that do not pack."""
    one = np.ones(1, dtype=np.int64)
    for number in range(blocks):
        values = np.random.default_rng(number).integers(0, 128, numbers)
        columns = {"step": one + number, "rows": one, "request": one * 0, "inputs": Ragged(one * numbers, values)}
        requests = [StepRequest(number=0)]
        yield msgspec.json.encode(StepsBlock(steps=1, rows=1, requests=requests, **pack_block(columns))) + b"\n"


def test_numbers_that_do_not_pack_take_a_few_times_what_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.steps"
    path.write_bytes(next(steps_lines(STEPS)) + b"".join(many_numbers(12, 1 << 18)))
    tracemalloc.start()
    (steps,) = read_steps(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 6 * path.stat().st_size
    assert steps.lists("inputs").values.dtype == np.int64
    assert steps.lists("inputs").row(11) == np.random.default_rng(11).integers(0, 128, 1 << 18).tolist()


def test_more_numbers_of_a_column_than_can_be_asked_about_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("parity.capture.steps.MOST_OF_A_COLUMN", 3000)
    path = tmp_path / "a.steps"
    path.write_bytes(next(steps_lines(STEPS)) + b"".join(many_numbers(3, 1000)))
    assert len(read_steps(path)[0]) == 3
    path.write_bytes(next(steps_lines(STEPS)) + b"".join(many_numbers(4, 1000)))
    with pytest.raises(CaptureError, match="more than 3000 numbers of inputs"):
        read_steps(path)


@pytest.mark.parametrize("much", [{"row_steps": 5 << 20}, {"requests": 1 << 18}, {"numbers": 32 << 20}])
def test_what_takes_less_room_in_a_file_than_any_engine_s_is_refused(much: dict[str, int]) -> None:
    tried, honest = steps_room(), steps_room()
    honest.take(1 << 20, **{name: count // 8 for name, count in much.items()})
    with pytest.raises(ValueError, match="unpacks to more"):
        tried.take(1 << 20, **much)


def test_a_line_of_nothing_but_requests_is_refused(tmp_path: Path) -> None:
    requests = [{"number": number} for number in range(70_000)]
    with pytest.raises(CaptureError, match="objects in objects"):
        read_steps(written(tmp_path / "a.steps", STEPS, requests=requests))


def test_of_many_violations_each_request_keeps_its_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parity.explain.violations.MOST_LISTED", 3)
    wrong = STEPS
    for index in range(len(STEPS)):
        wrong = changed(wrong, "index_row", index, 50)
    found = [one for one in check(wrong, WORLD.prompts).violations if one.invariant == "row"]
    firsts = {int(request): index for index, request in reversed(list(enumerate(STEPS.numbers("request"))))}
    assert {one.index for one in found} >= set(firsts.values())
    assert len(found) <= len(firsts) + 3
    assert sum(check(wrong, WORLD.prompts).broken.values()) == len(STEPS)


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


@pytest.mark.parametrize("missing", sorted({*STEPS.columns} - {"rows", "step", "request"}))
def test_conditions_that_rest_on_a_column_that_is_not_there_are_not_asked(missing: str) -> None:
    columns = {**STEPS.columns, "padded": STEPS.columns["tokens"] + 1}
    without = dataclasses.replace(STEPS, columns={n: v for n, v in columns.items() if n != missing})
    assert asked_of(Ledger(without, WORLD.prompts))


@pytest.mark.parametrize("missing", sorted({*STEPS.columns} - {"rows"}))
def test_drafts_are_read_from_steps_of_any_columns(missing: str) -> None:
    without = dataclasses.replace(STEPS, columns={n: v for n, v in STEPS.columns.items() if n != missing})
    found = list(drafted(without))
    assert bool(found) is (missing not in ("request", "drafts", "handed"))
