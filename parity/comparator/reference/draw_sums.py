"""What draws show over a whole arm: numbers of each drawn token whose mean is zero where it was drawn as asked.

Each is a function of the outcome less its expectation under the distribution that was asked for, so that tokens of all
places and requests add up, whatever they are likely to be (sums of martingale differences, with known variances).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from parity.comparator.reference.drawn_lists import Cut, Draws, joined, portions
from parity.comparator.reference.temperature import drawn_from, shows_cut
from parity.comparator.shared_out import of_parts
from parity.comparator.statistics import FloatArray, bennett
from parity.comparator.sums import sums_of_rows
from parity.comparator.types import Spread, alone
from parity.records import TokenIds

DEEPEST = 10.0
"""Nats below the best token that an outcome counts at most: one token is not to decide of an arm."""

OF_REST = 1.0
"""Nats below the last listed token, that a token which is not listed counts for."""

NAMES = ("likely", "rank", "best", "second", "last_tenth", "last_fiftieth", "edge", "pushed")
"""likely: log of the token's weight. rank: the share of the probability that is likelier, counting half of its own.
best, second: whether it is that one. last_tenth, last_fiftieth: how much of its share of the probability, the
likeliest first, lies in the last part. edge: whether it is the last one that the cut-off keeps: who cuts off a token
more never draws it, and it weighs too little to show in the others. pushed: whether penalties or biases push it down,
less whether up."""

LARGEST = np.array([DEEPEST, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 2.0])
"""What one token adds to each at most."""

LAST = {"last_tenth": 0.1, "last_fiftieth": 0.02}
"""The parts of the probability that these look at."""


OWN_TIMES = 0.2
"""By which the temperature that explains the baseline's own draws may be off, as a share."""

BEYOND_DOUBT = 1e-9
"""Chance, at most, of what the baseline drew by its own scores, below which these are not what it drew from."""

FEWEST = 256
"""Tokens of an arm below which nothing is said of it."""


class DrawSums(Struct, frozen=True):
    """Sums over the tokens of one completion, or of some: of the numbers and of their variances, in order of NAMES."""

    sums: FloatArray
    variances: FloatArray
    open: float
    """Probability of tokens other than the best, in all."""
    tokens: int
    cut_shown: DrawSums | None = None
    """The same of the tokens at whose places the lists show what the cut-off keeps; None: of all."""

    @staticmethod
    def of_all(some: Iterable[DrawSums]) -> DrawSums:
        sums, variances, open_, tokens = np.zeros(len(NAMES)), np.zeros(len(NAMES)), 0.0, 0
        shown, is_known = [], True
        for one in some:
            sums, variances = sums + one.sums, variances + one.variances
            open_, tokens = open_ + one.open, tokens + one.tokens
            shown.append(one.cut_shown or one)
            is_known &= one.cut_shown is None
        return DrawSums(sums, variances, open_, tokens, None if is_known else DrawSums.of_all(shown))


