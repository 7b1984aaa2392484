"""Capture records from what the engine gives back, and token lists from capture records."""

from __future__ import annotations

import array
import base64
import json
import math
import sys
from typing import Any, Optional

from .asked import Item, Record, Request
from .sampling import own

DECIMALS = 6
"""Of a logprob in a record."""


def number(raw: Any) -> Optional[float]:
    """A logprob for JSON: NaN is null, minus infinity is -9999 (as in vLLM's own server)."""
    value = float(raw)
    if value != value:
        return None
    if math.isinf(value):
        return -9999.0 if value < 0 else 9999.0
    return round(value, DECIMALS)


def completion_record(request: Request, round_: int, sample: int, **said: Any) -> Record:
    """The record of one completion with what was `said`, and null for what was not."""
    record: Record = {
        "record": "completion",
        "request": request["id"],
        "round": round_,
        "sample": sample,
        "prompt_token_ids": request["prompt_token_ids"],
        "text": None,
        "finish_reason": None,
        "stop_reason": None,
        "logprobs": None,
        **said,
    }
    record.update(own(request))
    return record


def token_list(value: Any) -> list[int]:
    """Token ids of a capture, plain or compact ({"int32": base64})."""
    if isinstance(value, dict):
        ids = array.array("i", base64.b64decode(value["int32"]))
        if sys.byteorder == "big":
            ids.byteswap()
        return list(ids)
    return list(value)


def items_to_score(path: str) -> list[Item]:
    with open(path, encoding="utf-8") as file:
        records = [json.loads(line) for line in file if line.strip()]
    arm = records[0]["arm"]
    return [
        {
            "arm": arm,
            "request": record["request"],
            "round": record.get("round", 0),
            "sample": record.get("sample", 0),
            "prompt_token_ids": token_list(record["prompt_token_ids"]),
            "token_ids": token_list(record["token_ids"]),
        }
        for record in records
        if record.get("record") == "completion"
    ]
