"""How completions ended, in OpenAI's words: other servers have others, and some have one for everything."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
from msgspec import Struct, field

from parity.comparator.inputs.bans import terminators
from parity.comparator.inputs.servers import by_others, served, text_alone
from parity.comparator.types import Remarks, note
from parity.messages import Message, message
from parity.records import Capture, Completion, ScoreKey, Scores

NAMES: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        (
            "stop",
            "eos",
            "eos_token",
            "eos_found",
            "eosfound",
            "eos_reached",
            "end_of_text",
            "endoftext",
            "end_turn",
            "end_of_turn",
            "stop_sequence",
            "stop_string",
            "stop_token",
            "stop_words",
            "stopstringfound",
            "complete",
            "completed",
            "finished",
        ),
        "stop",
    ),
    **dict.fromkeys(
        (
            "length",
            "limit",
            "max_tokens",
            "max_new_tokens",
            "max_output_tokens",
            "max_length",
            "model_length",
            "context_length",
            "token_limit",
            "maxpredictedtokensreached",
            "contextlengthreached",
        ),
        "length",
    ),
}
"""Names that servers give (Text Generation Inference, Anthropic, Cohere, Gemini, llama.cpp, LM Studio among them), in
small letters, and OpenAI's for them."""

BROKEN_OFF: Final = frozenset({"abort", "aborted", "cancelled", "canceled", "error", "failed", "timeout"})
"""Finish reasons that say that the engine did not get to the end."""

KNOWN: Final = BROKEN_OFF | {"stop", "length", "tool_calls", "function_call", "content_filter"}
"""Names that say something of an end as they stand."""

FEW = 4
"""Completions that have one name for it to be the arm's word, which nobody knows."""

TWO = 2
"""Completions with the name of the other end for it to be the arm's for every end, where none has that end's own: one
may be a fault, unless the arm has no other."""


def as_openai(arm: Capture) -> tuple[Capture, Remarks]:
    """The arm with OpenAI's finish reasons. Names that are not known stay as they are, but for those that a server
    gives again and again: they say nothing of the end."""
    names = {given: NAMES.get(given.lower().replace("-", "_"), given) for given in arm.finish_reasons if given}
    others = {given: name for given, name in names.items() if given != name}
    if others:
        changed = {
            key: replace(one, finish_reason=others[one.finish_reason])
            for key, one in arm.completions.items()
            if one.finish_reason in others
        }
        arm = arm.but(changed)
    arm = _without_names_of_ends(arm)
    arm, notes = _without_unknown(arm)
    return arm, Remarks(notes=notes)


def _without_names_of_ends(arm: Capture) -> Capture:
    """An arm that gives the token it stopped at in words ("</s>"): no stop string, where none was asked for."""
    if not by_others(arm.header) or not arm.header.sampling:
        return arm
    named = [one for one in arm.stopped if isinstance(one.stop_reason, str) and not arm.sampling_of(one).get("stop")]
    names = {str(one.stop_reason) for one in named}
    is_of_all = len(named) == len(arm.stopped) and all(_SPECIAL.fullmatch(name) for name in names)
    if len(names) != 1 or (len(named) < FEW and not is_of_all):
        return arm
    return arm.but({one.key: replace(one, stop_reason=None) for one in named})


_SPECIAL: Final = re.compile(r"<[^<>\s]+>")
"""What tokenizers call the tokens that end a text."""


def _without_unknown(arm: Capture) -> tuple[Capture, tuple[Message, ...]]:
    """An empty name is none; one that nobody knows and that is given again and again is taken as none. In an arm that
    gives no name that others do, each is a word of its own, however seldom it is given."""
    if not by_others(arm.header) or arm.finish_reasons <= KNOWN | {None}:
        return arm, ()
    counts = Counter(str(one.finish_reason) for one in arm if one.finish_reason is not None)
    least = FEW if any(name in KNOWN - BROKEN_OFF for name in counts) or sum(counts.values()) < FEW else 1
    words = sorted(name for name, count in counts.items() if name and name not in KNOWN and count >= least)
    left_out = {"", *words}
    unnamed = {
        key: replace(one, finish_reason=None)
        for key, one in arm.completions.items()
        if one.finish_reason is not None and str(one.finish_reason) in left_out
    }
    if not unnamed:
        return arm, ()
    arm = arm.but(unnamed)
    if not words:
        return arm, ()
    note = message(
        "inputs.unknown_reasons",
        "{arm} says {names} of how completions end, which is not known: taken as nothing",
        arm=arm.header.arm,
        names=words,
    )
    return arm, (note,)


def with_both_names(arm: Capture) -> tuple[Capture, Remarks]:
    """An arm that has one name for both ends, but perhaps for that of its context: "stop" at the last token allowed,
    without a stop token, is "length", and "length" at an earlier stop token is "stop". An engine that parity itself
    ran says what it means. The arm's outputs are without their prompts."""
    if text_alone(arm.header) or not by_others(arm.header):
        return arm, Remarks()
    ends = list(terminators(arm.header))
    if "stop" not in arm.finish_reasons and not len(arm.tokens.places_of(ends)):
        return arm, Remarks()
    for only, meant, said in (("stop", "length", NEVER_LENGTH), ("length", "stop", NEVER_STOP)):
        if meant in arm.finish_reasons and any(
            one.finish_reason == meant and _ends(arm, one, meant, ends) for one in arm
        ):
            continue
        others = {
            key: replace(one, finish_reason=meant)
            for key, one in arm.completions.items()
            if one.finish_reason == only and one.stop_reason is None and _ends(arm, one, meant, ends)
        }
        if only == "stop":
            early = (one for one in arm if one.finish_reason == only and one.stop_reason is None)
            others |= {one.key: replace(one, finish_reason=meant) for one in that_filled(arm, early)[0]}
        if len(others) >= (1 if served(arm.header) or len(others) == len(arm.completions) else TWO):
            note = replace(said, parameters={"arm": arm.header.arm, "count": len(others)})
            return arm.but(others), Remarks(notes=(note,))
    return arm, Remarks()


