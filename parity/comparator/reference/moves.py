"""Do logits move by nats now and then, at equal tokens after equal text, as the arms' own lists show it?

A router that chooses another expert at a near-tie of its own does that, in either arm, and what the token leaves in
caches and states moves the tokens after it. So it looks like a state that is wrong now and then in every completion:
base and mtp of `parity model tiny --arch qwen3_next` (vLLM 0.32 on CPU), which have no fault, differ by more than 0.75
nats in 6 to 15 tokens of 1,000, two thirds of them beside others that moved; of `--arch deepseek_v3` it is one in 12.
Without scores nothing tells these apart. What is wrong in some completions alone moves no logits in others; another
model moves nearly all.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from msgspec.structs import astuple

from parity.comparator.reference.gaps import FloatArray
from parity.comparator.streams.pairing import Pairs
from parity.records import Completion, TokenIds

FAR = 0.75
"""Nats. Of eight clean arms of tests/worlds whose experts are alike (`FLAT`, 10,000 tokens each) two have one move so
far, the others none."""

MOVED = 0.3
"""The same of single tokens that are looked at for another reason: rounding moves them by 0.16 at most."""

IN_FEWEST = 3
"""Completions that they are in, at least: of 20 clean arms of tests/worlds with experts far apart (`ROUGH`, `LASTING`)
the one with the fewest has three of 64."""

MOST = 3 / 4
"""Share of the tokens that move, beyond which it is another model: of two checkpoints of `parity model tiny --arch
deepseek_v3` (vLLM 0.32 on CPU) 98 in 100 do, of base and mtp of one 18 to 21, and of eight of their completions 43."""

WHOLE = 1 / 8
"""Share of the tokens that completions which never part must have, to speak for all. A row that is at fault may part,
and what moves before it does is the fault's."""

LOOKED_AT = 2_048
"""Pairs of completions that are looked at, evenly spaced, where there are more."""


class Moved(Struct, frozen=True):
    """Tokens that were looked at, those at which logits moved far, and how many completions these are in."""

    tokens: int = 0
    moved: int = 0
    completions: int = 0

    def __add__(self, other: Moved) -> Moved:
        return Moved(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    @property
    def is_most(self) -> bool:
        """Do they move at so many that it is another model, or another prompt?"""
        return self.completions >= IN_FEWEST and self.moved > MOST * self.tokens


class Moves(Struct, frozen=True):
    """The tokens of completions that never part, and of all, where those at which two completions part are among
    them."""

    whole: Moved = Moved()
    every: Moved = Moved()

    @property
    def now_and_then(self) -> bool:
        """Do logits move in several completions that speak for all, and not at most tokens?"""
        some = self.whole if self.whole.tokens >= WHOLE * self.every.tokens else self.every
        return some.completions >= IN_FEWEST and not self.of_another_model

    @property
    def of_another_model(self) -> bool:
        return self.every.is_most


def moves(pairs: Pairs) -> Moves:
    """Of the pairs that list more than the chosen token in both arms."""
    rows = np.flatnonzero(pairs.same_prompt)
    rows = rows[:: max(1, -(-len(rows) // LOOKED_AT))]
    whole, parted = Moved(), Moved()
    for row in rows.tolist():
        at = int(pairs.parts_at[row])
        found = _moved(pairs.baseline[row], pairs.candidate[row], at)
        if found is None:
            continue
        far = int((found > FAR).sum())
        one = Moved(len(found), far, int(far > 0))
        if at < 0:
            whole += one
        else:
            parted += one
    return Moves(whole, whole + parted)


def others_moved(a: Completion, b: Completion, at: int) -> bool:
    """Where two completions part: did the logits of other tokens than the candidate's own move against each other?"""
    mine, theirs = a.lists, b.lists
    if mine is None or theirs is None or at >= min(len(mine), len(theirs)):
        return False
    chosen = int(b.token_ids[at])
    first, chosen = int(a.token_ids[at]), int(b.token_ids[at])
    left, right = (_finite(one.ids[at], one.values[at]) for one in (mine, theirs))
    apart = [left[token] - right[token] for token in left.keys() & right.keys() if token != chosen]
    # What a list leaves out is no better than the last that it has beside the chosen one.
    last = [
        min((value for token, value in one.items() if token != own), default=np.inf)
        for one, own in ((left, first), (right, chosen))
    ]
    apart_at_least = [left[token] - last[1] for token in left.keys() - right.keys() - {first, chosen}]
    apart_at_most = [last[0] - right[token] for token in right.keys() - left.keys() - {first, chosen}]
    most, least = max([*apart, *apart_at_least], default=-np.inf), min([*apart, *apart_at_most], default=np.inf)
    return most - least > MOVED


def _finite(ids: TokenIds, values: FloatArray) -> dict[int, float]:
    return {token: value for token, value in zip(ids.tolist(), values.tolist(), strict=True) if np.isfinite(value)}


def _moved(a: Completion, b: Completion, parts_at: int) -> FloatArray | None:
    """How far logits of tokens that the lists name moved against each other at least, nats, shape (T,), up to the token
    at which the completions part; None where one lists too little. A token that a list leaves out is no better than
    the last that it has beside the chosen one."""
    mine, theirs = a.lists, b.lists
    if mine is None or theirs is None:
        return None
    size = min(len(mine), len(theirs), len(a.token_ids), len(b.token_ids))
    size = size if parts_at < 0 else min(size, parts_at + 1)
    if not size:
        return None
    left, right = mine.values[:size], theirs.values[:size]
    same = mine.ids[:size, :, None] == theirs.ids[:size, None, :]
    both = same & np.isfinite(left)[:, :, None] & np.isfinite(right)[:, None, :]
    with np.errstate(invalid="ignore", over="ignore"):
        apart = left[:, :, None] - right[:, None, :]
        most = np.where(both, apart, -np.inf).max(axis=(1, 2))
        least = np.where(both, apart, np.inf).min(axis=(1, 2))
        for known, floor, other, sign in (
            (same.any(axis=2), _last(right), left, 1.0),
            (same.any(axis=1), _last(left), right, -1.0),
        ):
            bound = np.where(known | ~np.isfinite(other), -np.inf, other - floor[:, None]).max(axis=1)
            most, least = (np.fmax(most, bound), least) if sign > 0 else (most, np.fmin(least, -bound))
        moved = most - least
    return np.where(np.isfinite(moved), moved, 0.0)


def _last(values: FloatArray) -> FloatArray:
    """The least of each list beside its first, which is the chosen token's; NaN where nothing is known."""
    if values.shape[1] < 2:
        return np.full(len(values), np.nan)
    rest = values[:, 1:]
    known = np.where(np.isfinite(rest), rest, np.inf).min(axis=1)
    return np.where(np.isfinite(known), known, np.nan)
