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


def number(raw: Any) -> Optional[float]:
    """A logprob for JSON: NaN is null, minus infinity is -9999 (as in vLLM's own server), 6 decimals."""
    value = float(raw)
    if value != value:
        return None
    if math.isinf(value):
        return -9999.0 if value < 0 else 9999.0
    return round(value, 6)


def entries(logprobs: Any) -> Any:
    """[[token_id, logprob], ...] per position, the chosen token first, from vLLM's list of dicts or its flat lists."""
    if logprobs is None:
        return None
    if hasattr(logprobs, "start_indices"):  # vllm/logprobs.py FlatLogprobs: a dict per position only where one asks
        listed = [[int(token), number(value)] for token, value in zip(logprobs.token_ids, logprobs.logprobs)]  # noqa: B905
        return [
            unique(listed[start:end])
            for start, end in zip(logprobs.start_indices, logprobs.end_indices)  # noqa: B905 - strict is Python 3.10
        ]
    return [
        [] if entry is None else [[int(token), number(item.logprob)] for token, item in entry.items()]
        for entry in logprobs
    ]


def unique(listed: list[Any]) -> list[Any]:
    """The first pair of each token: the chosen token stands again where it is among the best."""
    return [pair for at, pair in enumerate(listed) if at == 0 or pair[0] != listed[0][0]]


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
