"""Do a few completions lie farther off their scores than any of the baseline's?

A fault of single rows (a prompt's chunk that is lost, a cache that is damaged for some of them) leaves the mean over
all rows nearly as it is. So each completion's mean logit noise, over what its own arm usually has, is compared with the
largest of the baseline's completions of the same requests.

How far rows of a clean arm lie apart is not known beforehand, and it differs: loops, short outputs, experts at a
near-tie. Two things are used. As rows of both arms are alike, the k largest of all are the candidate's with a chance of
1/2 to the power of k at most. And the noise beyond the usual falls off at least as fast as its size to the power of
-TAIL, so that k rows `ratio` times as far off as the baseline's farthest have the chance

    (1 / (1 + ratio ** TAIL)) ** k        (`chance`)

of a clean arm: the number of these rows is geometric where the baseline's largest is itself one of chance. The first
holds whatever the rows' distribution is and takes ten rows for alpha = 0.001.

A completion's mean is one of many tokens, so it is nearly normal where nothing comes to whole rows, and how far the
baseline's scatter shows whether something does. Each is therefore taken in standard errors as well (`_standing_out`).
Rows beyond a bound are as many as Student's t of FREEDOM has there: that is the guess beforehand, and the baseline's
number beyond it corrects the guess (`more_than`). Twenty rows that are each a little off are found by that, and none of
them need be the farthest.

Neither holds where a cause comes to few rows of one arm, as another kernel for a small batch. Such a cause is no fault,
so what is found here proves nothing: it keeps the verdict from PASS.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from msgspec import Struct, structs

from parity.comparator.population.residual_tests import BIT_EXACT, FROM_BIT_EXACT
from parity.comparator.population.stretches import Stretch
from parity.comparator.reference.gaps import FloatArray
from parity.comparator.statistics import binomial_tail, negative_binomial, negative_binomial_tail, student_tail
from parity.comparator.stats import OddRows, RowsSeen
from parity.comparator.sums import Added, Joined
from parity.records import Key

Bools = npt.NDArray[np.bool_]

TAIL = 3.0
"""The noise of a token counts CAP units at most, so that means over many tokens fall off faster than this."""

FEWEST = 4
"""Completions that it takes. Where a tenth of the rows of both arms burst, three would do in 6 of 200 clean runs of 48
rows."""

MOST = 16
"""Completions that are looked for at most. Each number of them from FEWEST on is tried, and gets half of the error rate
that is left, so that k of them are asked for 2 ** (k - FEWEST + 1) times less (`chance`)."""

LEAST_TOKENS = 16
"""Of a completion, after contexts of their own."""

USUAL = 32
"""Tokens of usual noise that are added to each completion, so that short ones lie no farther off than long ones."""

LEAST_ROWS = 16
"""Completions from which on the largest of the baseline's says something."""

LEAST_RATIO = 1.25
"""Times the baseline's largest, below which nothing is odd, however often."""

FREEDOM = 6
"""Of Student's t. Rows of clean arms lie more than 3 standard errors off in 3 of 1,000 (12 here), above 4 none of
6,400; of the embedded checkpoint's 800, two."""

GUESS = 0.5
"""Rows that the guess counts as."""

UNUSUAL, UNUSUAL_SHARE = 1e-2, 0.1
"""Chance that the engine has rows that burst, and how many then."""

NUMBERS = (4, 5, 6, 8, 11, 16, 22, 32)
"""Completions whose least one is the bound, each with its part of the error rate."""

LEAST_MORE = 0.3
"""Times the usual noise beyond it, below which nothing is odd, however many tokens show it."""

SHARE, SHARE_OF_OTHERS = 2, 6
"""The error rate is divided by: half of it for more rows than expected over all tokens, a sixth for each of the
others, which are the farthest rows over all tokens, and both over the first BEGIN."""

BEGIN = 32
"""Output tokens that are looked at by themselves as well: what a prompt has lost shows most there."""

FARTHEST_BOUND = 40.0
"""Standard errors up to which it is looked for what would have been seen."""

COUNTS = (4, 6, 8, 11, 16, 22, 32)
"""Completions of which it is said from how much noise on they show."""

MINORITY = 1 / 3
"""Share of the completions, up to which the others say what is usual."""

LOOKED_AT = 4096
"""Completions, evenly spaced, by which that is known."""

SEEN = 0.95
"""Chance with which they do."""

TIMES = tuple(round(1.05**power, 3) for power in range(1, 80))
"""Times the noise that are tried."""

