"""Which of two rules did a completion's choices follow? The evidence of the places where they ask for different tokens.

A penalty decides between two tokens: the best one under it and the one that is the best otherwise. An engine that keeps
to its rules takes the first, and rounding turns that round the more seldom the farther they are apart (`turned`). So
each such place is a bet with a mean of at most 1 where the rules were kept, and so is the product of all (Grünwald, de
Heide, Koolen 2024, Safe Testing): it exceeds 1/a with a chance of at most a.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from parity.comparator.reference.floor import best_differences, logit_unit
from parity.comparator.reference.gaps import BoolArray, FloatArray, TokenGaps
from parity.records import TokenIds, TopLogprobs

USUAL_UNIT = 1 / 16
"""Nats: the bf16 unit of logits between 8 and 16. Finer ones are taken for it."""

LISTS_SAMPLED = 64
"""Scores looked at for the unit of the logits."""

NEAR, FALLS = 0.5, 0.64
"""bf16 units: up to the first, either of two tokens may be chosen; each further 0.64 units leave a share of 1/e.
Measured in tests/worlds, clean arms and arms with one unit of noise on every logit, the larger of both: 0.22 at 1 unit
(the bound: 0.23), 0.046 at 2 (0.048), 0.015 at 2.5 (0.022)."""

SELDOM = 0.005
"""The least chance that is counted with: 0.0025 were seen at 0.15 to 0.25 nats and 0.0005 beyond, in clean arms."""

PIECE = 16
"""Tokens: at every so many another rule may have come into force."""


def unit_of(tops: Iterable[TopLogprobs]) -> float:
    """The bf16 unit of the logits (nats) by some lists."""
    some = [top for top, _ in zip(tops, range(LISTS_SAMPLED), strict=False)]
    return max(USUAL_UNIT, logit_unit(best_differences(some)) or 0.0)


def turned(gap: FloatArray, unit: float) -> FloatArray:
    """The chance, at most, that rounding chooses a token `gap` nats below the best; unit: bf16 unit of the logits."""
    return np.asarray(np.maximum(SELDOM, 0.5 * np.exp(-np.maximum(0.0, gap / unit - NEAR) / FALLS)))


def at_most(gaps: TokenGaps, unit: float) -> float:
    """Log of the most evidence that any other rule can have, by the gaps under the own one."""
    gap = gaps.gap[gaps.gap > 0]
    return float(-np.log(2 * turned(gap, unit)).sum())


def evidence(tokens: TokenIds, own: TokenGaps, other: TokenGaps, unit: float) -> tuple[float, int, int, int]:
    """(log of the evidence that `tokens` (T,) follow the other rule, from some place on; the first place that tells for
    it; how many do; how many tell at all). The gaps are those under each rule."""
    broken = (own.gap > 0) & (other.most == 0) & (own.best_id >= 0)
    held = (own.gap == 0) & (other.gap > 0)
    telling = broken | held
    if not broken.any():
        return -np.inf if held.any() else 0.0, -1, 0, int(telling.sum())
    places = np.flatnonzero(once(tokens, np.where(broken, own.best_id, other.best_id), telling))
    for_it = broken[places]
    won = np.where(
        for_it, -np.log(2 * turned(own.gap[places], unit)), np.log(turned(np.maximum(other.gap[places], 0.0), unit))
    )
    starts = np.arange(0, len(tokens), PIECE)
    since = np.array([won[np.searchsorted(places, start) :].sum() for start in starts])
    most = float(since.max())
    mean = most + float(np.log(np.exp(since - most).mean()))
    begins = int(starts[int(since.argmax())])
    after = places[(places >= begins) & for_it]
    return mean, int(after[0]) if len(after) else -1, len(after), int((places >= begins).sum())


def once(tokens: TokenIds, rival: TokenIds, telling: BoolArray) -> BoolArray:
    """Of alike choices (after the same token) the first: a loop makes the same one again and again."""
    places = np.flatnonzero(telling)
    before = np.concatenate([[-1], tokens[:-1]])
    names = np.stack([before[places], tokens[places], rival[places]], axis=1)
    _, first = np.unique(names, axis=0, return_index=True)
    kept = np.zeros(len(tokens), dtype=np.bool_)
    kept[places[first]] = True
    return kept
