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

from parity.comparator.population.leaning import first_of_contexts
from parity.comparator.population.residual_tests import BIT_EXACT, FROM_BIT_EXACT, Arm, Groups
from parity.comparator.reference.gaps import FloatArray
from parity.comparator.reference.residuals import PairedResiduals
from parity.comparator.statistics import paired_mean

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


def spots(residuals: PairedResiduals, baseline: Arm, candidate: Arm, completion: Groups, unit: float) -> Spots:
    """Where the candidate's noise is larger; `unit`: bf16 unit of the logits, nats. Of tokens at
    one spot after the same tokens one counts: completions that end in one loop repeat one residual there."""
    exact = float(baseline.noise.mean()) < BIT_EXACT * unit
    least = FROM_BIT_EXACT * unit if exact else 0.0
    asked = []
    for where, by_context in ((residuals.context, True), (residuals.place, False)):
        new = first_of_contexts(residuals, where)
        sides = baseline.noise, candidate.noise
        asked.append(_asked(where, *sides, completion.of, new, least, exact=exact, by_context=by_context))
    best = min(asked, key=lambda one: one.p_value)
    return Spots(min(1.0, len(asked) * best.p_value), best.size, best.found, best.by_context)


def _asked(
    where: Ints,
    baseline: FloatArray,
    candidate: FloatArray,
    unit: Ints,
    counted: npt.NDArray[np.bool_],
    least: float,
    *,
    exact: bool,
    by_context: bool,
) -> Spots:
    """counted: tokens that do. least: nats of noise that a spot of a clean arm may have: where arms compute to the last
    bit alike but for some batches, these are often those of the longest contexts, which end last."""
    count, p_values, more, weight = int(where[counted].max()) + 1, [], 0.0, 0.0
    found: dict[int, float] = {}
    usual = float(candidate[counted].mean())
    allowed = max(LARGER * usual, least - usual)
    for half in (0, 1):
        learned = unit % 2 == half
        learned, asked = counted & learned, counted & ~learned
        if not learned.any() or not asked.any():
            return Spots(1.0)
        excess = _excess(baseline[learned], candidate[learned], where[learned], count, exact=exact)
        sums = np.bincount(where[learned], excess, minlength=count)
        spread = np.sqrt(np.bincount(where[learned], excess**2, minlength=count))
        seen = np.bincount(where[learned], minlength=count)
        out = sums >= STANDS_OUT * np.maximum(spread, 1e-12)
        lean = np.where(out, sums / np.maximum(seen, 1), 0.0)[where[asked]]
        found |= {int(one): float(sums[one] / spread[one]) for one in np.flatnonzero(out)}
        excess = _excess(baseline[asked], candidate[asked], where[asked], count, exact=exact)
        per_unit = np.bincount(unit[asked], lean * (excess - allowed)).astype(np.float64)
        p_values.append(paired_mean(per_unit[1 - half :: 2]) if lean.any() else 1.0)
        more, weight = more + float((lean * excess).sum()), weight + float(lean.sum())
    size = more / weight / usual if weight and usual else 0.0
    order = tuple(sorted(found, key=found.__getitem__, reverse=True))
    return Spots(min(1.0, 2 * min(p_values)), size, order, by_context)


def _excess(baseline: FloatArray, candidate: FloatArray, where: Ints, count: int, *, exact: bool) -> FloatArray:
    """The candidate's noise beyond what it would be at its spot if it were the baseline's and more of it everywhere,
    and beyond what it is too much by at the spots around: kernels that split long contexts round otherwise there, by
    little more from each spot to the next.

    More everywhere is as many times the baseline's, a noise of one size added to it, or what the candidate usually has,
    whichever is most at the spot: the first token of an output comes from a prefill, where a baseline whose engine
    scores as well has none, and an engine that made the prompt's steps otherwise has as much as elsewhere.
    """
    excess = candidate - candidate.mean()
    if not exact and baseline.sum():
        usual, ours = float(baseline.mean()), float(candidate.mean())
        there = np.bincount(where, baseline, minlength=count) / np.maximum(np.bincount(where, minlength=count), 1)
        added = np.maximum(np.sqrt(there**2 + max(0.0, ours**2 - usual**2)), there + max(0.0, ours - usual))
        more = np.maximum(0.0, np.maximum(added, ours) - there * (ours / usual))
        excess = candidate - baseline * (ours / usual) - more[where]
    return np.asarray(excess - np.maximum(0.0, _around(excess, where, count))[where])


def _around(values: FloatArray, where: Ints, count: int) -> FloatArray:
    """The mean value at the AROUND spots before and after each one, without its own, shape (count,)."""
    sums, seen = np.bincount(where, values, minlength=count), np.bincount(where, minlength=count)
    spot = np.arange(count)
    low, high = np.maximum(spot - AROUND, 0), np.minimum(spot + AROUND + 1, count)
    total, tokens = (np.concatenate([[0.0], np.cumsum(one)]) for one in (sums, seen))
    near = total[high] - total[low] - sums
    return np.asarray(near / np.maximum(tokens[high] - tokens[low] - seen, 1), dtype=np.float64)
