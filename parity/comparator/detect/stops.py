"""How a completion ended: too early, too late, or as it should. Needs no reference, only the request.

vLLM keeps the EOS token in `token_ids` and leaves it out of `text`; other servers drop it. What the baseline
does throughout is taken as the convention, so that a habit of a server is not a fault.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from parity.comparator.detect.events import Event
from parity.comparator.inputs import servers
from parity.comparator.inputs.bans import stop_tokens
from parity.comparator.streams.sets import is_in
from parity.messages import Message, message
from parity.records import Capture, Completion, Header, Kind, RaggedTokens
from parity.records.evidence import EndEvidence


class StopRules(Struct, frozen=True):
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
    eos: frozenset[int] = frozenset()
    """Of the terminators, those that are not the request's own choice."""
    all_eos: frozenset[int] = frozenset()
    """The same where nothing asks to ignore them."""

    def of(self, completion: Completion) -> StopRules:
        """The rules for one request: with its own parameters, where it has some."""
        own = completion.sampling
        if not own.keys() & _OWN:
            return self
        eos = self.eos if "ignore_eos" not in own else frozenset() if own["ignore_eos"] else self.all_eos
        stop_ids = stop_tokens(own) if "stop_token_ids" in own else self.terminators - self.eos
        return replace(
            self,
            eos=eos,
            terminators=eos | stop_ids,
            has_stop_strings=bool(own["stop"]) if "stop" in own else self.has_stop_strings,
            min_tokens=_whole(own["min_tokens"]) or 0 if "min_tokens" in own else self.min_tokens,
        )

    def limit(self, completion: Completion) -> int | None:
        """The most tokens this completion may have: the request's own limit, else the run's. None if unknown."""
        if not self.counts:
            return None
        own = own_limit(completion)
        return self.max_tokens if own is None else own

    def leaves_open(self, completion: Completion) -> bool:
        """Might this completion have gone on after its last token?

        It was aborted, or it stopped at a token that is not in the stream, or at a stop string that is not in the text
        of which the stream was made: only who knows how likely that was can say whether going on is wrong.
        """
        if completion.aborted:
            return True
        if completion.finish_reason not in ("stop", None):
            return False
        if isinstance(completion.stop_reason, str):
            return not self.counts and not (completion.text or "").endswith(completion.stop_reason)
        return not (len(completion.token_ids) and int(completion.token_ids[-1]) in self.of(completion).terminators)


def own_limit(completion: Completion) -> int | None:
    """The limit of tokens of the request's own, wherever its record says it; None if it has none."""
    said = completion.max_tokens
    return _whole(completion.sampling.get("max_tokens")) if said is None else said


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def stop_rules(header: Header, baseline: Capture) -> StopRules:
    """The rules for an arm, corrected by what the baseline does throughout."""
    sampling = header.sampling
    eos = frozenset(header.eos_token_ids or baseline.header.eos_token_ids or ())
    stop_ids = stop_tokens(sampling)
    min_tokens = _whole(sampling.get("min_tokens")) or 0
    # A stop token that is named besides says nothing of those that are not.
    stopped = [one for one in baseline.stopped if one.stop_reason is None] or baseline.stopped
    terminators = _terminators(header, baseline, eos, min_tokens)
    kept = sum(int(len(one.token_ids) and int(one.token_ids[-1]) in terminators) for one in stopped)
    unknown = any(map(servers.served, (header, baseline.header))) or _tells_no_end(baseline, terminators)
    return StopRules(
        terminators=terminators,
        max_tokens=_whole(sampling.get("max_tokens")),
        max_model_len=_whole(header.engine.get("max_model_len")),
        has_stop_strings=bool(sampling.get("stop")),
        keeps_terminator=kept * 2 >= len(stopped) if stopped else not unknown,
        min_tokens=min_tokens,
        counts=not (servers.text_alone(header) or servers.text_alone(baseline.header)),
        eos=terminators - stop_ids,
        all_eos=eos or terminators - stop_ids,
    )


def _terminators(header: Header, baseline: Capture, eos: frozenset[int], min_tokens: int) -> frozenset[int]:
    """EOS and stop token ids, as the baseline heeds them."""
    ignores_eos = bool(header.sampling.get("ignore_eos"))
    found = stop_tokens(header.sampling) | (frozenset() if ignores_eos else eos)
    if not found and not ignores_eos and header.eos_token_ids is baseline.header.eos_token_ids is None:
        found = _terminator_of(baseline)
    if found and not baseline.stopped and _passed_by(baseline, found, min_tokens) * 10 >= len(baseline.completions):
        # EOS inside completions that went on: the engine was asked to ignore it, whatever the header says.
        return frozenset()
    return found


def _tells_no_end(baseline: Capture, terminators: frozenset[int]) -> bool:
    """A script of somebody's that writes down neither why its completions ended nor the token that they stopped at."""
    if not servers.by_others(baseline.header) or not baseline.finish_reasons <= {None}:
        return False
    return not any(len(one.token_ids) and int(one.token_ids[-1]) in terminators for one in baseline)


_OWN = frozenset({"ignore_eos", "stop_token_ids", "stop", "min_tokens"})
"""Parameters of a request that change its rules; `max_tokens` is in `StopRules.limit`."""


_CHANGES = _OWN | {"max_tokens"}
"""Parameters of a request by which it may be too long where the run's rules say that it is not."""


def _terminator_of(baseline: Capture) -> frozenset[int]:
    """The EOS of a capture that does not name it: the token that several completions stopped at and that stands
    nowhere else."""
    stopped = baseline.stopped
    last = {int(one.token_ids[-1]) for one in stopped if len(one.token_ids) and one.stop_reason is None}
    if len(stopped) < 2 or len(last) != 1:
        return frozenset()
    return frozenset() if len(baseline.tokens.places(next(iter(last)))) > len(stopped) else frozenset(last)


