"""The plan of a run as its column holds it: JSON, without the requests, which have a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from parity.messages import Message
from parity.plan import DEFAULT_TOLERANCE, Arm, Model, Plan, Sampling, Score
from parity.plan.churn import Churn
from parity.plan.parts import Skipped
from parity.records import Json
from parity.records.sampling import Value, asked


class _Model(msgspec.Struct):
    name: str = ""
    path: str = ""
    fingerprint: Mapping[str, str] = {}
    vocab_size: int | None = None
    eos_token_ids: tuple[int, ...] = ()


class _Skipped(msgspec.Struct):
    arm: str
    reason: Any
    """A message; from earlier versions a finished sentence."""


class _Files(msgspec.Struct):
    files: tuple[str, ...] = ()


class _Column(msgspec.Struct):
    """What parity has ever written; of captures compared, less is known than of a run."""

    baseline: str
    model: _Model = msgspec.field(default_factory=_Model)
    arms: tuple[Arm, ...] = ()
    sampling: Mapping[str, Json] = {}
    rounds: int = 0
    score: Score = Score()
    tolerance: float | str = DEFAULT_TOLERANCE
    parity: str = ""
    churn: Churn = Churn()
    skipped: tuple[_Skipped, ...] = ()
    arbiter: Arm | None = None
    record: bool | str = False
    sketch: str = ""
    scores: _Files = msgspec.field(default_factory=_Files)


class StoredPlan(Struct, frozen=True):
    """A plan without its requests, and the files that scores were read from where captures were compared."""

    plan: Plan
    score_files: tuple[str, ...]


_DECODER = msgspec.json.Decoder(_Column)


def plan_from(text: str) -> StoredPlan:
    """From a column. Raises ValueError for what parity does not write."""
    column = _DECODER.decode(text)
    plan = Plan(
        model=Model(**msgspec.structs.asdict(column.model)),
        requests=(),
        arms=column.arms,
        baseline=column.baseline,
        sampling=sampling_of(column.sampling),
        rounds=column.rounds,
        score=column.score,
        tolerance=column.tolerance,
        parity=column.parity,
        churn=column.churn,
        skipped=tuple(Skipped(one.arm, Message.from_json(one.reason)) for one in column.skipped),
        arbiter=column.arbiter,
        record=column.record,
        sketch=column.sketch,
    )
    return StoredPlan(plan, column.scores.files)


def column_of(plan: Plan, score_files: tuple[str, ...] = ()) -> dict[str, Json]:
    """What the column holds of a plan."""
    known = {name: value for name, value in plan.to_json().items() if name != "requests"}
    return known | ({"scores": {"files": list(score_files)}} if score_files else {})


def sampling_of(said: Mapping[str, Json]) -> Sampling:
    """Sampling parameters as a capture says them, whoever made it: those that no plan has, and values that are none,
    are at their defaults."""
    known: dict[str, Value] = {}
    for row in asked():
        if said.get(row.name) is None:
            continue
        try:
            known[row.name] = row.read(row.plain(said[row.name]))
        except (TypeError, ValueError):
            continue
    return Sampling().having(known)
