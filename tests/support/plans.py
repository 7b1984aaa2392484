"""Plans for tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from parity.plan import Plan


def plan_of(value: Mapping[str, Any]) -> Plan:
    """The plan of a mapping (schema parity.plan/1). One arm is enough, which `Plan.from_json` does not allow."""
    arms = value["arms"]
    second = [{**arms[0], "name": "another/arm"}] if len(arms) == 1 else []
    plan = Plan.from_json({"schema": "parity.plan/1", **value, "arms": [*arms, *second]})
    return replace(plan, arms=plan.arms[: len(arms)])
