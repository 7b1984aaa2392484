"""What an unfinished capture holds, and how it is continued.

A capture grows by whole lines, so after any death it is a header, some records and at most one cut-off
line. That line is cut away. A round that is not complete is run again as a whole, because the batch a
request runs in changes the numerics: only the missing completions are kept from the replay.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import orjson

from parity.capture import SCHEMA, dump_line
from parity.errors import ParityError
from parity.locks import lock_now
from parity.plan import Arm, Plan
from parity.records import Json, Key, ScoreKey
from parity.run.messages import Expected


@dataclass(slots=True)
class Kept:
    """What is remembered of a completion that is in the file already."""

    digest: bytes
    tokens: int
    prompt_tokens: int
    drafts: int
    draft_tokens: int
    accepted_tokens: int


@dataclass
class Held:
    """Contents of a capture file, as far as whole lines go. `end` is the byte after the last whole record
    before the footer."""

    header: dict[str, Json] | None = None
    completions: dict[Key, Kept] = field(default_factory=dict)
    scores: set[ScoreKey] = field(default_factory=set)
    rounds: dict[tuple[int, int], Mapping[str, Json]] = field(default_factory=dict)
    """Counters of each round that was run to its end, by round and replica, where the worker gives them."""
    footer: dict[str, Json] | None = None
    end: int = 0

    @property
    def complete(self) -> bool:
        return self.footer is not None

    @property
    def tokens(self) -> int:
        return sum(kept.tokens for kept in self.completions.values())

    def missing_rounds(self, expected: Expected, replica: int = 0) -> list[int]:
        """Rounds with something missing: a completion, or the counters where other rounds have theirs."""
        counted = {round_ for round_, by in self.rounds if by == replica}
        return [
            r
            for r in range(expected.rounds)
            if not expected.keys_of_round(r) <= self.completions.keys() or (counted and r not in counted)
        ]


def digest(token_ids: list[int]) -> bytes:
    return hashlib.sha256(orjson.dumps(token_ids)).digest()


def keep(record: Mapping[str, Any]) -> Kept:
    spec = record.get("spec") or {}
    drafted = spec.get("drafted", [])
    return Kept(
        digest=digest(record["token_ids"]),
        tokens=len(record["token_ids"]),
        prompt_tokens=len(record["prompt_token_ids"]),
        drafts=sum(1 for count in drafted if count),
        draft_tokens=sum(drafted),
        accepted_tokens=sum(spec.get("accepted", [])),
    )


def read_held(path: Path) -> Held:
    """What is in `path`; an absent or empty file holds nothing.

    Raises ParityError when the file is damaged anywhere but in its last line.
    """
    held = Held()
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return held
    except OSError as error:
        raise ParityError(f"cannot read {path}: {error.strerror}") from error
    with file:
        number = 0
        while line := file.readline():
            number += 1
            if not line.endswith(b"\n"):
                break
            try:
                _take(held, orjson.loads(line))
            except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
                raise ParityError(
                    f"{path}, line {number}: damaged, this is not where an interrupted run ends ({error})",
                    hint="move the file away and run the arm again",
                ) from error
            if held.footer is None:
                held.end = file.tell()
    return held


def _take(held: Held, record: Mapping[str, Any]) -> None:
    kind = record["record"]
    if held.footer is not None:
        raise ValueError("a record after the footer")
    if (held.header is None) != (kind == "header"):
        raise ValueError("the header is not where it belongs")
    if kind == "header":
        if record["schema"] != SCHEMA:
            raise ValueError(f"schema {record['schema']!r}")
        held.header = dict(record)
    elif kind == "completion":
        held.completions[Key(record["request"], record["round"], record["sample"])] = keep(record)
    elif kind == "score":
        held.scores.add(ScoreKey(record["arm"], record["request"], record["round"], record["sample"]))
    elif kind == "round":
        held.rounds[int(record["round"]), int(record.get("replica", 0))] = dict(record["counters"])
    elif kind == "footer":
        held.footer = dict(record)
    else:
        raise ValueError(f"unknown record {kind!r}")


def check_same_plan(held: Held, plan: Plan, arm: Arm, path: Path) -> None:
    """Raises ParityError when the file was not made from this plan and arm."""
    if held.header is None:
        return
    header = held.header
    differences = [
        name
        for name, here, there in (
            ("arm", arm.name, header.get("arm")),
            ("model", plan.model.name, header.get("model")),
            ("sampling", plan.sampling.to_json(), header.get("sampling")),
            ("engine settings", arm.engine, header.get("engine", {}).get("asked")),
        )
        if here != there
    ]
    requests = {request.id for request in plan.requests}
    if any(key.request not in requests for key in held.completions):
        differences.append("requests")
    if differences:
        raise ParityError(
            f"{path} was made by another plan: {', '.join(differences)} differ",
            hint="resume with the plan it was started with, or write to another place",
        )


def engine_differences(old: Mapping[str, Json], new: Mapping[str, Json], *, of_replicas: bool = False) -> list[str]:
    """Fields of two headers that show that they are of different engines; replicas may have devices of their own."""
    differences = [
        f"engine.{name}"
        for name in sorted({*old["engine"], *new["engine"]})
        if old["engine"].get(name) != new["engine"].get(name)
    ]
    for name in ("versions",) if of_replicas else ("versions", "devices", "threads"):
        if old["environment"].get(name) != new["environment"].get(name):
            differences.append(f"environment.{name}")
    prints = old.get("model_fingerprint"), new.get("model_fingerprint")
    if None not in prints and prints[0] != prints[1]:
        differences.append("model_fingerprint")
    if not of_replicas and len(old.get("replicas") or ()) != len(new.get("replicas") or ()):
        differences.append("the number of replicas")
    return differences


def check_same_engine(old: Mapping[str, Json], new: Mapping[str, Json], path: Path) -> None:
    """Raises ParityError when the engine that would continue is not the one that began."""
    differences = engine_differences(old, new)
    if differences:
        raise ParityError(
            f"{path} was begun by another engine: {', '.join(differences)} differ",
            hint="half a capture of each would prove nothing: run the arm again from the start",
        )


class Appender:
    """A capture file being written: whole lines, flushed one by one, by one process at a time."""

    def __init__(self, path: Path, *, keep_bytes: int) -> None:
        """Open `path` and cut it to its first `keep_bytes` bytes. Raises ParityError."""
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file: IO[bytes] = path.open("ab", buffering=0)
        except OSError as error:
            raise ParityError(f"cannot write {path}: {error.strerror}", hint="choose another place") from error
        if not lock_now(self._file.fileno()):
            self._file.close()
            raise ParityError(f"another parity is writing to {path}", hint="wait for it, or end it")
        self._file.truncate(keep_bytes)
        self._end = keep_bytes

    def add(self, record: Mapping[str, Json]) -> None:
        """Append one record. Raises ParityError when it cannot be written (a full disk)."""
        data = memoryview(dump_line(record))
        whole = self._end + len(data)
        try:
            while data:
                data = data[self._file.write(data) :]
        except OSError as error:
            self._file.truncate(self._end)
            raise ParityError(
                f"cannot write {self.path}: {error.strerror}",
                hint="make room and continue with --resume: whole records up to here are kept",
            ) from error
        self._end = whole

    def close(self) -> None:
        """To disk, and done. Raises ParityError when the disk does not take it."""
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            raise ParityError(f"cannot write {self.path}: {error.strerror}") from error
        finally:
            self._file.close()