class AtPlaces(Struct, frozen=True):
    """Sums over the tokens at each place of an arm's completions, of the numbers and of their squares; shape
    (places, len(NAMES)); and how many tokens they are, (places,)."""

    sums: FloatArray
    squares: FloatArray
    tokens: FloatArray

    @staticmethod
    def none() -> AtPlaces:
        return AtPlaces(np.zeros((0, len(NAMES))), np.zeros((0, len(NAMES))), np.zeros(0))

    @staticmethod
    def of(places: TokenIds, numbers: FloatArray) -> AtPlaces:
        count = int(places.max()) + 1 if len(places) else 0
        summed = [np.zeros((count, len(NAMES))) for _ in range(2)]
        for total, each in zip(summed, (numbers, numbers * numbers), strict=True):
            np.add.at(total, places, each)
        return AtPlaces(summed[0], summed[1], np.bincount(places, minlength=count).astype(np.float64))

    def __add__(self, other: AtPlaces) -> AtPlaces:
        longest = max(len(self.tokens), len(other.tokens))
        mine, others = (
            [np.pad(each, [(0, longest - len(each)), *[(0, 0)] * (each.ndim - 1)]) for each in one.arrays]
            for one in (self, other)
        )
        return AtPlaces(*(one + another for one, another in zip(mine, others, strict=True)))

    @property
    def arrays(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        return self.sums, self.squares, self.tokens


def numbers_of(draws: Draws, temperature: float, cut: Cut) -> tuple[FloatArray, FloatArray, FloatArray]:
    """(the numbers of each token less their expectations, their variances), shapes (N, len(NAMES)), and the probability
    of all tokens but the best, (N,).

    A token that the reference's cut-off leaves out, and the engine's does not, counts as the last that is kept: the two
    may cut at another token of a near-tie.
    """
    row = np.arange(len(draws))
    weights = _with_drawn(drawn_from(draws, temperature, cut), draws)
    share = weights / sums_of_rows(weights)[:, None]
    values = np.maximum(draws.logs - draws.logs[:, :1], -DEEPEST)
    values = np.concatenate([values, np.maximum(values[:, -1:] - OF_REST, -DEEPEST)], axis=1)
    above = np.cumsum(share, axis=1) - share
    found, spread = [], []

    def add(column: FloatArray) -> None:
        of_share = share * column
        mean = sums_of_rows(of_share)
        found.append(column[row, draws.drawn] - mean)
        spread.append(np.einsum("nk,nk->n", of_share, column) - mean * mean)

    add(values)
    add(above + share / 2)
    for one in (0, 1):
        found.append((draws.drawn == one) - share[:, one])
        spread.append(share[:, one] * (1.0 - share[:, one]))
    for last in LAST.values():
        inside = np.clip(above + share - (1.0 - last), 0.0, np.minimum(share, last))
        add(np.where(share > 0, inside / np.maximum(share, 1e-300), 0.0))
    add(_at_edge(weights, cut))
    if draws.pushed is None:
        found.append(np.zeros(len(draws)))
        spread.append(np.zeros(len(draws)))
    else:
        add(np.concatenate([np.sign(draws.pushed), np.zeros((len(draws), 1))], axis=1))
    return np.stack(found, axis=1), np.maximum(np.stack(spread, axis=1), 0.0), 1.0 - share[:, 0]


def _at_edge(weights: FloatArray, cut: Cut) -> FloatArray:
    """1 for the token with the least of these weights (N, K + 1), where a cut-off leaves nothing that is not listed."""
    if cut == Cut():
        return np.zeros_like(weights)
    least = np.where(weights > 0, weights, np.inf).min(axis=1)
    return np.where((weights == least[:, None]) & (weights[:, -1:] == 0), 1.0, 0.0)


def _with_drawn(weights: FloatArray, draws: Draws) -> FloatArray:
    """`weights` with as much as the least that is kept for drawn tokens that are not."""
    row = np.flatnonzero(weights[np.arange(len(draws)), draws.drawn] <= 0)
    if not len(row):
        return weights
    made = weights.copy()
    made[row, draws.drawn[row]] = np.where(made[row] > 0, made[row], np.inf).min(axis=1)
    return made


def sums_of(
    many: Sequence[Draws], places: Sequence[TokenIds], temperature: float, cut: Cut, spread: Spread = alone
) -> tuple[list[DrawSums], AtPlaces]:
    """Of completions that asked for the same: one by one, and place by place (`places`: of the tokens of each)."""

    def of_some(some: slice) -> tuple[list[DrawSums], AtPlaces]:
        part = many[some]
        together = joined(part)
        found, spread, room = numbers_of(together, temperature, cut)
        shown = shows_cut(together, temperature, cut)
        ends = np.cumsum([len(one) for one in part])[:-1]
        split = (np.split(one, ends) for one in (found, spread, room, shown))
        sums = [_summed(*each) for each in zip(*split, strict=True)]
        return sums, AtPlaces.of(np.concatenate(places[some]), found)

    result, at_places = list[DrawSums](), AtPlaces.none()
    for sums, at in of_parts(list(portions(many)), of_some, spread):
        result += sums
        at_places += at
    return result, at_places


def _summed(found: FloatArray, spread: FloatArray, room: FloatArray, shown: npt.NDArray[np.bool_]) -> DrawSums:
    """Of one completion. `shown`: tokens at whose places the cut-off is known."""
    whole = DrawSums(found.sum(axis=0), spread.sum(axis=0), float(room.sum()), len(found))
    return (
        whole
        if shown.all()
        else replace(whole, cut_shown=_summed(found[shown], spread[shown], room[shown], shown[shown]))
    )


def times_of(difference: float, spread: float, temperature: float) -> float:
    """Of the temperature asked for: a mean that is so much larger is that of a lower temperature."""
    if spread <= 0:
        return 1.0
    return max(0.1, 1.0 - temperature * difference / spread)


def own_temperature(sums: Collection[DrawSums], temperature: float) -> float | None:
    """So many times the temperature that was asked for explains what the baseline drew, where its scores do not; None
    where they do, or nothing says so."""
    base = DrawSums.of_all(sums)
    if base.tokens < FEWEST:
        return None
    at = NAMES.index("likely")
    mean, variance = base.sums[at] / base.tokens, base.variances[at] / base.tokens**2
    times = times_of(float(mean), float(base.variances[at]) / base.tokens, temperature)
    if (
        abs(times - 1.0) < OWN_TIMES
        or bennett(abs(float(mean)), float(variance), LARGEST[at] / base.tokens) > BEYOND_DOUBT
    ):
        return None
    return times
