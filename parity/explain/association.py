"""Which conditions go with faults: Fisher's exact test over row-steps, corrected for all that were asked (Holm).

Faults are few and conditions nest (a row moves when another leaves), so what the data cannot tell apart is named
together, and where there are too few faults to know, that is said. Importance is the increase of cooperative bug
isolation (Liblit et al. 2005, PLDI): how much likelier a row-step is faulty given the condition.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

import numpy as np

from parity.capture.steps import Ints
from parity.explain.ledger import Mask

SURE: Final = 0.001
"""Adjusted p below which a condition is shown as one."""

CANDIDATES: Final = 12
"""Conditions, the best ones, of which pairs are tried."""


@dataclass(frozen=True, slots=True)
class Association:
    """One condition, or two together."""

    names: tuple[str, ...]
    with_fault: int
    """Faults in row-steps where it holds."""
    row_steps: int
    """Row-steps where it holds."""
    p: float
    adjusted: float
    increase: float
    odds: float
    same: tuple[tuple[str, ...], ...] = ()
    """What these data cannot tell from it."""


@dataclass(frozen=True, slots=True)
class Associated:
    faults: int
    row_steps: int
    asked: int
    ranked: tuple[Association, ...]
    """The likeliest first."""
    pair: Association | None = None
    """Two conditions together, where one does not hold of every fault or says much less."""
    needed: int | None = None
    """Faults, all with the best condition, that it would take to be sure of it; None where there are enough."""

    @property
    def sure(self) -> bool:
        return bool(self.ranked) and self.ranked[0].adjusted < SURE


def tail(faults: int, holds: int, total: int, both: int) -> float:
    """P(at least `both` of `faults` row-steps drawn from `total` are among the `holds`): hypergeometric."""

    def choose(n: int, k: int) -> float:
        return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)

    whole = choose(total, faults)
    most = min(holds, faults)
    least = max(both, faults - (total - holds))
    if both <= max(0, faults - (total - holds)):
        return 1.0
    terms = (choose(holds, x) + choose(total - holds, faults - x) - whole for x in range(least, most + 1))
    return min(1.0, sum(math.exp(term) for term in terms))


def holm(values: Sequence[float]) -> list[float]:
    """Adjusted p-values, in the order given."""
    order = sorted(range(len(values)), key=lambda at: values[at])
    found, running = [1.0] * len(values), 0.0
    for rank, at in enumerate(order):
        running = max(running, min(1.0, values[at] * (len(values) - rank)))
        found[at] = running
    return found


def associate(conditions: Mapping[str, Mask], faults: Ints, among: Mask) -> Associated:
    """Rank the conditions by how they go with `faults` (indices of row-steps, each of `among`).

    `among`: row-steps that could have been faulty: those that emit, up to a completion's first fault.
    """
    total = int(among.sum())
    faulty = np.zeros(len(among), dtype=bool)
    faulty[faults] = True
    count = int((faulty & among).sum())
    asked = {name: mask & among for name, mask in conditions.items() if 0 < int((mask & among).sum()) < total}
    if not count or not asked:
        return Associated(count, total, len(asked), ())
    values = [_p(mask, faulty, count, total) for mask in asked.values()]
    adjusted = holm(values)
    rows = sorted(
        (
            _association((name,), mask, faulty, count, total, p, q)
            for (name, mask), p, q in zip(asked.items(), values, adjusted, strict=True)
        ),
        key=lambda one: (one.p, -one.increase),
    )
    ranked = _together(rows, asked, faulty)
    pair = _pair(rows, asked, faulty, count, total)
    return Associated(count, total, len(asked), tuple(ranked), pair, _needed(ranked[0], count, total, len(asked)))


def _p(mask: Mask, faulty: Mask, count: int, total: int) -> float:
    return tail(count, int(mask.sum()), total, int((mask & faulty).sum()))


def _association(
    names: tuple[str, ...], mask: Mask, faulty: Mask, count: int, total: int, p: float, adjusted: float
) -> Association:
    both, holds = int((mask & faulty).sum()), int(mask.sum())
    odds = (both + 0.5) * (total - holds - count + both + 0.5) / ((count - both + 0.5) * (holds - both + 0.5))
    return Association(names, both, holds, p, adjusted, both / holds - count / total, odds)


def _together(rows: list[Association], masks: Mapping[str, Mask], faulty: Mask) -> list[Association]:
    """Conditions that hold of the same faults and nearly the same row-steps stand as one."""
    found: list[Association] = []
    for one in rows:
        mask = masks[one.names[0]]
        for at, other in enumerate(found):
            theirs = masks[other.names[0]]
            alike = int((mask & theirs).sum()) >= 0.9 * int((mask | theirs).sum())
            if alike and bool(((mask & faulty) == (theirs & faulty)).all()):
                found[at] = Association(
                    other.names, other.with_fault, other.row_steps, other.p, other.adjusted, other.increase,
                    other.odds, (*other.same, one.names),
                )  # fmt: skip
                break
        else:
            found.append(one)
    return found


def _pair(
    rows: list[Association], masks: Mapping[str, Mask], faulty: Mask, count: int, total: int
) -> Association | None:
    """Two conditions together, where they hold of as many faults as the better one and say a hundred times more."""
    best: Association | None = None
    tries = list(combinations(rows[:CANDIDATES], 2))
    for a, b in tries:
        mask = masks[a.names[0]] & masks[b.names[0]]
        if int((mask & faulty).sum()) < max(a.with_fault, b.with_fault, 1):
            continue
        p = _p(mask, faulty, count, total)
        if best is None or p < best.p:
            adjusted = min(1.0, p * math.comb(len(rows), 2))
            best = _association((a.names[0], b.names[0]), mask, faulty, count, total, p, adjusted)
    return best if best is not None and best.adjusted < rows[0].adjusted / 100 else None


def _needed(best: Association, count: int, total: int, asked: int) -> int | None:
    """How many faults, all with this condition, an adjusted p below SURE takes; None where not all have it."""
    if best.adjusted < SURE or best.with_fault < count:
        return None
    for more in range(count + 1, count + 200):
        if more > best.row_steps:
            return None
        if tail(more, best.row_steps, total, more) * asked < SURE:
            return more
    return None
