"""Is an arm's noise larger in one part of its tokens: from some place on, after long prompts, in one or more rounds?

Numbers that are wrong from token 200 on, or after prompts of 20 tokens and more, leave the mean over all tokens nearly
as it is, and no completion far off. So tokens are cut at fixed bounds by where they stand, how many stand before them
and how long the prompt is, and by round and sample, and each part is asked for itself: has the candidate more noise
there than the baseline, by more than it has in the rest? So are the last rounds, as many as each of LAST says: the
chance is multiplied by the number of all parts that are asked.

Of the same contexts one token counts (as leaning.py). Rounds of one request are mostly the same contexts again; where
they are, each round counts its own (`of_numbers`), and what a request says in the last rounds is one chance, however
many they are. Kernels that split long contexts do round otherwise there, so what is found here proves nothing: it keeps
the verdict from PASS.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple
from zlib import crc32

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from parity.comparator.population.residual_tests import BIT_EXACT, FROM_BIT_EXACT, LEAST_FACTOR, Groups, numbered
from parity.comparator.population.stretches import Looked, Stretch, in_one_pass
from parity.comparator.reference.gaps import FloatArray
from parity.comparator.statistics import student_mean, symmetric_sum
from parity.comparator.stats import NoisyPart
from parity.comparator.sums import ROUNDING, Added, Sums
from parity.records import Key, rounds_of

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

MOST_NUMBERS = 64
"""Rounds, or samples, that are asked one by one: of more, each has fewer tokens than LEAST_SHARE."""

BOUNDS = (1.0, 1.25, 1.5, 1.75)
"""Times each power of two: the tokens at which parts begin. With half as many a part may have a third of sound tokens
in it; with all of these an eighth, for twice as many questions."""

BEGINS = sorted({int(times * 2**power) for power in range(2, 31) for times in BOUNDS})
"""At each of these a part begins."""

NUMBERED = ("round", "sample")
"""What a part may be one number of."""

SINCE = "since"
"""What the last rounds are cut off by: `bound` is the first of them."""

LAST = sorted({int(times * 2**power) for power in range(1, 16) for times in BOUNDS})
"""Numbers of last rounds that are asked: of 40 rounds 14 such questions, of 1,000 rounds 22."""

_STEP = 40_503
"""Odd: the parts of one request are spread over the groups."""

UNITS = 2048
"""Groups that the requests are put into, and parts of them, where all that a request says in several rounds is one
chance: as many as a test needs, few enough to add up."""


class Named(NamedTuple):
    """A part of all tokens: from a place on, with so many tokens before, after such a prompt; of one number; or from a
    round on."""

    by: str
    bound: int


class Within(Added, frozen=True):
    """The tokens of a part that count: how many, of how many completions, their noise in baseline and candidate."""

    tokens: int
    completions: int
    own: float
    other: float


NOTHING = Within(0, 0, 0.0, 0.0)


class ByPart(Struct, frozen=True):
    """`whole`: of all tokens that count."""

    parts: Mapping[Named, Within]
    whole: Within

    def __add__(self, other: ByPart) -> ByPart:
        parts = dict(self.parts)
        for name, found in other.parts.items():
            parts[name] = parts.get(name, NOTHING) + found
        return ByPart(parts, self.whole + other.whole)


class _Counted(NamedTuple):
    """Of the M tokens of a stretch that count: the completion, counted from 0 among those with any, the noise of
    baseline and candidate, shape (M,)."""

    at: Ints
    unit: Ints
    own: FloatArray
    other: FloatArray


def _counted(part: Stretch) -> _Counted:
    at = np.flatnonzero(part.new)
    own, other = (arm.noise[at] for arm in part.arms)
    return _Counted(at, part.completion.of[at], own, other)


def _values(part: Stretch, by: str, at: Ints, keys: Sequence[Key]) -> Ints:
    """By what tokens are cut."""
    if by in (*NUMBERED, SINCE):
        numbers = [getattr(keys[row], NUMBERED[0] if by == SINCE else by) for row in part.rows.tolist()]
        return np.array(numbers, dtype=np.int64)[part.completion.of[at]]
    place, context = part.residuals.place[at], part.residuals.context[at]
    return {"place": place, "context": context, "prompt": context - place}[by]


def kinds(keys: Sequence[Key]) -> tuple[str, ...]:
    """By what tokens are cut."""
    return ("place", "context", "prompt", *((*NUMBERED, SINCE) if keys else ()))


def measure(
    part: Stretch, keys: Sequence[Key], by_these: Sequence[str] | None = None, since: Sequence[int] = ()
) -> ByPart:
    """What stands in each part. keys: of the pairs. by_these: by which tokens are cut, where not by all `kinds`. since:
    the rounds from which on (`last_rounds`)."""
    counted = _counted(part)
    found: dict[Named, Within] = {}
    if len(counted.at):
        for by in kinds(keys) if by_these is None else by_these:
            found |= _measured(by, _values(part, by, counted.at, keys), counted, since)
    return ByPart(found, _within(counted, np.ones(len(counted.at), dtype=np.bool_)))


def _measured(by: str, values: Ints, counted: _Counted, since: Sequence[int]) -> dict[Named, Within]:
    if by in NUMBERED:
        names = np.unique(values).tolist()
        return {Named(by, one): _within(counted, values == one) for one in names}
    begins = [one for one in (since if by == SINCE else BEGINS) if one <= int(values.max())]
    if not begins:
        return {}
    slot = np.searchsorted(begins, values, side="right")
    last = np.zeros(int(counted.unit[-1]) + 1, dtype=np.int64)
    np.maximum.at(last, counted.unit, slot)

    def beyond(slots: Ints, weights: FloatArray | None = None) -> list[float]:
        of_each = np.bincount(slots, weights, minlength=len(begins) + 1)
        summed: list[float] = of_each[::-1].cumsum()[::-1][1:].tolist()
        return summed

    columns = beyond(slot), beyond(last), beyond(slot, counted.own), beyond(slot, counted.other)
    return {
        Named(by, begin): Within(int(tokens), int(completions), own, other)
        for begin, tokens, completions, own, other in zip(begins, *columns, strict=True)
    }


def _within(counted: _Counted, inside: Bools) -> Within:
    completions = len(np.unique(counted.unit[inside]))
    own, other = (float(one[inside].sum()) for one in (counted.own, counted.other))
    return Within(int(np.count_nonzero(inside)), completions, own, other)


def last_rounds(keys: Sequence[Key]) -> list[int]:
    """The rounds from which on the last ones are asked, ascending. keys: of the pairs."""
    rounds = sorted(set(rounds_of(keys)))
    return [rounds[-many] for many in reversed(LAST) if many < len(rounds)]


class Asked(Struct, frozen=True):
    """What is asked of a part: is the candidate's noise there more than `times` the baseline's, and more than `least`
    nats (where the baseline has none)?"""

    name: Named
    within: Within
    elsewhere: float
    """Ratio of the arms' noise beside it."""
    least: float

    @property
    def times(self) -> float:
        return LEAST_FACTOR * max(1.0, self.elsewhere)


