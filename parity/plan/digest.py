"""Plans as one number: `plan_digest` is in every capture, `plan_hash` names a plan in the store."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

import orjson

from parity.plan.types import Plan
from parity.records import Json


def plan_digest(plan: Plan) -> str:
    """SHA-256 of requests, rounds and sampling parameters, which all arms have in common: two hosts that differ in it
    ran different plans. The same as the worker's identity.plan_digest."""
    common = {
        "requests": [
            [one.id, one.prompt_token_ids, one.max_tokens, *([one.own_json()] if one.sampling else [])]
            for one in plan.requests
        ],
        "rounds": plan.rounds,
        "sampling": plan.sampling.to_json(),
    }
    return hashlib.sha256(json.dumps(common, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def plan_hash(plan: Plan, *, sampling: Mapping[str, Json] | None = None) -> str:
    """SHA-256 of what a plan asks for: model content, prompts, sampling, arms. Not of paths or versions.

    `sampling`: as captures say it, where the plan stands in for that of captures compared.
    """
    content = {
        "model": plan.model.fingerprint or plan.model.name,
        "rounds": plan.rounds or None,
        "sampling": plan.sampling.to_json() if sampling is None else sampling,
        "requests": [[request.id, request.prompt_token_ids] for request in plan.requests],
        "arms": [
            [arm.name, {name: value for name, value in arm.engine.items() if name != "model"}] for arm in plan.arms
        ],
        "baseline": plan.baseline,
    }
    return hashlib.sha256(orjson.dumps(content, option=orjson.OPT_SORT_KEYS)).hexdigest()
