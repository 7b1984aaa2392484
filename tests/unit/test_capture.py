"""The capture file: what is read, what is refused and how that is said, what is written."""

from __future__ import annotations

import base64
import codecs
import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parity.capture import (
    CaptureError,
    Problem,
    check_capture,
    decode_token_ids,
    encode_token_ids,
    parse_score,
    read_capture,
    read_scores,
    score_record,
    write_capture,
)
from parity.capture.problems import Malformed
from parity.errors import ExitCode, ParityError
from parity.records import Capture, Completion, Header, Key, ScoreKey, SpecTrace, TopLogprobs

Record = dict[str, Any]

HEADER: Record = {"record": "header", "schema": "parity.capture/1", "arm": "cpu/base"}
FOOTER: Record = {"record": "footer"}

PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""A busy machine is no failure."""


def told(problems: list[Problem]) -> list[tuple[int | None, str]]:
    return [(problem.line, str(problem.message)) for problem in problems]


def completion(request: str = "p0", tokens: Any = (1, 2, 3), **more: Any) -> Record:
    record = {"record": "completion", "request": request, "prompt_token_ids": [5, 6], "token_ids": tokens}
    return {**record, "token_ids": list(tokens) if isinstance(tokens, tuple) else tokens, **more}


def score(request: str = "p0", logprobs: Any = None, **more: Any) -> Record:
    entries = [[[1, -0.5]], [[2, -0.5]], [[3, -0.5]]] if logprobs is None else logprobs
    return {"record": "score", "arm": "cpu/base", "request": request, "logprobs": entries, **more}


Writer = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Writer:
    """Write records (or raw lines) as a capture file."""

    def writer(*records: Record | str | bytes, name: str = "capture.jsonl", end: bytes = b"\n") -> Path:
        lines = [
            record
            if isinstance(record, bytes)
            else (record if isinstance(record, str) else json.dumps(record)).encode()
            for record in records
        ]
        path = tmp_path / name
        path.write_bytes(b"\n".join(lines) + end)
        return path

    return writer


def refusal(path: Path, **options: Any) -> CaptureError:
    with pytest.raises(CaptureError) as caught:
        read_capture(path, **options)
    assert caught.value.exit_code is ExitCode.USAGE
    assert caught.value.hint
    return caught.value


# --------------------------------------------------------------------------- what is read


def test_reads_the_least_that_is_a_capture(write: Writer) -> None:
    capture = read_capture(write(HEADER, completion(), FOOTER))
    assert capture.header == Header("cpu/base", "", "", "")
    (one,) = capture
    assert one.key == Key("p0", 0, 0)
    assert one.token_ids.tolist() == [1, 2, 3]
    assert one.token_ids.dtype == np.int64
    assert one.prompt_token_ids.tolist() == [5, 6]
    assert (one.text, one.finish_reason, one.stop_reason, one.logprobs, one.spec) == (None,) * 5
    assert one.line == 2
    assert capture.counters == {}


def test_reads_everything(write: Writer) -> None:
    header = {
        **HEADER,
        "backend": "cpu",
        "variant": "mtp",
        "model": "m",
        "vocab_size": 2048,
        "eos_token_ids": [0, 7],
        "engine": {"dtype": "bfloat16"},
        "sampling": {"n": 2},
        "environment": {"cpus": 2},
        "colour": "blue",
    }
    record = completion(
        round=3,
        sample=1,
        text="abc",
        finish_reason="stop",
        stop_reason="\n",
        logprobs=[[[1, -0.5], [9, -1.5]], [[2, -0.25]], None],
        spec={"accepted": [1, 0], "drafted": [2, 2]},
    )
    footer = {"record": "footer", "completions": 1, "scores": 1, "counters": {"draft_tokens": 4}}
    capture = read_capture(write(header, record, score(round=3, sample=1), footer))
    assert capture.header.eos_token_ids == (0, 7)
    assert capture.header.extra == {"colour": "blue"}
    assert capture.counters == {"draft_tokens": 4}
    one = capture.completions[Key("p0", 3, 1)]
    assert (one.text, one.finish_reason, one.stop_reason) == ("abc", "stop", "\n")
    assert one.logprobs is not None
    assert one.logprobs.ids.tolist() == [[1, 9], [2, -1], [-1, -1]]
    assert one.logprobs.values[0].tolist() == [-0.5, -1.5]
    assert np.isnan(one.logprobs.values[2]).all()
    assert one.spec is not None
    assert one.spec.accepted.tolist() == [1, 0]
    assert len(capture.scores[ScoreKey("cpu/base", "p0", 3, 1)]) == 3


def test_one_eos_id_may_stand_alone(write: Writer) -> None:
    assert read_capture(write({**HEADER, "eos_token_ids": 2}, FOOTER)).header.eos_token_ids == (2,)


def test_order_of_the_file_is_kept_and_empty_lines_are_skipped(write: Writer) -> None:
    capture = read_capture(write(HEADER, "", completion("b"), "  ", completion("a"), FOOTER, ""))
    assert [one.key.request for one in capture] == ["b", "a"]
    assert capture.completions[Key("a", 0, 0)].line == 5


@pytest.mark.parametrize("tokens", [(), (0,), tuple(range(100_000))], ids=["none", "one", "100000"])
def test_completions_of_any_length(write: Writer, tokens: tuple[int, ...]) -> None:
    path = write(HEADER, completion(tokens=tokens), FOOTER)
    assert check_capture(path) == []
    (one,) = read_capture(path)
    assert tuple(one.token_ids.tolist()) == tokens


def test_ids_outside_the_vocabulary_load(write: Writer) -> None:
    """They are what an engine gets wrong, and a finding, not an error."""
    tokens = (-1, 2**31 - 1, 2**31, 2**63 - 1, -(2**63))
    (one,) = read_capture(write({**HEADER, "vocab_size": 10}, completion(tokens=tokens), FOOTER))
    assert tuple(one.token_ids.tolist()) == tokens


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "null", "1e999"])
def test_broken_logprobs_load(write: Writer, value: str) -> None:
    line = json.dumps(completion(logprobs=[[[1, -0.5]], [[2, "X"]], [[3, -0.5]]])).replace('"X"', value)
    (one,) = read_capture(write(HEADER, line, FOOTER))
    assert one.logprobs is not None
    assert not np.isfinite(one.logprobs.values[1, 0])
    assert one.logprobs.values[:, 0].tolist()[::2] == [-0.5, -0.5]


@pytest.mark.parametrize("entries", [[], [[[1, -0.5]]], [[[1, -0.5]]] * 9, [[], [], []], [None, None, None]])
def test_logprobs_of_another_length_load_and_are_checked(write: Writer, entries: list[Any]) -> None:
    path = write(HEADER, completion(logprobs=entries), FOOTER)
    (one,) = read_capture(path)
    assert one.logprobs is not None
    assert len(one.logprobs) == len(entries)
    problems = check_capture(path)
    if len(entries) == 3:
        assert problems == []
    else:
        count = "1 logprob" if len(entries) == 1 else f"{len(entries)} logprobs"
        assert told(problems) == [(2, f"completion p0 round 0 sample 0: {count} for 3 tokens")]


def test_scores_of_another_length_are_checked(write: Writer) -> None:
    path = write(HEADER, completion(), score(logprobs=[[[1, -0.5]]]), FOOTER)
    assert len(read_capture(path).scores) == 1
    assert told(check_capture(path)) == [(3, "score of p0 round 0 sample 0: 1 entry for 3 tokens")]


# --------------------------------------------------------------------------- compact and compressed


def test_compact_form_is_little_endian_int32() -> None:
    assert encode_token_ids(np.array([1, 256, -1])) == {
        "int32": base64.b64encode(b"\1\0\0\0\0\1\0\0" + b"\xff" * 4).decode()
    }


@settings(PATIENT)
@given(st.lists(st.integers(-(2**31), 2**31 - 1), max_size=40))
def test_compact_form_round_trips(ids: list[int]) -> None:
    assert decode_token_ids(encode_token_ids(np.array(ids, dtype=np.int64))).tolist() == ids


def test_compact_form_is_read_everywhere(write: Writer) -> None:
    packed = encode_token_ids(np.array([1, 2, 3]))
    record = completion(tokens=packed, prompt_token_ids=packed, spec={"accepted": packed, "drafted": packed})
    (one,) = read_capture(write({**HEADER, "eos_token_ids": packed}, record, FOOTER))
    assert one.token_ids.tolist() == one.prompt_token_ids.tolist() == [1, 2, 3]


@pytest.mark.parametrize("value", [{"int32": "???"}, {"int32": "AAA="}, {"int64": "AAAA"}, {"int32": 7}, {}])
def test_broken_compact_form(write: Writer, value: Record) -> None:
    error = refusal(write(HEADER, completion(tokens=value), FOOTER))
    assert error.line == 2
    assert "token_ids" in str(error)


def test_gzip_is_read_by_its_name(write: Writer, tmp_path: Path) -> None:
    plain = write(HEADER, completion(), FOOTER)
    packed = tmp_path / "capture.jsonl.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert list(read_capture(packed).completions) == [Key("p0", 0, 0)]
    assert check_capture(packed) == []


def spoil_header(data: bytes) -> bytes:
    return b"no gzip at all" + data


def spoil_end(data: bytes) -> bytes:
    return data[:-12]


def spoil_middle(data: bytes) -> bytes:
    at = len(data) // 2
    return data[:at] + bytes(255 - byte for byte in data[at : at + 40]) + data[at + 40 :]


@pytest.mark.parametrize("spoil", [spoil_header, spoil_end, spoil_middle])
def test_damaged_gzip(tmp_path: Path, spoil: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "capture.jsonl.gz"
    rng = np.random.default_rng(0)
    records = [HEADER, *(completion(f"p{n}", tuple(rng.integers(0, 9999, 60).tolist())) for n in range(60)), FOOTER]
    path.write_bytes(spoil(gzip.compress("".join(json.dumps(record) + "\n" for record in records).encode())))
    error = refusal(path)
    assert str(path) in str(error)
    assert check_capture(path)


# --------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize("keep", [1, 20, 60])
def test_cut_off_last_line(write: Writer, keep: int) -> None:
    path = write(HEADER, completion("a"), json.dumps(completion("b"))[:keep], end=b"")
    error = refusal(path)
    assert error.line == 3
    assert f"{path}, line 3: the line is cut off" in str(error)
    assert error.hint is not None
    assert "--resume" in str(error.hint)
    assert [problem.line for problem in check_capture(path)] == [3]
    assert list(read_capture(path, partial=True).completions) == [Key("a", 0, 0)]


def test_missing_footer(write: Writer) -> None:
    path = write(HEADER, completion("a"), completion("b"))
    error = refusal(path)
    assert error.line == 3
    assert "no footer" in str(error)
    assert [problem.line for problem in check_capture(path)] == [3]
    assert len(read_capture(path, partial=True).completions) == 2


def test_partial_accepts_nothing_else(write: Writer) -> None:
    assert refusal(write(HEADER, "{", completion(), FOOTER), partial=True).line == 2
    assert "no header" in str(refusal(write("", name="empty.jsonl"), partial=True))
    assert "given twice" in str(refusal(write(HEADER, completion(), completion()), partial=True))


@pytest.mark.parametrize("schema", ["parity.capture/2", "", None, 1, ["parity.capture/1"]])
def test_wrong_schema(write: Writer, schema: object) -> None:
    error = refusal(write({**HEADER, "schema": schema}, completion(), FOOTER))
    assert error.line == 1
    assert "this version reads 'parity.capture/1'" in str(error)
    assert repr(schema) in str(error)


def test_missing_schema(write: Writer) -> None:
    assert refusal(write({"record": "header", "arm": "a/b"}, FOOTER)).line == 1


def test_duplicate_completion_names_both_lines(write: Writer) -> None:
    path = write(HEADER, completion(sample=1), completion(), completion(sample=1), FOOTER)
    error = refusal(path)
    assert error.line == 4
    assert "completion p0 round 0 sample 1 given twice (first on line 2)" in str(error)
    assert [problem.line for problem in check_capture(path)] == [4]


def test_duplicate_score_names_both_lines(write: Writer) -> None:
    error = refusal(write(HEADER, score(), completion(), score(), FOOTER))
    assert error.line == 4
    assert "score of cpu/base p0 round 0 sample 0 given twice (first on line 2)" in str(error)


@pytest.mark.parametrize(("name", "said"), [("completions", 2), ("completions", 0), ("scores", 3)])
def test_wrong_count_in_the_footer(write: Writer, name: str, said: int) -> None:
    error = refusal(write(HEADER, completion(), {**FOOTER, name: said}))
    assert error.line == 3
    found = 1 if name == "completions" else 0
    assert f"the footer says {said} {name}, the file has {found}" in str(error)


@pytest.mark.parametrize(
    ("records", "line", "message"),
    [
        ((completion(), FOOTER), 1, "the first record must be the header"),
        ((HEADER, HEADER, FOOTER), 2, "a second header"),
        ((HEADER, FOOTER, completion()), 3, "a record after the footer (line 2)"),
        ((HEADER, {"record": "token"}, FOOTER), 2, "unknown record 'token'; known: header"),
        ((HEADER, {}, FOOTER), 2, "unknown record None"),
        ((HEADER, "[1,2]", FOOTER), 2, "a record must be a JSON object"),
        ((HEADER, "12", FOOTER), 2, "a record must be a JSON object"),
        ((HEADER, "{not json}", FOOTER), 2, "not valid JSON"),
        ((HEADER, b"\x00\xff\xfe garbage \x80", FOOTER), 2, "not valid JSON"),
        ((HEADER, "[" * 100_000, FOOTER), 2, "not valid JSON"),
        ((codecs.BOM_UTF8 + json.dumps(HEADER).encode(), FOOTER), 1, "byte order mark"),
    ],
    ids=[
        "no header", "two headers", "behind the footer", "unknown", "no record", "list", "number", "not json",
        "garbage", "deep", "byte order mark",
    ],
)  # fmt: skip
def test_structure(write: Writer, records: tuple[Any, ...], line: int, message: str) -> None:
    path = write(*records)
    error = refusal(path)
    assert error.line == line
    assert message in str(error)
    assert line in [problem.line for problem in check_capture(path)]


@pytest.mark.parametrize("text", [rb"half \ud83d", b"half \xed\xa0\xbd"], ids=["escaped", "raw"])
def test_half_a_character_cannot_get_in(write: Writer, text: bytes) -> None:
    """Python writes a lone surrogate without complaint; nothing behind the reader could write it again."""
    line = json.dumps(completion(text="@")).encode().replace(b"@", text)
    try:
        (one,) = read_capture(write(HEADER, line, FOOTER))
    except CaptureError as error:
        assert error.line == 2  # noqa: PT017 - refusing it is right as well
    else:
        assert one.text is not None
        one.text.encode("utf-8")


def test_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "empty.jsonl"
    path.touch()
    assert "no header" in str(refusal(path))
    assert told(check_capture(path)) == [(None, "no header: this is not a capture, or it is empty")]


def test_binary_file(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(bytes(range(256)) * 50)
    assert refusal(path).line == 1
    assert check_capture(path)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("request", None),
        ("request", 7),
        ("round", -1),
        ("round", 1.5),
        ("round", True),
        ("round", 10**30),
        ("sample", "0"),
        ("prompt_token_ids", None),
        ("token_ids", None),
        ("token_ids", "1,2"),
        ("token_ids", [1, "2"]),
        ("token_ids", [1, 2.5]),
        ("token_ids", [1, None]),
        ("token_ids", [[1], [2]]),
        ("token_ids", [[1], [2, 3]]),
        ("token_ids", [True, False]),
        ("token_ids", [2**63]),
        ("token_ids", [2**64]),
        ("token_ids", [10**400]),
        ("text", 5),
        ("finish_reason", ["stop"]),
        ("stop_reason", [1]),
        ("stop_reason", 1.5),
        ("logprobs", 3),
        ("logprobs", [1, 2, 3]),
        ("logprobs", [[1, 2, 3]]),
        ("logprobs", [[[1]]]),
        ("logprobs", [[["a", -0.5]]]),
        ("logprobs", [[[None, -0.5]]]),
        ("logprobs", [[[1, -0.5]], [[1, -0.5, 3], [2, -1]]]),
        ("logprobs", [{"1": -0.5}]),
        ("spec", [1]),
        ("spec", {"accepted": "x"}),
    ],
)
def test_a_field_of_the_wrong_type_is_named(write: Writer, field: str, value: object) -> None:
    path = write(HEADER, completion(**{field: value}), FOOTER)
    error = refusal(path)
    assert error.line == 2
    assert field in str(error)
    assert [problem.line for problem in check_capture(path)][:1] == [2]


@pytest.mark.parametrize("field", ["request", "prompt_token_ids", "token_ids"])
def test_a_missing_field_is_named(write: Writer, field: str) -> None:
    record = completion()
    del record[field]
    assert field in str(refusal(write(HEADER, record, FOOTER)))


@pytest.mark.parametrize(
    ("field", "value"),
    [("arm", None), ("arm", 1), ("vocab_size", "2048"), ("vocab_size", -5), ("eos_token_ids", "0"), ("engine", [])],
)
def test_a_bad_header_is_one_error(write: Writer, field: str, value: object) -> None:
    error_path = write({**HEADER, field: value}, completion(), FOOTER)
    error = refusal(error_path)
    assert error.line == 1
    assert field in str(error)
    assert [problem.line for problem in check_capture(error_path)] == [1]


def test_messages_stay_short(write: Writer) -> None:
    error = refusal(write(HEADER, completion(request=["x" * 10_000]), FOOTER))
    assert len(str(error)) < 400


def test_check_lists_every_problem_in_file_order(write: Writer) -> None:
    path = write(
        HEADER,
        completion("a", logprobs=[]),
        "{broken}",
        completion("b", tokens="x"),
        completion("a"),
        {"record": "footer", "completions": 9},
    )
    assert [problem.line for problem in check_capture(path)] == [2, 3, 4, 5, 6]


def test_no_such_file(tmp_path: Path) -> None:
    for reader in (read_capture, read_scores, check_capture):
        with pytest.raises(ParityError, match=re.escape("no such capture")) as caught:
            reader(tmp_path / "nothing.jsonl")
        assert caught.value.hint


def test_a_directory_without_shards_is_no_capture(tmp_path: Path) -> None:
    with pytest.raises(ParityError, match="a directory without shards"):
        read_capture(tmp_path)


# --------------------------------------------------------------------------- scores in a file of their own


def test_scores_alone_need_no_header_and_no_footer(write: Writer) -> None:
    scores = read_scores(write(score(), score("p1"), name="scores.jsonl"))
    assert [key.request for key in scores] == ["p0", "p1"]


def test_scores_of_a_capture(write: Writer) -> None:
    assert len(read_scores(write(HEADER, completion(), score(), FOOTER))) == 1


@pytest.mark.parametrize(
    ("records", "line", "message"),
    [
        ((score(), score()), 2, "given twice"),
        ((score(), json.dumps(score("p1"))[:30]), 2, "not valid JSON"),
        ((score(logprobs={"a": 1}),), 1, "logprobs must be a list"),
        (({"record": "score", "arm": "a/b", "request": "p0"},), 1, "no logprobs"),
        (({"record": "score", "request": "p0", "logprobs": []},), 1, "no arm"),
        ((completion(),), None, "no score records"),
    ],
)
def test_bad_scores(write: Writer, records: tuple[Any, ...], line: int | None, message: str) -> None:
    with pytest.raises(CaptureError) as caught:
        read_scores(write(*records, name="scores.jsonl"))
    assert caught.value.line == line
    assert message in str(caught.value)
    assert "docs/capture.md" in str(caught.value.hint)


# --------------------------------------------------------------------------- writing


def whole_capture() -> Capture:
    logprobs = TopLogprobs(
        np.array([[1, 4], [2, -1], [3, 8]]), np.array([[-0.5, -1.0], [-0.25, np.nan], [np.nan, -np.inf]])
    )
    tokens = np.array([1, 2, 3], dtype=np.int64)
    ones = {
        key: Completion(
            key, tokens + 1, tokens * n, "täxt\n\u2028", "length", n, logprobs, SpecTrace(tokens, tokens), n + 2
        )
        for n, key in enumerate([Key("b", 0, 0), Key("a", 1, 2)])
    }
    header = Header("cpu/mtp", "cpu", "mtp", "m", 10, (0,), {"a": 1}, {"n": 1}, {"b": None}, {"more": [1]})
    return Capture(header, ones, {ScoreKey("cpu/mtp", "b", 0, 0): logprobs}, {"drafts": 3}, "")


@pytest.mark.parametrize("compact", [False, True])
@pytest.mark.parametrize("name", ["c.jsonl", "c.jsonl.gz"])
def test_what_is_written_is_read_back(tmp_path: Path, compact: bool, name: str) -> None:
    path = tmp_path / name
    before = whole_capture()
    write_capture(path, before, compact=compact)
    assert check_capture(path) == []
    after = read_capture(path)
    assert after.header == before.header
    assert after.counters == before.counters
    assert list(after.completions) == list(before.completions)
    for one, other in zip(before, after, strict=True):
        assert (one.text, one.finish_reason, one.stop_reason, one.line) == (
            other.text,
            other.finish_reason,
            other.stop_reason,
            other.line,
        )
        assert one.token_ids.tolist() == other.token_ids.tolist()
        assert one.prompt_token_ids.tolist() == other.prompt_token_ids.tolist()
        assert one.logprobs is not None
        assert other.logprobs is not None
        assert one.logprobs.ids.tolist() == other.logprobs.ids.tolist()
        # JSON has neither NaN nor infinities: both come back as "no logprob".
        expected = np.where(np.isfinite(one.logprobs.values), one.logprobs.values, np.nan)
        np.testing.assert_array_equal(other.logprobs.values, expected)
    (scored,) = after.scores.values()
    assert len(scored) == 3


def test_written_lines_are_strict_json(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    write_capture(path, whole_capture())

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    kinds = [json.loads(line, parse_constant=refuse)["record"] for line in path.read_text("utf-8").split("\n")[:-1]]
    assert kinds == ["header", "completion", "completion", "score", "footer"]


# --------------------------------------------------------------------------- anything at all


@settings(PATIENT, max_examples=200)
@given(st.binary(max_size=400))
def test_no_bytes_make_a_traceback(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("any") / "any.jsonl"
    path.write_bytes(data)
    for reader in (read_capture, read_scores):
        with pytest.raises(ParityError):
            reader(path)
    assert check_capture(path)


def _json_values() -> st.SearchStrategy[Any]:
    leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
    return st.recursive(leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner))


@settings(PATIENT, max_examples=300)
@given(
    st.sampled_from(["completion", "score", "footer", "header"]),
    st.dictionaries(
        st.sampled_from(
            ["request", "round", "sample", "arm", "token_ids", "prompt_token_ids", "logprobs", "spec", "stop_reason",
             "completions", "scores", "counters", "schema", "vocab_size", "eos_token_ids", "engine"]
        ),
        _json_values(),
    ),
)  # fmt: skip
def test_no_record_makes_a_traceback(
    tmp_path_factory: pytest.TempPathFactory, kind: str, changes: dict[str, Any]
) -> None:
    path = tmp_path_factory.mktemp("any") / "any.jsonl"
    base = {"completion": completion(), "score": score(), "footer": FOOTER, "header": HEADER}[kind]
    others = [HEADER] if kind != "header" else []
    lines = [*others, {**base, **changes}, *([FOOTER] if kind != "footer" else [])]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    try:
        read_capture(path)
    except CaptureError as error:
        assert error.line in (1, 2, 3)  # noqa: PT017 - any outcome but another exception is right
        assert check_capture(path)


def test_a_requests_own_limit_and_abort_are_kept(write: Writer, tmp_path: Path) -> None:
    path = write(HEADER, completion(max_tokens=7), completion("p1", aborted=True, finish_reason="abort"), FOOTER)
    capture = read_capture(path)
    assert [(one.max_tokens, one.aborted) for one in capture] == [(7, False), (None, True)]
    write_capture(tmp_path / "again.jsonl", capture)
    again = read_capture(tmp_path / "again.jsonl")
    assert [(one.max_tokens, one.aborted) for one in again] == [(7, False), (None, True)]


@pytest.mark.parametrize("wrong", [{"max_tokens": -1}, {"max_tokens": "7"}, {"aborted": 1}, {"aborted": "yes"}])
def test_a_limit_or_abort_of_the_wrong_type_is_refused(write: Writer, wrong: Record) -> None:
    with pytest.raises(CaptureError, match=f"line 2: completion: {next(iter(wrong))} must be"):
        read_capture(write(HEADER, completion(**wrong), FOOTER))


def test_a_score_keeps_its_logsumexp(tmp_path: Path) -> None:
    record = {
        "record": "score", "arm": "cpu/mtp", "request": "p0", "round": 0, "sample": 0,
        "logprobs": [[[7, -0.5]], [[8, -0.1]]], "logsumexp": [12.5, None],
    }  # fmt: skip
    path = tmp_path / "scores.jsonl"
    path.write_text(json.dumps(record) + "\n")
    (key, top), *_ = read_scores(path).items()
    assert top.logsumexp is not None
    assert (top.logsumexp[0], bool(np.isnan(top.logsumexp[1]))) == (12.5, True)
    assert score_record(key, top) == record


@pytest.mark.parametrize("sums", [[12.5], "x", [[1.0], [2.0]], [1.0, "x"], 3.0])
def test_a_logsumexp_that_is_no_list_of_numbers_is_an_error(sums: object) -> None:
    record = {"arm": "cpu/mtp", "request": "p0", "logprobs": [[[7, -0.5]], [[8, -0.1]]], "logsumexp": sums}
    with pytest.raises(Malformed, match="logsumexp must be a list of 2 numbers"):
        parse_score(record)
