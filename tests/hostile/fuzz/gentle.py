"""Mutations of a capture that leave it one: what an engine could have said, however odd. They reach what lies after reading."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

Record = dict[str, Any]

WORDS = (
    "",
    "x",
    "\x1b[2J\u202e\x07",
    "[red]x[/red]",
    "<script>",
    "é" * 40,
    "a\tb\r\nc",
    "|x|`y`",
    "\u2028",
    "😀" * 9,
    "x" * 900,
    "=1+1",
    "::error::x",
)
NUMBERS = (0, 1, -1, 2, 0.5, 1e-9, 1e9, 3, 7, 1000)
LOGPROBS = (0.0, -1e-12, -0.5, -9.0, -50.0, -1e30, 0.3)
SAMPLING: dict[str, tuple[Any, ...]] = {
    "temperature": (0.0, 0.7, 1.0, 2.0, 1e-6), "top_p": (0.1, 0.9, 1.0), "top_k": (0, 1, 20, -1), "min_p": (0.0, 0.1),
    "repetition_penalty": (1.0, 1.1, 0.5), "presence_penalty": (0.0, 1.5, -2.0), "frequency_penalty": (0.0, 0.2),
    "max_tokens": (1, 12, 24, 100), "min_tokens": (0, 5, 24), "n": (1, 2), "seed": (None, 0, 5), "stop": ([], ["x"], "some"),
    "stop_token_ids": ([], [7], [2]), "ignore_eos": (True, False), "logprobs": (None, 0, 5), "bad_words": ([], ["a b"]),
    "logit_bias": (None, {"7": 5.0}), "allowed_token_ids": (None, [1, 2, 3]), "structured_outputs": (None, {"regex": "a+"}),
}  # fmt: skip
ENGINE: dict[str, tuple[Any, ...]] = {
    "speculative_config": (None, {"method": "ngram", "num_speculative_tokens": 3}, {"method": "mtp", "num_speculative_tokens": 1}, {}),
    "dtype": ("bfloat16", "float32"), "max_num_seqs": (1, 4, 256), "enforce_eager": (True, False), "quantization": ("fp8", None),
    "kv_cache_dtype": ("fp8",), "async_scheduling": (True,), "asked": ({"dtype": "float16"}, {}), "prefix_caching": (True,),
    "tensor_parallel_size": (2,), "max_model_len": (16, 4096), "x": ({"a": [1, {"b": WORDS[2]}]}, WORDS[2]),
}  # fmt: skip
HEADER: dict[str, tuple[Any, ...]] = {
    "backend": ("cpu", "cuda", "ascend", "server", "replay", "transformers", "x"), "variant": ("base", "mtp", WORDS[2]),
    "model": ("m", WORDS[2], "a/b"), "vocab_size": (900, 1000, 1 << 20), "eos_token_ids": ([], [2], [2, 7, 20]),
    "environment": ({}, {"versions": {"vllm": "0.11.0", "x": WORDS[2]}}, {"devices": [{"name": WORDS[2]}], "threads": 4}),
    "replicas": (1, 2, 3), "model_fingerprint": ({}, {"config.json": "ab"}), "x": (WORDS[2], [[1]]),
    "churn": ({"arrival": {"every": 2}},), "plan_digest": ("ab",),
}  # fmt: skip
COUNTERS = (
    "drafts", "draft_tokens", "accepted_tokens", "steps", "tokens", "rows_moved", "rows_joined", "generate_seconds", "preemptions",
    "batch_sizes", "accepted_per_pos", "replay_differences", "resumed_completions", "x",
)  # fmt: skip


def with_one(rng: random.Random, record: Record, table: dict[str, tuple[Any, ...]]) -> Record:
    name = rng.choice(list(table))
    return {**record, name: rng.choice(table[name])}


def other_tokens(rng: random.Random, record: Record, others: list[Record]) -> Record:
    """Tokens as a fault changes them, and the logprobs with them."""
    ids = list(record["token_ids"])
    logprobs = list(record.get("logprobs") or [])
    at, size = rng.randrange(len(ids) + 1), rng.choice((1, 1, 2, 4, 9))
    donor = rng.choice(others)["token_ids"] if others else ids
    start = rng.randrange(len(donor) + 1)
    how = rng.randrange(7)
    if how == 0:
        new, gone = [rng.randrange(3, 900) for _ in range(size)], size
    elif how == 1:
        new, gone = [], size
    elif how == 2:
        new, gone = [rng.choice((0, 2, 7, 999))] * size, 0
    elif how == 3:
        new, gone = ids[max(0, at - size) : at] * rng.choice((1, 2, 5)), 0
    elif how == 4:
        new, gone = donor[start : start + size * 3], rng.choice((0, size * 3))
    elif how == 5:
        new, gone = [], len(ids)
    else:
        new, gone = ids[at : at + size][::-1], size
    ids[at : at + gone] = new
    if logprobs:
        logprobs[at : at + gone] = [[[one, rng.choice(LOGPROBS)], [one + 1, -3.0]] for one in new]
    return {**record, "token_ids": ids, "logprobs": logprobs or None}


def other_logprobs(rng: random.Random, record: Record) -> Record:
    lists = [[list(pair) for pair in row] for row in record.get("logprobs") or []]
    for _ in range(rng.choice((1, 3, len(lists)))):
        if lists and (row := rng.choice(lists)):
            pair = rng.choice(row)
            pair[1] = rng.choice((*LOGPROBS, pair[1] * 1.01, pair[1] - 0.2))
            if rng.random() < 0.3:
                row.append([rng.randrange(3, 900), rng.choice(LOGPROBS)])
    return {**record, "logprobs": lists or None}


def other_completion(rng: random.Random, record: Record, others: list[Record]) -> Record:
    how = rng.randrange(9)
    if how < 3:
        return other_tokens(rng, record, others)
    if how == 3:
        return other_logprobs(rng, record)
    if how == 4:
        drafted = [rng.randrange(4) for _ in range(rng.randrange(12))]
        return {**record, "spec": {"accepted": [rng.randint(0, one) for one in drafted], "drafted": drafted}}
    if how == 5:
        return {**record, "sampling": with_one(rng, record.get("sampling") or {}, SAMPLING)}
    changes: dict[str, tuple[Any, ...]] = {
        "finish_reason": ("stop", "length", "abort", None, "tool_calls", WORDS[2]), "stop_reason": (None, 7, "x", WORDS[2]),
        "text": (None, *WORDS), "logprobs": (None,), "max_tokens": (1, 12, 24, 99), "aborted": (True, False), "replica": (0, 1),
        "request": ("p0", "p1", "q", WORDS[2]), "round": (0, 1, 5), "sample": (0, 1), "server": ({"id": WORDS[2]},),
        "prompt_token_ids": ([5], record["prompt_token_ids"][::-1], record["prompt_token_ids"] * 2),
    }  # fmt: skip
    return with_one(rng, record, changes)


def other_header(rng: random.Random, record: Record, _: list[Record]) -> Record:
    how = rng.randrange(3)
    if how == 0:
        return {**record, "sampling": with_one(rng, record["sampling"], SAMPLING)}
    if how == 1:
        return {**record, "engine": with_one(rng, record["engine"], ENGINE)}
    return with_one(rng, record, HEADER)


def other_counters(rng: random.Random, record: Record, _: list[Record]) -> Record:
    value = rng.choice((*NUMBERS, {"1": 3, "4": 2}, [3, 2, 1], None, WORDS[2]))
    return {**record, "counters": {**record.get("counters", {}), rng.choice(COUNTERS): value}}


KINDS: dict[str, Callable[[random.Random, Record, list[Record]], Record]] = {
    "header": other_header, "completion": other_completion, "footer": other_counters, "round": other_counters,
    "score": lambda rng, record, _: other_logprobs(rng, record),
}  # fmt: skip


def gently(rng: random.Random, data: bytes) -> bytes:
    """One to four records as something else of their kind, now and then one gone. Raises ValueError for what is no capture."""
    records = [json.loads(line) for line in data.splitlines() if line.strip()]
    if not all(isinstance(one, dict) for one in records) or not records:
        raise ValueError("no records")
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(records))
        change = KINDS.get(str(records[at].get("record")))
        if change is None:
            continue
        others = [one for one in records if one.get("record") == "completion"]
        if rng.random() < 0.03 and records[at]["record"] in ("completion", "score"):
            del records[at]
        else:
            records[at] = change(rng, records[at], others)
            records[at].pop("crc32", None)
    footer = records[-1]
    if footer.get("record") == "footer":
        count = {name: sum(one.get("record") == name[:-1] for one in records) for name in ("completions", "scores")}
        records[-1] = {**footer, **{name: number for name, number in count.items() if name in footer}}
    return b"".join(json.dumps(one, separators=(",", ":")).encode("utf-8", "replace") + b"\n" for one in records)
