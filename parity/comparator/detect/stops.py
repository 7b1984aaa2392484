"""How a completion ended: too early, too late, or as it should. Needs no reference, only the request.

vLLM keeps the EOS token in `token_ids` and leaves it out of `text`; other servers drop it. What the baseline
does throughout is taken as the convention, so that a habit of a server is not a fault.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from parity.comparator.detect.structure import Event
from parity.comparator.inputs import servers
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
    counts: bool = True
    """The token ids are the engine's, so that their number says something; not where they were made from text."""

    def limit(self, completion: Completion) -> int | None:
        """The most tokens this completion may have: the request's own limit, else the run's. None if unknown."""
        if not self.counts:
            return None
        return self.max_tokens if completion.max_tokens is None else completion.max_tokens


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
    if (
        not terminators
        and not sampling.get("ignore_eos")
        and header.eos_token_ids is baseline.header.eos_token_ids is None
    ):
        terminators = _terminator_of(baseline, stopped)
    if terminators and not stopped and _passed_by(baseline, terminators, min_tokens) * 10 >= len(baseline.completions):
        # EOS inside completions that went on: the engine was told to ignore it, whatever the header says.
        terminators = frozenset()
    kept = sum(int(len(one.token_ids) and int(one.token_ids[-1]) in terminators) for one in stopped)
    backends = {header.backend, baseline.header.backend}
    engine_limit = header.engine.get("max_model_len")
    return StopRules(
        terminators=terminators,
        max_tokens=_whole(sampling.get("max_tokens")),
        max_model_len=_whole(engine_limit),
        has_stop_strings=bool(sampling.get("stop")),
        keeps_terminator=kept * 2 >= len(stopped) if stopped else "server" not in backends,
        min_tokens=min_tokens,
        counts=not (servers.text_alone(header) or servers.text_alone(baseline.header)),
    )


def _terminator_of(baseline: Capture, stopped: list[Completion]) -> frozenset[int]:
    """The EOS of a capture that does not name it: the token that several completions stopped at and that stands
    nowhere else."""
    last = {int(one.token_ids[-1]) for one in stopped if len(one.token_ids) and one.stop_reason is None}
    if len(stopped) < 2 or len(last) != 1:
        return frozenset()
    return frozenset() if int((baseline.tokens.flat == next(iter(last))).sum()) > len(stopped) else frozenset(last)


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


def may_overrun(completions: Sequence[Completion], rules: StopRules) -> list[bool]:
    """Completions that are too long or hold a terminator before their last token; `overrun` looks closer."""
    column = Column.of([one.token_ids for one in completions])
    sizes = np.diff(column.offsets)
    result = np.zeros(len(completions), dtype=np.bool_)
    if rules.max_tokens is not None or any(one.max_tokens is not None for one in completions):
        limits = [rules.limit(one) for one in completions]
        result |= sizes > np.array([_NO_LIMIT if limit is None else limit for limit in limits], dtype=np.int64)
    if rules.terminators:
        hits = np.zeros(len(column.flat), dtype=np.bool_)
        for token in rules.terminators:
            hits |= column.flat == token
        hits[column.offsets[1:][sizes > 0] - 1] = False
        result[column.rows_with(hits)] = True
    return [bool(one) for one in result]


_NO_LIMIT = np.iinfo(np.int64).max


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
    limit = rules.limit(completion)
    if limit is not None and len(tokens) > limit and found is None:
        why = f"{len(tokens)} tokens where max_tokens is {limit}"
        found = Event(Kind.OVERRUN, limit, len(tokens) - limit, {"why": why, "max_tokens": limit})
    return found


def unexplained_end(completion: Completion, rules: StopRules) -> str | None:
    """Why the way this completion ended cannot be right, or None."""
    tokens, reason, limit = completion.token_ids, completion.finish_reason, rules.limit(completion)
    if completion.aborted:
        return None
    if reason == "length":
        if limit is None or len(tokens) >= limit:
            return None
        total = len(completion.prompt_token_ids) + len(tokens)
        if rules.max_model_len is not None and total >= rules.max_model_len - 1:
            return None
        return f'finish_reason "length" after {len(tokens)} of {limit} tokens'
    if reason == "stop":
        if not rules.keeps_terminator or rules.has_stop_strings or completion.stop_reason is not None:
            return None
        if not rules.terminators or (len(tokens) and int(tokens[-1]) in rules.terminators):
            return None
        return 'finish_reason "stop" without a stop token at the end'
    if reason in ("tool_calls", "function_call", None):
        return None
    return f"finish_reason {reason!r}"


def same_end(a: Completion, b: Completion, rules: StopRules) -> bool:
    """Two completions of equal tokens, and finish reasons that both are true: a stop that a server calls a tool call,
    a stop token that is also the last one allowed."""
    reasons = {a.finish_reason, b.finish_reason}
    if reasons <= _STOPS:
        return True
    at_limit = len(b.token_ids) > 0 and len(b.token_ids) == rules.limit(b)
    return reasons == {"stop", "length"} and at_limit and int(b.token_ids[-1]) in rules.terminators


_STOPS = frozenset({"stop", "tool_calls", "function_call"})

BROKEN_OFF = frozenset({"abort", "aborted", "cancelled", "canceled", "error", "failed", "timeout"})
"""Finish reasons that say that the engine did not get to the end."""


def first_terminator(tokens: TokenIds, terminators: Iterable[int]) -> int | None:
    """Position of the first terminator, or None."""
    hits = np.flatnonzero(np.isin(tokens, list(terminators)))
    return int(hits[0]) if len(hits) else None