def _ends(arm: Capture, one: Completion, meant: str, ends: list[int]) -> bool:
    """Do its tokens end as `meant` says: the last one allowed, and no stop token; or an earlier stop token?"""
    limit = limit_of(arm, one)
    if limit is None or (len(one.token_ids) == limit) != (meant == "length"):
        return False
    return bool(np.isin(one.token_ids[-1:], ends).any()) == (meant == "stop")


NEVER_LENGTH: Final = message(
    "inputs.never_length",
    '{arm} says "stop" at the limit of tokens as well: {count} completion taken as ended by length',
    plural='{arm} says "stop" at the limit of tokens as well: {count} completions taken as ended by length',
)
NEVER_STOP: Final = message(
    "inputs.never_stop",
    '{arm} says "length" at stop tokens as well: {count} completion taken as stopped',
    plural='{arm} says "length" at stop tokens as well: {count} completions taken as stopped',
)


def limit_of(arm: Capture, one: Completion) -> int | None:
    """The most tokens that this completion may have; None where nothing says it."""
    value = arm.sampling_of(one).get("max_tokens")
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


class Filled(Struct, frozen=True):
    """Both arms and all scores where one of the arms has filled its context."""

    arm: Capture
    other: Capture
    scores: Scores
    remarks: Remarks = field(default_factory=Remarks)


def with_context(arm: Capture, other: Capture, scores: Scores) -> Filled:
    """The arm with the length of its context, where the server does not say it and its answers show it. The other arm's
    completions that go on from there are taken as far as the context goes.

    Answers that ended by length before their limit, most with the same number of tokens together with their prompt,
    and none with more: these filled the context.
    """
    known: Any = arm.header.engine.get("max_model_len")
    if known is not None or not by_others(arm.header):
        return Filled(arm, other, scores)
    filled, context = that_filled(arm, (one for one in arm if one.finish_reason in ("length", None)))
    if not filled:
        return Filled(arm, other, scores)
    said = message(
        "inputs.context",
        "{arm}: {count} completion ends by length before its limit, at {context} tokens with its prompt: the server's "
        "context, and nothing says how it goes on",
        plural="{arm}: {count} completions end by length before their limit, all at {context} tokens with their "
        "prompt: the server's context, and nothing says how they go on",
        arm=arm.header.arm,
        count=len(filled),
        context=context,
    )
    header = replace(arm.header, engine={**arm.header.engine, "max_model_len": context})
    cut, known_scores = dict(other.completions), dict(scores)
    for one in filled:
        twin, size = other.completions.get(one.key), len(one.token_ids)
        if twin is None or len(twin.token_ids) <= size or not np.array_equal(twin.token_ids[:size], one.token_ids):
            continue
        cut[one.key] = _beginning(twin, one)
        score_key = ScoreKey(other.header.arm, *one.key)
        if score_key in known_scores and score_key.arm != arm.header.arm:
            known_scores[score_key] = known_scores[score_key].part(stop=size)
    return Filled(replace(arm, header=header), replace(other, completions=cut), known_scores, note(said))


def that_filled(arm: Capture, ended: Iterable[Completion]) -> tuple[list[Completion], int]:
    """Those of the `ended` that filled the context, and how long that is; none where the arm's answers do not show
    it."""
    limit: Any = arm.header.sampling.get("max_tokens")
    ends = terminators(arm.header)
    if isinstance(limit, int) and not arm.own_sampling and bool((arm.tokens.sizes >= limit).all()):
        return [], 0
    early = [
        one
        for one in ended
        if not one.aborted
        and int(one.token_ids[-1] if len(one.token_ids) else -1) not in ends
        and (limit := limit_of(arm, one)) is not None
        and len(one.token_ids) < limit
    ]
    context, count = max(Counter(map(_total, early)).items(), key=lambda item: item[1], default=(0, 0))
    slack = CUT_OTHERWISE * text_alone(arm.header)
    if count < 2 or count * 2 <= len(early) or any(_total(one) > context + slack for one in arm):
        return [], 0
    return [one for one in early if _total(one) >= context - slack], context


CUT_OTHERWISE = 2
"""Tokens by which ids made from a text may be more or fewer than those that the engine said: of a text that is cut
otherwise, or has lost blanks at its end."""


def _beginning(twin: Completion, one: Completion) -> Completion:
    """The twin as far as `one` goes, with its text and its end."""
    size, lists = len(one.token_ids), twin.logprobs
    lists = lists.part(stop=size) if lists is not None and len(lists) == len(twin.token_ids) else lists
    return replace(
        twin,
        token_ids=twin.token_ids[:size],
        text=None if twin.text is None else one.text,
        finish_reason=one.finish_reason,
        stop_reason=one.stop_reason,
        logprobs=lists,
    )


def _total(one: Completion) -> int:
    return len(one.prompt_token_ids) + len(one.token_ids)
