"""Checksums of records: no byte of a capture or of a steps file changes without being noticed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from step_world import World, steps_lines

from parity.capture import CaptureError, ScoreFile, check_capture, read_capture, write_capture
from parity.capture.checksum import seal_of
from parity.capture.sealing import FIELD, sealed
from parity.capture.steps import read_steps
from parity.records import Capture, Completion, Header, Json, Key, ScoreKey, TopLogprobs
from parity.run.appending import Appender


def small() -> Capture:
    ids = np.array([5, 6, 7, 8], dtype=np.int64)
    completions = {
        key: Completion(key, ids, ids + place, "täxt", "length", None, None, None)
        for place, key in enumerate((Key("p0", 0, 0), Key("p1", 0, 0)))
    }
    top = TopLogprobs.from_json([[[token, -0.5], [9, -1.25]] for token in (5, 6, 7, 8)])
    header = Header("a/base", "a", "base", "m", 1000, (2,), {}, {"max_tokens": 4}, {"x": 1}, {"churn": {}})
    return Capture(header, completions, {ScoreKey("a/base", "p0", 0, 0): top}, {"tokens": 8})


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sealed") / "a.jsonl"
    write_capture(path, small())
    return path


def told(path: Path) -> list[object]:
    """What a reader is told. Raises CaptureError."""
    capture = read_capture(path)
    header = replace(capture.header, extra={"churn": capture.header.extra["churn"]})
    rows = [(one.key, one.token_ids.tolist(), one.prompt_token_ids.tolist(), one.text) for one in capture]
    scores = [(key, one.ids.tolist(), one.values.tolist()) for key, one in capture.scores.items()]
    return [header, rows, scores, capture.counters]


def meaning(path: Path) -> list[Json]:
    """What a file says, but for its checksums."""
    return [{k: v for k, v in json.loads(line).items() if k != FIELD} for line in path.read_bytes().splitlines()]


def test_each_record_has_one_and_is_json_as_before(written: Path) -> None:
    lines = written.read_bytes().splitlines(keepends=True)
    assert [seal_of(line) for line in lines] == [True] * 5
    assert all(list(json.loads(line))[-1] == FIELD for line in lines)
    capture = read_capture(written)
    assert capture.header.extra == {"churn": {}}
    assert check_capture(written) == []


def test_a_flipped_bit_is_noticed_wherever_it_is(written: Path, tmp_path: Path) -> None:
    """Or it changes nothing: the newline at the end of the file may be another blank, and a header may lose its own
    checksum, whose name is then one that nobody knows."""
    data, said, path = written.read_bytes(), told(written), tmp_path / "flipped.jsonl"
    unnoticed = []
    for place in range(len(data)):
        for bit in (1, 1 << place % 7):
            changed = bytearray(data)
            changed[place] ^= bit
            path.write_bytes(bytes(changed))
            try:
                unnoticed += [] if told(path) == said else [(place, bit)]
            except CaptureError:
                continue
    assert unnoticed == []


def test_what_is_wrong_names_line_and_remedy(written: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(written.read_bytes().replace(b'"token_ids":[6,7,8,9]', b'"token_ids":[6,7,8,8]'))
    with pytest.raises(CaptureError, match=r"line 3: its checksum is wrong") as caught:
        read_capture(path)
    assert "parity run --resume" in str(caught.value.hint)
    assert next(one.line for one in check_capture(path)) == 3


def test_a_checksum_cannot_be_taken_away(written: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    lines = written.read_bytes().splitlines(keepends=True)
    lines[2] = lines[2][: lines[2].index(b',"crc32"')].replace(b"[6,7,8,9]", b"[6,7,8,8]") + b"}\n"
    path.write_bytes(b"".join(lines))
    with pytest.raises(CaptureError, match=r"line 3: it has no checksum"):
        read_capture(path)


def test_files_without_are_read_as_ever(written: Path, tmp_path: Path) -> None:
    path = tmp_path / "old.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in meaning(written)))
    assert read_capture(path).completions.keys() == small().completions.keys()
    again = tmp_path / "other-writer.jsonl"  # whoever writes it anew with another spacing makes a file without
    again.write_text("".join(json.dumps(json.loads(line)) + "\n" for line in written.read_bytes().splitlines()))
    assert len(read_capture(again).completions) == 2


def test_an_old_file_that_was_gone_on_with_is_read(written: Path, tmp_path: Path) -> None:
    path, lines = tmp_path / "resumed.jsonl", written.read_bytes().splitlines(keepends=True)
    plain = [json.dumps(one).encode() + b"\n" for one in meaning(written)]
    path.write_bytes(b"".join(plain[:2] + lines[2:]))
    assert len(read_capture(path).completions) == 2


def test_scores_are_checked_as_well(written: Path, tmp_path: Path) -> None:
    path = tmp_path / "scores.jsonl"
    lines = written.read_bytes().splitlines(keepends=True)
    footer = sealed(b'{"record":"footer","completions":0,"scores":1}\n')
    path.write_bytes(lines[0] + lines[3] + footer)
    assert len(ScoreFile(path).of({"a/base"})) == 1
    path.write_bytes(lines[0] + lines[3].replace(b"-1.25", b"-1.26") + footer)
    with pytest.raises(CaptureError, match="line 2: its checksum is wrong"):
        ScoreFile(path)


def test_what_grows_is_sealed(tmp_path: Path) -> None:
    steps = World(1).recorded()
    path = tmp_path / "a.steps"
    file = Appender(path, keep_bytes=0)
    for line in steps_lines(steps):
        file.add(line)
    file.close()
    assert len(read_steps(path)) == 1
    data = bytearray(path.read_bytes())
    place = data.index(b'"data":"') + 40
    data[place] = ord("A") if data[place] != ord("A") else ord("B")
    path.write_bytes(bytes(data))
    with pytest.raises(CaptureError, match="line 2: its checksum is wrong"):
        read_steps(path)


@settings(deadline=None, max_examples=200)
@given(st.dictionaries(st.text(min_size=1), st.integers() | st.text() | st.lists(st.integers()), min_size=1))
def test_any_object_keeps_its_fields(record: dict[str, Json]) -> None:
    line = json.dumps(record).encode() + b"\n"
    with_it = sealed(line)
    assert seal_of(with_it) is True
    assert {k: v for k, v in json.loads(with_it).items() if k != FIELD} == {
        k: v for k, v in record.items() if k != FIELD
    }
