"""Text without token ids that begins with the prompt: where the output begins is found in the text.

The ids made again from such a text need not begin with the prompt's: blanks taken off the whole of it, or put before
it, cut it into other tokens, and a token may stand across the place where the output begins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from msgspec import Struct, field

from parity.comparator.inputs.conventions import LIKE_IT
from parity.comparator.inputs.finish_reasons import CUT_OTHERWISE, limit_of
from parity.comparator.inputs.servers import text_alone
from parity.comparator.inputs.text import INT32_MAX
from parity.comparator.types import Remarks
from parity.messages import message
from parity.records import Capture, Completion, Key, ScoreKey, TokenIds

FEW = 2
"""Texts that must begin with their prompt."""

Detokenize = Callable[[Sequence[int]], str]


class Outputs(Struct, frozen=True):
    """An arm's completions without the prompt in front of their texts."""

    arm: Capture
    remarks: Remarks = field(default_factory=Remarks)
    echoed: Mapping[ScoreKey, int] = field(default_factory=dict)
    """Completions whose texts began with their prompt: how many tokens they have without it. Of a token that stood
    across the place where the output begins the text is kept and the id is not."""


def without_prompts(arm: Capture, other: Capture, detokenize: Detokenize | None) -> Outputs:
    """`other`: the arm that it is compared with, whose prompts stand for those that this one does not report."""
    if detokenize is None or not text_alone(arm.header):
        return Outputs(arm)
    prompts: dict[Key, str] = {}
    found: dict[Key, int] = {}
    if len(arm.completions) < FEW:
        return Outputs(arm)
    # Making text of tokens is slow: of an arm without the habit few are looked at.
    others = len(arm.completions) - max(FEW, LIKE_IT * len(arm.completions))
    for key, one in arm.completions.items():
        prompts[key] = _prompt_text(key, arm, other, detokenize)
        begin = _begin(one, prompts[key], detokenize)
        if begin is not None:
            found[key] = begin
        elif len(prompts) - len(found) > others:
            return Outputs(arm)
    cut = {key: _cut(arm.completions[key], begin, detokenize) for key, begin in found.items()}
    theirs = (_begin(other.completions[key], prompts[key], detokenize) for key in found if key in other.completions)
    if all(begin is not None for begin in theirs) and not _too_long(arm, cut):
        return Outputs(arm)  # both arms' outputs begin so: a model that repeats what it is asked
    note = message("inputs.echo", "{arm} begins every output with its prompt: left out", arm=arm.header.arm)
    echoed = {ScoreKey(arm.header.arm, *key): len(one.token_ids) for key, one in cut.items()}
    return Outputs(arm.but(cut), Remarks(notes=(note,)), echoed)


def _prompt_text(key: Key, arm: Capture, other: Capture, detokenize: Detokenize) -> str:
    """ "" where nobody knows it."""
    for one in (arm.completions.get(key), other.completions.get(key)):
        if one is not None and len(one.prompt_token_ids):
            return _text(one.prompt_token_ids, detokenize)
    return ""


def _begin(one: Completion, prompt: str, detokenize: Detokenize) -> int | None:
    """At which character the output begins, of a text that begins with its prompt but for blanks before it; None of
    any other."""
    core = prompt.strip()
    if not core:
        return None
    text = _text(one.token_ids, detokenize) if one.text is None else one.text
    begin = len(text) - len(text.lstrip()) + len(core)
    if not text.lstrip().startswith(core):
        return None
    after = prompt[len(prompt.rstrip()) :]
    return begin + len(after) * text.startswith(after, begin)


def _too_long(arm: Capture, cut: Mapping[Key, Completion]) -> bool:
    """Are there outputs of more tokens than there may be, and none without the prompt?"""
    limits = {key: limit for key in cut if (limit := limit_of(arm, arm.completions[key])) is not None}
    over, still = (
        any(len(of[key].token_ids) > limit + CUT_OTHERWISE for key, limit in limits.items())
        for of in (arm.completions, cut)
    )
    return over and not still


def _cut(one: Completion, begin: int, detokenize: Detokenize) -> Completion:
    low, high = 0, len(one.token_ids)  # the fewest tokens that end where the output begins, or after it
    while low < high:
        middle = (low + high) // 2
        ends = len(_text(one.token_ids[:middle], detokenize).rstrip("\ufffd"))
        low, high = (low, middle) if ends >= begin else (middle + 1, high)
    return replace(one, text=(one.text or "")[begin:], token_ids=one.token_ids[low:], logprobs=None)


def _text(tokens: TokenIds, detokenize: Detokenize) -> str:
    return detokenize([int(token) for token in tokens if 0 <= token <= INT32_MAX])
