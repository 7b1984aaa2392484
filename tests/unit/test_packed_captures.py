"""Large captures, kept as columns: the same captures, and the same comparison."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parity.capture import CaptureError, decimals, read, read_capture
from parity.capture.keys import Keys
from parity.capture.rows import Packed
from parity.capture.spill import Spill
from parity.capture.streams import Column, Narrow, Wide
from parity.comparator import compare
from parity.comparator.inputs.own_lists import as_natural_logs
from parity.records import Capture, Completion, Key, RaggedTokens, TopLogprobs, first_asked
from tests.unit.test_capture_beside import arm_of, arms, said_by, written


@contextmanager
def packed() -> Iterator[None]:
    """All captures are large."""
    before = read.PACKED_FROM, read.LISTS_PACKED_FROM
    read.PACKED_FROM = read.LISTS_PACKED_FROM = 0  # type: ignore[misc]
    try:
        yield
    finally:
        read.PACKED_FROM, read.LISTS_PACKED_FROM = before  # type: ignore[misc]


def looks(capture: Capture) -> list[object]:
    """What checks ask of a whole capture."""
    return [
        capture.finish_reasons,
        [one.key for one in capture.stopped],
        capture.has_logprobs,
        capture.has_texts,
        [one.key for one in capture.answers],
        capture.own_sampling,
        capture.aborted,
        [(name, prompt.tolist()) for name, prompt in first_asked([capture])],
        list(capture.column("finish_reason")),
        list(capture.column("line")),
    ]


@given(arms())
def test_a_packed_capture_is_the_same(made: tuple[list[Completion], list[Completion]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        one = written(Path(name) / "base.jsonl", "a/base", made[0])
        other = written(Path(name) / "mtp.jsonl", "a/mtp", made[1])
        first, second = read_capture(one), read_capture(other)
        with packed():
            mine = read_capture(one)
            theirs = read_capture(other, beside=mine)
        assert isinstance(mine.completions, Packed)
        assert isinstance(theirs.completions, Packed)
        for plain, columns in ((first, mine), (second, theirs)):
            assert said_by(columns) == said_by(plain)
            assert looks(columns) == looks(plain)
            for key in plain.completions:
                assert columns.completions[key].key == key
            assert Key("nobody", 0, 0) not in columns.completions
        assert compare(mine, theirs).to_json() == compare(first, second).to_json()
        assert dict(compare(mine, theirs).classes) == dict(compare(first, second).classes)


@given(arms(), st.data())
def test_what_is_changed_is_another(made: tuple[list[Completion], list[Completion]], data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as name:
        one = written(Path(name) / "base.jsonl", "a/base", made[0])
        other = written(Path(name) / "mtp.jsonl", "a/mtp", made[1])
        plain = read_capture(other)
        with packed():
            capture = read_capture(other, beside=read_capture(one))
    for _ in range(2):
        some = data.draw(st.lists(st.sampled_from(list(plain.keys)), unique=True)) if plain.keys else []
        changed = {
            key: replace(plain.completions[key], token_ids=plain.completions[key].token_ids[:-1], finish_reason="stop")
            for key in some
        }
        capture, plain = capture.but(changed), plain.but(changed)
        assert said_by(capture) == said_by(plain)
        assert looks(capture) == looks(plain)


def test_an_equal_arm_takes_no_tokens(tmp_path: Path) -> None:
    with packed():
        first = read_capture(written(tmp_path / "base.jsonl", "a/base", arm_of(9)))
        second = read_capture(written(tmp_path / "mtp.jsonl", "a/mtp", arm_of(9)), beside=first)
    assert second.tokens is first.tokens
    assert second.prompts is first.prompts
    assert second.keys is first.keys
    assert first.tokens.flat.dtype == np.int32
    assert isinstance(second.completions, Packed)
    apart = second.completions.aside(first.completions)  # type: ignore[arg-type]
    assert apart is not None
    assert apart.tolist() == []


def test_ids_beyond_int32_are_kept(tmp_path: Path) -> None:
    made = arm_of(3)
    made[1] = replace(made[1], token_ids=np.array([5, 1 << 40, -3]))
    with packed():
        found = read_capture(written(tmp_path / "base.jsonl", "a/base", made))
    assert [one.token_ids.tolist() for one in found] == [one.token_ids.tolist() for one in made]
    assert found.tokens.beyond(999) == [1]
    assert found.tokens.largest == (1 << 64) - 3


MOST_MEMORY = 256 << 20
"""Bytes that a process may have of its own, with numpy in it: less than the tokens below take."""


def test_tokens_do_not_take_the_memory_of_a_process() -> None:
    program = f"""
