"""Arms that give more or fewer lists of logprobs than tokens: of the prompt as well, of the first token alone.

It is a habit only where the whole arm has it: in one completion it is a fault.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import islice

import numpy as np
from msgspec import Struct

from parity.comparator.inputs.bans import terminators
from parity.comparator.inputs.conventions import LIKE_IT, LOOKED_AT, habit_note
from parity.comparator.inputs.servers import by_others
from parity.comparator.types import Remarks
from parity.messages import Message, message
from parity.records import Capture, Completion, TopLogprobs


class _Amount(Struct, frozen=True):
    what: Message
    holds: Callable[[Completion, int], bool]
    """Of a completion and the number of its lists."""
    mend: Callable[[Completion, TopLogprobs], TopLogprobs | None]


def _stopped(one: Completion, more: int) -> bool:
    """Are so many lists more than tokens what an end that is left out makes? Where no reason is given, nothing says
    whether there was one."""
    return more in {"stop": (1,), None: (0, 1)}.get(one.finish_reason, (0,))


def _begins_late(one: Completion) -> bool:
    """Do its lists hold the token after theirs rather than their own?"""
    assert one.logprobs is not None
    tokens, ids = one.token_ids, one.logprobs.ids[: len(one.token_ids)]
    here, after = ((ids[: len(some)] == some[: len(ids), None]).any(axis=1) for some in (tokens, tokens[1:]))
    return bool(after.mean() > here.mean()) if len(after) else not here.any()


def _before_own(one: Completion) -> int | None:
    """Lists before those that name its tokens, which are the last ones, or all but that of a token that it stopped at;
    None where there are no such."""
    assert one.logprobs is not None
    more = len(one.logprobs) - len(one.token_ids)
    for begin in [more, *([more - 1] if _stopped(one, 1) else [])]:
        ids = one.logprobs.ids[begin : begin + len(one.token_ids)]
        if begin > 0 and bool((ids == one.token_ids[:, None]).any(axis=1).all()):
            return begin
    return None


_AMOUNTS = (
    _Amount(
        message("inputs.lists_first", "it gives logprobs of the first token alone: left out"),
        lambda one, size: size == min(1, len(one.token_ids)),
        lambda one, top: None,
    ),
    _Amount(
        message("inputs.lists_but_first", "it gives logprobs of all tokens but the first: left out"),
        lambda one, size: size == max(0, len(one.token_ids) - 1),
        lambda one, top: None,
    ),
    _Amount(
        message(
            "inputs.lists_but_first_of_end",
            "it gives logprobs of all tokens but the first, and of that it stopped at, which its ids lack: left out",
        ),
        lambda one, size: _stopped(one, size - len(one.token_ids) + 1) and _begins_late(one),
        lambda one, top: None,
    ),
    _Amount(
        message("inputs.lists_of_prompt", "its logprobs begin with those of the prompt: these are left out"),
        lambda one, size: size == len(one.prompt_token_ids) + len(one.token_ids),
        lambda one, top: top.part(len(one.prompt_token_ids)),
    ),
    _Amount(
        message(
            "inputs.lists_of_prompt_but_first",
            "its logprobs begin with those of the prompt but for its first token: these are left out",
        ),
        lambda one, size: size == len(one.prompt_token_ids) + len(one.token_ids) - 1,
        lambda one, top: top.part(len(one.prompt_token_ids) - 1),
    ),
    _Amount(
        message("inputs.lists_of_end", "it has a logprob of the token it stopped at, which its ids lack: left out"),
        lambda one, size: _stopped(one, size - len(one.token_ids)),
        lambda one, top: top.part(stop=len(one.token_ids)),
    ),
    _Amount(
        message(
            "inputs.lists_of_prompt_and_end",
            "its logprobs begin with those of the prompt, and end with that of the token it stopped at: left out",
        ),
        lambda one, size: _stopped(one, size - len(one.prompt_token_ids) - len(one.token_ids)),
        lambda one, top: top.part(len(one.prompt_token_ids), len(one.prompt_token_ids) + len(one.token_ids)),
    ),
    _Amount(
        message(
            "inputs.lists_of_more",
            "its logprobs begin with those of something else (its prompts, which were not recorded?): left out",
        ),
        lambda one, size: size > len(one.token_ids) and not len(one.prompt_token_ids) and _before_own(one) is not None,
        lambda one, top: top.part(begin := _before_own(one) or 0, begin + len(one.token_ids)),
    ),
)


def _without_empty(arm: Capture) -> Capture:
    """Without empty lists that stand for the first token, or for all but the first, in nearly all completions: an
    empty list says as little as none. What is left is counted as any other number of lists."""
    if not by_others(arm.header) or not arm.has_logprobs:
        return arm
    looked = [_left(one) for one in islice(_of_several(arm), LOOKED_AT)]
    for those in (_BUT_FIRST, _FIRST):
        if looked and looked.count(those) >= LIKE_IT * len(looked):
            return arm.but(
                {
                    one.key: replace(one, logprobs=None if one.logprobs is None else one.logprobs.part(*those))
                    for one in _of_several(arm)
                    if _left(one) == those
                }
            )
    return arm


_BUT_FIRST, _FIRST = (1, None), (0, 1)
"""Which of the lists are left without those that are empty, from where and up to where."""


def _of_several(arm: Capture) -> Iterator[Completion]:
    """Completions of several tokens that have as many lists."""
    return (
        one for one in arm.with_logprobs() if one.logprobs is not None and len(one.logprobs) == len(one.token_ids) > 1
    )


def _left(one: Completion) -> tuple[int, int | None]:
    """_BUT_FIRST, _FIRST, or all."""
    assert one.logprobs is not None
    empty = np.asarray((one.logprobs.ids < 0).all(axis=1), dtype=np.bool_)
    if bool(empty[0]) and not bool(empty[1:].all()):
        return _BUT_FIRST
    return _FIRST if bool(empty[1:].all()) and not bool(empty[0]) else (0, None)


def one_per_token(arm: Capture) -> tuple[Capture, Remarks]:
    arm = _without_empty(arm)
    if not by_others(arm.header) or not arm.has_logprobs:
        return arm, Remarks()
    # Those in a column have as many as tokens. Of the others only the odd ones are kept.
    odd = [
        (one, size)
        for one in arm.with_logprobs()
        if one.logprobs is not None and (size := len(one.logprobs)) != len(one.token_ids) > 1
    ]
    if len(odd) < 2 and not any(_ends_listed(one, size, arm) for one, size in odd):
        return arm, Remarks()
    looked = _counted(arm)
    for amount in _AMOUNTS:
        holding = [amount.holds(*pair) for pair in looked]
        if sum(holding) >= LIKE_IT * len(looked) and any(amount.holds(*pair) for pair in odd):
            mended = {
                one.key: replace(one, logprobs=None if one.logprobs is None else amount.mend(one, one.logprobs))
                for one in arm
                if one.logprobs is not None and amount.holds(one, len(one.logprobs))
            }
            return arm.but(mended), habit_note(arm, amount.what)
    return arm, Remarks()


def _ends_listed(one: Completion, size: int, arm: Capture) -> bool:
    """Is the one list more than its tokens that of a token that ends completions, where it stopped? Then it is enough
    that one completion of the run has it: the others ended by length."""
    if one.logprobs is None or size != len(one.token_ids) + 1 or one.finish_reason != "stop":
        return False
    return bool(np.isin(one.logprobs.ids[-1], list(terminators(arm.header))).any())


def _counted(some: Iterable[Completion]) -> list[tuple[Completion, int]]:
    """Those that say something of a habit, and how many lists they have."""
    return [(one, len(one.logprobs)) for one in some if one.logprobs is not None and len(one.token_ids) > 1]
