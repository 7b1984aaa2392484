"""simdjson's way through a line and the ordinary one: where the first gives something, it is what the second gives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parity.capture import lines, quick, read_capture, read_scores, write_capture
from parity.capture.lines import loads
from parity.capture.parse import parse_completion, parse_score
from parity.capture.problems import Malformed
from parity.records import Capture, Completion, Header, Key, RaggedTokens, TopLogprobs

pytest.importorskip("simdjson")

numbers = st.integers(-(2**63), 2**64) | st.integers(0, 40) | st.floats(allow_nan=False, allow_infinity=False)
odd = st.none() | st.booleans() | numbers | st.text(max_size=8) | st.just("[[") | st.just('","token_ids":[')
ids = st.lists(st.integers(0, 150_000), max_size=20)
streams = ids | st.lists(odd | ids, max_size=4) | odd
pairs = st.lists(st.tuples(st.integers(0, 99), st.floats(-20, 0)), min_size=1, max_size=3)
lists = st.lists(pairs, max_size=8) | st.lists(st.lists(st.lists(odd, max_size=3), max_size=3), max_size=3) | odd
others = st.dictionaries(st.sampled_from(["token_ids", "logprobs", "a"]), streams, max_size=2) | odd


@pytest.fixture(autouse=True)
def every_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quick, "FROM_BYTES", 0)


def same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, TopLogprobs):
        return isinstance(b, TopLogprobs) and same(a.ids, b.ids) and same(a.values, b.values)
    return bool(a == b) and type(a) is type(b)


def line_of(record: dict[str, Any], *, spaced: bool, ascii_only: bool) -> bytes:
    separators = (", ", ": ") if spaced else (",", ":")
    return json.dumps(record, separators=separators, ensure_ascii=ascii_only).encode()


def outcome(record: dict[str, Any]) -> Completion | str:
    try:
        return parse_completion(record)
    except Malformed as error:
        return str(error.said)


@settings(deadline=None, max_examples=400)
@given(
    st.fixed_dictionaries(
        {"record": st.just("completion"), "request": st.text(max_size=4)},
        optional={
            "prompt_token_ids": streams, "token_ids": streams, "text": st.text(max_size=9) | st.just('["token_ids":'),
            "logprobs": lists, "server": others, "spec": others, "stop_reason": odd,
        },
    ),
    st.booleans(),
    st.booleans(),
)  # fmt: skip
def test_completions(record: dict[str, Any], spaced: bool, ascii_only: bool) -> None:
    line = line_of(record, spaced=spaced, ascii_only=ascii_only)
    found = quick.QuickReader().record(line)
    if found is None:
        return
    usual = loads(line)
    assert found.keys() == usual.keys()
    for name in found:
        if not isinstance(found[name], np.ndarray | TopLogprobs):
            assert same(found[name], usual[name]), name
    got, expected = outcome(found), outcome(usual)
    if isinstance(expected, str):  # what is wrong with it is said alike
        assert got == expected
    else:
        assert isinstance(got, Completion)
        for name in ("token_ids", "prompt_token_ids", "logprobs"):
            assert same(getattr(got, name), getattr(expected, name)), name


@settings(deadline=None, max_examples=200)
@given(st.lists(pairs, min_size=1, max_size=12), st.none() | st.lists(st.floats(0, 9), max_size=12), st.booleans())
def test_scores(entries: list[Any], sums: list[float] | None, spaced: bool) -> None:
    record = {"record": "score", "arm": "a", "request": "p", "logprobs": entries, "logsumexp": sums}
    line = line_of(record, spaced=spaced, ascii_only=True)
    found = quick.QuickReader().record(line)
    assert found is not None
    assert isinstance(found["logprobs"], TopLogprobs)
    if sums is None or len(sums) == len(entries):
        assert same(parse_score(found)[1], parse_score(loads(line))[1])


@pytest.mark.parametrize(
    "line",
    [
        b'{"token_ids": [[1], [2]]}',
        b'{"token_ids": [1, [2]]}',
        b'{"token_ids": [1, true]}',
        b'{"token_ids": [1, 2.0]}',
        b'{"token_ids": [9223372036854775808]}',
        b'{"server": {"token_ids": [1]}, "token_ids": [[1], [2]]}',
        b'{"logprobs": [[[1, -0.5], [2]], [[3, 4, 5]]]}',
        b'{"logprobs": [[[1, null]]]}',
        b'{"logprobs": [[[1e300, -1]]]}',
        b'\xef\xbb\xbf{"token_ids": [1]}',
        b'{"text": "\\ud800"}',
        b"[1]",
        b'{"a": NaN}',
    ],
)
def test_what_is_left_to_the_ordinary_way(line: bytes) -> None:
    assert quick.QuickReader().record(line) is None


def test_a_file_is_read_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    made = {}
    for number in range(40):
        tokens = rng.integers(0, 2**31 - 1, number)
        key = Key(f"p{number}", 0, 0)
        top = TopLogprobs(tokens[:, None].copy(), np.round(-rng.random((number, 1)), 4))
        made[key] = Completion(
            key, rng.integers(0, 99, 3), tokens, "a [b]", "length", None, top if number % 3 else None
        )
    path = tmp_path / "a.jsonl"
    write_capture(path, Capture(Header("a/b", "a", "b", "m"), made, {}))
    quickest = read_capture(path)
    monkeypatch.setattr(lines, "QuickReader", lambda: None)
    usual = read_capture(path)
    for one, other in zip(quickest, usual, strict=True):
        assert (one.key, one.text, one.line) == (other.key, other.text, other.line)
        assert same(one.token_ids, other.token_ids)
        assert same(one.prompt_token_ids, other.prompt_token_ids)
        assert same(one.logprobs, other.logprobs)
    for found in (quickest, usual):
        assert found.tokens.same_as(RaggedTokens.of([one.token_ids for one in found]))
        assert found.prompts.same_as(RaggedTokens.of([one.prompt_token_ids for one in found]))
        assert all(np.shares_memory(one.token_ids, found.tokens.flat) for one in found if len(one.token_ids))
    assert read_scores(tmp_path / "a.jsonl") == {}
