"""Did an arm keep to its penalties as a whole? Also where each token by itself lies within the tolerance.

A penalty decides between two tokens: the best one under it and the one that would be the best without. An arm that
applies it takes the first of them, and where noise turns that round, it does so at most half of the time. Small
penalties move no token further than the tolerance, and are seen by this alone.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from parity.comparator.detect.penalties import reason_of
from parity.comparator.reference.gaps import BoolArray, TokenGaps, token_gaps
from parity.comparator.reference.penalties import other_ways
from parity.comparator.reference.scores import Reference
from parity.comparator.statistics import binomial_tail, fisher_more
from parity.messages import message
from parity.records import Completion, TokenIds
from parity.records.evidence import RunEvidence

BEYOND_DOUBT = 1e-6
"""p-value below which an arm did not keep to its penalties."""

_SMALLER = message("penalties.smaller", "smaller penalties")
_LARGER = message("penalties.larger", "larger penalties")

LEAN = 0.6
"""Share of turned near-ties that may lie on one side."""

HABIT = 0.01
"""p-value of the baseline's below which they lie on that side in any arm, and the candidate must show more of it."""


def not_kept(arm: str, completions: Iterable[tuple[Completion, TokenGaps]], reference: Reference) -> RunEvidence | None:
    """What the arm did instead, by the gaps of its completions; None where it kept to its penalties, or too little
    says so."""
    against: dict[str, set[tuple[int, ...]]] = {}
    kept: dict[str, set[tuple[int, ...]]] = {}
    for one, gaps in completions:
        penalised, top = reference.shaping(one).penalised(one), reference.score(arm, one)
        if penalised is None or top is None or gaps.wanted is None:
            continue
        for name, penalties in other_ways(penalised.penalties).items():
            other = token_gaps(top, one.token_ids, penalised.but(penalties))
            broken = (gaps.gap > 0) & (other.most == 0) & (gaps.best_id >= 0)
            held = (gaps.gap == 0) & (other.gap > 0)  # with a short list or unknown logits, whatever may be the best
            against.setdefault(name, set()).update(_choices(one, gaps.best_id, broken))
            kept.setdefault(name, set()).update(_choices(one, other.best_id, held))
    tests = len(against)
    found = []
    for name, choices in against.items():
        number = len(choices) + len(kept[name])
        p_value = min(1.0, tests * binomial_tail(len(choices), number))
        if p_value < BEYOND_DOUBT:
            found.append((p_value, name, len(choices), number))
    if not found:
        return None
    p_value, name, count, number = min(found)
    why = message(
        "penalties.run",
        "the candidate's completions {did}: {count} of {number} choices that tell speak for an engine that does "
        "(p = {p_value:.2g})",
        did=reason_of(name),
        count=count,
        number=number,
        p_value=p_value,
    )
    return RunEvidence(why=why, test="penalties", p_value=p_value)


def not_as_large(
    arms: tuple[Iterable[tuple[Completion, TokenGaps]], Iterable[tuple[Completion, TokenGaps]]],
    reference: Reference,
) -> RunEvidence | None:
    """Are the candidate's penalties or biases larger or smaller than asked? `arms`: completions of baseline and
    candidate with their gaps.

    Rounding turns near-ties of two tokens as often towards the one that is penalised more as away from it.
    """
    base, candidate = (_turned(some, reference) for some in arms)
    found = []
    for larger, words in ((False, _SMALLER), (True, _LARGER)):
        count, total = len(candidate[larger]), sum(map(len, candidate))
        own = len(base[larger]), sum(map(len, base))
        chance = binomial_tail(count, total, LEAN)
        if binomial_tail(*own) < HABIT:
            chance = max(chance, fisher_more(count, total, *own))
        found.append((2 * chance, count, total, words))
    p_value, count, total, words = min(found, key=lambda one: one[0])
    if p_value >= BEYOND_DOUBT:
        return None
    why = message(
        "penalties.size",
        "the candidate's completions are those of {words} than asked: {count} of {number} near-ties are turned that "
        "way where penalties or biases decide (p = {p_value:.2g})",
        words=words,
        count=count,
        number=total,
        p_value=p_value,
    )
    return RunEvidence(why=why, test="penalties", p_value=p_value)


def _turned(
    completions: Iterable[tuple[Completion, TokenGaps]], reference: Reference
) -> tuple[set[tuple[int, ...]], set[tuple[int, ...]]]:
    """Choices that are not the best under the penalties: of a token that is penalised more than the best one, and of
    one that is penalised less."""
    more, less = set[tuple[int, ...]](), set[tuple[int, ...]]()
    for one, gaps in completions:
        penalised = reference.shaping(one).penalised(one)
        if penalised is None:
            continue
        places = (gaps.gap > 0) & (gaps.best_id >= 0) & ~gaps.bounded
        length = len(gaps.gap)
        ids = np.stack([one.token_ids[:length], gaps.best_id], axis=1)
        chosen, best = penalised.pushed_down(ids, one.token_ids[:length]).T
        more.update(_choices(one, gaps.best_id, places & (chosen > best)))
        less.update(_choices(one, gaps.best_id, places & (chosen < best)))
    return more, less


def _choices(one: Completion, rival: TokenIds, places: BoolArray) -> list[tuple[int, ...]]:
    """The choices at some places, alike ones as one: a loop makes the same choice again and again."""
    tokens = one.token_ids
    return [
        (int(tokens[place - 1]) if place else -1, int(tokens[place]), int(rival[place]))
        for place in np.flatnonzero(places).tolist()
    ]
