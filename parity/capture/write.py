"""Captures and their records, written."""

from __future__ import annotations

import gzip
from collections.abc import Iterable
from math import isfinite
from pathlib import Path
from typing import Any

from parity.capture.fields import encode_token_ids
from parity.capture.lines import dump_line
from parity.capture.parse import SCHEMA
from parity.capture.sealing import sealed
from parity.records import Capture, Completion, Header, Json, ScoreKey, TokenIds, TopLogprobs


def header_record(header: Header) -> dict[str, Json]:
    return {
        "record": "header",
        "schema": SCHEMA,
        "arm": header.arm,
        "backend": header.backend,
        "variant": header.variant,
        "model": header.model,
        "vocab_size": header.vocab_size,
        "eos_token_ids": None if header.eos_token_ids is None else list(header.eos_token_ids),
        "engine": dict(header.engine),
        "sampling": dict(header.sampling),
        "environment": dict(header.environment),
        **header.extra,
    }


def logprobs_json(logprobs: TopLogprobs) -> list[list[list[Json]]]:
    rows: list[list[list[Json]]] = []
    for ids, values in zip(logprobs.ids.tolist(), logprobs.values.tolist(), strict=True):
        # -1 pads ragged rows on the right only; a real id of -1 would be an engine's fault and is kept
        # where anything follows it.
        end = len(ids)
        while end and ids[end - 1] == -1 and values[end - 1] != values[end - 1]:
            end -= 1
        rows.append([[token, value] for token, value in zip(ids[:end], values[:end], strict=True)])
    return rows


def completion_record(completion: Completion, *, compact: bool = False) -> dict[str, Json]:

    def tokens(ids: TokenIds) -> Json:
        return encode_token_ids(ids) if compact else ids.tolist()

    record: dict[str, Json] = {
        "record": "completion",
        "request": completion.key.request,
        "round": completion.key.round,
        "sample": completion.key.sample,
        "prompt_token_ids": tokens(completion.prompt_token_ids),
        "token_ids": tokens(completion.token_ids),
        "text": completion.text,
        "finish_reason": completion.finish_reason,
        "stop_reason": completion.stop_reason,
        "logprobs": None if completion.logprobs is None else logprobs_json(completion.logprobs),
    }
    if completion.max_tokens is not None:
        record["max_tokens"] = completion.max_tokens
    if completion.sampling:
        record["sampling"] = dict(completion.sampling)
    if completion.aborted:
        record["aborted"] = True
    if completion.server is not None:
        record["server"] = dict(completion.server)
    if completion.spec is not None:
        record["spec"] = {
            "accepted": completion.spec.accepted.tolist(),
            "drafted": completion.spec.drafted.tolist(),
        }
    return record


def score_record(key: ScoreKey, logprobs: TopLogprobs) -> dict[str, Json]:
    record = {
        "record": "score",
        "arm": key.arm,
        "request": key.request,
        "round": key.round,
        "sample": key.sample,
        "logprobs": logprobs_json(logprobs),
    }
    if logprobs.logsumexp is not None:
        record["logsumexp"] = [value if isfinite(value) else None for value in logprobs.logsumexp.tolist()]
    return record


def write_capture(path: str | Path, capture: Capture, *, compact: bool = False) -> None:
    """Write a whole capture, each record with its checksum; a `.gz` name compresses it."""
    path = Path(path)
    opener: Any = gzip.open if path.suffix == ".gz" else open
    with opener(path, "wb") as file:
        for record in capture_records(capture, compact=compact):
            file.write(sealed(dump_line(record)))


def capture_records(capture: Capture, *, compact: bool = False) -> Iterable[dict[str, Json]]:
    yield header_record(capture.header)
    for completion in capture:
        yield completion_record(completion, compact=compact)
    for key, logprobs in capture.scores.items():
        yield score_record(key, logprobs)
    yield {
        "record": "footer",
        "completions": len(capture.completions),
        "scores": len(capture.scores),
        "counters": dict(capture.counters or {}),
    }
