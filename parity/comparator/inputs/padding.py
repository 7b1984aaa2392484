"""Outputs that a script filled up after their end, as a batch of transformers' `generate` comes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Final

import numpy as np

from parity.comparator.inputs.bans import terminators
from parity.comparator.inputs.servers import by_others
from parity.comparator.types import Remarks, note
from parity.messages import message
from parity.records import Capture, Completion

FEW: Final = 3
"""Completions that are filled up, from which on it is how the arm writes them down; fewer are faults."""


def without_padding(arm: Capture) -> tuple[Capture, Remarks]:
    """The arm without the token that all outputs have after their first stop token, up to the length of the longest
    one; as it is where any output goes on otherwise, or ends at a stop token and is shorter."""
    longest = max((len(one.token_ids) for one in arm), default=0)
    if not by_others(arm.header) or not _may_be_filled(arm, longest):
        return arm, Remarks()
    cut = {}
    with_what: set[int] = set()
    for one, size in _ended(arm, list(terminators(arm.header))):
        if len(one.token_ids) != longest or arm.sampling_of(one).get("ignore_eos"):
            return arm, Remarks()
        if size < longest:
            cut[one.key] = _cut(one, size)
            with_what |= set(np.unique(one.token_ids[size:]).tolist())
    if len(cut) < FEW or len(with_what) != 1:
        return arm, Remarks()
    said = message(
        "inputs.padding",
        "{arm} fills {count} output up with token {token} after its end: left out",
        plural="{arm} fills {count} outputs up with token {token} after their end: left out",
        arm=arm.header.arm,
        count=len(cut),
        token=with_what.pop(),
    )
    return replace(arm, completions={**arm.completions, **cut}), note(said)


def _may_be_filled(arm: Capture, longest: int) -> bool:
    """Do some of the longest end with one token twice? Cheap, for the many arms where none does."""
    ends = (one.token_ids[-2:] for one in arm if len(one.token_ids) == longest > 1)
    return len(list(islice((two for two in ends if two[0] == two[1]), FEW))) == FEW


def _ended(arm: Capture, ends: list[int]) -> Iterator[tuple[Completion, int]]:
    """Completions that hold a stop token, and how many tokens they have up to it."""
    for one in arm:
        places = np.flatnonzero(np.isin(one.token_ids, ends))
        if len(places):
            yield one, int(places[0]) + 1


def _cut(one: Completion, size: int) -> Completion:
    lists = one.logprobs
    return replace(
        one,
        token_ids=one.token_ids[:size],
        finish_reason="stop" if one.finish_reason is not None else None,
        logprobs=None if lists is None else lists.part(stop=size),
    )
