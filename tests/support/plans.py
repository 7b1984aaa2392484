"""Plans for tests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from parity.plan import Plan, Request
from parity.store.plans import plan_from


def plan_of(value: Mapping[str, Any]) -> Plan:
    """The plan of a mapping (schema parity.plan/1). One arm is enough, which `Plan.from_json` does not allow."""
    arms = value["arms"]
    second = [{**arms[0], "name": "another/arm"}] if len(arms) == 1 else []
    plan = Plan.from_json({"schema": "parity.plan/1", **value, "arms": [*arms, *second]})
    return replace(plan, arms=plan.arms[: len(arms)])


def rough_plan(value: Mapping[str, Any]) -> Plan:
    """A plan of which little is said, such as a store takes: what is left out is at its default."""
    requests = tuple(
        Request(one["id"], one.get("prompt"), tuple(int(token) for token in one["prompt_token_ids"]))
        for one in value.get("requests", ())
    )
    header = {name: part for name, part in value.items() if name != "requests"}
    return replace(plan_from(json.dumps(header)).plan, requests=requests)