SHOWN = 8
"""Completions that the statistics name."""


class OfRows(Added, frozen=True):
    """By completion, over some of its tokens: how many, the noise of baseline and candidate, and the squares of the
    baseline's. Of 32 bits each: there may be millions."""

    sizes: Joined
    baseline: Joined
    candidate: Joined
    squares: Joined

    @staticmethod
    def of(part: Stretch, counted: Bools) -> OfRows:
        own, other = (arm.noise * counted for arm in part.arms)
        sums = [part.completion.sums(one).astype(np.float32) for one in (own, other, own * own)]
        sizes = part.completion.sums(counted).astype(np.int32)
        return OfRows(Joined.of(sizes), *map(Joined.of, sums))


class Rows(Added, frozen=True):
    """Over the tokens after contexts of their own: all of them, and the first BEGIN. pair: of each completion."""

    whole: OfRows
    begin: OfRows
    pair: Joined


def row_sums(part: Stretch) -> Rows:
    begin = part.new & (part.residuals.place < BEGIN)
    return Rows(OfRows.of(part, part.new), OfRows.of(part, begin), Joined.of(part.rows))


def odd_rows(sums: Rows, noise: float, step: float, alpha: float, keys: Sequence[Key]) -> OddRows | None:
    """The completions that lie off, or None.

    noise: the baseline's mean logit noise, step: the bf16 unit, nats. keys: of the pairs.
    """
    whole, begin = (_rows(some, noise, step) for some in (sums.whole, sums.begin))
    found = [
        *_tested(_standing_out, whole, SHARE),
        *_tested(_farthest, whole, SHARE_OF_OTHERS),
        *_tested(_standing_out, begin, SHARE_OF_OTHERS),
        *_tested(_farthest, begin, SHARE_OF_OTHERS),
    ]
    best = min(found, key=lambda one: one.p_value, default=None)
    if best is None or best.p_value >= alpha:
        return None
    return OddRows(
        completions=len(best.rows),
        named=tuple(str(keys[row]) for row in sums.pair.values[best.rows[:SHOWN]].tolist()) if keys else (),
        times=best.times,
        baseline_times=best.baseline_times,
        baseline_completions=best.as_far,
        p_value=best.p_value,
    )


def rows_seen(sums: Rows, noise: float, step: float, alpha: float, every: int = 0) -> tuple[RowsSeen, ...]:
    """From how much noise on so many completions they would have been found, with chance SEEN, whichever they are: with
    a baseline whose completions are as far off as this run's. The fewest of COUNTS that show at all, and the most of
    them. Arguments as of `odd_rows`; every: completions of the run, where some have no residuals (0: none)."""
    rows = _rows(sums.whole, noise, step)
    if rows is None:
        return ()
    share = len(rows.at) / max(every, len(sums.whole.sizes.values))
    found = [
        RowsSeen(completions=count, times=times)
        for count in COUNTS
        if count <= MINORITY * len(rows.at) and (times := _times_seen(rows, count, share, alpha)) is not None
    ]
    return (*found[:1], *found[1:][-1:])


def _times_seen(rows: _Rows, count: int, share: float, alpha: float) -> float | None:
    """The least of TIMES by which so many completions are found. share: of all completions, that say something."""
    tests = [_far_enough(rows, number, alpha) for number in range(FEWEST, min(count, MOST) + 1)]
    if rows.standing is not None:
        tests += [_off_enough(rows, number, alpha) for number in NUMBERS if number <= count]

    def is_seen(times: float) -> bool:
        beyond = _beyond(rows, times)
        standing = beyond if rows.standing is None else _standing(rows, times)
        hits = ((one.number, float(one.sees(beyond, standing).mean()) * share) for one in tests)
        return any(binomial_tail(number, count, hit) >= SEEN for number, hit in hits)

    place = bisect_left(TIMES, True, key=is_seen)
    return TIMES[place] if place < len(TIMES) else None


class _Enough(Struct, frozen=True):
    """So many completions are enough where each lies at least so far beyond the usual noise, and so many standard
    errors off."""

    number: int
    beyond: float
    standing: float = -math.inf

    def sees(self, beyond: FloatArray, standing: FloatArray) -> Bools:
        return np.asarray((beyond >= self.beyond) & (standing >= self.standing))


def _far_enough(rows: _Rows, number: int, alpha: float) -> _Enough:
    """`farthest`, turned round."""
    level = alpha / SHARE_OF_OTHERS / 2.0 ** (number - FEWEST + 1)
    ratio = max(LEAST_RATIO, (level ** (-1.0 / number) - 1.0) ** (1.0 / TAIL))
    return _Enough(number, ratio * float(rows.own.max()))