import resource
import numpy as np
from parity.capture.streams import Column, Narrow
from parity.records import RaggedTokens
resource.setrlimit(resource.RLIMIT_DATA, ({MOST_MEMORY}, {MOST_MEMORY}))
part = RaggedTokens.of([np.arange(one, one + 1024, dtype=np.int64) for one in range(256)])
first = Column(None, Narrow)
for _ in range(320):
    first.extend(part, in_order=False)
like = first.whole()
other = Column(like, Narrow)
for row in range(len(like.sizes)):
    other.append(like.row(row) + (row % 3 == 0), in_order=True, shared=row % 3 != 0)
found = other.whole()
assert like.total == found.total == 320 * 256 * 1024
assert like.places(1024).tolist()[:2] == [1 * 1024 + 1023, 2 * 1024 + 1022]
assert not found.same_as(like)
assert like.all_below(255 + 1024)
assert found.all_below(256 + 1024)
"""
    subprocess.run([sys.executable, "-c", program], check=True, env={**os.environ, "OPENBLAS_NUM_THREADS": "1"})


def test_streams_come_back_from_wherever_they_are() -> None:
    streams = [np.arange(size, dtype=np.int64) + (size == 7) * (1 << 40) for size in (3, 0, 5, 7, 1, 0)]
    for new in (Wide, Narrow, partial(Narrow, held=True)):
        one, other = Column(None, new), Column(None, new)
        for stream in streams:
            one.append(stream, in_order=False, shared=False)
        other.extend(RaggedTokens.of(streams[:2]), in_order=False)
        other.extend(RaggedTokens.of(streams[2:]), in_order=False)
        for found in (one.whole(), other.whole()):
            assert [stream.tolist() for stream in found.streams(0, 6)] == [stream.tolist() for stream in streams]


@pytest.mark.parametrize("shared", [0, 2, 4])
def test_a_column_that_is_left_is_taken_along(shared: int) -> None:
    """Streams in the order of another column, and then not."""
    streams = [np.full(size, size, dtype=np.int64) for size in (3, 1, 5, 2)]
    like = RaggedTokens.of(streams)
    changed = [stream if row < shared else stream + 1 for row, stream in enumerate(streams)]
    column = Column(like, Narrow)
    for row, stream in enumerate(changed):
        column.append(stream, in_order=True, shared=row < shared)
    column.append(np.array([9]), in_order=False, shared=False)
    assert [one.tolist() for one in column.whole().streams(0, 5)] == [*(one.tolist() for one in changed), [9]]


def test_a_completion_given_twice_is_named(tmp_path: Path) -> None:
    path = written(tmp_path / "base.jsonl", "a/base", arm_of(4))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:4], lines[2], *lines[4:]]))
    with pytest.raises(CaptureError) as plain:
        read_capture(path)
    with packed(), pytest.raises(CaptureError) as columns:
        read_capture(path)
    assert str(columns.value) == str(plain.value)
    assert "line 5" in str(columns.value)


def test_the_first_thing_that_is_wrong_is_named(tmp_path: Path) -> None:
    path = written(tmp_path / "base.jsonl", "a/base", arm_of(4))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:4], lines[2], b"no record\n", *lines[4:]]))
    with pytest.raises(CaptureError) as plain:
        read_capture(path)
    with packed(), pytest.raises(CaptureError) as columns:
        read_capture(path)
    assert str(columns.value) == str(plain.value)


def test_pieces_come_back_in_any_order() -> None:
    spill, pieces = Spill(), [bytes([number % 251]) * (number * 37 % 5000) for number in range(400)]
    places = [spill.append(piece) for piece in pieces]
    large = spill.append(b"x" * 1_000_000)
    for number in [399, 0, 7, *range(400)]:
        assert spill.read(places[number]) == pieces[number]
    assert spill.read(large) == b"x" * 1_000_000


FEW_DECIMALS = st.floats(-30, 0).map(lambda value: round(value, 6))
LOGPROBS = st.lists(st.one_of(FEW_DECIMALS, st.sampled_from([-0.0, np.nan, 2e-6, -2147.483646])), max_size=8)


@given(LOGPROBS)
def test_six_decimals_are_packed_to_the_last_bit(values: list[float]) -> None:
    numbers = np.array(values, dtype=np.float64)
    found = decimals.packed(numbers)
    assert found.dtype == np.int32
    assert decimals.unpacked(found).tobytes() == numbers.tobytes()


@given(st.lists(st.one_of(LOGPROBS, st.lists(st.floats(), max_size=3)), max_size=5), st.booleans(), st.data())
def test_numbers_come_back_from_anywhere(parts: list[list[float]], held: bool, data: st.DataObject) -> None:
    found, numbers = decimals.Decimals(held=held), np.array([one for part in parts for one in part], dtype=np.float64)
    for part in parts:
        if data.draw(st.booleans()):
            found.append(np.array(part, dtype=np.float64))
        else:
            found.extend(decimals.packed(np.array(part, dtype=np.float64)))
    assert len(found) == len(numbers)
    for _ in range(3):
        begin, end = sorted(data.draw(st.tuples(*[st.integers(0, len(numbers))] * 2)))
        np.testing.assert_array_equal(found.part(begin, end), numbers[begin:end])
        np.testing.assert_array_equal(
            np.signbit(found.part(begin, end))[numbers[begin:end] == 0],
            np.signbit(numbers[begin:end])[numbers[begin:end] == 0],
        )


def test_keys_are_numbered_by_request() -> None:
    keys = Keys()
    for name, sample in (("b", 0), ("a", 0), ("b", 1), ("ü", 0)):
        keys.append(Key(name, 0, sample))
    assert keys.numbers.tolist() == [0, 1, 0, 2]
    assert keys.firsts.tolist() == [0, 1, 3]
    assert (keys.number("ü"), keys.number("c")) == (2, None)
    assert keys.repeated() is None
    assert [keys.row(key) for key in keys] == [0, 1, 2, 3]
    assert list(keys[1:3]) == [Key("a", 0, 0), Key("b", 0, 1)]


def test_numbers_that_are_no_logprobs_are_seen_in_a_column_too(tmp_path: Path) -> None:
    """-9999, which OpenAI gives for a token that is not among the likeliest."""
    rng = np.random.default_rng(0)
    for name, values in (("said", rng.uniform(-3, 0, (20, 9))), ("unsaid", rng.choice([-0.5, -9999.0], (20, 9)))):
        made = [
            replace(one, logprobs=TopLogprobs(one.token_ids[:, None], value[:, None].round(4)))
            for one, value in zip(arm_of(20), values, strict=True)
        ]
        path = written(tmp_path / f"{name}.jsonl", "a/base", made)
        with packed():
            columns = read_capture(path)
        assert isinstance(columns.completions, Packed)
        assert columns.completions.has_own.all()
        left = [as_natural_logs(one, one, {})[0].has_logprobs for one in (read_capture(path), columns)]
        assert left == [name == "said"] * 2
