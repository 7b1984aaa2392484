"""A JSON document with a long list is written piece by piece, and is the same document."""

from __future__ import annotations

import io
import sys
from typing import Any

import pytest

from parity.cli.output import emit_json, emit_long_json
from parity.records import Json

BESIDE: dict[str, Json] = {"verdict": "PASS", "rows": [], "stats": {"rows": [None], "deep": [{"a": []}]}}


def row(number: int) -> dict[str, Json]:
    return {"number": number, "text": 'a "rows": [\n    null\n  ]\x85', "list": [1.5, None, {"é": []}], "empty": {}}


def written(monkeypatch: pytest.MonkeyPatch, encoding: str, call: Any, *arguments: Any) -> bytes:
    raw = io.BytesIO()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding=encoding, write_through=True))
        call(*arguments)
        return raw.getvalue()


@pytest.mark.parametrize("count", [0, 1, 2, 255, 256, 257, 512, 700])
@pytest.mark.parametrize("beside", [BESIDE, {"rows": []}, {"rows": [], "last": 1}, {"first": 1}])
@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_the_same_bytes(count: int, beside: dict[str, Json], encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [row(number) for number in range(count)]
    whole = written(monkeypatch, encoding, emit_json, {**beside, "rows": rows})
    assert written(monkeypatch, encoding, emit_long_json, beside, "rows", iter(rows)) == whole


def test_rows_are_not_all_made_before_some_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="utf-8", write_through=True))
    written_by_then = []

    def rows() -> Any:
        for number in range(2000):
            written_by_then.append(len(raw.getvalue()))
            yield row(number)

    emit_long_json({}, "rows", rows())
    assert written_by_then[0] == 0
    assert written_by_then[-1] > len(raw.getvalue()) / 2