def _off_enough(rows: _Rows, number: int, alpha: float) -> _Enough:
    """The same of `more_than`."""
    assert rows.standing is not None
    own, level = rows.standing[0], alpha / SHARE / len(NUMBERS)
    bounds = np.arange(1.0, FARTHEST_BOUND, 0.25).tolist()
    chances = (
        (more_than(number, int((own >= bound).sum()), _expected(rows, bound), len(own)), bound) for bound in bounds
    )
    bound = next((bound for chance_beyond, bound in chances if chance_beyond < level), math.inf)
    return _Enough(number, LEAST_MORE, bound)


def _beyond(rows: _Rows, times: float) -> FloatArray:
    """How far beyond the usual noise these completions would be with so many times the noise that they had."""
    sums, sizes = (one[:: rows.every] for one in (rows.sums, rows.sizes))
    return np.asarray((times * sums + USUAL * rows.mean) / (sizes + USUAL) / rows.usual - 1.0)


def _standing(rows: _Rows, times: float) -> FloatArray:
    """The same in standard errors."""
    sums, sizes, errors = (one[:: rows.every] for one in (rows.sums, rows.sizes, rows.errors))
    return np.asarray((times * sums - sizes * rows.median) / errors)


class _Rows(Struct, frozen=True):
    """The completions of a run that say something: their numbers, tokens, how far beyond the usual noise those of
    baseline and candidate are (times it), all of shape (N,)."""

    at: npt.NDArray[np.int64]
    sizes: FloatArray
    own: FloatArray
    other: FloatArray
    standing: tuple[FloatArray, FloatArray] | None
    """The same in standard errors; None where the baseline computes to the last bit and so has none."""
    sums: FloatArray
    """The baseline's noise, nats, and its standard errors, both of shape (N,); its mean over all tokens, the median
    completion's with USUAL tokens of that, and without."""
    errors: FloatArray
    mean: float
    usual: float
    median: float

    @property
    def every(self) -> int:
        """Of so many completions one is looked at to say what would be seen."""
        return 1 + len(self.at) // LOOKED_AT


class _Odd(Struct, frozen=True):
    """Rows that chance does not explain, the farthest one first; times the usual noise of the least of them, and of the
    baseline's farthest; how many of the baseline's are as far off."""

    p_value: float
    rows: list[int]
    times: float
    baseline_times: float
    as_far: int = 0


def _tested(test: Callable[[_Rows], _Odd | None], rows: _Rows | None, share: int) -> Iterator[_Odd]:
    """What a test finds that has one `share`th of the error rate."""
    found = None if rows is None else test(rows)
    if found is not None:
        yield structs.replace(found, p_value=min(1.0, found.p_value * share))


def _farthest(rows: _Rows) -> _Odd:
    largest = float(rows.own.max())
    order = np.argsort(-rows.other, kind="stable")[:MOST]
    p_value, count = farthest(largest, rows.other[order])
    return _Odd(p_value, rows.at[order[:count]].tolist(), 1.0 + float(rows.other[order[count - 1]]), 1.0 + largest)


def _standing_out(rows: _Rows) -> _Odd | None:
    """More of the candidate's completions than expected are as many standard errors off."""
    if rows.standing is None:
        return None
    own, other = rows.standing
    other = np.where(rows.other >= LEAST_MORE, other, -np.inf)
    order = np.argsort(-other, kind="stable")
    best: tuple[float, int, int] | None = None
    for count in NUMBERS:
        bound = float(other[order[count - 1]]) if count <= len(order) // 2 else -math.inf
        if bound <= 1.0:
            break
        as_far = int((own >= bound).sum())
        p_value = more_than(count, as_far, _expected(rows, bound), len(rows.at)) * len(NUMBERS)
        best = min(best or (p_value, count, as_far), (p_value, count, as_far))
    if best is None:
        return None
    p_value, count, as_far = best
    least = float(rows.other[order[:count]].min())
    return _Odd(min(1.0, p_value), rows.at[order[:count]].tolist(), 1.0 + least, 1.0 + float(rows.own.max()), as_far)


def _expected(rows: _Rows, bound: float) -> float:
    """Completions of a clean arm that so many standard errors are expected beyond."""
    return len(rows.at) * student_tail(bound, FREEDOM)


