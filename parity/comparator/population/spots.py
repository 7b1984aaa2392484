"""Is an arm's noise larger at certain spots: after so many tokens of context, or at so many tokens of output?

Rounding is as large at one place as at the next. A position that is off by one at certain steps, or a cache that is
wrong at the edge of a block, is not: few tokens are far off, always at the same spots, and the mean over all hardly
moves. Half of the completions say at which spots the noise is larger, the other half is asked about these, then the
other way round (as leaning.py).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from parity.comparator.population.residual_tests import BIT_EXACT, FROM_BIT_EXACT
from parity.comparator.population.stretches import BothHalves, OfHalf, Stretch
from parity.comparator.reference.gaps import FloatArray
from parity.comparator.statistics import paired_mean
from parity.comparator.sums import Added, Padded, Sums

Ints = npt.NDArray[np.int64]

STANDS_OUT = 3.0
"""Standard errors by which the noise at a spot must exceed what is usual in one half, for the other to be asked."""

LARGER = 0.25
"""Of the mean noise, that the noise at a spot of a clean arm may be more than the baseline's there."""


AROUND = 32
"""Spots on either side: as far as noise is larger there as well, it is no matter of this one."""


class Spots(Struct, frozen=True):
    """p_value: of both kinds of spots and both halves, adjusted. size: by how much of the mean noise it is larger
    there. found: the spots that stood out in either half, the one that stood out most first; by_context: they count
    the prompt's tokens as well."""

    p_value: float
    size: float = 0.0
    found: tuple[int, ...] = ()
    by_context: bool = False


class Noise(Added, frozen=True):
    """By half of the completions and by spot, of tokens at one spot after the same tokens one: how many, their noise in
    baseline and candidate, its squares, and the products of both. Shape (2, 6, spots)."""

    sums: Padded


def _where(part: Stretch, *, by_context: bool) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """(spot of each token, those that count: completions that end in one loop repeat one residual there)."""
    return (part.residuals.context, part.new_by_context) if by_context else (part.residuals.place, part.new_by_place)


def learn(part: Stretch, *, by_context: bool) -> Noise:
    where, new = _where(part, by_context=by_context)
    count = int(where[new].max(initial=0)) + 1
    found = np.zeros((2, 6, count))
    for half in (0, 1):
        some = new & (part.half == half)
        at, (own, other) = where[some], (arm.noise[some] for arm in part.arms)
        for row, values in enumerate((None, own, other, own * own, other * other, own * other)):
            found[half, row] = np.bincount(at, values, minlength=count)
    return Noise(Padded(found))


class _Half(Struct, frozen=True):
    """How the candidate's noise at the spots of one half exceeds what it would be there if it were the baseline's and
    more of it everywhere: it less `times` the baseline's and less `usual`, shape (spots,).

    sums, spread: of that over the tokens of each spot, and the root of its squares. seen: tokens.
    """

    times: float
    usual: FloatArray
    sums: FloatArray
    spread: FloatArray
    seen: FloatArray

    @property
    def out(self) -> npt.NDArray[np.bool_]:
        """Spots that stand out."""
        return np.asarray(self.sums >= STANDS_OUT * np.maximum(self.spread, 1e-12))

    @property
    def lean(self) -> FloatArray:
        """By how much they do, nats a token; 0 elsewhere."""
        return np.asarray(np.where(self.out, self.sums / np.maximum(self.seen, 1), 0.0))


def _half(sums: FloatArray, *, exact: bool) -> _Half:
    """sums: of one half, shape (6, spots).

    Beyond what it is too much by at the spots around, too: kernels that split long contexts round otherwise there, by
    little more from each spot to the next. More everywhere is as many times the baseline's, a noise of one size added
    to it, or what the candidate usually has, whichever is most at the spot: the first token of an output comes from a
    prefill, where a baseline whose engine scores as well has none, and an engine that made the prompt's steps otherwise
    has as much as elsewhere.
    """
    seen, own, other, own_squares, other_squares, products = sums
    tokens = float(seen.sum())
    usual, ours = float(own.sum()) / tokens, float(other.sum()) / tokens
    times, more = 0.0, np.full(len(seen), ours)
    if not exact and usual:
        times = ours / usual
        there = own / np.maximum(seen, 1)
        added = np.maximum(np.sqrt(there**2 + max(0.0, ours**2 - usual**2)), there + max(0.0, ours - usual))
        more = np.maximum(0.0, np.maximum(added, ours) - there * times)
    plain = other - times * own
    all_of_it = more + np.maximum(0.0, _around(plain - seen * more, seen))
    squares = other_squares - 2 * times * products + times**2 * own_squares
    squares = squares - 2 * all_of_it * plain + seen * all_of_it**2
    return _Half(times, all_of_it, plain - seen * all_of_it, np.sqrt(np.maximum(squares, 0.0)), seen)


