"""A plan as one number, by which the store knows it again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import orjson

from parity.plan.parts import Request
from parity.plan.types import Plan
from parity.records import Json


def plan_hash(
    plan: Plan, *, sampling: Mapping[str, Json] | None = None, requests: Iterable[Request] | None = None
) -> str:
    """SHA-256 of what a plan asks for: model content, prompts, sampling, arms. Not of paths or versions.

    `sampling`: as captures say it, where the plan stands in for that of captures compared. `requests`: in place of the
    plan's, one at a time, since a million of them take more memory than their captures.
    """
    content: dict[str, Json] = {
        "model": plan.model.fingerprint or plan.model.name,
        "rounds": plan.rounds or None,
        "sampling": plan.sampling.to_json() if sampling is None else sampling,
        "requests": plan.requests if requests is None else requests,
        "arms": [
            [arm.name, {name: value for name, value in arm.engine.items() if name != "model"}] for arm in plan.arms
        ],
        "baseline": plan.baseline,
    }
    digest = hashlib.sha256()
    for number, name in enumerate(sorted(content)):
        digest.update(b"%b%b:" % (b"," if number else b"{", _json(name)))
        if name != "requests":
            digest.update(_json(content[name]))
            continue
        before = b"["
        for one in content[name]:
            digest.update(before + _json([one.id, one.prompt_token_ids, *([one.own_json()] if one.sampling else [])]))
            before = b","
        digest.update(b"[]" if before == b"[" else b"]")
    digest.update(b"}")
    return digest.hexdigest()


def _json(value: Json) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
