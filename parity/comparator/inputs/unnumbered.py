"""Lists that have no number for chosen tokens (null), throughout: an arm that does not say how likely these were.

In one completion it is a fault: an engine that computed no number. So it is where parity ran the engine.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from itertools import islice
from typing import TypeAlias

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from parity.comparator.inputs.bans import terminators
from parity.comparator.inputs.conventions import LIKE_IT, LOOKED_AT
from parity.comparator.inputs.servers import by_others
from parity.comparator.types import Remarks
from parity.messages import Message, message
from parity.records import Capture, Completion, Key

BoolArray: TypeAlias = NDArray[np.bool_]

MOST = 0.5
"""Share of the completions with lists that must lack a number: short ones may have none of the tokens that are left
out."""

IN_BOTH = 0.25
"""Share from which on it is a habit where the other arm lacks as many: nobody is accused
of what both do."""

FEW = 2
"""Completions, at least, that must lack one."""


class _Lacks(Struct, frozen=True):
    """Completions looked at that have a list for each token, those of them that end at a token to stop at, and those
    that lack a number: anywhere, and there alone."""

    listed: int = 0
    ended: int = 0
    anywhere: int = 0
    at_ends: int = 0

    @property
    def is_of_ends(self) -> bool:
        return FEW <= self.anywhere == self.at_ends and self.at_ends >= LIKE_IT * self.ended

    def is_habit(self, share: float) -> bool:
        return self.anywhere >= max(FEW, share * self.listed)


def without_unnumbered(baseline: Capture, candidate: Capture) -> tuple[Capture, Capture, Remarks]:
    """Both captures without lists of a way of writing that leaves numbers of chosen tokens out: where they were the
    unlikely ones, the rest would look as if drawn too carefully."""
    arms = baseline, candidate
    lacks = [_lacks(arm) for arm in arms]
    in_both = all(one.is_habit(IN_BOTH) for one in lacks)
    found = [_without(arm, one, in_both=in_both) for arm, one in zip(arms, lacks, strict=True)]
    (baseline, of_baseline), (candidate, of_candidate) = found
    return baseline, candidate, Remarks(notes=of_baseline + of_candidate)


def _without(arm: Capture, lacks: _Lacks, *, in_both: bool) -> tuple[Capture, tuple[Message, ...]]:
    if lacks.is_of_ends:
        what = message(
            "inputs.no_number_of_end",
            "{arm}: it gives null for the logprob of the token at which a completion stops: the logprobs of these "
            "completions are left out",
            arm=arm.header.arm,
        )
        ends = terminators(arm.header)
        some = [one for one in arm if _ends(one, ends) and _unnumbered(one).any()]
        return arm.but(_without_lists(some)), (what,)
    if lacks.is_habit(MOST) or in_both:
        what = message(
            "inputs.no_number",
            "{arm}: it gives null for the logprobs of chosen tokens, in {some} of {of} completions: its logprobs are "
            "left out",
            arm=arm.header.arm,
            some=lacks.anywhere,
            of=lacks.listed,
        )
        return arm.but(_without_lists(one for one in arm if one.logprobs is not None)), (what,)
    return arm, ()


def _lacks(arm: Capture) -> _Lacks:
    if not by_others(arm.header) or not arm.has_logprobs:
        return _Lacks()
    ends = terminators(arm.header)
    listed = [one for one in islice(arm, LOOKED_AT) if one.logprobs is not None and len(one.token_ids)]
    lacking = [(one, _unnumbered(one)) for one in listed]
    return _Lacks(
        listed=len(listed),
        ended=sum(_ends(one, ends) for one in listed),
        anywhere=sum(bool(some.any()) for _, some in lacking),
        at_ends=sum(_ends(one, ends) and bool(some[-1]) and int(some.sum()) == 1 for one, some in lacking),
    )


def _unnumbered(one: Completion) -> BoolArray:
    """For each token: is it listed, and without a number? Where there are not as many lists as tokens, for none."""
    top = one.logprobs
    if top is None or len(top) != len(one.token_ids):
        return np.zeros(len(one.token_ids), dtype=bool)
    return np.asarray(((top.ids == one.token_ids[:, None]) & np.isnan(top.values)).any(axis=1))


def _ends(one: Completion, ends: Collection[int]) -> bool:
    return bool(len(one.token_ids)) and int(one.token_ids[-1]) in ends


def _without_lists(some: Iterable[Completion]) -> dict[Key, Completion]:
    return {one.key: replace(one, logprobs=None) for one in some}
