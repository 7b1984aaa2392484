"""Do logits move by nats now and then, at equal tokens after equal text, as the arms' own lists show it?

A router that chooses another expert at a near-tie of its own does that, in either arm: by as much as the experts differ
or not at all, and its next step is what it was before. What is wrong in an engine's state, cache or positions moves
logits by little more often than by much, most of it the logits of the steps beside as well; another model moves nearly
all.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from parity.comparator.reference.gaps import BoolArray, FloatArray
from parity.comparator.streams.pairing import Pairs
from parity.records import Completion

FAR = 0.75
"""Nats. Of eight clean arms of tests/worlds whose experts are alike (`FLAT`, 10,000 tokens each) two have one move so
far, the others none."""

MOVED = 0.3
"""The same of single tokens that are looked at for another reason: rounding moves them by 0.16 at most."""

TRAIL = 0.2
"""Of a move, that the tokens beside it move: beside those of a router 0.16 nats at most, mostly 0.06."""

BESIDE = 2
"""Tokens before a move and after it, that are looked at."""

LITTLE = (0.2, 0.5)
"""Nats, beyond what rounding does and below what experts far apart do: of 12 clean arms of `ROUGH` each had five moves
between these at most, and eight to 29 beyond FAR. Of positions off by one (`FLAT`, `PEAKED`) there are ten for one."""

FEWEST = 6
"""Moves that it takes: of 20 clean arms with experts far apart (`ROUGH`) the one with the fewest has eight."""

MOST_WITH_TRAIL = 0.2
"""Share of them that may have a trail. Of stale states 19 in 20 do, of positions off by one a third or more."""

ONE_IN = 150
"""Tokens for each move, at least: of `ROUGH` 300 to 1,000, of other models few."""

LOOKED_AT = 2_048
"""Pairs of completions that are looked at, evenly spaced, where there are more."""


class Moves(Struct, frozen=True):
    """Tokens that were looked at, those at which logits moved far, of these the ones beside which they did as well, and
    those at which they moved a little."""

    tokens: int = 0
    moved: int = 0
    with_trail: int = 0
    a_little: int = 0

    @property
    def by_router(self) -> bool:
        """Are they as those of a router, and not as those of a fault?"""
        return (
            self.moved >= FEWEST
            and self.moved * ONE_IN <= self.tokens
            and self.with_trail <= MOST_WITH_TRAIL * self.moved
            and self.a_little <= self.moved
        )

    def explains(self, partings: int, pairs: Pairs) -> bool:
        """Do so many pairs part at such a move? No more of them than there are moves in all tokens up to where they
        part."""
        if not self.by_router:
            return False
        until = np.where(pairs.parts_at < 0, pairs.candidate_tokens.sizes, pairs.parts_at)
        return partings * self.tokens <= self.moved * float(until[pairs.same_prompt].sum())


def moves(pairs: Pairs) -> Moves:
    """Of the pairs that list more than the chosen token in both arms."""
    rows = np.flatnonzero(pairs.same_prompt)
    rows = rows[:: max(1, -(-len(rows) // LOOKED_AT))]
    tokens = moved = with_trail = a_little = 0
    for row in rows.tolist():
        found = _moved(pairs.baseline[row], pairs.candidate[row], int(pairs.parts_at[row]))
        if found is not None:
            far = found > FAR
            tokens, moved = tokens + len(found), moved + int(far.sum())
            with_trail += int((far & _beside(found)).sum()) if far.any() else 0
            a_little += int(((found > LITTLE[0]) & (found <= LITTLE[1])).sum())
    return Moves(tokens, moved, with_trail, a_little)


def others_moved(a: Completion, b: Completion, at: int) -> bool:
    """Where two completions part: did the logits of other tokens than the candidate's own move against each other?"""
    mine, theirs = a.lists, b.lists
    if mine is None or theirs is None or at >= min(len(mine), len(theirs)):
        return False
    chosen = int(b.token_ids[at])
    left, right = (dict(zip(one.ids[at].tolist(), one.values[at].tolist(), strict=True)) for one in (mine, theirs))
    apart = [left[token] - right[token] for token in left.keys() & right.keys() if token != chosen]
    return bool(apart) and max(apart) - min(apart) > MOVED


def _beside(distances: FloatArray) -> BoolArray:
    """Did a token near it move as well, shape (T,)."""
    padded = np.pad(distances, BESIDE)
    size = len(distances)
    near = [padded[at : at + size] for at in range(2 * BESIDE + 1) if at != BESIDE]
    return np.asarray(np.max(near, axis=0) > TRAIL * distances)


def _moved(a: Completion, b: Completion, parts_at: int) -> FloatArray | None:
    """How far logits of tokens that both lists name moved against each other, nats, shape (T,), up to where the
    completions part; None where one lists too little."""
    mine, theirs = a.lists, b.lists
    if mine is None or theirs is None:
        return None
    size = min(len(mine), len(theirs), len(a.token_ids), len(b.token_ids))
    size = size if parts_at < 0 else min(size, parts_at)
    if not size:
        return None
    both = mine.ids[:size, :, None] == theirs.ids[:size, None, :]
    both &= np.isfinite(mine.values[:size, :, None]) & np.isfinite(theirs.values[:size, None, :])
    with np.errstate(invalid="ignore", over="ignore"):
        apart = mine.values[:size, :, None] - theirs.values[:size, None, :]
    most = np.where(both, apart, -np.inf).max(axis=(1, 2))
    least = np.where(both, apart, np.inf).min(axis=(1, 2))
    with np.errstate(invalid="ignore", over="ignore"):
        return np.asarray(np.where(both.any(axis=(1, 2)), most - least, np.inf))