@lru_cache(maxsize=10_000)
def more_than(count: int, own: int, expected: float, rows: int) -> float:
    """The chance of so many of a clean arm's `rows` beyond a bound, where the baseline has `own` and `expected` were
    expected.

    The rate beyond the bound is a guess: a gamma distribution of shape GUESS with that mean, or, with a chance of
    UNUSUAL, one with UNUSUAL_SHARE of the rows as its mean. Given the rate, both arms' numbers are Poisson's.
    """
    guesses = ((1.0 - UNUSUAL, expected), (UNUSUAL, UNUSUAL_SHARE * rows))
    weights = [before * negative_binomial(own, GUESS, mean / (mean + GUESS)) for before, mean in guesses]
    tails = [negative_binomial_tail(count, GUESS + own, 1.0 / (2.0 + GUESS / mean)) for _, mean in guesses]
    return sum(weight * tail for weight, tail in zip(weights, tails, strict=True)) / sum(weights)


def _rows(of: OfRows, noise: float, step: float) -> _Rows | None:
    """None where the baseline's completions say nothing."""
    sizes = of.sizes.values
    at = np.flatnonzero(sizes >= LEAST_TOKENS)
    if len(at) < LEAST_ROWS:
        return None
    sizes = sizes[at].astype(np.float64)
    sums = [one.values[at].astype(np.float64) for one in (of.baseline, of.candidate)]
    exact = noise < BIT_EXACT * step
    least = FROM_BIT_EXACT * step if exact else 0.0
    own, other = (_beyond_usual(one, sizes, least) for one in sums)
    if not float(own.max()) > 0.0:
        return None
    error = None if exact else _standard_errors(sums[0], sizes, of.squares.values[at].astype(np.float64))
    usual = [float(_median(one / sizes, sizes)) for one in sums]
    mean = float(sums[0].sum() / sizes.sum())
    middle = max(float(np.median((sums[0] + USUAL * mean) / (sizes + USUAL))), least)
    if error is None or not usual[0]:
        return _Rows(at, sizes, own, other, None, sums[0], np.full(len(at), np.inf), mean, middle, usual[0])
    more = max(1.0, usual[1] / usual[0])  # an arm that is noisier everywhere scatters more as well
    standing = (sums[0] - sizes * usual[0]) / error, (sums[1] - sizes * usual[1]) / (error * more)
    return _Rows(at, sizes, own, other, standing, sums[0], error, mean, middle, usual[0])


def _standard_errors(sums: FloatArray, sizes: FloatArray, squares: FloatArray) -> FloatArray | None:
    """Of the sums of noise over completions, shape (N,): by the scatter of the tokens, and by what the sums scatter
    beyond that; None where there is none."""
    total = float(sizes.sum())
    usual = _median(sums / sizes, sizes)
    of_tokens = float(squares.sum()) / total - (float(sums.sum()) / total) ** 2
    if of_tokens <= 0.0:
        return None
    of_rows = max(0.0, float(((sums - sizes * usual) ** 2).sum()) - total * of_tokens) / float((sizes**2).sum())
    return np.asarray(np.sqrt(sizes * of_tokens + sizes**2 * of_rows))


def _median(values: FloatArray, weights: FloatArray) -> float:
    order = np.argsort(values, kind="stable")
    summed = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(summed, summed[-1] / 2)])


def farthest(largest: float, other: FloatArray) -> tuple[float, int]:
    """(chance, how many of them): the number of the candidate's completions that chance explains least.

    largest: the baseline's farthest beyond the usual; other: the candidate's, falling, shape (N,), N at least FEWEST.
    """
    counts = range(FEWEST, len(other) + 1)
    chances = {one: chance(float(other[one - 1]) / largest, one) * 2.0 ** (one - FEWEST + 1) for one in counts}
    count = min(chances, key=chances.__getitem__)
    return min(1.0, chances[count]), count


def _beyond_usual(sums: FloatArray, sizes: FloatArray, least: float) -> FloatArray:
    """A completion's mean noise over the median one's, less 1; `least`: nats that the median counts at least."""
    means = (sums + USUAL * float(sums.sum() / sizes.sum())) / (sizes + USUAL)
    usual = max(float(np.median(means)), least)
    return np.asarray(means / usual - 1.0 if usual > 0 else np.zeros_like(means))


def chance(ratio: float, count: int) -> float:
    """Of so many rows of a clean arm, all `ratio` times as far beyond the usual as the baseline's farthest."""
    return 1.0 if ratio < LEAST_RATIO else float((1.0 / (1.0 + ratio**TAIL)) ** count)
