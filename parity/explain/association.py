"""Which conditions go with faults: ranked by how well they explain them, with exact p-values for what is claimed.

The order is that of `hypotheses`. p-values are those of Fisher's exact test, one-sided, corrected by Holm for all
conditions, and by Bonferroni for all pairs where two are named. Faults are few and conditions nest (a row moves
when another leaves): what explains them nearly as well is named together, and where there are too few faults to
know, that is said. Importance is the increase of cooperative bug isolation (Liblit et al. 2005, PLDI): how much
likelier a row-step is faulty given the condition.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from msgspec import Struct

from parity.capture.steps import Ints
from parity.explain.hypotheses import Form, Hypothesis, weighed
from parity.explain.ledger import Mask
from parity.explain.predicates import prior_of

SURE: Final = 0.001
"""Adjusted p below which a condition is shown as one."""

TOLD_APART: Final = 20.0
"""What explains the faults less than this many times worse than the best is named with it: evidence below that is not
"strong" (Kass and Raftery 1995)."""

KEPT: Final = 20
"""Hypotheses that are given back."""


class Association(Struct, frozen=True):
    """One condition, or two."""

    names: tuple[str, ...]
    with_fault: int
    """Faults in row-steps where it holds."""
    row_steps: int
    """Row-steps where it holds."""
    p: float
    adjusted: float
    increase: float
    odds: float
    form: Form = Form.ONE
    factor: float = 1.0
    """How much worse than the first one it explains the faults."""
    same: tuple[tuple[str, ...], ...] = ()
    """What these data cannot tell from it."""


class Associated(Struct, frozen=True):
    faults: int
    row_steps: int
    asked: int
    ranked: tuple[Association, ...]
    """What explains the faults best first."""
    needed: int | None = None
    """Faults, all with the first, that it would take to be sure of it; None where there are enough."""

    @property
    def sure(self) -> bool:
        return bool(self.ranked) and self.ranked[0].adjusted < SURE

    @property
    def reach(self) -> float:
        """The largest share of row-steps that a single condition may hold of to be shown by this many faults."""
        return math.pow(SURE / max(1, self.asked), 1 / max(1, self.faults))


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
    asked = {name: mask for name, mask in conditions.items() if 0 < int((mask & among).sum()) < total}
    if not count or not asked:
        return Associated(count, total, len(asked), ())
    hypotheses = weighed(list(asked.values()), faulty, among, [prior_of(name) for name in asked])
    worth = _worth_saying(hypotheses, count, total)
    singles = {one.members[0]: tail(count, one.row_steps, total, one.with_fault)
               for one in hypotheses if one.form is Form.ONE}  # fmt: skip
    adjusted = dict(zip(singles, holm(list(singles.values())), strict=True))
    names = list(asked)

    def association(one: Hypothesis, same: Sequence[Hypothesis] = ()) -> Association:
        p = tail(count, one.row_steps, total, one.with_fault)
        corrected = adjusted[one.members[0]] if one.form is Form.ONE else min(1.0, p * tests(one.form, len(asked)))
        without = total - one.row_steps - count + one.with_fault
        odds = (one.with_fault + 0.5) * (without + 0.5)
        odds /= (count - one.with_fault + 0.5) * (one.row_steps - one.with_fault + 0.5)
        return Association(
            tuple(names[at] for at in one.members), one.with_fault, one.row_steps, p, corrected,
            one.with_fault / one.row_steps - count / total, odds, one.form,
            math.exp(min(700.0, worth[0].weight - one.weight)),
            tuple(tuple(names[at] for at in other.members) for other in same),
        )  # fmt: skip

    ranked = [association(one, same) for one, same in _together(worth)[:KEPT]]
    return Associated(count, total, len(asked), tuple(ranked), _needed(ranked[0], count, total, len(asked)))


def tests(form: Form, asked: int) -> int:
    """Over how many hypotheses a p-value is corrected."""
    return asked if form is Form.ONE else asked + 2 * math.comb(asked, 2)


def _worth_saying(hypotheses: Sequence[Hypothesis], count: int, total: int) -> list[Hypothesis]:
    """Conditions under which faults are likelier than else; of two together only those that explain them better than
    each of them alone. Where there are none, all."""
    best: dict[int, float] = {one.members[0]: one.weight for one in hypotheses if one.form is Form.ONE}
    found = [
        one
        for one in hypotheses
        if one.with_fault * total > one.row_steps * count
        and (one.form is Form.ONE or one.weight > max(best[at] for at in one.members))
    ]
    return found or list(hypotheses)


def _together(hypotheses: Sequence[Hypothesis]) -> list[tuple[Hypothesis, list[Hypothesis]]]:
    """Each with those of its form that explain the faults nearly as well, which then do not stand alone."""
    found: list[tuple[Hypothesis, list[Hypothesis]]] = []
    for one in hypotheses:
        for first, same in found:
            if first.form is one.form and first.weight - one.weight < math.log(TOLD_APART):
                same.append(one)
                break
        else:
            found.append((one, []))
    return found


def _needed(best: Association, count: int, total: int, asked: int) -> int | None:
    """How many faults, all with this condition, an adjusted p below SURE takes; None where not all have it."""
    if best.adjusted < SURE or best.with_fault < count:
        return None
    for more in range(count + 1, count + 200):
        if more > best.row_steps:
            return None
        if tail(more, best.row_steps, total, more) * tests(best.form, asked) < SURE:
            return more
    return None
