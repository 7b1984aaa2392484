"""Rows of the database as the frozen types of `rows`."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from functools import cache, wraps
from types import NoneType, UnionType
from typing import Any, Final, TypeVar, get_args, get_type_hints

import orjson

from parity.errors import ParityError
from parity.messages import Message, message, verbatim
from parity.records import Verdict
from parity.records.counters import sane
from parity.records.gaps import KeptGaps
from parity.records.next_steps import steps_from
from parity.store.packing import unpack_gaps, unpack_tokens
from parity.store.plans import plan_from
from parity.store.rows import ArmRow, CompletionRow, FindingRow, RequestRow, Rule, RunRow, RunStatus, TriageState

Made = TypeVar("Made")


def _readable(make: Callable[[sqlite3.Row], Made]) -> Callable[[sqlite3.Row], Made]:
    """A row that somebody else has written into, or a disk has, is an error in words."""

    @wraps(make)
    def checked(row: sqlite3.Row) -> Made:
        try:
            return _typed(make(row))
        except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            # JSON, token blobs, unknown states
            what = make.__name__.removesuffix("_row")
            raise ParityError(
                message(
                    "store.database_holds_cannot",
                    "the database holds a {what} that cannot be read: {said}",
                    what=what,
                    said=str(error),
                ),
                hint=message(
                    "store.changed_damaged_outside",
                    "it was changed or damaged from outside: restore a backup, or delete that run",
                ),
            ) from error

    return checked


SCALARS: Final = (str, int, float, bool, NoneType)


@cache
def _scalar_fields(row: type) -> list[tuple[str, tuple[type, ...]]]:
    """The fields of a row that are plain values, and what they may be: SQLite's columns hold whatever was put there."""
    found = []
    for name, hint in get_type_hints(row).items():
        types = get_args(hint) if isinstance(hint, UnionType) else (hint,)
        if all(isinstance(one, type) and issubclass(one, SCALARS) for one in types):
            found.append((name, (*types, int) if float in types else types))
    return found


LONGEST: Final = 1 << 20
"""Characters of a name, a path, a state."""
LONGER: Final = {"prompt": 16 << 20, "text": 16 << 20, "command": 16 << 20}
"""Of what may be long: a million tokens have some 5 million."""
COUNTS: Final = ("ordinal", "round", "sample", "n_tokens", "first_divergence", "position", "length")


def _typed(row: Made) -> Made:
    """The row as its type says it is, no count below 0, no name without end. Raises TypeError, ValueError."""
    kind: type = type(row)
    for name, types in _scalar_fields(kind):
        if type(getattr(row, name)) not in types:
            raise TypeError(f"{name} is {type(getattr(row, name)).__name__}")
        most = LONGER.get(name, LONGEST)
        if isinstance(value := getattr(row, name), str) and len(value) > most:
            raise ValueError(f"{name} has more than {most} characters")
        if name in COUNTS and (getattr(row, name) or 0) < 0:
            raise ValueError(f"{name} is {getattr(row, name)}")
    return row


def messages_from(text: str) -> tuple[Message, ...]:
    """Messages of a column; earlier versions wrote finished sentences."""
    return tuple(map(Message.from_json, orjson.loads(text)))


def message_from(text: str | None) -> Message | None:
    """The message of a column, JSON or, from earlier versions, a finished sentence."""
    if text is None:
        return None
    try:
        return Message.from_json(orjson.loads(text))
    except ValueError:
        return verbatim(text)


@_readable
def run_row(row: sqlite3.Row) -> RunRow:
    stored = plan_from(row["plan"])
    return RunRow(
        id=row["id"],
        source=row["source"],
        created=row["created"],
        finished=row["finished"],
        status=RunStatus(row["status"]),
        verdict=_verdict(row["verdict"]),
        reasons=messages_from(row["reasons"]),
        message=message_from(row["message"]),
        model=row["model"],
        baseline=row["baseline"],
        plan=stored.plan,
        score_files=stored.score_files,
        plan_hash=row["plan_hash"],
        command=row["command"],
        versions={name: str(version) for name, version in _object(row["versions"]).items()},
        directory=row["directory"],
        duration=row["duration"],
        name=row["name"],
        tags=tuple(row["tags"].split()),
    )


def _verdict(text: str | None) -> str | None:
    return None if text is None else str(Verdict(text))


def _object(text: str) -> dict[str, Any]:
    """The JSON object of a column. Raises ValueError for other JSON."""
    value = orjson.loads(text)
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    return value


@_readable
def arm_row(row: sqlite3.Row) -> ArmRow:
    stats = _object(row["stats"])
    return ArmRow(
        id=row["id"],
        run=row["run_id"],
        name=row["name"],
        backend=row["backend"],
        variant=row["variant"],
        is_baseline=bool(row["is_baseline"]),
        status=row["status"],
        message=message_from(row["message"]),
        capture=row["capture"],
        engine=_object(row["engine"]),
        environment=_object(row["environment"]),
        counters=None if row["counters"] is None else sane(_object(row["counters"])),
        verdict=_verdict(row["verdict"]),
        reasons=messages_from(row["reasons"]),
        notes=tuple(map(Message.from_json, stats.get("notes", ()))),
        next_steps=steps_from(stats.get("next_steps", ())),
        counts={name: int(count) for name, count in _object(row["counts"]).items()},
        stats={name: value for name, value in stats.items() if name not in ("notes", "next_steps")},
        tokens_per_second=row["tokens_per_second"],
        acceptance_rate=row["acceptance_rate"],
        acceptance_length=row["acceptance_length"],
    )


@_readable
def request_row(row: sqlite3.Row) -> RequestRow:
    return RequestRow(row["ordinal"], row["name"], row["prompt"], unpack_tokens(row["prompt_tokens"]))


@_readable
def completion_row(row: sqlite3.Row) -> CompletionRow:
    return CompletionRow(
        arm=row["arm_name"],
        request=row["request"],
        round=row["round"],
        sample=row["sample"],
        n_tokens=row["n_tokens"],
        finish_reason=row["finish_reason"],
        stop_reason=None if row["stop_reason"] is None else orjson.loads(row["stop_reason"]),
        cls=row["class"],
        first_divergence=row["first_divergence"],
        text=row["text"],
        token_ids=unpack_tokens(row["tokens"]),
    )


@_readable
def finding_row(row: sqlite3.Row) -> FindingRow:
    return FindingRow(
        id=row["id"],
        run=row["run_id"],
        arm=row["arm_name"],
        ordinal=row["ordinal"],
        request=row["request"],
        round=row["round"],
        sample=row["sample"],
        kind=row["kind"],
        severity=row["severity"],
        position=row["position"],
        length=row["length"],
        gap=row["gap"],
        state=TriageState(row["state"]),
        evidence=_object(row["evidence"]),
        fingerprint=row["fingerprint"],
        weight=row["weight"],
        label=row["label"],
        followed=row["followed"],
        rule=row["rule"],
    )


@_readable
def rule_row(row: sqlite3.Row) -> Rule:
    return Rule(
        row["kind"],
        row["link"],
        {str(name): str(value) for name, value in _object(row["signs"]).items()},
        tuple(str(name) for name in orjson.loads(row["conditions"])),
        {str(name): str(value) for name, value in _object(row["versions"]).items()},
        row["model"],
        row["id"],
        row["author"],
        row["created"],
    )


@_readable
def gaps_row(row: sqlite3.Row) -> KeptGaps:
    return unpack_gaps(row["tokens"])
