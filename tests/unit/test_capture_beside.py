"""A capture read beside another one: the same capture, of which less is held."""

from __future__ import annotations

import tempfile
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parity.api import compare
from parity.capture import CaptureError, read_capture, write_capture
from parity.records import Capture, Completion, Header, Key, TopLogprobs
from parity.records.ragged import PatchedTokens

TOKENS = st.lists(st.integers(0, 3), max_size=4).map(lambda ids: np.array(ids, dtype=np.int64))


@st.composite
def completions(draw: st.DrawFn, key: Key) -> Completion:
    tokens = draw(TOKENS)
    value = st.sampled_from([-0.5, -1.017724, -0.0, 0.0, np.nan, -1 / 3])
    values = np.array([draw(value) for _ in tokens])[:, None]
    listed = TopLogprobs(tokens[:, None].copy(), values) if draw(st.booleans()) else None
    return Completion(
        key,
        draw(TOKENS),
        tokens,
        draw(st.sampled_from([None, "", "a", "b"])),
        draw(st.sampled_from([None, "stop", "length", "other"])),
        draw(st.sampled_from([None, 1, "1"])),
        listed if len(tokens) else None,
        max_tokens=draw(st.sampled_from([None, 4])),
        sampling=draw(st.sampled_from([{}, {"seed": 1}])),
        server=draw(st.sampled_from([None, {"id": "x"}])),
        aborted=draw(st.booleans()),
    )


@st.composite
def arms(draw: st.DrawFn) -> tuple[list[Completion], list[Completion]]:
    """Two arms of the same few requests, of which most are alike, and the order and number may be others."""
    keys = [Key(f"p{number}", number % 2, number // 4) for number in range(draw(st.integers(0, 8)))]
    first = [draw(completions(key)) for key in keys]
    second = [draw(st.one_of(st.just(one), completions(one.key))) for one in first]
    if draw(st.booleans()):
        second = draw(st.permutations(second))[: draw(st.integers(0, 8))]
    if draw(st.booleans()):
        second.append(draw(completions(Key("new", 0, 0))))
    return first, second


def written(path: Path, arm: str, made: list[Completion]) -> Path:
    header = Header(arm, "a", arm[2:], "m", sampling={"temperature": 0.0, "max_tokens": 4, "n": 1})
    write_capture(path, Capture(header, {one.key: one for one in made}, {}))
    return path


def plain(value: Any) -> Any:
    """As something that == compares, with its type."""
    if isinstance(value, TopLogprobs):
        return plain(value.ids), plain(value.values)
    if isinstance(value, np.ndarray):
        return str(value.dtype), repr(value.tolist())  # NaN is one, and -0.0 is not 0.0
    return type(value).__name__, value


def said_by(capture: Capture) -> list[Any]:
    rows = [[plain(getattr(one, field.name)) for field in fields(one)] for one in capture]
    streams = [(column.flat.tolist(), column.offsets.tolist()) for column in (capture.tokens, capture.prompts)]
    return [plain(capture.header), list(capture.completions), rows, streams]


@given(arms())
def test_what_is_read_and_found_is_the_same(made: tuple[list[Completion], list[Completion]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        one = written(Path(name) / "base.jsonl", "a/base", made[0])
        other = written(Path(name) / "mtp.jsonl", "a/mtp", made[1])
        first, alone = read_capture(one), read_capture(other)
        before = said_by(first)
        beside = read_capture(other, beside=first)
        assert said_by(beside) == said_by(alone)
        assert said_by(first) == before
        assert compare(one, other).to_json() == compare(read_capture(one), alone).to_json()


def arm_of(count: int) -> list[Completion]:
    rng = np.random.default_rng(0)
    return [
        Completion(Key(f"p{number}", 0, 0), rng.integers(3, 99, 5), rng.integers(3, 99, 9), "text", "length", None)
        for number in range(count)
    ]


def test_an_equal_arm_is_held_once(tmp_path: Path) -> None:
    first = read_capture(written(tmp_path / "base.jsonl", "a/base", arm_of(9)))
    second = read_capture(written(tmp_path / "mtp.jsonl", "a/mtp", arm_of(9)), beside=first)
    assert second.tokens is first.tokens
    assert second.prompts is first.prompts
    assert all(one is first.completions[one.key] for one in second)


def test_what_differs_is_its_own(tmp_path: Path) -> None:
    made = arm_of(9)
    first = read_capture(written(tmp_path / "base.jsonl", "a/base", made))
    made[4] = replace(made[4], token_ids=made[4].token_ids[:-1])
    second = read_capture(written(tmp_path / "mtp.jsonl", "a/mtp", made), beside=first)
    assert second.tokens is not first.tokens
    assert second.prompts is first.prompts
    parted = second.completions[made[4].key]
    assert isinstance(second.tokens, PatchedTokens)
    assert second.tokens.like is first.tokens
    assert np.shares_memory(parted.token_ids, second.tokens.own.flat)
    assert [one.key for one in second if one is not first.completions[one.key]] == [parted.key]


def test_a_shorter_arm_has_columns_of_its_own(tmp_path: Path) -> None:
    first = read_capture(written(tmp_path / "base.jsonl", "a/base", arm_of(9)))
    second = read_capture(written(tmp_path / "mtp.jsonl", "a/mtp", arm_of(5)), beside=first)
    assert len(second.tokens.sizes) == 5
    assert second.tokens.flat.tolist() == first.tokens.flat[:45].tolist()


def test_numbers_of_another_width_are_not_taken_for_equal(tmp_path: Path) -> None:
    """[1, 0] in four bytes each is [1] in eight."""
    key = Key("p", 0, 0)
    narrow = Completion(key, np.array([5]), np.array([1, 0], dtype=np.int32), None, "length", None)
    theirs = Capture(Header("a/base", "a", "base", "m"), {key: narrow}, {})
    mine = replace(narrow, token_ids=np.array([1]))
    found = read_capture(written(tmp_path / "mtp.jsonl", "a/mtp", [mine]), beside=theirs)
    assert found.completions[key].token_ids.tolist() == [1]


def test_a_completion_given_twice_is_refused_as_before(tmp_path: Path) -> None:
    first = read_capture(written(tmp_path / "base.jsonl", "a/base", arm_of(3)))
    path = written(tmp_path / "mtp.jsonl", "a/mtp", arm_of(3))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], lines[1], *lines[2:]]))
    with pytest.raises(CaptureError, match="given twice"):
        read_capture(path, beside=first)