class Judged(Struct, frozen=True):
    """What there is to ask: both halves, and the nats by which the noise at a spot may be more than usual."""

    halves: tuple[_Half, _Half]
    usual: float
    allowed: float


def judged(found: Noise, noise: float, unit: float) -> Judged | None:
    """None where one half has no tokens. noise: the baseline's mean logit noise; unit: bf16 unit of the logits, nats.

    Where arms compute to the last bit alike but for some batches, these are often those of the longest contexts, which
    end last: so much noise a spot of a clean arm may have.
    """
    sums = found.sums.values
    tokens, ours = float(sums[:, 0].sum()), float(sums[:, 2].sum())
    if not sums[0, 0].any() or not sums[1, 0].any():
        return None
    exact = noise < BIT_EXACT * unit
    usual, least = ours / tokens, FROM_BIT_EXACT * unit if exact else 0.0
    first, second = (_half(one, exact=exact) for one in sums)
    return Judged((first, second), usual, max(LARGER * usual, least - usual))


def ask(found: Judged | None, part: Stretch, *, by_context: bool) -> BothHalves:
    """Each half, at the spots that stand out in the other."""
    where, new = _where(part, by_context=by_context)
    halves = []
    for half in (0, 1) if found else ():
        assert found is not None
        mine, lean = found.halves[half], found.halves[1 - half].lean
        some = new & (part.half == half)
        at, (own, other) = where[some], (arm.noise[some] for arm in part.arms)
        excess, weight = other - mine.times * own - mine.usual[at], lean[at]
        per_unit = np.bincount(part.completion.of[some], weight * (excess - found.allowed))
        of_half = per_unit[(half - part.before) % 2 :: 2]
        halves.append(OfHalf(Sums.of(of_half), float((weight * excess).sum()), float(weight.sum())))
    return BothHalves(*halves or [OfHalf(Sums(), 0.0, 0.0)] * 2)


def spots_of(found: Judged | None, asked: BothHalves, *, by_context: bool) -> Spots:
    if found is None:
        return Spots(1.0)
    both = asked.first, asked.second
    p_values = [
        paired_mean(one.units) if other.lean.any() else 1.0
        for one, other in zip(both, reversed(found.halves), strict=True)
    ]
    out: dict[int, float] = {}
    for half in found.halves:
        out |= {int(at): float(half.sums[at] / half.spread[at]) for at in np.flatnonzero(half.out)}
    more, weight = sum(one.found for one in both), sum(one.weight for one in both)
    size = more / weight / found.usual if weight and found.usual else 0.0
    return Spots(min(1.0, 2 * min(p_values)), size, tuple(sorted(out, key=out.__getitem__, reverse=True)), by_context)


def worst(by_context: Spots, by_place: Spots) -> Spots:
    """Of both kinds of spots."""
    best = min(by_context, by_place, key=lambda one: one.p_value)
    return Spots(min(1.0, 2 * best.p_value), best.size, best.found, best.by_context)


def _around(sums: FloatArray, seen: FloatArray) -> FloatArray:
    """The mean value at the AROUND spots before and after each one, without its own, shape (spots,)."""
    spot = np.arange(len(seen))
    low, high = np.maximum(spot - AROUND, 0), np.minimum(spot + AROUND + 1, len(seen))
    total, tokens = (np.concatenate([[0.0], np.cumsum(one)]) for one in (sums, seen))
    near = total[high] - total[low] - sums
    return np.asarray(near / np.maximum(tokens[high] - tokens[low] - seen, 1), dtype=np.float64)