def _passed_by(capture: Capture, terminators: frozenset[int], min_tokens: int) -> int:
    """Completions that hold a terminator before their last token and after min_tokens; -1 for none."""
    rows = capture.tokens.rows_at(capture.tokens.places_of(terminators))
    completions = capture.rows
    heeding = (completions[row] for row in rows if not completions[row].sampling.get("ignore_eos"))
    inside = [one.token_ids[min_tokens:-1] for one in heeding]
    passed = sum(bool(np.isin(tokens, list(terminators)).any()) for tokens in inside)
    return passed if passed else -1


def may_overrun(
    completions: Sequence[Completion],
    rules: StopRules,
    column: RaggedTokens | None = None,
    *,
    asked_alike: bool = False,
) -> npt.NDArray[np.bool_]:
    """Shape (P,): completions that are too long or hold a terminator before their last token; `overrun` looks closer.

    column: their tokens, where they are in a row already. asked_alike: none has sampling parameters of its own.
    """
    column = RaggedTokens.of([one.token_ids for one in completions]) if column is None else column
    own = () if asked_alike else completions
    result = np.zeros(len(completions), dtype=np.bool_)
    result[[row for row, one in enumerate(own) if not _CHANGES.isdisjoint(one.sampling)]] = True
    if any(one.max_tokens is not None for one in own):
        limits = [rules.limit(one) for one in completions]
        result |= column.sizes > np.array([_NO_LIMIT if limit is None else limit for limit in limits], dtype=np.int64)
    elif rules.max_tokens is not None and rules.counts:
        result |= column.sizes > rules.max_tokens
    places = column.places_of(rules.terminators)
    if len(places):
        inside = places[~is_in(places, column.offsets[1:] - 1)]
        result[column.rows_at(inside)] = True
    return result


_NO_LIMIT = np.iinfo(np.int64).max


def overrun(completion: Completion, rules: StopRules) -> Event | None:
    """The completion goes on after a terminator or past max_tokens."""
    tokens, rules = completion.token_ids, rules.of(completion)
    found: Event | None = None
    if rules.terminators and len(tokens) > rules.min_tokens + 1:
        inside = np.flatnonzero(np.isin(tokens[rules.min_tokens : -1], list(rules.terminators)))
        if len(inside):
            at = rules.min_tokens + int(inside[0])
            token, follow = int(tokens[at]), len(tokens) - at - 1
            why = message(
                "overrun.terminator",
                "token {token} at position {position} ends a completion; {count} tokens follow",
                token=token,
                position=at,
                count=follow,
            )
            found = Event(Kind.OVERRUN, at + 1, follow, EndEvidence(why=why, terminator=token))
    limit = rules.limit(completion)
    if limit is not None and len(tokens) > limit and found is None:
        evidence = EndEvidence(why=tokens_for_limit(completion, limit), max_tokens=limit)
        found = Event(Kind.OVERRUN, limit, len(tokens) - limit, evidence, past_limit=True)
    return found


def tokens_for_limit(completion: Completion, limit: int) -> Message:
    """How many tokens there are for how many asked."""
    return message(
        "length.limit", "{count} tokens where max_tokens is {limit}", count=len(completion.token_ids), limit=limit
    )


def unexplained_end(completion: Completion, rules: StopRules) -> Message | None:
    """Why the way this completion ended cannot be right, or None."""
    tokens, reason, limit = completion.token_ids, completion.finish_reason, rules.limit(completion)
    rules = rules.of(completion)
    if completion.aborted:
        return None
    if reason == "length":
        if limit is None or not _has_room(completion, rules, limit):
            return None
        return message(
            "end.length", 'finish_reason "length" after {count} of {limit} tokens', count=len(tokens), limit=limit
        )
    if reason == "stop":
        if not _lacks_stop_token(completion, rules):
            return None
        return message("end.no_stop_token", 'finish_reason "stop" without a stop token at the end')
    if reason is None:
        if limit is None or not _lacks_stop_token(completion, rules) or not _has_room(completion, rules, limit):
            return None
        return message(
            "end.no_reason",
            "no finish_reason and no stop token after {count} of {limit} tokens",
            count=len(tokens),
            limit=limit,
        )
    if reason in CALLS:
        return None
    return message("end.reason", "finish_reason {reason!r}", reason=reason)


def _has_room(completion: Completion, rules: StopRules, limit: int) -> bool:
    """More tokens were allowed, and the context has place for them."""
    tokens = len(completion.token_ids)
    total = len(completion.prompt_token_ids) + tokens
    return tokens < limit and (rules.max_model_len is None or total < rules.max_model_len - 1)


def _lacks_stop_token(completion: Completion, rules: StopRules) -> bool:
    """An end of its own leaves a stop token, and there is none."""
    tokens = completion.token_ids
    if not rules.keeps_terminator or rules.has_stop_strings or completion.stop_reason is not None:
        return False
    return bool(rules.terminators) and not (len(tokens) and int(tokens[-1]) in rules.terminators)


def same_end(a: Completion, b: Completion, rules: StopRules) -> bool:
    """Two completions of equal tokens, and finish reasons that both are true: a stop that a server calls a tool call,
    a stop token that is also the last one allowed."""
    reasons = {a.finish_reason, b.finish_reason}
    if reasons <= _STOPS:
        return True
    at_limit = len(b.token_ids) > 0 and len(b.token_ids) == rules.limit(b)
    return reasons == {"stop", "length"} and at_limit and int(b.token_ids[-1]) in rules.of(b).terminators


CALLS = frozenset({"tool_calls", "function_call"})
"""Finish reasons of an answer that calls a tool."""

_STOPS = frozenset({"stop", *CALLS})