def asked_of(found: ByPart, step: float) -> list[Asked]:
    """The parts that are large enough, and leave enough beside them. step: the bf16 unit, nats."""
    whole = found.whole
    if not whole.own:
        return []
    least = FROM_BIT_EXACT * step if whole.own / whole.tokens < BIT_EXACT * step else 0.0
    numbered_ones = {by: sorted(name.bound for name in found.parts if name.by == by)[:MOST_NUMBERS] for by in NUMBERED}
    return [
        Asked(name, one, _ratio(_beside(whole.other, one.other), _beside(whole.own, one.own)), least)
        for name, one in found.parts.items()
        if LEAST_SHARE <= one.tokens / whole.tokens <= 1 - LEAST_BESIDE
        and one.completions >= LEAST_COMPLETIONS
        and name.bound in numbered_ones.get(name.by, (name.bound,))
    ]


class Units(Struct, frozen=True):
    """Sums of the tokens of each of UNITS units, shape (UNITS,), and which of them there are."""

    sums: FloatArray
    there: Bools

    def __add__(self, other: Units) -> Units:
        return Units(self.sums + other.sums, self.there | other.there)

    @property
    def whole(self) -> Sums:
        return Sums.of(self.sums[self.there])


class More(Added, frozen=True):
    """Sums over blocks, and over completions, of what the candidate's noise is more than `times` the baseline's, and
    more than `least`. In the last rounds, of parts of requests and of requests."""

    blocks: Sums | Units
    completions: Sums | Units
    least_blocks: Sums | Units
    least_completions: Sums | Units


NO_MORE = More(Sums(), Sums(), Sums(), Sums())
_NO_UNITS = Units(np.zeros(UNITS), np.zeros(UNITS, dtype=np.bool_))
NO_UNITS = More(_NO_UNITS, _NO_UNITS, _NO_UNITS, _NO_UNITS)


class Answers(Struct, frozen=True):
    of_each: tuple[More, ...]

    def __add__(self, other: Answers) -> Answers:
        return Answers(tuple(one + two for one, two in zip(self.of_each, other.of_each, strict=True)))


def joined(*answers: Answers | None) -> Answers:
    return Answers(tuple(one for some in answers if some is not None for one in some.of_each))


