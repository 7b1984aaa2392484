"""Records of a capture file, one by one: from parsed JSON to the types of parity/records.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any

from msgspec import Struct

from parity.capture.fields import (
    Count,
    Flag,
    MaybeCount,
    Must,
    Name,
    Object,
    Text,
    decode_token_ids,
    logprobs_of,
    numbers_of,
    shown,
    spec_of,
    take,
)
from parity.capture.problems import Malformed
from parity.capture.sealing import FIELD
from parity.messages import message
from parity.records import Completion, Header, Key, ScoreKey, TopLogprobs

SCHEMA = "parity.capture/1"


class HeaderRecord(Struct, frozen=True):
    arm: Name
    backend: Text = None
    variant: Text = None
    model: Text = None
    vocab_size: MaybeCount = None
    eos_token_ids: Any = None
    engine: Object = None
    sampling: Object = None
    environment: Object = None


class Keyed(Struct, frozen=True, gc=False):
    request: Name
    round: Count = 0
    sample: Count = 0

    @property
    def key(self) -> Key:
        return Key(self.request, self.round, self.sample)


_STOP_REASON = Must(
    message("capture.stop_reason_must", "stop_reason must be null, a token id or a string, got {shown}")
)


class CompletionRecord(Keyed, frozen=True, gc=False):
    """Lists of numbers are left to numpy, which is quicker than checking each."""

    prompt_token_ids: Any = None
    token_ids: Any = None
    text: Text = None
    finish_reason: Text = None
    stop_reason: Annotated[int | str | None, _STOP_REASON] = None
    logprobs: Any = None
    spec: Any = None
    max_tokens: MaybeCount = None
    sampling: Object = None
    server: Object = None
    aborted: Flag = None


class ScoreName(Struct, frozen=True, gc=False):
    arm: Name


class ScoreRecord(Keyed, frozen=True, kw_only=True, gc=False):
    arm: Name
    logprobs: Any
    logsumexp: Any = None


class RoundRecord(Struct, frozen=True):
    round: Count
    counters: Object = None


class FooterRecord(Struct, frozen=True):
    completions: MaybeCount = None
    scores: MaybeCount = None
    counters: Object = None


_NONE: Mapping[str, Any] = {}
"""One for all completions without sampling parameters of their own."""

_HEADER_KEYS = frozenset({"record", "schema", FIELD, *HeaderRecord.__struct_fields__})


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
    said = take(HeaderRecord, record)
    eos = [said.eos_token_ids] if isinstance(said.eos_token_ids, int) else said.eos_token_ids
    return Header(
        arm=said.arm,
        backend=said.backend or "",
        variant=said.variant or "",
        model=said.model or "",
        vocab_size=said.vocab_size,
        eos_token_ids=None if eos is None else tuple(decode_token_ids(eos, "eos_token_ids").tolist()),
        engine=said.engine or {},
        sampling=said.sampling or {},
        environment=said.environment or {},
        extra={name: value for name, value in record.items() if name not in _HEADER_KEYS},
    )


def parse_completion(record: Mapping[str, Any], line: int = 0) -> Completion:
    said = take(CompletionRecord, record)
    return Completion(
        key=said.key,
        prompt_token_ids=decode_token_ids(said.prompt_token_ids, "prompt_token_ids"),
        token_ids=decode_token_ids(said.token_ids, "token_ids"),
        text=said.text,
        finish_reason=said.finish_reason,
        stop_reason=said.stop_reason,
        logprobs=None if said.logprobs is None else logprobs_of(said.logprobs),
        spec=spec_of(said.spec),
        line=line,
        max_tokens=said.max_tokens,
        sampling=said.sampling or _NONE,
        server=said.server or None,
        aborted=bool(said.aborted),
    )


def parse_score(record: Mapping[str, Any]) -> tuple[ScoreKey, TopLogprobs]:
    said = take(ScoreRecord, record)
    top = logprobs_of(said.logprobs)
    if said.logsumexp is not None:
        top = replace(top, logsumexp=numbers_of(said.logsumexp, "logsumexp", len(top)))
    return ScoreKey(said.arm, *said.key), top
