"""Do completions draw with the same noise, so that chance adds up over them where it should average out?

One seed for all requests gives each the same random numbers, in engines that seed each request's generator with it
(vLLM's `SamplingParams.seed`), and in those that hash seed and place (SGLang's deterministic inference). Then all
tokens at one place are likelier than they should be, or all less likely, and what a test over many completions takes
for their number is nearer to one. Nothing in a capture tells for sure: a seed may be the plan's, of which each request
has its own, and a server may have one that nobody gave. The draws do: independent ones at the same place cancel out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import islice
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from parity.comparator.reference.draw_sums import NAMES, AtPlaces
from parity.comparator.reference.drawn_lists import Cut
from parity.comparator.reference.temperature import shares_kept
from parity.comparator.statistics import FloatArray
from parity.records import TokenIds, TopLogprobs

FEWEST_PLACES, FEWEST_ROWS = 8, 4
"""Places, and tokens at a place, below which nothing is said."""

BEYOND = 5.0
"""Standard errors by which the draws at places vary more than independent ones."""

TOGETHER = 0.005
"""Correlation of two draws at one place below which it is the reference that is off a little, by place."""

OUTER, FAR = 0.2, 2.0
"""Of places, this share lies at least so many standard errors off to the one side, and as many to the other: an arm
that draws otherwise at some places does so to one side, or at fewer."""


def factors(found: AtPlaces) -> FloatArray:
    """By number (`NAMES`), times the variance of independent draws that the sums of the arm's draws have, at least 1:
    the design effect of its places (Kish 1965, Survey Sampling)."""
    known, odd, _ = _spread(found)
    return np.maximum(1.0, odd) if known.any() else np.ones(len(NAMES))


def shows_shared_noise(found: AtPlaces) -> bool:
    """Whether there are places enough for completions that are drawn alike to show it."""
    return int((found.tokens >= FEWEST_ROWS).sum()) >= FEWEST_PLACES


def shares_noise(found: AtPlaces, *, is_baseline: bool) -> bool:
    """Whether completions at the same places are drawn alike. The baseline's are also said to be where only few places
    show it: what else is odd about places is asked of the candidate against it."""
    known, odd, error = _spread(found)
    at = NAMES.index("rank")
    if not shows_shared_noise(found):
        return False
    rows = found.tokens[known]
    if is_baseline:
        together = (odd[at] - 1.0) / max(1.0, float((rows * rows).sum() / rows.sum()) - 1.0)
        return bool(odd[at] - 1.0 > BEYOND * error[at] and together > TOGETHER)
    off = found.sums[known, at] / np.sqrt(np.maximum(found.squares[known, at], 1e-12))
    low, high = np.quantile(off, (OUTER, 1.0 - OUTER))
    return bool(low < -FAR and high > FAR)


def _spread(found: AtPlaces) -> tuple[npt.NDArray[np.bool_], FloatArray, FloatArray]:
    """(places that count, by number: variance of the sums at these over that of independent draws, its error).

    The draws' own squares say what independent ones vary by: scores that are off do so for each draw alone as well.
    """
    known = found.tokens >= FEWEST_ROWS
    sums, squares, rows = found.sums[known], found.squares[known], found.tokens[known]
    if not known.any():
        return known, np.ones(len(NAMES)), np.ones(len(NAMES))
    mean = sums.sum(axis=0) / rows.sum()
    alone = np.maximum(squares - 2 * mean * sums + mean * mean * rows[:, None], 1e-12)
    total = alone.sum(axis=0)
    odd = ((sums - mean * rows[:, None]) ** 2).sum(axis=0) / total
    return known, odd, np.sqrt(2.0 * (alone**2).sum(axis=0)) / total


# ------------------------------------------------------------------ row against row

MOST_ROWS, MOST_PLACES = 48, 192
"""Requests, and places of each, that are looked at."""

SHIFTS = (1, 2, 3, 5, 7)
"""Places by which each row is moved against the one before, to see what rows have in common without one noise: scores
that are a little off, contexts that are alike."""

FAR_MORE = 4.8
"""Standard errors, over places, by which rows agree more than they do by either measure of chance. Clean arms: up to
2.8 by both."""

FREE = 0.5
"""Share of draws that are taken to be free even where rows share their noise: what an engine makes of the same numbers
for another distribution is not known, and one token is to decide nothing."""

LEAST = 0.01
"""Share of the probability, at least, that a token counts as having had."""


NO_CUT: Final = Cut()


class Row(Struct, frozen=True):
    """What one request drew. tokens: (T,). ids, shares: (T, K), the listed tokens and their probabilities as asked.
    reach: (T, 2, 2), from where to where of the probability the drawn token reaches, where the likeliest token comes
    first and where the smallest id does."""

    tokens: TokenIds
    ids: TokenIds
    shares: FloatArray
    reach: FloatArray

    @staticmethod
    def of(tokens: TokenIds, top: TopLogprobs, temperature: float, cut: Cut = NO_CUT) -> Row:
        """`top`: the lists as its penalties leave them."""
        if not top.ids.shape[1]:  # lists of nothing, as those of an answer without tokens
            top = TopLogprobs(np.empty((0, 1), dtype=np.int64), np.empty((0, 1)))
        length = min(len(tokens), len(top), MOST_PLACES)
        logs = np.where(np.isfinite(top.values[:length]), top.values[:length], -np.inf) / temperature
        best = logs.max(axis=1, keepdims=True, initial=-np.inf)
        weights = np.exp(logs - np.where(np.isfinite(best), best, 0.0))
        shares = weights / np.maximum(weights.sum(axis=1, keepdims=True), 1e-300)
        drawn = top.ids[:length] == tokens[:length, None]
        return Row.drawn(tokens[:length], top.ids[:length], shares_kept(shares, drawn, cut))

    @staticmethod
    def drawn(tokens: TokenIds, ids: TokenIds, shares: FloatArray) -> Row:
        spot = np.arange(len(tokens)), (ids == tokens[:, None]).argmax(axis=1)
        reach = np.zeros((len(tokens), 2, 2))
        for number, order in enumerate((-shares, ids)):
            before = np.where(order < order[spot][:, None], shares, 0.0).sum(axis=1)
            reach[:, number] = np.stack([before, before + shares[spot]], axis=1)
        return Row(tokens, ids, shares, reach)

    def again(self, rng: np.random.Generator) -> Row:
        """Other tokens, drawn from the same lists."""
        spot = (np.cumsum(self.shares, axis=1) < rng.random((len(self.tokens), 1))).sum(axis=1)
        spot = spot.clip(max=self.ids.shape[1] - 1)
        return Row.drawn(self.ids[np.arange(len(spot)), spot], self.ids, self.shares)

    def moved(self, places: int) -> Row:
        """The same, beginning so many places later; what is left out comes last."""
        tokens, ids = (np.roll(one, -places, axis=0) for one in (self.tokens, self.ids))
        return Row(tokens, ids, np.roll(self.shares, -places, axis=0), np.roll(self.reach, -places, axis=0))


def agreement(rows: Iterable[Row]) -> float | None:
    """Nats by which it explains the draws that requests draw with the same numbers, whatever an engine makes of these:
    the same token where both may say it, as with one noise for each token of the vocabulary, or the same part of the
    probability, in either order. None where they do not agree.

    What they agree by at the same places is compared with what they agree by where each row is moved, which scores that
    are a little off explain as well, and against draws made anew, which have as many open places at the same places.
    Of independent draws the evidence of each place is 1 on average, whatever was drawn before (each mixture of `FREE`
    is a bet on the scores), so their product is an e-value: it reaches 1/a with a chance of at most a (Ville 1939).
    What the rows moved and drawn anew win is taken off, and what three looks cost.
    """
    rows = list(islice((one for one in rows if len(one.tokens)), MOST_ROWS))
    if len(rows) < FEWEST_ROWS or max(len(one.tokens) for one in rows) < FEWEST_PLACES:
        return None
    rng = np.random.default_rng(0)
    moved = [[one.moved(shift * number % len(one.tokens)) for number, one in enumerate(rows)] for shift in SHIFTS]
    every = (_of_tokens, partial(_of_shares, order=0), partial(_of_shares, order=1))
    for evidence in every:
        found = evidence(rows)
        shifted = [evidence(one) for one in moved]
        if _is_far(found - np.mean(shifted, axis=0)):
            anew = [evidence([one.again(rng) for one in rows]) for _ in SHIFTS]
            if _is_far(found - np.mean(anew, axis=0)):
                by_chance = max(float(one.sum()) for one in (*shifted, *anew))
                return float(found.sum()) - max(0.0, by_chance) - math.log(len(every))
    return None


def _is_far(more: FloatArray) -> bool:
    size = float(np.sqrt((more * more).sum()))
    return size > 0 and float(more.sum()) > FAR_MORE * size


class _Places(Struct, frozen=True):
    """The rows of all places, shapes (R, T) and more: where a row has ended, `here` is false."""

    tokens: TokenIds
    ids: TokenIds
    shares: FloatArray
    reach: FloatArray
    here: npt.NDArray[np.bool_]

    @staticmethod
    def of(rows: Sequence[Row]) -> _Places:
        shape = len(rows), max(len(one.tokens) for one in rows)
        widths = [one.ids.shape[1] for one in rows]
        tokens, ids = np.full(shape, -1, dtype=np.int64), np.full((*shape, max(widths)), -1, dtype=np.int64)
        shares, reach = np.zeros((*shape, max(widths))), np.zeros((*shape, 2, 2))
        here = np.zeros(shape, dtype=bool)
        for number, (one, width) in enumerate(zip(rows, widths, strict=True)):
            size = len(one.tokens)
            here[number, :size], tokens[number, :size], reach[number, :size] = True, one.tokens, one.reach
            ids[number, :size, :width], shares[number, :size, :width] = one.ids, one.shares
        # At each place, of all lists as much as the shortest one has.
        least = np.where(here, np.array(widths)[:, None], max(widths)).min(axis=0)
        listed = here[:, :, None] & (np.arange(max(widths)) < least[:, None])
        return _Places(tokens, np.where(listed, ids, -1), np.where(listed, shares, 0.0), reach, here)


def _of_shares(rows: Sequence[Row], order: int) -> FloatArray:
    """By place, nats by which one number for all rows explains their tokens better than one for each.

    The number lies between two ends of what the rows' tokens reach; from one end to the next, what it explains changes
    by what the token there begins, or ceases, to have.
    """
    every = _Places.of(rows)
    low, high = np.moveaxis(every.reach[:, :, order].clip(0.0, 1.0), 2, 0)
    gain = np.where(every.here, np.log((1 - FREE) / np.maximum(high - low, LEAST) + FREE) - math.log(FREE), 0.0)
    ends = np.concatenate([low, high])
    by_end = np.argsort(ends, axis=0)
    edges = np.take_along_axis(ends, by_end, 0)
    first, last = np.zeros((1, edges.shape[1])), np.ones((1, edges.shape[1]))
    width = np.diff(np.concatenate([first, edges, last]), axis=0)
    changes = np.take_along_axis(np.concatenate([gain, -gain]), by_end, 0)
    logs = np.where(width > 0, np.concatenate([first, np.cumsum(changes, axis=0)]), -np.inf)
    most = logs.max(axis=0)
    total = most + np.log((np.exp(logs - most) * width).sum(axis=0))
    return np.asarray(total + every.here.sum(axis=0) * math.log(FREE))


def _of_tokens(rows: Sequence[Row]) -> FloatArray:
    """By place, nats by which each row's token is better explained where it is drawn from those of the others that its
    list names."""
    every = _Places.of(rows)
    place = np.arange(every.tokens.shape[1])
    vocabulary = np.unique(every.tokens[every.here])
    # One number for a token at a place, so that all places are looked up at once.
    number = np.searchsorted(vocabulary, every.tokens) + place * len(vocabulary)
    count = np.bincount(number[every.here], minlength=len(place) * len(vocabulary))
    spot = np.searchsorted(vocabulary, every.ids).clip(max=len(vocabulary) - 1)
    known = vocabulary[spot] == every.ids
    mine = every.here[:, :, None] & (every.ids == every.tokens[:, :, None])
    others = known & (count[spot + place[:, None] * len(vocabulary)] > mine)
    share = (others * every.shares).sum(axis=2)
    drawn = (others & mine).any(axis=2)
    won = np.where(drawn, FREE + (1 - FREE) / np.maximum(share, LEAST), FREE)
    return np.asarray(np.where(share > 0, np.log(won), 0.0).sum(axis=0))
