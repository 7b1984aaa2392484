"""What an unfinished capture holds, and how it is continued.

A capture grows by whole lines, so after any death it is a header, some records and at most one cut-off
line. That line is cut away. A round that is not complete is run again as a whole, because the batch a
request runs in changes the numerics: only the missing completions are kept from the replay.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import orjson

from parity.capture.lines import raw_lines
from parity.capture.steps import steps_path
from parity.errors import ParityError, cannot_write
from parity.messages import Message, message
from parity.plan import Arm, Plan
from parity.records import Header, Key, ScoreKey
from parity.run.counting import Counters
from parity.run.expected import Expected
from parity.run.messages import (
    Footer,
    HeldRecord,
    ProtocolError,
    Round,
    ScoreName,
    Spec,
    Tokens,
    held_record,
)


class RefusedFile(ParityError):
    """What an earlier attempt left cannot be continued."""

    def __init__(self, path: Path, said: Message, *, hint: Message) -> None:
        super().__init__(said, hint=hint)
        self.path = path


def put_aside(path: Path) -> Path:
    """Move a file that cannot be continued, and the steps beside it, out of the way: where it is now.

    Raises ParityError where the directory cannot be written."""
    number = 1
    while (aside := path.with_name(f"{path.name}.refused{f'-{number}' if number > 1 else ''}")).exists():
        number += 1
    try:
        path.replace(aside)
        beside = steps_path(path)
        if beside != path and beside.exists():
            beside.replace(beside.with_name(beside.name + aside.name.removeprefix(path.name)))
    except OSError as error:
        raise cannot_write(path, error) from error
    return aside


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

    header: Header | None = None
    completions: dict[Key, Kept] = field(default_factory=dict)
    scores: set[ScoreKey] = field(default_factory=set)
    rounds: dict[tuple[int, int], Counters] = field(default_factory=dict)
    """Counters of each round that was run to its end, by round and replica, where the worker gives them."""
    footer: Footer | None = None
    end: int = 0

    @property
    def complete(self) -> bool:
        return self.footer is not None

    @property
    def counters(self) -> Counters:
        return {} if self.footer is None else self.footer.counters

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


def keep(completion: Tokens) -> Kept:
    spec = completion.spec
    drafted = spec.drafted if isinstance(spec, Spec) else []
    return Kept(
        digest=digest(completion.token_ids),
        tokens=len(completion.token_ids),
        prompt_tokens=len(completion.prompt_token_ids),
        drafts=sum(1 for count in drafted if count),
        draft_tokens=sum(drafted),
        accepted_tokens=sum(spec.accepted) if isinstance(spec, Spec) else 0,
    )


def read_held(path: Path) -> Held:
    """What is in `path`; an absent or empty file holds nothing.

    Raises RefusedFile when the file is damaged anywhere but in its last line, ParityError where it cannot be read.
    """
    held = Held()
    if not path.exists():
        return held

    def damaged(number: int | None, why: Message) -> NoReturn:
        raise RefusedFile(
            path,
            message(
                "run.damaged",
                "{path}, line {number}: damaged, this is not where an interrupted run ends ({why})",
                path=str(path),
                number=number or 0,
                why=why,
            ),
            hint=message("run.move_away", "move the file away and run the arm again"),
        )

    for number, begin, line in raw_lines(path, damaged):
        if not line.endswith(b"\n"):
            break
        try:
            _take(held, held_record(line))
        except ProtocolError as error:
            damaged(number, error.said)
        if held.footer is None:
            held.end = begin + len(line)
    return held


def _take(held: Held, record: HeldRecord) -> None:
    if held.footer is not None:
        raise ProtocolError(message("run.after_footer", "a record after the footer"))
    if (held.header is None) != isinstance(record, Header):
        raise ProtocolError(message("run.misplaced_header", "the header is not where it belongs"))
    if isinstance(record, Header):
        held.header = record
    elif isinstance(record, Tokens):
        held.completions[record.key] = keep(record)
    elif isinstance(record, ScoreName):
        held.scores.add(record.key)
    elif isinstance(record, Round):
        held.rounds[record.round, record.replica] = record.counters
    else:
        held.footer = record


def check_same_plan(held: Held, plan: Plan, arm: Arm, path: Path) -> None:
    """Raises RefusedFile when the file was not made from this plan and arm."""
    if held.header is None:
        return
    header = held.header
    differences: list[Message] = [
        name
        for name, here, there in (
            (message("run.differ.arm", "arm"), arm.name, header.arm),
            (message("run.differ.model", "model"), plan.model.name, header.model),
            (message("run.differ.sampling", "sampling"), plan.sampling.to_json(), header.sampling),
            (message("run.differ.engine", "engine settings"), arm.engine, header.engine.get("asked")),
        )
        if here != there
    ]
    requests = {request.id for request in plan.requests}
    if any(key.request not in requests for key in held.completions):
        differences.append(message("run.differ.requests", "requests"))
    if differences:
        raise RefusedFile(
            path,
            message(
                "run.another_plan",
                "{path} was made by another plan: {differences} differ",
                path=str(path),
                differences=differences,
            ),
            hint=message("run.its_plan", "resume with the plan it was started with, or write to another place"),
        )


def engine_differences(old: Header, new: Header, *, of_replicas: bool = False) -> list[Message | str]:
    """Fields of two headers that show that they are of different engines; replicas may have devices of their own."""
    differences: list[Message | str] = [
        f"engine.{name}" for name in sorted({*old.engine, *new.engine}) if old.engine.get(name) != new.engine.get(name)
    ]
    for name in ("versions",) if of_replicas else ("versions", "devices", "threads"):
        if old.environment.get(name) != new.environment.get(name):
            differences.append(f"environment.{name}")
    prints = old.model_fingerprint, new.model_fingerprint
    if all(prints) and prints[0] != prints[1]:
        differences.append("model_fingerprint")
    if not of_replicas and old.replicas != new.replicas:
        differences.append(message("run.differ.replicas", "the number of replicas"))
    return differences


def check_same_engine(old: Header, new: Header, path: Path) -> None:
    """Raises RefusedFile when the engine that would continue is not the one that began."""
    differences = engine_differences(old, new)
    if differences:
        raise RefusedFile(
            path,
            message(
                "run.another_engine",
                "{path} was begun by another engine: {differences} differ",
                path=str(path),
                differences=differences,
            ),
            hint=message(
                "run.half_of_each", "half a capture of each would prove nothing: run the arm again from the start"
            ),
        )
