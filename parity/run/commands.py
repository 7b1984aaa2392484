"""What a worker is asked, as types: one JSON object a line, after its program. What it answers is in `messages`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import msgspec
import numpy as np
from msgspec import UNSET, Struct, UnsetType

from parity.plan import Plan
from parity.records import Json
from parity.run.items import ScoreItem


class Job(Struct, frozen=True):
    """The first line that a worker gets: its plan, its arm, how long it may hear nothing, how long it waits for the
    memory of its devices to be free before it starts its engine (seconds), and whether it loads its engine's code and
    waits for `Start` before that."""

    plan: Json
    arm: str
    silence: float | UnsetType = UNSET
    settle: float | UnsetType = UNSET
    wait: bool | UnsetType = UNSET


class Start(Struct, frozen=True, tag_field="op", tag="start"):
    """Start the engine: it is this arm's turn. `settle` as in the job."""

    settle: float | UnsetType = UNSET


class Generate(Struct, frozen=True, tag_field="op", tag="generate"):
    rounds: Sequence[int]


class Teacher(Struct, frozen=True, tag_field="op", tag="score"):
    """Teacher-force these."""

    items: Sequence[ScoreItem]
    top: int


class Trial(Struct, frozen=True, tag_field="op", tag="trial"):
    """One round of other requests."""

    requests: Json
    sampling: Json
    churn: Json


class Exit(Struct, frozen=True, tag_field="op", tag="exit"):
    """Stop what is being done, and end."""


class Ping(Struct, frozen=True, tag_field="op", tag="ping"):
    """Still here."""


Command: TypeAlias = Job | Start | Generate | Teacher | Trial | Exit | Ping


def trial_of(plan: Plan) -> Trial:
    """One round of the plan's requests."""
    asked = plan.to_json()
    return Trial(asked["requests"], asked["sampling"], asked.get("churn", {}))


def command_line_of(command: Command) -> bytes:
    """A command as a line."""
    return msgspec.json.encode(command, enc_hook=_array) + b"\n"


def _array(value: object) -> list[int]:
    if isinstance(value, np.ndarray):
        ids: list[int] = value.tolist()
        return ids
    raise NotImplementedError(f"no JSON for a {type(value).__name__}")
