"""The steps file: what is written is what is read, in few bytes, and a damaged file says where."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from step_world import World, steps_lines

from parity.capture.problems import CaptureError
from parity.capture.step_table import (
    COLUMN_BY_NAME,
    MAX_BLOCK_VALUES,
    Ragged,
    in_smallest,
    pack_block,
    same_lists,
    smallest,
    unpack_block,
)
from parity.capture.steps import RowSteps, read_steps, steps_path

DOCS = Path(__file__).resolve().parents[2] / "docs" / "steps-file.md"


def written(path: Path, steps: RowSteps) -> Path:
    path.write_bytes(b"".join(steps_lines(steps)))
    return path


def equal(a: object, b: object) -> bool:
    if isinstance(a, Ragged) and isinstance(b, Ragged):
        return bool(np.array_equal(a.counts, b.counts) and np.array_equal(a.values, b.values))
    return bool(np.array_equal(a, b))  # type: ignore[arg-type]


def test_read_is_what_was_written(tmp_path: Path) -> None:
    steps = World(1).recorded()
    (read,) = read_steps(written(tmp_path / "a.steps", steps))
    assert read.header == steps.header
    assert read.requests == steps.requests
    assert read.columns.keys() == steps.columns.keys()
    assert all(equal(read.columns[name], steps.columns[name]) for name in steps.columns)


LISTS = st.lists(st.lists(st.integers(-(2**31), 2**31 - 1), max_size=3), max_size=8)


EDGES = st.sampled_from([sign * (1 << bits) + off for bits in (7, 15, 31, 53) for sign in (-1, 1) for off in (-1, 0)])


@settings(deadline=None, max_examples=100)
@given(parts=st.lists(st.lists(st.integers(-2, 2) | EDGES, max_size=4), min_size=1, max_size=6))
def test_arrays_together_take_the_integers_that_each_takes(parts: list[list[int]]) -> None:
    arrays = [np.array(part, dtype=np.int64) for part in parts]
    kinds, data = in_smallest(arrays)
    assert kinds == [smallest(one).dtype.str for one in arrays]
    assert data == b"".join(smallest(one).tobytes() for one in arrays)


@settings(deadline=None, max_examples=50)
@given(mine=LISTS, also=st.integers(0, 255))
def test_lists_like_others_come_back(mine: list[list[int]], also: int) -> None:
    """Those equal to the other column's (a bit of `also` each) take no values."""
    other = [one if also >> at & 1 else [*one, 7] for at, one in enumerate(mine)]

    def ragged(lists: list[list[int]]) -> Ragged:
        flat = [value for one in lists for value in one]
        return Ragged(np.array([len(one) for one in lists], dtype=np.int64), np.array(flat, dtype=np.int64))

    columns = {"handed": ragged(other), "sampled": ragged(mine)}  # in any order
    packed = pack_block(columns)
    entries = {name: count for name, _, count in packed["columns"]}
    differ = [one for one, two in zip(other, mine, strict=True) if one != two]
    assert entries["handed"] == sum(map(len, differ))
    read = unpack_block(packed["columns"], packed["data"])
    assert all(equal(read[name], columns[name]) for name in columns)
    assert same_lists(read["sampled"], read["handed"]).tolist() == [a == b for a, b in zip(mine, other, strict=True)]


def test_several_starts_and_a_cut_off_line(tmp_path: Path) -> None:
    lines = [*steps_lines(World(1).recorded()), *steps_lines(World(2).recorded())]
    path = tmp_path / "a.steps"
    path.write_bytes(b"".join(lines) + lines[-1][:100])
    assert [len(one) for one in read_steps(path)] == [len(World(seed).recorded()) for seed in (1, 2)]


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (lambda lines: [lines[1]], "line 1: steps before any header"),
        (lambda lines: [lines[0].replace(b"steps/1", b"steps/9")], "parity.steps/9"),
        (lambda lines: [lines[0], lines[1].replace(b'"rows":', b'"rows":1')], "line 2: a damaged block"),
        (lambda lines: [lines[0], re.sub(rb'"data":"....', b'"data":"AAAA', lines[1])], "line 2: a damaged block"),
        (lambda lines: [lines[0], b'{"record":"completion"}\n'], "line 2: not a line of a steps file"),
    ],
)
def test_a_damaged_file_says_where(tmp_path: Path, broken: object, said: str) -> None:
    path = tmp_path / "a.steps"
    path.write_bytes(b"".join(broken(list(steps_lines(World(1).recorded())))))  # type: ignore[operator]
    with pytest.raises(CaptureError, match=said):
        read_steps(path)


def test_the_file_lies_beside_its_capture() -> None:
    for name in ("cpu-mtp.jsonl", "cpu-mtp.jsonl.gz"):
        assert steps_path(Path("run") / name) == Path("run/cpu-mtp.steps")


def test_every_column_is_documented() -> None:
    text = DOCS.read_text(encoding="utf-8")
    for name, column in COLUMN_BY_NAME.items():
        assert re.search(rf"`{name}`", text), name
        if column.like:
            assert re.search(rf"`{name}` \(like `{column.like}`\)", text), name


def test_a_block_that_claims_more_than_a_recorder_writes_is_refused_unopened() -> None:
    claimed = [["step", "|i1", MAX_BLOCK_VALUES // 2], ["rows", "|i1", MAX_BLOCK_VALUES // 2 + 1]]
    with pytest.raises(ValueError, match="more than"):
        unpack_block(claimed, "not even base64")
