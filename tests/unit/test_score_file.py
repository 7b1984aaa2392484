"""Scores read arm by arm are those that are read at once, whoever wrote the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parity.capture import CaptureError, ScoreFile, dump_line, read_scores
from parity.records import ScoreKey

HEADER = {"record": "header", "schema": "parity.capture/1", "arm": "x/base"}


def score(arm: str, request: str, token: int = 5) -> dict[str, Any]:
    entries = [[[token, -0.5], [7, None]], [[9, -0.25]]]
    return {"record": "score", "arm": arm, "request": request, "round": 0, "sample": 0, "logprobs": entries}


RECORDS = [score("x/b", "p0"), score("x/c", "p0"), score("x/b", "p1", 6), score("x/base", "p0"), score("x/c", "p1")]
FOOTER = {"record": "footer", "completions": 0, "scores": 5, "counters": {}}


def write(folder: Path, *lines: bytes) -> Path:
    path = folder / "scores.jsonl"
    path.write_bytes(b"".join(lines))
    return path


def assert_same(path: Path) -> None:
    whole = read_scores(path)
    file = ScoreFile(path)
    arms = {key.arm for key in whole}
    for wanted in [*({arm} for arm in arms), arms, {"x/b", "x/base"}, set(), {"x/nobody"}]:
        part = file.of(wanted)
        assert list(part) == [key for key in whole if key.arm in wanted]
        for key, top in part.items():
            np.testing.assert_array_equal(top.ids, whole[key].ids)
            np.testing.assert_array_equal(top.values, whole[key].values)


def test_as_parity_writes_them(tmp_path: Path) -> None:
    assert_same(write(tmp_path, *map(dump_line, [HEADER, *RECORDS, FOOTER])))


def test_as_others_write_them(tmp_path: Path) -> None:
    """Blanks, names in another order, an arm with quotes, no header and no footer, empty lines, no last line end."""
    odd = score('x/"b\\é"', "p9")
    lines = [json.dumps(one).encode() + b"\n" for one in [*RECORDS, odd]]
    backwards = json.dumps(dict(reversed(score("x/b", "p8").items()))).encode()
    path = write(
        tmp_path,
        lines[0],
        b"\n",
        *lines[1:],
        dump_line(score("x/b", "p7")),
        dump_line(odd | {"request": "p1"}),
        backwards,
    )
    assert_same(path)
    assert ScoreKey('x/"b\\é"', "p1", 0, 0) in ScoreFile(path).of({'x/"b\\é"'})


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([HEADER], "no score records"),
        ([HEADER, *RECORDS, {**FOOTER, "scores": 4}], "line 7: the footer says 4 scores, the file has 5"),
        ([HEADER, *RECORDS, FOOTER, score("x/b", "p2")], "line 8: a record after the footer (line 7)"),
        ([HEADER, b'{"record":"score","arm":"x/b","request":"p0","lo'], "line 2: the line is cut off"),
        ([HEADER, b"[1]\n"], "line 2: a record must be a JSON object"),
        ([HEADER, {**RECORDS[0], "arm": 3}], "line 2: score: arm must be a string"),
    ],
)
def test_what_is_no_scores_file_is_refused_as_before(tmp_path: Path, lines: list[Any], message: str) -> None:
    path = write(tmp_path, *(one if isinstance(one, bytes) else dump_line(one) for one in lines))
    for reading in (read_scores, ScoreFile):
        with pytest.raises(CaptureError) as caught:
            reading(path)
        assert message in str(caught.value)
        assert "docs/capture.md" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (RECORDS[2], "line 8: score of x/b p1 round 0 sample 0 given twice (first on line 4)"),
        ({**score("x/b", "p3"), "logprobs": 3}, "line 8: score: logprobs must be a list"),
    ],
)
def test_a_bad_score_is_refused_when_its_arm_is_asked_for(tmp_path: Path, record: Any, message: str) -> None:
    lines = [HEADER, *RECORDS, score("x/c", "p4"), record, {**FOOTER, "scores": 7}]
    file = ScoreFile(write(tmp_path, *map(dump_line, lines)))
    assert len(file.of({"x/c"})) == 3
    with pytest.raises(CaptureError) as caught:
        file.of({"x/b"})
    assert message in str(caught.value)


def test_one_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="no such capture"):
        ScoreFile(tmp_path / "none.jsonl")
