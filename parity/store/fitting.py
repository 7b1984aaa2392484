"""Which findings a rule of a known bug takes: those of its kind whose evidence and arm are as it says."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson
from msgspec import Struct

from parity.records import Evidence, evidence_from_json
from parity.records.conditions import PER_REQUEST, conditions
from parity.records.objects import object_of, texts_of
from parity.records.signs import signs
from parity.store.decode import rule_row
from parity.store.plans import plan_from
from parity.store.rows import Rule


class ArmFacts(Struct, frozen=True):
    """What of an arm a rule may ask for. `conditions`: as `parity.records.conditions`."""

    conditions: Mapping[str, bool | None]
    versions: Mapping[str, str]
    model: str

    @property
    def holding(self) -> tuple[str, ...]:
        """The conditions that hold."""
        return tuple(name for name, holds in self.conditions.items() if holds and name not in PER_REQUEST)


def arm_facts(conn: sqlite3.Connection, arm: int) -> ArmFacts:
    """Of the arm with this number. Raises ValueError, TypeError where its row is damaged."""
    engine, environment, plan, model, requests = conn.execute(
        "SELECT arms.engine, arms.environment, runs.plan, runs.model,"
        " (SELECT count(*) FROM requests WHERE requests.run = runs.number)"
        " FROM arms JOIN runs ON runs.number = arms.run WHERE arms.id = ?",
        (arm,),
    ).fetchone()
    versions = texts_of(_object(environment).get("versions"))
    holding = conditions(
        _object(engine),
        plan_from(plan).plan.sampling.to_json(),
        model=model,
        prompt_tokens=None,
        requests=requests,
        versions=versions,
    )
    return ArmFacts(holding, versions, model)


def fits_arm(rule: Rule, facts: ArmFacts) -> bool:
    return (
        rule.model in ("", facts.model)
        and all(facts.conditions.get(name) for name in rule.conditions)
        and all(facts.versions.get(name) == version for name, version in rule.versions.items())
    )


def fits(rule: Rule, kind: str, position: int | None, length: int | None, facts: Evidence) -> bool:
    """Is the finding as the rule says? Its arm is asked about by `fits_arm`."""
    return kind == rule.kind and rule.signs.items() <= dict(signs(kind, position, length, facts)).items()


def rule_of(rules: Iterable[Rule], kind: str, position: int | None, length: int | None, facts: Evidence) -> int | None:
    """The first rule that takes a finding."""
    return next((one.id for one in rules if fits(one, kind, position, length, facts)), None)


def rules_in(conn: sqlite3.Connection) -> list[Rule]:
    """All rules, the one that asks for most first: it says most about what it takes."""
    cursor = conn.cursor()
    cursor.row_factory = sqlite3.Row
    found = [rule_row(row) for row in cursor.execute("SELECT * FROM rules ORDER BY id")]
    return sorted(found, key=lambda one: -len(one.signs) - len(one.conditions) - len(one.versions) - bool(one.model))


def rules_for(conn: sqlite3.Connection, arm: int) -> list[Rule]:
    """Those that fit an arm; nothing is read of it where there are no rules."""
    found = rules_in(conn)
    if not found:
        return []
    facts = arm_facts(conn, arm)
    return [one for one in found if fits_arm(one, facts)]


def taken(conn: sqlite3.Connection, rule: Rule, ids: Sequence[int]) -> list[int]:
    """Those of these findings of its kind whose evidence is as the rule says; a damaged one is not."""
    if not rule.signs:
        return list(ids)
    found = []
    for start in range(0, len(ids), 500):
        chunk = ids[start : start + 500]
        rows = conn.execute(
            f"SELECT id, request, position, length, evidence FROM findings WHERE id IN ({','.join('?' * len(chunk))})",
            list(chunk),
        )
        for number, request, position, length, evidence in rows:
            try:
                facts = evidence_from_json(rule.kind, request, orjson.loads(evidence))
            except (ValueError, KeyError, TypeError, AttributeError):
                continue
            if fits(rule, rule.kind, position, length, facts):
                found.append(int(number))
    return found


def _object(text: str) -> Mapping[str, Any]:
    return object_of(orjson.loads(text))
