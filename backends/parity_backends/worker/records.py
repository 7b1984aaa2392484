"""Capture records from what the engine gives back, and token lists from capture records."""

from __future__ import annotations

import array
import base64
import json
import math
import sys
from typing import Any, Optional

from .sampling import own


def number(raw: Any) -> Optional[float]:
    """A logprob for JSON: NaN is null, minus infinity is -9999 (as in vLLM's own server), 6 decimals."""
    value = float(raw)
    if value != value:
        return None
    if math.isinf(value):
        return -9999.0 if value < 0 else 9999.0
    return round(value, 6)


def entries(logprobs: Any) -> Any:
    """[[token_id, logprob], ...] per position, the chosen token first, from vLLM's list of dicts."""
    if logprobs is None:
        return None
    return [
        [] if entry is None else [[int(token), number(item.logprob)] for token, item in entry.items()]
        for entry in logprobs
    ]


def completion_record(request: dict[str, Any], round_: int, output: Any) -> dict[str, Any]:
    record = {
        "record": "completion",
        "request": request["id"],
        "round": round_,
        "sample": output.index,
        "prompt_token_ids": request["prompt_token_ids"],
        "token_ids": [int(token) for token in output.token_ids],
        "text": output.text,
        "finish_reason": output.finish_reason,
        "stop_reason": output.stop_reason,
        "logprobs": entries(output.logprobs),
    }
    record.update(own(request))
    trace: Any = getattr(output, "spec_decode_metrics", None)
    if getattr(trace, "per_step_accepted", None) is not None:
        record["spec"] = {
            "accepted": [int(count) for count in trace.per_step_accepted],
            "drafted": [int(count) for count in trace.per_step_drafted],
        }
    return record


def token_list(value: Any) -> list[int]:
    """Token ids of a capture, plain or compact ({"int32": base64})."""
    if isinstance(value, dict):
        ids = array.array("i", base64.b64decode(value["int32"]))
        if sys.byteorder == "big":
            ids.byteswap()
        return list(ids)
    return list(value)


def items_to_score(path: str) -> list[dict[str, Any]]:
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
