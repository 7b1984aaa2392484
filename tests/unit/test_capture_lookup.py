"""One completion of a capture, found without reading the others."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import planted_set

from parity.capture import CaptureError, find_completion, find_score, write_capture
from parity.records import Key, ScoreKey

MTP = planted_set.ARMS[1]


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    _, candidate, scores = planted_set.clean("A")
    path = tmp_path_factory.mktemp("captures") / "mtp.jsonl.gz"
    write_capture(path, replace(candidate, scores=scores))
    return path


def test_a_completion_and_its_score_are_what_the_file_says(capture: Path) -> None:
    _, candidate, scores = planted_set.clean("A")
    key = Key("p48", 0, 0)
    found = find_completion(capture, key)
    assert found is not None
    assert found.key == key
    assert found.token_ids.tolist() == candidate.completions[key].token_ids.tolist()
    score = find_score(capture, ScoreKey(MTP, *key))
    assert score is not None
    assert score.ids.tolist() == scores[ScoreKey(MTP, *key)].ids.tolist()


def test_what_is_not_there_is_none(capture: Path) -> None:
    assert find_completion(capture, Key("p48", 1, 0)) is None
    assert find_completion(capture, Key("p4", 0, 1)) is None
    assert find_score(capture, ScoreKey("somebody", "p48", 0, 0)) is None


@pytest.mark.parametrize("ascii_only", [True, False])
def test_a_request_is_found_however_its_name_is_spelled(tmp_path: Path, ascii_only: bool) -> None:
    path = tmp_path / "c.jsonl"
    name = '"\\u8bf7"' if ascii_only else '"请"'
    path.write_text(f'{{"record":"completion","request":{name},"prompt_token_ids":[1],"token_ids":[2]}}\n', "utf-8")
    found = find_completion(path, Key("请", 0, 0))
    assert found is not None
    assert found.token_ids.tolist() == [2]


def test_what_is_wrong_with_the_file_is_said_where_the_completion_is_not_found(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    path.write_text('{"record":"completion","request":"a"\n', "utf-8")
    with pytest.raises(CaptureError, match=r"c\.jsonl, line 1: not valid JSON"):
        find_completion(path, Key("a", 0, 0))
    path.write_text('{"record":"completion","request":"a","prompt_token_ids":[],"token_ids":"?"}\n', "utf-8")
    with pytest.raises(CaptureError, match="line 1"):
        find_completion(path, Key("a", 0, 0))
    path.write_text('{"request":"a"\n{"record":"completion","request":"a","prompt_token_ids":[],"token_ids":[5]}\n')
    found = find_completion(path, Key("a", 0, 0))
    assert found is not None
    assert found.line == 2
    path.write_text('{"record":"score","arm":"m","request":"a","logprobs":[', "utf-8")
    with pytest.raises(CaptureError, match="cut off"):
        find_score(path, ScoreKey("m", "a", 0, 0))
