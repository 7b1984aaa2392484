"""What every arm of a plan has in common, as one number: two hosts that differ in it ran different plans."""

from __future__ import annotations

import hashlib
import json

from parity.plan.types import Plan


def plan_digest(plan: Plan) -> str:
    """SHA-256 of requests, rounds and sampling parameters; the same as the worker's identity.plan_digest."""
    common = {
        "requests": [
            [one.id, one.prompt_token_ids, one.max_tokens, *([one.own_json()] if one.sampling else [])]
            for one in plan.requests
        ],
        "rounds": plan.rounds,
        "sampling": plan.sampling.to_json(),
    }
    return hashlib.sha256(json.dumps(common, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
