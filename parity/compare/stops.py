"""How a completion ended: too early, too late, or as it should. Needs no reference, only the request.

vLLM keeps the EOS token in `token_ids` and leaves it out of `text`; other servers drop it. What the baseline
does throughout is taken as the convention, so that a habit of a server is not a fault.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from parity.compare.structure import Event
from parity.records import Capture, Column, Completion, Header, Kind, TokenIds


@dataclass(frozen=True, slots=True)
class StopRules:
    """What may end a completion in this run."""

    terminators: frozenset[int]
    """EOS and stop token ids; empty where unknown or ignored."""
    max_tokens: int | None
    max_model_len: int | None
    has_stop_strings: bool
    keeps_terminator: bool
    """The terminator stands at the end of `token_ids` of completions that finished with "stop"."""
    min_tokens: int = 0


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def stop_rules(header: Header, baseline: Capture) -> StopRules:
    """The rules for an arm, corrected by what the baseline does throughout."""
    sampling = header.sampling
    terminators = frozenset(
        () if sampling.get("ignore_eos") else (header.eos_token_ids or baseline.header.eos_token_ids or ())
    )
    stop_ids = sampling.get("stop_token_ids") or ()
    if isinstance(stop_ids, list | tuple):
        terminators |= {token for token in stop_ids if isinstance(token, int)}
    min_tokens = _whole(sampling.get("min_tokens")) or 0
    stopped = [completion for completion in baseline if completion.finish_reason == "stop"]
    if terminators and not stopped and _passed_by(baseline, terminators, min_tokens) * 10 >= len(baseline.completions):
        # EOS inside completions that went on: the engine was told to ignore it, whatever the header says.
        terminators = frozenset()
    kept = sum(int(len(one.token_ids) and int(one.token_ids[-1]) in terminators) for one in stopped)
    engine_limit = header.engine.get("max_model_len")
    return StopRules(
        terminators=terminators,
        max_tokens=_whole(sampling.get("max_tokens")),
        max_model_len=_whole(engine_limit),
        has_stop_strings=bool(sampling.get("stop")),
        keeps_terminator=kept * 2 >= len(stopped),
        min_tokens=min_tokens,
    )


def _passed_by(capture: Capture, terminators: frozenset[int], min_tokens: int) -> int:
    """Completions that hold a terminator before their last token and behind min_tokens; -1 for none."""
    hits = np.zeros(len(capture.tokens.flat), dtype=np.bool_)
    for token in terminators:
        hits |= capture.tokens.flat == token
    rows = capture.tokens.rows_with(hits)
    completions = list(capture)
    inside = [completions[row].token_ids[min_tokens:-1] for row in rows]
    passed = sum(bool(np.isin(tokens, list(terminators)).any()) for tokens in inside)
    return passed if passed else -1


def may_overrun(streams: Sequence[TokenIds], rules: StopRules) -> list[bool]:
    """Streams that are too long or hold a terminator before their last token; `overrun` looks closer."""
    column = Column.of(streams)
    sizes = np.diff(column.offsets)
    result = np.zeros(len(streams), dtype=np.bool_)
    if rules.max_tokens is not None:
        result |= sizes > rules.max_tokens
    if rules.terminators:
        hits = np.zeros(len(column.flat), dtype=np.bool_)
        for token in rules.terminators:
            hits |= column.flat == token
        hits[column.offsets[1:][sizes > 0] - 1] = False
        result[column.rows_with(hits)] = True
    return [bool(one) for one in result]


def overrun(completion: Completion, rules: StopRules) -> Event | None:
    """The completion goes on behind a terminator or past max_tokens."""
    tokens = completion.token_ids
    found: Event | None = None
    if rules.terminators and len(tokens) > rules.min_tokens + 1:
        inside = np.flatnonzero(np.isin(tokens[rules.min_tokens : -1], list(rules.terminators)))
        if len(inside):
            at = rules.min_tokens + int(inside[0])
            why = f"token {int(tokens[at])} at position {at} ends a completion; {len(tokens) - at - 1} tokens follow"
            found = Event(Kind.OVERRUN, at + 1, len(tokens) - at - 1, {"why": why, "terminator": int(tokens[at])})
    if rules.max_tokens is not None and len(tokens) > rules.max_tokens and found is None:
        why = f"{len(tokens)} tokens where max_tokens is {rules.max_tokens}"
        found = Event(
            Kind.OVERRUN,
            rules.max_tokens,
            len(tokens) - rules.max_tokens,
            {"why": why, "max_tokens": rules.max_tokens},
        )
    return found


def unexplained_end(completion: Completion, rules: StopRules) -> str | None:
    """Why the way this completion ended cannot be right, or None."""
    tokens, reason = completion.token_ids, completion.finish_reason
    if reason == "length":
        if rules.max_tokens is None or len(tokens) >= rules.max_tokens:
            return None
        total = len(completion.prompt_token_ids) + len(tokens)
        if rules.max_model_len is not None and total >= rules.max_model_len - 1:
            return None
        return f'finish_reason "length" after {len(tokens)} of {rules.max_tokens} tokens'
    if reason == "stop":
        if not rules.keeps_terminator or rules.has_stop_strings or completion.stop_reason is not None:
            return None
        if not rules.terminators or (len(tokens) and int(tokens[-1]) in rules.terminators):
            return None
        return 'finish_reason "stop" without a stop token at the end'
    if reason in ("tool_calls", "function_call", None):
        return None
    return f"finish_reason {reason!r}"


def first_terminator(tokens: TokenIds, terminators: Iterable[int]) -> int | None:
    """Position of the first terminator, or None."""
    hits = np.flatnonzero(np.isin(tokens, list(terminators)))
    return int(hits[0]) if len(hits) else None
