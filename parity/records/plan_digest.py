"""What all arms of a plan have in common, as one number: two hosts that differ in it ran different plans.

The workers travel with this module in them: standard library only, Python 3.9 or newer.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any


def plan_digest(plan: Mapping[str, Any]) -> str:
    """SHA-256 of requests, rounds and sampling parameters of a plan in JSON."""
    common = {
        "requests": [
            [
                request["id"],
                request["prompt_token_ids"],
                request.get("max_tokens"),
                *([request["sampling"]] if request.get("sampling") else []),
            ]
            for request in plan["requests"]
        ],
        "rounds": plan.get("rounds", 1),
        "sampling": plan["sampling"],
    }
    return hashlib.sha256(json.dumps(common, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
