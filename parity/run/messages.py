"""Checks on what a worker says: a far host is not trusted to keep to the protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from parity.capture import SCHEMA
from parity.plan import Plan
from parity.plan.digest import plan_digest
from parity.records import Json, Key, ScoreKey, TopLogprobs
from parity.run.process import ProtocolError

_INT32 = 1 << 31

MAX_SERVER_BYTES = 16 << 10
"""Of what an adapter keeps of each answer's surroundings (id, model, counts)."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What a plan allows an arm to produce."""

    arm: str
    requests: frozenset[str]
    rounds: int
    n: int

    @staticmethod
    def of(plan: Plan, arm: str) -> Expected:
        return Expected(arm, frozenset(request.id for request in plan.requests), plan.rounds, plan.sampling.n)

    @property
    def completions(self) -> int:
        return len(self.requests) * self.rounds * self.n

    def keys_of_round(self, round_: int) -> set[Key]:
        return {Key(request, round_, sample) for request in self.requests for sample in range(self.n)}


def _whole(value: Any, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ProtocolError(f"{name} is not a whole number")
    return value


def _key(record: Mapping[str, Any]) -> Key:
    request = record.get("request")
    if not isinstance(request, str):
        raise ProtocolError("a record without a request")
    return Key(request, _whole(record.get("round"), "round"), _whole(record.get("sample"), "sample"))


def _token_ids(value: Any, name: str) -> list[int]:
    if not isinstance(value, list) or not all(type(token) is int and -_INT32 <= token < _INT32 for token in value):
        raise ProtocolError(f"{name} is not a list of token ids")
    return value


def _logprobs(value: Any) -> None:
    if not isinstance(value, list):
        raise ProtocolError("logprobs is not a list")
    try:
        TopLogprobs.from_json(value)
    except (ValueError, TypeError, OverflowError) as error:
        raise ProtocolError(f"logprobs: {error}") from None


def _server(value: Any) -> dict[str, Json]:
    """What a server said with an answer: small things only."""
    if not isinstance(value, dict):
        raise ProtocolError("server is not an object")
    if len(orjson.dumps(value)) > MAX_SERVER_BYTES:
        raise ProtocolError(f"server is longer than {MAX_SERVER_BYTES >> 10} KiB")
    return value


def check_header(record: Mapping[str, Any], arm: str, plan: Plan) -> dict[str, Json]:
    """The header, as it goes into a capture; the worker must have got this plan and found this checkpoint."""
    if record.get("record") != "header" or record.get("schema") != SCHEMA:
        raise ProtocolError("expected a header")
    if record.get("arm") != arm:
        raise ProtocolError(f"a header of arm {record.get('arm')!r}")
    for name in ("engine", "sampling", "environment"):
        if not isinstance(record.get(name), dict):
            raise ProtocolError(f"header without {name}")
    digest = record.get("plan_digest")
    if digest is not None and digest != plan_digest(plan):
        raise ProtocolError(f"the worker works on another plan than the one it was sent ({str(digest)[:16]}…)")
    here, there = plan.model.fingerprint, record.get("model_fingerprint")
    if here and there is not None:
        if not isinstance(there, dict):
            raise ProtocolError("model_fingerprint is not an object")
        differ = [part for part, expected in here.items() if there.get(part) != expected]
        if differ:
            raise ProtocolError(f"its checkpoint is not the plan's {plan.model.name!r}: {', '.join(differ)} differ")
    return dict(record)


def check_completion(
    record: Mapping[str, Any], expected: Expected, rounds: Sequence[int]
) -> tuple[Key, dict[str, Json]]:
    """Key and record of a completion that belongs to one of `rounds`; unknown fields are dropped."""
    key = _key(record)
    if key.request not in expected.requests or key.round not in rounds or key.sample < 0:
        raise ProtocolError(f"a completion that the plan does not have: {key}")
    kept: dict[str, Json] = {"record": "completion", **key._asdict()}
    for name in ("prompt_token_ids", "token_ids"):
        kept[name] = _token_ids(record.get(name), name)
    for name in ("text", "finish_reason"):
        if not isinstance(record.get(name), str | None):
            raise ProtocolError(f"{name} is not a string")
        kept[name] = record.get(name)
    if not isinstance(record.get("stop_reason"), int | str | None):
        raise ProtocolError("stop_reason is neither a token id nor a string")
    kept["stop_reason"] = record.get("stop_reason")
    kept["logprobs"] = record.get("logprobs")
    if kept["logprobs"] is not None:
        _logprobs(kept["logprobs"])
    if record.get("max_tokens") is not None:
        kept["max_tokens"] = _whole(record["max_tokens"], "max_tokens")
    if record.get("aborted"):
        kept["aborted"] = True
    if record.get("server") is not None:
        kept["server"] = _server(record["server"])
    spec = record.get("spec")
    if spec is not None:
        if not isinstance(spec, dict):
            raise ProtocolError("spec is not an object")
        kept["spec"] = {name: _token_ids(spec.get(name), f"spec.{name}") for name in ("accepted", "drafted")}
    return key, kept


def check_score(record: Mapping[str, Any], wanted: Mapping[ScoreKey, int]) -> tuple[ScoreKey, dict[str, Json]]:
    """Key and record of a score that was asked for (`wanted`: output tokens by key)."""
    arm = record.get("arm")
    if not isinstance(arm, str):
        raise ProtocolError("a score without an arm")
    key = ScoreKey(arm, *_key(record))
    if key not in wanted:
        raise ProtocolError(f"a score that nobody asked for: {arm} {Key(*key[1:])}")
    logprobs = record.get("logprobs")
    _logprobs(logprobs)
    assert isinstance(logprobs, list)
    if len(logprobs) != wanted[key]:
        raise ProtocolError(f"a score of {len(logprobs)} entries for {wanted[key]} tokens: {arm} {Key(*key[1:])}")
    return key, {"record": "score", **key._asdict(), "logprobs": logprobs}


def check_round(record: Mapping[str, Any], rounds: Sequence[int]) -> tuple[int, dict[str, Json]]:
    """Number and counters of a round that was asked for."""
    number = _whole(record.get("round"), "round")
    if number not in rounds:
        raise ProtocolError(f"the end of round {number}, which was not asked for")
    return number, check_counters(record)


def check_counters(record: Mapping[str, Any]) -> dict[str, Json]:
    counters = record.get("counters")
    if not isinstance(counters, dict):
        raise ProtocolError("a footer without counters")
    return counters


def count(value: Any) -> int:
    """A number of an event that is only shown; nonsense counts as 0."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0
