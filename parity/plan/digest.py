"""A plan as one number, by which the store knows it again."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import orjson

from parity.plan.types import Plan
from parity.records import Json


def plan_hash(plan: Plan, *, sampling: Mapping[str, Json] | None = None) -> str:
    """SHA-256 of what a plan asks for: model content, prompts, sampling, arms. Not of paths or versions.

    `sampling`: as captures say it, where the plan stands in for that of captures compared.
    """
    content = {
        "model": plan.model.fingerprint or plan.model.name,
        "rounds": plan.rounds or None,
        "sampling": plan.sampling.to_json() if sampling is None else sampling,
        "requests": [
            [one.id, one.prompt_token_ids, *([one.own_json()] if one.sampling else [])] for one in plan.requests
        ],
        "arms": [
            [arm.name, {name: value for name, value in arm.engine.items() if name != "model"}] for arm in plan.arms
        ],
        "baseline": plan.baseline,
    }
    return hashlib.sha256(orjson.dumps(content, option=orjson.OPT_SORT_KEYS)).hexdigest()