def test_an_arm_beside_a_patched_one(tmp_path: Path) -> None:
    made = arm_of(9)
    first = read_capture(written(tmp_path / "base.jsonl", "a/base", made))
    made[4] = replace(made[4], token_ids=made[4].token_ids[:-1])
    second = read_capture(written(tmp_path / "mtp.jsonl", "a/mtp", made), beside=first)
    made[7] = replace(made[7], token_ids=made[7].token_ids[1:])
    path = written(tmp_path / "more.jsonl", "a/more", made)
    assert said_by(read_capture(path, beside=second)) == said_by(read_capture(path))


def test_logprobs_of_the_chosen_tokens_name_them_once(tmp_path: Path) -> None:
    made = [
        replace(one, logprobs=TopLogprobs(one.token_ids[:, None].copy(), np.full((9, 1), -0.5))) for one in arm_of(3)
    ]
    wrong = TopLogprobs(made[1].token_ids[:, None] + 1, np.full((9, 1), -0.5))
    made[1] = replace(made[1], logprobs=wrong)
    found = list(read_capture(written(tmp_path / "base.jsonl", "a/base", made)))
    for one, source in zip(found, made, strict=True):
        assert one.logprobs is not None
        assert source.logprobs is not None
        assert one.logprobs.ids.tolist() == source.logprobs.ids.tolist()
        assert np.shares_memory(one.logprobs.ids, one.token_ids) == (source is not made[1])
