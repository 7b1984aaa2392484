"""Do an arm's residuals lean to one side by which token it is, or by where it stands?

Rounding lifts a logit as often as it lowers it, whichever token it is and wherever. A bias on some ids or an output
matrix of fewer bits moves the same token the same way each time, and the mean over all tokens may still be nothing.
So half of the completions say which way each group of tokens leans, and the other half is asked whether it leans
that way too; then the other way round. What one half says is fixed before the other is looked at, so the second is a
plain test of one sum, whatever the number of groups (sample splitting: Cox 1975, Biometrika 62, 441).

Rounding is chance only where it is done anew. After the same tokens an engine rounds the same way each time, also in
another completion: in a loop, in a phrase that many requests lead to. So of all places after the same tokens one counts
(`first_of_context`).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from parity.comparator.population.residual_tests import Arm, Groups, allowed_shift
from parity.comparator.reference.gaps import FloatArray
from parity.comparator.reference.residuals import PairedResiduals
from parity.comparator.statistics import paired_mean

Ints = npt.NDArray[np.int64]

FEW_OF_ONE = 16
"""Tokens of a group at which half of its mean is believed: groups of few lean by chance."""


LEANING = 2.0
"""Times the mean shift that is allowed: what a group of tokens may lean by, for noise lifts more where it is flat."""

BUCKETS = 4
"""Slots for each place at least, so that few names of contexts share one."""

MOST_NAMES = 1 << 22
"""Ids below this number groups as they are; others are numbered anew."""

CONTEXT = 4
"""Tokens, the chosen one among them, by which places are distinguished. Where all places counted, clean arms of the
small engine whose completions end in loops were accused."""


class Leaning(Struct, frozen=True):
    """p_value: two halves, one-sided, adjusted. size: nats by which groups lean, as the other half has it, weighted by
    how far they lean in the first."""

    p_value: float
    size: float


def first_of_context(tokens: Ints, row: Ints, place: Ints, spot: Ints | None = None) -> npt.NDArray[np.bool_]:
    """Places where no earlier one (of the same `spot`, where spots are given) has the same CONTEXT tokens; of all
    arrays, shape (N,), tokens in order within a row.

    Places with fewer tokens before them count: prompts differ, and those of one request that are shared are left out
    before.
    """
    size = len(tokens)
    same = place >= CONTEXT - 1
    for back in range(1, CONTEXT):
        same[back:] &= row[: max(0, size - back)] == row[back:]
        same[:back] = False
    kept = ~same
    parts = [slice(begin, min(begin + _AT_ONCE, size)) for begin in range(0, size, _AT_ONCE)]
    ends = np.cumsum([0, *(int(same[part].sum()) for part in parts)]).tolist()
    # Written from the last to the first, a slot holds the first place of its name. Names that share a slot cost a few
    # places; sorting the names would take most of a comparison's time.
    bits = max(1, (BUCKETS * ends[-1]).bit_length())
    slots = np.empty(ends[-1], dtype=np.uint32 if bits <= 32 else np.uint64)
    number = np.int32 if ends[-1] < 2**31 else np.int64
    first = np.empty(1 << bits, dtype=number)
    for part, begin, end in reversed(list(zip(parts, ends[:-1], ends[1:], strict=True))):
        names = _names(tokens, part, spot)[same[part]]
        slots[begin:end] = (names * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(64 - bits)
        first[slots[begin:end][::-1]] = np.arange(begin, end, dtype=number)[::-1]
    for part, begin, end in zip(parts, ends[:-1], ends[1:], strict=True):
        kept[part][same[part]] = first[slots[begin:end]] == np.arange(begin, end, dtype=number)
    return kept


_AT_ONCE = 1 << 16
"""Tokens that get their names together."""


def _names(tokens: Ints, part: slice, spot: Ints | None) -> npt.NDArray[np.uint64]:
    """A number for each token of a part of all, made of the CONTEXT tokens up to it (and its spot)."""
    some = tokens[max(0, part.start - CONTEXT + 1) : part.stop].astype(np.uint64)
    name = some[len(some) - (part.stop - part.start) :]
    if spot is not None:
        name = name + spot[part].astype(np.uint64) * np.uint64(0xC2B2AE3D27D4EB4F)
    for back in range(1, CONTEXT):
        begin = len(some) - len(name) - back
        none = np.zeros(min(max(0, -begin), len(name)), dtype=np.uint64)
        before = np.concatenate([none, some[max(0, begin) : max(0, len(some) - back)]])
        name = name * np.uint64(0x9E3779B97F4A7C15) + before
    return name


def leaning(
    groups: tuple[Ints, Ints],
    residuals: tuple[FloatArray, FloatArray],
    unit: Ints,
    counted: npt.NDArray[np.bool_],
    allowed: float,
) -> Leaning:
    """Does the candidate's residual differ from the baseline's by group, the same way in both halves?

    groups: of each token of baseline and candidate, any names, shape (N,). residuals: nats, shape (N,). unit: the
    completion, counted from 0, shape (N,); even ones and odd ones are the halves. counted: tokens that do, shape (N,).
    allowed: nats by which a group of a clean arm may lean.
    """
    numbers, count = _numbered(groups)
    sides = tuple(zip(numbers, residuals, (-1.0, 1.0), strict=True))
    p_values, leans, weighed = [], 0.0, 0.0
    for half in (0, 1):
        learned = unit % 2 == half
        learned, asked = counted & learned, counted & ~learned
        sums, seen = np.zeros(count), np.zeros(count)
        for group, values, sign in sides:
            sums += np.bincount(group[learned], sign * values[learned], minlength=count)
            seen += np.bincount(group[learned], minlength=count) / 2
        weight = sums / (seen + FEW_OF_ONE)
        lean, heavy = np.zeros(int(asked.sum())), np.zeros(int(asked.sum()))
        for group, values, sign in sides:
            lean += sign * weight[group[asked]] * values[asked]
            heavy += np.abs(weight[group[asked]]) / 2
        per_unit = np.bincount(unit[asked], lean - allowed * heavy).astype(np.float64)
        p_values.append(paired_mean(per_unit[1 - half :: 2]))
        leans, weighed = leans + float(lean.sum()), weighed + float(heavy.sum())
    return Leaning(min(1.0, 2 * min(p_values)), leans / weighed if weighed else 0.0)


def _numbered(groups: tuple[Ints, Ints]) -> tuple[tuple[Ints, Ints], int]:
    """Groups by numbers from 0, and how many there may be."""
    if all(len(one) and one.min() >= 0 and one.max() < MOST_NAMES for one in groups):
        return groups, int(max(one.max() for one in groups)) + 1
    both = np.concatenate(groups)
    names, numbers = np.unique(both, return_inverse=True)
    return (numbers[: len(groups[0])], numbers[len(groups[0]) :]), len(names)


def first_of_contexts(residuals: PairedResiduals, spot: Ints | None = None) -> npt.NDArray[np.bool_]:
    """`first_of_context` in both arms."""
    tokens = residuals.baseline_token, residuals.candidate_token
    new = first_of_context(tokens[0], residuals.row, residuals.place, spot)
    if not np.array_equal(*tokens):
        new &= first_of_context(tokens[1], residuals.row, residuals.place, spot)
    return new


def leanings(
    residuals: PairedResiduals, baseline: Arm, candidate: Arm, completion: Groups, new: npt.NDArray[np.bool_]
) -> dict[str, Leaning]:
    """By the token's id, and by its place: 0, 1, 2 to 3, 4 to 7, ...; `new`: tokens that count (`first_of_contexts`),
    shape (N,)."""
    allowed = LEANING * allowed_shift(float(baseline.capped.var()), float(candidate.capped.var()))
    tokens = residuals.baseline_token, residuals.candidate_token
    sides = baseline.capped, candidate.capped
    ids = leaning(tokens, sides, completion.of, new, allowed)
    place = np.frexp(residuals.place + 0.5)[1]
    return {"ids": ids, "places": leaning((place, place), sides, completion.of, new, allowed)}
