"""Plans for tests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from parity.plan import Arm, Model, Plan, Request, Sampling
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


def fake_plan(mode: str = "", *, requests: int = 4, rounds: int = 1, n: int = 1, **env: str) -> Plan:
    """Arms fake/base and fake/mtp, whose engines do wrong what `mode` says (tests/unit/run/fake_arm.py)."""
    settings: dict[str, dict[str, Any]] = {"base": {"seed": 0}, "mtp": {"speculative_config": {"k": 1}}}
    return Plan(
        model=Model("fake", "/nowhere", {}, 1000, ()),
        requests=tuple(Request(f"p{i}", None, (1, 2, i)) for i in range(requests)),
        arms=tuple(
            Arm(f"fake/{variant}", "fake", variant, engine, {"FAKE": mode, **env})
            for variant, engine in settings.items()
        ),
        baseline="fake/base",
        sampling=Sampling(temperature=0.0, max_tokens=6, n=n),
        rounds=rounds,
    )


def in_mode(plan: Plan, mode: str) -> Plan:
    """The plan with engines that do this wrong."""
    return replace(plan, arms=tuple(replace(arm, env={**arm.env, "FAKE": mode}) for arm in plan.arms))
