"""Outputs that a script filled up after their end, as a batch of transformers' `generate` comes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

import numpy as np
from msgspec import Struct

from parity.comparator.inputs.bans import terminators
from parity.comparator.inputs.servers import by_others
from parity.comparator.types import Remarks, note, reason
from parity.messages import message
from parity.records import Capture, Completion, Key
from parity.records.next_steps import NextStep, Step

FEW: Final = 3
"""Completions that are filled up, from which on it is how the arm writes them down, whatever with. Fewer may be an
engine that went on, unless the other arm is filled up with the same, or stop tokens do it, of which no engine has given
a logprob: then nobody is accused, and the run is left open."""


def without_padding(arm: Capture, other: Capture) -> tuple[Capture, Remarks]:
    """The arm without the token that all outputs have after their first stop token, up to the length of the longest
    one; as it is where any output goes on otherwise, or ends at a stop token and is shorter."""
    found = _filled_up(arm)
    if found is None:
        return arm, Remarks()
    if len(found.cut) < FEW and (found.has_numbers or found.token not in terminators(arm.header)):
        theirs = _filled_up(other)
        if theirs is None or theirs.token != found.token:
            sizes = arm.tokens.sizes
            if int((sizes == sizes.max()).sum()) == len(found.cut):
                return arm, Remarks()  # a script fills up to the longest output, which is not filled up itself
            return arm.but(found.cut), _left_open(arm, found)
    said = message(
        "inputs.padding",
        "{arm} fills {count} output up with token {token} after its end: left out",
        plural="{arm} fills {count} outputs up with token {token} after their end: left out",
        arm=arm.header.arm,
        count=len(found.cut),
        token=found.token,
    )
    return arm.but(found.cut), note(said)


def _left_open(arm: Capture, found: _FilledUp) -> Remarks:
    said = message(
        "inputs.perhaps_padding",
        "{count} output of {arm} has token {token} alone after its end, up to the length of the longest output: a "
        "script that fills outputs up does that, and so does an engine that goes on; left out, and more outputs that "
        "end would say more",
        plural="{count} outputs of {arm} have token {token} alone after their end, up to the length of the longest "
        "output: a script that fills outputs up does that, and so does an engine that goes on; left out, and more "
        "outputs that end would say more",
        arm=arm.header.arm,
        count=len(found.cut),
        token=found.token,
    )
    return reason(said, NextStep(Step.LONGER, said.id, LONGER))


LONGER: Final = 4
"""Times as many output tokens, of which more end."""


class _FilledUp(Struct, frozen=True):
    """Completions without what fills them up, and with which token; whether any has logprobs of those."""

    cut: Mapping[Key, Completion]
    token: int
    has_numbers: bool


def _filled_up(arm: Capture) -> _FilledUp | None:
    if not by_others(arm.header):
        return None
    ends = terminators(arm.header)
    tokens = arm.tokens
    longest = int(tokens.sizes.max(initial=0))
    rows = tokens.rows_at(tokens.places_of(ends))
    if not rows or bool((tokens.sizes[rows] != longest).any()):
        return None
    cut = {}
    with_what: set[int] = set()
    has_numbers = False
    for one, size in _ended(arm, rows, list(ends)):
        if arm.sampling_of(one).get("ignore_eos"):
            return None
        if size < longest:
            cut[one.key] = _cut(one, size)
            with_what |= set(one.token_ids[size:].tolist())
            has_numbers |= one.logprobs is not None and bool((one.logprobs.ids[size:] >= 0).any())
    return _FilledUp(cut, with_what.pop(), has_numbers) if len(with_what) == 1 else None


def _ended(arm: Capture, rows: list[int], ends: list[int]) -> Iterator[tuple[Completion, int]]:
    """The completions of these rows, which hold a stop token, and how many tokens they have up to it."""
    every = arm.rows
    for row in rows:
        yield every[row], int(np.isin(every[row].token_ids, ends).argmax()) + 1


def _cut(one: Completion, size: int) -> Completion:
    lists = one.logprobs
    return replace(
        one,
        token_ids=one.token_ids[:size],
        finish_reason="stop" if one.finish_reason is not None else None,
        logprobs=None if lists is None else lists.part(stop=size),
    )
