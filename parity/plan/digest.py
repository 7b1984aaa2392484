"""What every arm of a plan has in common, as one number: two hosts that differ in it ran different plans."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from parity.records import Json


def plan_digest(plan: Mapping[str, Json]) -> str:
    """SHA-256 of requests, rounds and sampling parameters; the same as the worker's identity.plan_digest."""
    common = {
        "requests": [
            [request["id"], request["prompt_token_ids"], request.get("max_tokens")] for request in plan["requests"]
        ],
        "rounds": plan.get("rounds", 1),
        "sampling": plan["sampling"],
    }
    return hashlib.sha256(json.dumps(common, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
