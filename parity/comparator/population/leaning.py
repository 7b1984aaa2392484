"""Do an arm's residuals lean to one side by which token it is, or by where it stands?

Rounding lifts a logit as often as it lowers it, whichever token it is and wherever. A bias on some ids or an output
matrix of fewer bits moves the same token the same way each time, and the mean over all tokens may still be nothing.
So half of the completions say which way each group of tokens leans, and the other half is asked whether it leans
that way too; then the other way round. What one half says is fixed before the other is looked at, so the second is a
plain test of one sum, whatever the number of groups (sample splitting: Cox 1975, Biometrika 62, 441).

Of all places after the same tokens one counts (first_contexts.py).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from parity.comparator.population.residual_tests import allowed_shift
from parity.comparator.population.stretches import BothHalves, Looked, OfHalf, Stretch, in_one_pass
from parity.comparator.statistics import paired_mean
from parity.comparator.stats import LeaningToken
from parity.comparator.sums import Added, Padded, Sums

Ints = npt.NDArray[np.int64]

FEW_OF_ONE = 16
"""Tokens of a group at which half of its mean is believed: groups of few lean by chance."""

LEANING = 2.0
"""Times the mean shift that is allowed: what a group of tokens may lean by, for noise lifts more where it is flat."""

BELIEVED, FEWEST = 3.5, 4
"""Standard errors, and places, in each half of the completions, from which a token is named: where none leans, one of
100,000 tokens is named in a hundred runs."""

MOST_NAMES = 1 << 21
"""Names with a group of their own: of others, those share one that are alike but for a multiple of it."""


class Leaning(Struct, frozen=True):
    """p_value: two halves, one-sided, adjusted. size: nats by which groups lean, as the other half has it, weighted by
    how far they lean in the first."""

    p_value: float
    size: float


Groupings = Callable[[Stretch], tuple[Ints, Ints]]
"""The group of each token, baseline's and candidate's, shape (N,) each."""


def by_id(part: Stretch) -> tuple[Ints, Ints]:
    return _numbers(part.residuals.baseline_token), _numbers(part.residuals.candidate_token)


def by_place(part: Stretch) -> tuple[Ints, Ints]:
    """0, 1, 2 to 3, 4 to 7, ..."""
    found = np.frexp(part.residuals.place + 0.5)[1]
    return found, found


GROUPINGS: dict[str, Groupings] = {"ids": by_id, "places": by_place}


class Learned(Added, frozen=True):
    """By half of the completions and by group: how far the candidate's residuals differ from the baseline's, nats, and
    tokens, shape (2, groups) each."""

    sums: Padded
    seen: Padded


Sides = tuple[bool, bool]
"""Of baseline and candidate: do the residuals count? Those that do not are taken for 0."""

BOTH: Sides = (True, True)


def learn(grouping: Groupings, sides: Sides, part: Stretch) -> Learned:
    numbers = grouping(part)
    count = 1 + max(int(one.max(initial=0)) for one in numbers)
    sums, seen = np.zeros((2, count)), np.zeros((2, count))
    for half in (0, 1):
        learned = part.new & (part.half == half)
        for group, arm, sign, counts in zip(numbers, part.arms, SIGNS, sides, strict=True):
            some = group[learned]
            if counts:
                sums[half] += np.bincount(some, sign * arm.capped[learned], minlength=count)
            seen[half] += np.bincount(some, minlength=count) / 2
    return Learned(Padded(sums), Padded(seen))


def ask(grouping: Groupings, sides: Sides, learned: Learned, allowed: float, part: Stretch) -> BothHalves:
    """Each half, by what the other one has learned. allowed: nats by which a group of a clean arm may lean."""
    numbers = grouping(part)
    found = []
    for half in (0, 1):
        weight = learned.sums.values[1 - half] / (learned.seen.values[1 - half] + FEW_OF_ONE)
        asked = part.new & (part.half == half)
        lean, heavy = np.zeros(int(asked.sum())), np.zeros(int(asked.sum()))
        for group, arm, sign, counts in zip(numbers, part.arms, SIGNS, sides, strict=True):
            some = weight[group[asked]]
            if counts:
                lean += sign * some * arm.capped[asked]
            heavy += np.abs(some) / 2
        per_unit = np.bincount(part.completion.of[asked], lean - allowed * heavy)
        of_half = per_unit[(half - part.before) % 2 :: 2]
        found.append(OfHalf(Sums.of(of_half), float(lean.sum()), float(heavy.sum())))
    return BothHalves(*found)


SIGNS = (-1.0, 1.0)
"""Of baseline and candidate in a difference of both."""


def _numbers(names: Ints) -> Ints:
    """As they are, for nearly all names."""
    if not len(names) or (int(names.min()) >= 0 and int(names.max()) < MOST_NAMES):
        return names
    return np.where((names >= 0) & (names < MOST_NAMES), names, names % MOST_NAMES + MOST_NAMES)


def leaning_tokens(learned: Learned, variance: float) -> tuple[LeaningToken, ...]:
    """The tokens that lean in both halves by more than chance, the surest first: the farthest of few places would be so
    by chance. learned: by id; variance: of the difference of the arms' residuals at one place."""
    sums, seen = (one.values[:, :MOST_NAMES] for one in (learned.sums, learned.seen))
    errors = np.abs(sums) / np.sqrt(np.maximum(seen, 1) * max(variance, 1e-12))
    sure = (seen >= FEWEST).all(axis=0) & (errors >= BELIEVED).all(axis=0) & (np.sign(sums[0]) == np.sign(sums[1]))
    tokens = np.flatnonzero(sure)
    places = seen[:, tokens].sum(axis=0)
    nats = sums[:, tokens].sum(axis=0) / places
    surest = np.argsort(-errors[:, tokens].min(axis=0), kind="stable")
    return tuple(
        LeaningToken(token=int(tokens[at]), nats=float(nats[at]), places=int(places[at])) for at in surest.tolist()
    )


def leaning(asked: BothHalves) -> Leaning:
    """Does the candidate's residual differ from the baseline's by group, the same way in both halves?"""
    halves = (asked.first, asked.second)
    p_value = min(1.0, 2 * min(paired_mean(one.units) for one in halves))
    weight = sum(one.weight for one in halves)
    return Leaning(p_value, sum(one.found for one in halves) / weight if weight else 0.0)


def allowed_leaning(baseline: Sums, candidate: Sums) -> float:
    """Nats, by the arms' capped residuals."""
    return LEANING * allowed_shift(baseline.variance, candidate.variance)


def leanings(looked: Looked, sides: Sides) -> dict[str, Leaning]:
    """By each of GROUPINGS, in two passes."""
    some = looked.baseline.capped, looked.candidate.capped
    silent = Sums()
    allowed = allowed_leaning(*(one if counts else silent for one, counts in zip(some, sides, strict=True)))
    learned = in_one_pass(looked, [partial(learn, one, sides) for one in GROUPINGS.values()])
    questions = [partial(ask, one, sides, of, allowed) for one, of in zip(GROUPINGS.values(), learned, strict=True)]
    return {name: leaning(found) for name, found in zip(GROUPINGS, in_one_pass(looked, questions), strict=True)}
