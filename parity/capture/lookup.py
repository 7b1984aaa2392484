"""One completion of a capture, or its score: the lines of the others are not parsed, and the file need not be whole."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from parity.capture.lines import is_record, parsed_or_none, raw_lines
from parity.capture.parse import parse_completion, parse_score
from parity.capture.problems import CaptureError, Malformed
from parity.capture.shards import files_of
from parity.messages import Message
from parity.records import Completion, Key, ScoreKey, TopLogprobs


def find_completion(path: Path, key: Key) -> Completion | None:
    """The completion `key` of a capture; None where the file has none. Raises CaptureError where it cannot be read."""
    for line, record in _records(path, "completion", key):
        try:
            return parse_completion(record, line)
        except Malformed as error:
            raise CaptureError(str(path), line, error.said) from error
    return None


def find_score(path: Path, wanted: ScoreKey) -> TopLogprobs | None:
    """The score of one completion in a capture or a scores file; None where the file has none. Raises CaptureError."""
    for line, record in _records(path, "score", Key(*wanted[1:])):
        try:
            found, top = parse_score(record)
        except Malformed as error:
            raise CaptureError(str(path), line, error.said) from error
        if found == wanted:
            return top
    return None


def _records(path: Path, kind: str, key: Key) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """(line number, record) of each record of this kind and key. What is no JSON is said where nothing else is left."""
    problems: list[tuple[int | None, Message]] = []

    def note(line: int | None, problem: Message) -> None:
        problems.append((line, problem))

    spellings = {json.dumps(key.request, ensure_ascii=ascii).encode() for ascii in (True, False)}
    for number, _, raw in chain.from_iterable(raw_lines(file, note) for file in files_of(path)):
        if not any(spelling in raw for spelling in spellings):
            continue
        parsed = parsed_or_none(number, raw, note)
        record = parsed[0] if parsed else None
        if is_record(record, kind) and _key(record) == key:
            yield number, record
    if problems:
        raise CaptureError(str(path), *problems[0])


def _key(record: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    return record.get("request"), record.get("round", 0), record.get("sample", 0)
