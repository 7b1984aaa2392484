"""Is an arm's noise larger in one part of its tokens: from some place on, after long prompts, in one round?

Numbers that are wrong from token 200 on, or after prompts of 20 tokens and more, leave the mean over all tokens nearly
as it is, and no completion far off. So tokens are cut at fixed bounds by where they stand, how many stand before them
and how long the prompt is, and by round and sample, and each part is asked for itself: has the candidate more noise
there than the baseline, by more than it has in the rest?

Of the same contexts one token counts (as leaning.py). Kernels that split long contexts do round otherwise there, so
what is found here proves nothing: it keeps the verdict from PASS.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from parity.comparator.population.residual_tests import (
    BIT_EXACT,
    FROM_BIT_EXACT,
    LEAST_FACTOR,
    Arm,
    Groups,
    numbered,
)
from parity.comparator.reference.gaps import FloatArray
from parity.comparator.reference.residuals import PairedResiduals
from parity.comparator.statistics import student_tail, symmetric_sum
from parity.comparator.stats import NoisyPart
from parity.records import Key

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]

BLOCK = 16
"""Tokens of a completion that are one unit of the test. Neighbours' noise correlates by 0.04 at most."""

LEAST_SHARE, LEAST_BESIDE = 1 / 64, 1 / 4
"""Of all tokens, that a part has at least, and that there are beside it: by these is known what is usual."""

OF_COMPLETIONS = 0.01
"""Chance of the mean over whole completions, from which on it may be a matter of few of them."""

LEAST_COMPLETIONS = 8
"""That a part must have tokens of: what is odd in fewer is a matter of rows (odd_rows.py)."""

MOST_NUMBERS = 16
"""Rounds, or samples, that are asked one by one."""

BOUNDS = (1.0, 1.5)
"""Times each power of two: the tokens at which parts begin."""


def noisy_part(
    residuals: PairedResiduals, arms: tuple[Arm, Arm], completion: Groups, new: Bools, step: float, alpha: float,
    keys: Sequence[Key],
) -> NoisyPart | None:  # fmt: skip
    """The part that chance explains least; None where chance explains each.

    arms: baseline and candidate, the same tokens; new: tokens that count, shape (N,); step: the bf16 unit, nats; keys:
    of the completions that `completion` counts.
    """
    kept = np.flatnonzero(new)
    unit = completion.of[kept]
    own, other = (one.noise[kept] for one in arms)
    if not own.any():
        return None
    least = FROM_BIT_EXACT * step if float(own.mean()) < BIT_EXACT * step else 0.0
    tested = [(_p_value(own, other, unit, one.inside, least), one) for one in _parts(residuals, kept, unit, keys)]
    if not tested:
        return None
    p_value, part = min(tested, key=lambda one: one[0])
    p_value = min(1.0, p_value * len(tested))
    if p_value >= alpha:
        return None
    inside = part.inside
    return NoisyPart(
        by=part.by,
        bound=part.bound,
        tokens=int(inside.sum()),
        completions=len(np.unique(unit[inside])),
        ratio=_ratio(other[inside], own[inside]),
        ratio_elsewhere=_ratio(other[~inside], own[~inside]),
        p_value=p_value,
    )


def _p_value(own: FloatArray, other: FloatArray, unit: Ints, inside: Bools, least: float) -> float:
    """least: nats of noise that a part of a clean arm may have where the baseline has none."""
    elsewhere = max(1.0, _ratio(other[~inside], own[~inside]))
    own, other, completion = own[inside], other[inside], Groups(numbered(unit[inside]))
    block = _blocks(completion.of)
    p_value = 0.0
    for more in (other - LEAST_FACTOR * elsewhere * own, other - least):
        if _mean_above(completion.sums(more)) >= OF_COMPLETIONS:
            return 1.0
        p_value = max(p_value, symmetric_sum(block.sums(more)))
    return p_value


def _mean_above(values: FloatArray) -> float:
    """Student's test of a mean above zero: of a few that are far above, it says less than the sum does."""
    spread = float(values.std(ddof=1))
    return student_tail(float(values.mean()) / spread * len(values) ** 0.5, len(values) - 1) if spread else 1.0


def _blocks(unit: Ints) -> Groups:
    """Tokens in groups of BLOCK at most, none of two completions."""
    begins = np.flatnonzero(np.concatenate([[True], unit[1:] != unit[:-1]]))
    place = np.arange(len(unit)) - np.repeat(begins, np.diff([*begins.tolist(), len(unit)]))
    return Groups(numbered(unit * (len(unit) // BLOCK + 1) + place // BLOCK))


def _ratio(other: FloatArray, own: FloatArray) -> float:
    total = float(own.sum())
    return float(other.sum()) / total if total else 1.0


class _Part(Struct, frozen=True):
    """By what tokens are cut, where (what is inside begins there, or is that), and which are inside, shape (M,)."""

    by: str
    bound: int
    inside: Bools


def _parts(residuals: PairedResiduals, kept: Ints, unit: Ints, keys: Sequence[Key]) -> Iterator[_Part]:
    """Those that are large enough, and leave enough beside them."""
    place, context = residuals.place[kept], residuals.context[kept]
    for by, values in (("place", place), ("context", context), ("prompt", context - place)):
        for bound in _bounds(int(values.max())):
            yield from _large_enough(_Part(by, bound, values >= bound), unit)
    for by in ("round", "sample") if keys else ():
        numbers = np.array([getattr(key, by) for key in keys], dtype=np.int64)[unit]
        for number in np.unique(numbers).tolist()[:MOST_NUMBERS]:
            yield from _large_enough(_Part(by, number, numbers == number), unit)


def _large_enough(part: _Part, unit: Ints) -> Iterator[_Part]:
    share = np.count_nonzero(part.inside) / len(unit)
    if LEAST_SHARE <= share <= 1 - LEAST_BESIDE and len(np.unique(unit[part.inside])) >= LEAST_COMPLETIONS:
        yield part


def _bounds(most: int) -> list[int]:
    powers = range(2, most.bit_length() + 1)
    return sorted({int(times * 2**power) for power in powers for times in BOUNDS if times * 2**power <= most})
