"""Records of a capture file, one by one: from parsed JSON to the types of parity/records.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from parity.capture.fields import (
    count_of,
    decode_token_ids,
    flag_of,
    key_of,
    logprobs_of,
    numbers_of,
    object_of,
    shown,
    spec_of,
    text_of,
)
from parity.capture.problems import Malformed
from parity.messages import message
from parity.records import Completion, Header, ScoreKey, TopLogprobs

SCHEMA = "parity.capture/1"

_HEADER_KEYS = frozenset(
    {
        "record",
        "schema",
        "arm",
        "backend",
        "variant",
        "model",
        "vocab_size",
        "eos_token_ids",
        "engine",
        "sampling",
        "environment",
    }
)


def parse_header(record: Mapping[str, Any]) -> Header:
    if record.get("schema") != SCHEMA:
        raise Malformed(
            message(
                "capture.schema_version_reads",
                "schema is {shown}, this version reads {schema!r}",
                shown=shown(record.get("schema")),
                schema=SCHEMA,
            )
        )
    eos = record.get("eos_token_ids")
    if isinstance(eos, int):
        eos = [eos]
    vocab_size = None if record.get("vocab_size") is None else count_of(record, "vocab_size")
    return Header(
        arm=text_of(record, "arm"),
        backend=text_of(record, "backend", optional=True) or "",
        variant=text_of(record, "variant", optional=True) or "",
        model=text_of(record, "model", optional=True) or "",
        vocab_size=vocab_size,
        eos_token_ids=None if eos is None else tuple(decode_token_ids(eos, "eos_token_ids").tolist()),
        engine=object_of(record, "engine"),
        sampling=object_of(record, "sampling"),
        environment=object_of(record, "environment"),
        extra={name: value for name, value in record.items() if name not in _HEADER_KEYS},
    )


def parse_completion(record: Mapping[str, Any], line: int = 0) -> Completion:
    stop_reason = record.get("stop_reason")
    if stop_reason is not None and not isinstance(stop_reason, int | str):
        raise Malformed(
            message(
                "capture.stop_reason_must",
                "stop_reason must be null, a token id or a string, got {shown}",
                shown=shown(stop_reason),
            )
        )
    return Completion(
        key=key_of(record),
        prompt_token_ids=decode_token_ids(record.get("prompt_token_ids"), "prompt_token_ids"),
        token_ids=decode_token_ids(record.get("token_ids"), "token_ids"),
        text=text_of(record, "text", optional=True),
        finish_reason=text_of(record, "finish_reason", optional=True),
        stop_reason=stop_reason,
        logprobs=None if record.get("logprobs") is None else logprobs_of(record["logprobs"]),
        spec=spec_of(record.get("spec")),
        line=line,
        max_tokens=None if record.get("max_tokens") is None else count_of(record, "max_tokens"),
        sampling=object_of(record, "sampling"),
        server=object_of(record, "server") or None,
        aborted=flag_of(record, "aborted"),
    )


def parse_score(record: Mapping[str, Any]) -> tuple[ScoreKey, TopLogprobs]:
    if "logprobs" not in record:
        raise Malformed(message("capture.no_logprobs", "no logprobs"))
    top = logprobs_of(record["logprobs"])
    if record.get("logsumexp") is not None:
        top = replace(top, logsumexp=numbers_of(record, "logsumexp", len(top)))
    return ScoreKey(text_of(record, "arm"), *key_of(record)), top
