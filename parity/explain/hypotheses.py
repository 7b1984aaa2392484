"""How well a condition explains faults: the likelihood of their places if it were their cause.

A hypothesis is a condition, two that must both hold, or two of which either does (two causes). If it is the cause,
faults fall on the row-steps where it holds, each of them as likely as the other, but for a share of misses: other
causes, and faults that showed a step too late. Of that share the Beta(1, MISSES) prior is integrated out. Against
"any row-step" that is a Bayes factor, (1/share)^faults where every fault is inside: what p-values rank as well, but
a fault outside costs what it should, so a narrow condition that holds of four faults in five does not go before a
wide one that holds of all (Kass and Raftery 1995, JASA 90:773). Two conditions pay for the choice among all pairs,
and what a batch is like pays for never having been a cause that somebody found (`predicates.CIRCUMSTANCES`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from parity.explain.ledger import Mask

Floats = npt.NDArray[np.float64]

MISSES: Final = 20.0
"""The prior of the share of faults outside their cause is Beta(1, MISSES): one in twenty-one on average."""


class Form(StrEnum):
    ONE = "one"
    BOTH = "both"
    EITHER = "either"


PRIOR: Final = {Form.ONE: 1.0, Form.BOTH: 0.3, Form.EITHER: 0.2}
"""Of each form, spread over all its hypotheses: one condition is the usual cause."""


class Hypothesis(Struct, frozen=True):
    form: Form
    members: tuple[int, ...]
    """Of the conditions asked, by number."""
    with_fault: int
    row_steps: int
    weight: float
    """Natural logarithm of Bayes factor and prior."""


def log_factors(with_fault: Floats, holds: Floats, faults: int, total: int) -> Floats:
    """Logarithms of the Bayes factors of conditions against none. All arrays of one shape."""
    share = np.clip(holds / total, 1e-12, 1 - 1e-12)
    outside = faults - with_fault
    # B(outside + 1, inside + MISSES) / B(1, MISSES)
    table = np.array([_log_beta(n + 1, faults - n + MISSES) for n in range(faults + 1)]) + math.log(MISSES)
    missed = table[outside.astype(np.int64)]
    found: Floats = missed - with_fault * np.log(share) - outside * np.log1p(-share)
    return found


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


def weighed(masks: Sequence[Mask], faulty: Mask, among: Mask, priors: Sequence[float]) -> list[Hypothesis]:
    """Every condition and every two of them, those that explain the faults best first.

    Masks of shape (row-steps,); `priors` of the conditions, in proportion. Of two conditions, only what says more than
    each alone: fewer row-steps with both, more faults with either.
    """
    inside = np.array([mask[among] for mask in masks], dtype=np.float32)
    hit = faulty[among]
    faults, total = int(hit.sum()), inside.shape[1]
    both: Floats = (inside @ inside.T).astype(np.float64)  # counts below 2^24 are exact
    both_hit: Floats = (inside[:, hit] @ inside[:, hit].T).astype(np.float64)
    prior = np.array(priors, dtype=np.float64)
    found = [*_ones(both, both_hit, faults, total, prior), *_pairs(both, both_hit, faults, total, prior)]
    return sorted(found, key=lambda one: -one.weight)


def _ones(both: Floats, hit: Floats, faults: int, total: int, prior: Floats) -> list[Hypothesis]:
    holds, with_fault = np.diag(both), np.diag(hit)
    weights = log_factors(with_fault, holds, faults, total) + np.log(PRIOR[Form.ONE] * prior / prior.sum())
    return [
        Hypothesis(Form.ONE, (at,), int(with_fault[at]), int(holds[at]), float(weights[at]))
        for at in range(len(weights))
    ]


def _pairs(both: Floats, hit: Floats, faults: int, total: int, prior: Floats) -> list[Hypothesis]:
    first, second = np.triu_indices(len(both), 1)
    if not len(first):
        return []
    own, own_hit = np.diag(both), np.diag(hit)
    of_both = prior[first] * prior[second]
    joint, joint_hit = both[first, second], hit[first, second]
    forms = (
        (Form.BOTH, joint, joint_hit, (joint < np.minimum(own[first], own[second])) & (joint_hit > 0)),
        (
            Form.EITHER,
            own[first] + own[second] - joint,
            own_hit[first] + own_hit[second] - joint_hit,
            np.minimum(own_hit[first], own_hit[second]) - joint_hit >= 2,
        ),
    )
    found = []
    for form, holds, with_fault, worth in forms:
        weights = log_factors(with_fault, holds, faults, total) + np.log(PRIOR[form] * of_both / of_both.sum())
        found += [
            Hypothesis(form, (int(first[at]), int(second[at])), int(with_fault[at]), int(holds[at]), float(weights[at]))
            for at in np.flatnonzero(worth).tolist()
        ]
    return found