def ask(asked: Sequence[Asked], keys: Sequence[Key], part: Stretch) -> Answers:
    counted = _counted(part)
    values = {by: _values(part, by, counted.at, keys) for by in {one.name.by for one in asked}}
    units = _units(part, counted.at, keys) if SINCE in values else (np.empty(0, dtype=np.int64),) * 2
    return Answers(
        tuple(
            _more_since(one, values[SINCE], counted, units)
            if one.name.by == SINCE
            else _more(one, values[one.name.by], counted)
            for one in asked
        )
    )


def _units(part: Stretch, at: Ints, keys: Sequence[Key]) -> tuple[Ints, Ints]:
    """Of each token, the unit of the part of its request that it is in, and that of its request; shape (M,)."""
    names = [keys[row] for row in part.rows.tolist()]
    requests = np.array([crc32(f"{one.request} {one.sample}".encode()) for one in names], dtype=np.int64)
    request = requests[part.completion.of[at]]
    block = part.residuals.place[at].astype(np.int64) // BLOCK
    return (request + block * _STEP) % UNITS, request % UNITS


def _more_since(asked: Asked, values: Ints, counted: _Counted, units: tuple[Ints, Ints]) -> More:
    inside = values >= asked.name.bound
    if not inside.any():
        return NO_UNITS
    own, other = counted.own[inside], counted.other[inside]
    sides = [unit[inside] for unit in units]
    there = [np.bincount(unit, minlength=UNITS) > 0 for unit in sides]
    found = [
        Units(np.bincount(unit, more, minlength=UNITS).astype(np.float64), known)
        for more in (other - asked.times * own, other - asked.least)
        for unit, known in zip(sides, there, strict=True)
    ]
    return More(*found)


def of_numbers(looked: Mapping[str, Looked], keys: Sequence[Key], step: float) -> tuple[list[Asked], Answers]:
    """What is asked, and answered, of each round and each sample, where each counts contexts of its own: `looked` by
    the name of what is numbered."""
    asked: list[Asked] = []
    answers: list[More] = []
    for by, one in looked.items():
        cuts = (by, SINCE) if by == NUMBERED[0] else (by,)
        since = last_rounds(keys) if SINCE in cuts else ()
        (found,) = in_one_pass(one, [partial(measure, keys=keys, by_these=cuts, since=since)])
        some = asked_of(found, step)
        (said,) = in_one_pass(one, [partial(ask, some, keys)])
        asked += some
        answers += said.of_each
    return asked, Answers(tuple(answers))


def _more(asked: Asked, values: Ints, counted: _Counted) -> More:
    inside = values == asked.name.bound if asked.name.by in NUMBERED else values >= asked.name.bound
    if not inside.any():
        return NO_MORE
    own, other, completion = counted.own[inside], counted.other[inside], Groups(numbered(counted.unit[inside]))
    block = _blocks(completion.of)
    found = [
        Sums.of(group.sums(more))
        for more in (other - asked.times * own, other - asked.least)
        for group in (block, completion)
    ]
    return More(*found)


def noisy_part(asked: Sequence[Asked], answers: Answers | None, alpha: float) -> NoisyPart | None:
    """The part that chance explains least; None where chance explains each."""
    if not asked or answers is None:
        return None
    p_values = [_p_value(one) for one in answers.of_each]
    p_value = min(p_values)
    part = asked[p_values.index(p_value)]
    p_value = min(1.0, p_value * len(asked))
    if p_value >= alpha:
        return None
    return NoisyPart(
        by=part.name.by,
        bound=part.name.bound,
        tokens=part.within.tokens,
        completions=part.within.completions,
        ratio=_ratio(part.within.other, part.within.own),
        ratio_elsewhere=part.elsewhere,
        p_value=p_value,
    )


def _p_value(found: More) -> float:
    p_value = 0.0
    for blocks, completions in (
        (found.blocks, found.completions),
        (found.least_blocks, found.least_completions),
    ):
        if student_mean(_whole(completions)) >= OF_COMPLETIONS:
            return 1.0
        p_value = max(p_value, symmetric_sum(_whole(blocks)))
    return p_value


def _whole(found: Sums | Units) -> Sums:
    return found.whole if isinstance(found, Units) else found


def _blocks(unit: Ints) -> Groups:
    """Tokens in groups of BLOCK at most, none of two completions."""
    begins = np.flatnonzero(np.concatenate([[True], unit[1:] != unit[:-1]]))
    place = np.arange(len(unit)) - np.repeat(begins, np.diff([*begins.tolist(), len(unit)]))
    return Groups(numbered(unit.astype(np.int64) * (len(unit) // BLOCK + 1) + place // BLOCK))


def _beside(whole: float, part: float) -> float:
    """What the whole has more than the part; 0 where that is no more than the rounding of these sums."""
    return whole - part if whole - part > ROUNDING * whole else 0.0


def _ratio(other: float, own: float) -> float:
    return other / own if own else 1.0
