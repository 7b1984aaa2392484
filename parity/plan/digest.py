"""What every arm of a plan has in common, as one number: two hosts that differ in it ran different plans."""

from __future__ import annotations

import hashlib
import json

from parity.plan.types import Plan


def plan_digest(plan: Plan) -> str:
    """SHA-256 of requests, rounds and sampling parameters; the same as the worker's identity.plan_digest."""
    common = {
        "requests": [[request.id, request.prompt_token_ids, request.max_tokens] for request in plan.requests],
        "rounds": plan.rounds,
        "sampling": plan.sampling.to_json(),
    }
    return hashlib.sha256(json.dumps(common, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
