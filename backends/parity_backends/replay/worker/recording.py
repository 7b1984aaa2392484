"""A capture and the scores beside it, looked up by what a plan asks for."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
from typing import Any, Iterator

from parity.records.shard_counters import added
from parity_backends.worker.asked import Record
from parity_backends.worker.protocol import SCHEMA
from parity_backends.worker.sentences import WorkerError, message

Place = tuple[str, int, int]
"""Request, round, sample."""


class Recording:
    """One capture: a file, or a directory of shards. Raises WorkerError for what is none, or is not finished."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.header: Record = {}
        self.completions: dict[Place, Record] = {}
        self.scores: dict[tuple[str, Place], Any] = {}
        self.counters: Record = {}
        self.files = files_in(path)
        for file in self.files:
            self._read(file)

    def _read(self, path: str) -> None:
        header: Record = {}
        counters = None
        for record in lines(path):
            kind = record.get("record")
            if kind == "header":
                header = record
            elif kind == "completion":
                self.completions[place_of(record)] = record
            elif kind == "score":
                self.scores[(str(record.get("arm")), place_of(record))] = record.get("logprobs")
            elif kind == "footer":
                counters = record.get("counters") or {}
        if header.get("schema") != SCHEMA:
            raise WorkerError(
                message(
                    "replay.not_a_capture",
                    "{path} is not a capture: its first record is no header of {schema}",
                    path=path,
                    schema=SCHEMA,
                )
            )
        if counters is None:
            raise WorkerError(message("replay.not_finished", "{path} is not finished: it has no footer", path=path))
        self.header = self.header or header
        self.counters = dict(added(self.counters, counters))

    @property
    def arm(self) -> str:
        return str(self.header.get("arm"))

    def digest(self) -> str:
        """SHA-256 of the file, or of all shards in their order."""
        digest = hashlib.sha256()
        for path in self.files:
            with open(path, "rb") as file:
                for block in iter(lambda: file.read(1 << 20), b""):
                    digest.update(block)
        return digest.hexdigest()


def files_in(path: str) -> list[str]:
    """The files of a capture or of scores: itself, or the shards that the index of a directory names."""
    if not os.path.isdir(path):
        return [path]
    index = os.path.join(path, "shards.json")
    try:
        with open(index, encoding="utf-8") as file:
            names = [str(one["name"]) for one in json.load(file)["shards"]]
            if not names:
                raise ValueError("it lists no shards")
            return [os.path.join(path, name) for name in names]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise WorkerError(
            message("replay.no_index", "{path} cannot be read: {said}", path=index, said=str(error))
        ) from None


def lines(path: str) -> Iterator[Record]:
    """The records of a capture or scores file, plain or compressed."""
    number = 0
    try:
        with gzip.open(path, "rt", encoding="utf-8") if path.endswith(".gz") else open(path, encoding="utf-8") as file:
            for line in file:
                number += 1
                if line.strip():
                    # A logprob that is not a number is null in JSON.
                    record = json.loads(line, parse_constant=lambda _: None)
                    if not isinstance(record, dict):
                        raise ValueError("not an object")
                    yield record
    except FileNotFoundError:
        raise WorkerError(message("replay.no_recording", "there is no recording {path}", path=path)) from None
    except (OSError, EOFError, ValueError) as error:
        raise WorkerError(
            message(
                "replay.unreadable",
                "{path}, line {number}: cannot be read: {said}",
                path=path,
                number=number,
                said=str(error),
            )
        ) from None


def place_of(record: Record) -> Place:
    return (str(record.get("request")), int(record.get("round") or 0), int(record.get("sample") or 0))


def arm_in(path: str) -> str | None:
    """The arm that a recording is of; None where its first line does not say."""
    try:
        for record in lines(files_in(path)[0]):
            return str(record.get("arm"))
    except WorkerError:
        return None
    return None


def scores_of(path: str | None) -> dict[tuple[str, Place], Any]:
    """Scores of a file of their own, or of its shards, by arm and place."""
    if path is None or not os.path.exists(path):
        return {}
    return {
        (str(record.get("arm")), place_of(record)): record.get("logprobs")
        for file in files_in(path)
        for record in lines(file)
        if record.get("record") == "score"
    }
