"""At which temperature was a completion drawn? A bet against the one that was asked for, one completion at a time.

The lists name the best tokens at each position; all others are one outcome, "the rest", whose share at another
temperature than 1 is known within bounds. For each other temperature the bet is its likelihood over that of the asked
one: among the listed tokens both are known; of whether a token is listed, the share within the bounds counts that is
nearest to the other temperature's, which is the least favourable one (Huber, Strassen 1973). Where a cut-off decided as
well, it is over the largest that the asked one allows. The mean of such ratios exceeds 1/a with a chance of at most a
where the tokens were drawn as asked (Markov's inequality; Grünwald, de Heide, Koolen 2024, Safe Testing): no
distribution is assumed and no sample size is too small.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from parity.comparator.reference.drawn_lists import Cut, Draws, joined, logs_listed, portions
from parity.comparator.shared_out import of_parts
from parity.comparator.statistics import FloatArray
from parity.comparator.sums import sums_of_rows
from parity.comparator.types import Spread, alone
from parity.records import TokenIds, TopLogprobs

R = TypeVar("R")

GREEDY = 0.02
"""What decoding without randomness is taken for: two tokens this near to each other (nats) may change places."""

FACTORS = (0.25, 0.5, 0.7, 1.5, 2.0, 4.0)
"""Of the temperature asked for, bet on, beside GREEDY and 1."""

SHOWN = (GREEDY, *(n / 10 for n in range(1, 31)))
"""Temperatures of which the likeliest is shown."""

ENOUGH = 0.02
"""Nats a token by which the kernels of two engines may let tokens look as if drawn at another temperature, at most."""

NOISE = 0.02
"""Nats by which kernels move logprobs: what one bf16 unit on every logit makes. It lifts the mean of a ratio by so many
of its standard deviations at most (Cauchy and Schwarz): next to nothing where one token is all but certain."""

ON_PLAIN = 0.3
"""Share of the stake that is on GREEDY, and on 1 where that is not asked for; the others have as much as each other. A
sampler, or a temperature, that is left out is the likeliest fault, and a neighbour's is often one of these."""

FROM_FIRST = 0.5
"""Share of the stake that is on a row drawn otherwise from its first token on; the other places have as much as each
other."""

PIECE = 16
"""Tokens: at every so many the row may have changed to another temperature."""

FEWEST = 8
"""Tokens that it takes."""

HEDGE = 0.02
"""Share of a bet that stays on the temperature asked for."""

CUT_SLACK = 0.01
"""Share by which a cut may lie elsewhere for the engine that drew."""

_LEAST = -50.0
"""Log of the least likelihood of a token that counts: below, it is as unlikely at every temperature."""

_NEVER = 1e-12
"""Stands for the chance of what the lists leave no room for."""

_SURE = 1e-4
"""Probability by which a list's own numbers may be off."""


class Bet(Struct, frozen=True):
    """What the other temperatures have won against the one asked for."""

    log_won: float
    """Log of an e-value: at most 1 on average where the tokens were drawn as asked."""
    start: int
    """Index of the outcome from which on the other temperature fits."""


def weights_at(draws: Draws, temperature: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Weights at a temperature relative to the best token's: the listed ones', (N, K), and the least and the most that
    the rest may have together, (N,)."""
    power = 1.0 / temperature
    best = draws.logs[:, 0]
    listed = np.exp((draws.logs - best[:, None]) * power)
    last = draws.logs[:, -1]
    # Each token of the rest is at most as likely as the last one listed, and there are `others` of them.
    low, high = (np.log(np.maximum(draws.rest + off, 1e-12)) for off in (-_SURE, _SURE))
    spread = (1.0 - power) * np.log(draws.others)

    def gathered(rest: FloatArray) -> FloatArray:
        return np.asarray(rest + (power - 1.0) * np.maximum(last, rest - np.log(draws.others)), dtype=np.float64)

    if power >= 1.0:
        least, most = spread + power * low, gathered(high)
    else:
        least, most = gathered(low), spread + power * high
    floor = np.log(draws.others) + power * last  # all of them as likely as the last one listed
    least, most = (np.exp(np.minimum(one, floor) - power * best) for one in (least, most))
    return listed, np.where(draws.rest <= _SURE, 0.0, np.minimum(least, most)), most


def _kept(
    listed: FloatArray, rest: FloatArray, cut: Cut, slack: float = 0.0
) -> tuple[npt.NDArray[np.int64], FloatArray]:
    """How many of the listed tokens the request's cut keeps, shape (N,), at least one (K: all of them, and what it
    keeps of the rest), and what these weigh together at least. `slack`: share by which the numbers may be off, so that
    fewer are kept. `rest`: weight of the rest after min_p and top_k."""
    width = listed.shape[1]
    kept = np.full(len(listed), width, dtype=np.int64)
    if cut.min_p > 0:
        kept = np.minimum(kept, (listed >= cut.min_p * (1 + slack)).sum(axis=1))
    if 0 < cut.top_k < width:
        kept = np.minimum(kept, cut.top_k)
    kept = np.maximum(kept, 1)
    sums = np.cumsum(listed, axis=1)
    total = sums[np.arange(len(kept)), kept - 1] + np.where(kept == width, rest, 0.0)
    if cut.top_p < 1:  # of what the others leave
        total = (cut.top_p - slack) * total
        reached = sums >= total[:, None]
        kept = np.minimum(kept, np.where(reached.any(axis=1), reached.argmax(axis=1) + 1, width))
    return kept, total


def surely_kept(listed: FloatArray, least: FloatArray, cut: Cut, slack: float, others: int) -> npt.NDArray[np.int64]:
    """How many of the listed tokens, best first, the request's cut keeps whatever the lists leave open, shape (N,).
    `least`: what those that are not listed weigh together at least."""
    width = listed.shape[1]
    if cut.min_p > 0:
        least = np.zeros_like(least)  # how much of the rest it leaves, the lists do not say
    if cut.top_k:
        least = least * min(1.0, max(0, cut.top_k - width) / others)
    return _kept(listed, least, cut, slack)[0]


def shows_cut(draws: Draws, temperature: float, cut: Cut) -> npt.NDArray[np.bool_]:
    """Positions at whose lists it is known what the request's cut keeps, however likely the tokens are that they leave
    out, shape (N,)."""
    if cut == Cut():
        return np.ones(len(draws), dtype=np.bool_)
    listed, least, most = weights_at(draws, temperature)
    width = listed.shape[1]
    fewest = surely_kept(listed, least, cut, 0.0, draws.others)
    kept, _ = _kept(listed, _of_rest(listed, np.full(len(listed), width), most, cut), cut)
    return np.asarray((kept == fewest) & (_of_rest(listed, kept, most, cut) == 0))


def shares_kept(shares: FloatArray, drawn: npt.NDArray[np.bool_], cut: Cut) -> FloatArray:
    """Of the shares of listed tokens, (T, K), those that the request's cut leaves. `drawn`: tokens that were drawn,
    which it did not cut off."""
    if cut == Cut() or not shares.size:
        return shares
    ordered = -np.sort(-shares, axis=1)
    best = np.maximum(ordered[:, :1], 1e-300)
    kept, _ = _kept(ordered / best, np.zeros(len(shares)), cut)
    least = np.take_along_axis(ordered, kept[:, None] - 1, 1)
    left = np.where((shares >= least) | drawn, shares, 0.0)
    return np.asarray(left / np.maximum(sums_of_rows(left)[:, None], 1e-300), dtype=np.float64)


class Beyond(Struct, frozen=True):
    """What lists leave out, at most, over the best token's logit as the penalties leave it; nats, shape (T,)."""

    mass: FloatArray
    """Log of the weight of all of these tokens together."""
    each: FloatArray
    """Of the likeliest of them."""

    def weight(self, temperature: float, others: int) -> FloatArray:
        """Of all of them at a temperature, where they are so many, at most."""
        power = 1.0 / temperature
        if power >= 1.0:
            found = self.mass + (power - 1.0) * np.minimum(self.each, self.mass)
        else:
            found = np.minimum((1.0 - power) * np.log(others) + power * self.mass, np.log(others) + power * self.each)
        return np.asarray(np.exp(np.minimum(found, 300.0)), dtype=np.float64)


def beyond(top: TopLogprobs, lists: TopLogprobs, raised: FloatArray) -> Beyond:
    """top: raw logprobs; lists: the same as the penalties leave them; raised: nats by which these raise a token that is
    not listed, at most, (T,)."""
    raw = logs_listed(top)[: len(lists)]
    best = np.where((lists.ids >= 0) & np.isfinite(lists.values), lists.values, -np.inf)
    rest = np.clip(1.0 - sums_of_rows(np.exp(raw)), 0.0, 1.0)
    last = np.where(np.isfinite(raw), raw, 0.0).min(axis=1, initial=0.0)
    off = raised - np.maximum(best.max(axis=1, initial=-np.inf), _LEAST)
    return Beyond(np.log(rest + _SURE) + off, last + off)


def cut_within(
    lists: TopLogprobs, left_out: Beyond, places: TokenIds, width: int, temperature: float, cut: Cut, others: int
) -> npt.NDArray[np.bool_]:
    """Places at which the request's cut keeps none but the `width` best, and the same of these, whatever is not listed
    weighs, shape of `places`."""
    if cut.top_p >= 1:  # the others look at one token, or at how many there are
        return np.ones(len(places), dtype=np.bool_)
    logs = -np.sort(-logs_listed(lists)[places], axis=1)
    weights = np.exp((logs - logs[:, :1]) / temperature)
    listed = weights[:, :width]
    rest = sums_of_rows(weights[:, width:]) + left_out.weight(temperature, others)[places]
    if cut.top_k:
        rest = np.where((listed > 0).sum(axis=1) >= cut.top_k, 0.0, rest)
    return np.asarray(_kept(listed, rest, cut)[0] == _kept(listed, np.zeros(len(listed)), cut)[0])


def _of_rest(listed: FloatArray, kept: npt.NDArray[np.int64], rest: FloatArray, cut: Cut) -> FloatArray:
    """What the cut leaves of the rest's weight, at most."""
    width = listed.shape[1]
    if cut.top_k:
        rest = np.minimum(rest, max(0, cut.top_k - width) * listed[:, -1])
    return np.where((kept < width) | (listed[:, -1] < cut.min_p), 0.0, rest)


def most_likely(draws: Draws, temperature: float, cut: Cut) -> FloatArray:
    """Log of the largest probability that each drawn token may have had, shape (N,)."""
    listed, least, most = weights_at(draws, temperature)
    whole, row, width = sums_of_rows(listed), np.arange(len(draws)), listed.shape[1]
    if cut.min_p > 0:
        least = np.zeros_like(least)  # how much of the rest it leaves, the lists do not say
    if cut.top_k:
        least = least * min(1.0, max(0, cut.top_k - width) / draws.others)
    fewest, weight = _kept(listed, least, cut, CUT_SLACK)
    if cut.top_k:
        most = np.minimum(most, max(1, cut.top_k - width) * listed[:, -1])
    # A token that is kept keeps all better ones with it.
    column = np.minimum(draws.drawn, width - 1)
    sharing = np.maximum(np.cumsum(listed, axis=1)[row, np.maximum(column, fewest - 1)], weight)
    with np.errstate(divide="ignore", invalid="ignore"):  # servers write -9999 for a token that cannot come
        of_rest = np.log(most) - np.log(whole + most)
        of_listed = np.log(listed[row, column]) - np.log(sharing)
    logs = np.where(draws.drawn == width, of_rest, of_listed)
    return np.asarray(np.clip(np.nan_to_num(logs, nan=0.0, neginf=_LEAST), _LEAST, 0.0), dtype=np.float64)


def most_likely_of(draws: Draws, own: FloatArray, temperature: float, cut: Cut) -> FloatArray:
    """`most_likely`, where the logprob of each drawn token is known: `own`, (N,). Of those that are none of the best it
    says more than that they are among the others."""
    logs = most_likely(draws, temperature, cut)
    listed, least, _ = weights_at(draws, temperature)
    weight = np.exp((np.minimum(own, 0.0) - draws.logs[:, 0]) / temperature)
    others = np.maximum(least, weight) if cut == Cut() else weight
    with np.errstate(divide="ignore"):
        of_rest = np.log(weight) - np.log(sums_of_rows(listed) + others)
    return np.where(draws.drawn == listed.shape[1], np.minimum(logs, of_rest), logs)


def logs_of(top: TopLogprobs, tokens: TokenIds) -> FloatArray:
    """What each list says of a token, shape (T,) of the shorter; minus infinity where it is not listed."""
    length = min(len(tokens), len(top))
    is_it = top.ids[:length] == tokens[:length, None]
    return np.asarray(
        np.where(is_it, logs_listed(top)[:length], -np.inf).max(axis=1, initial=-np.inf), dtype=np.float64
    )


def least_likely(draws: Draws, temperature: float, cut: Cut) -> FloatArray:
    """Log of the smallest probability that each drawn token may have had, shape (N,): minus infinity where it is not
    listed, or a cut-off may have left it out. What is left out makes the others likelier."""
    listed, _, most = weights_at(draws, temperature)
    fewest, _ = _kept(listed, np.zeros_like(most), cut, CUT_SLACK)
    column = np.minimum(draws.drawn, listed.shape[1] - 1)
    chance = listed[np.arange(len(draws)), column] / (sums_of_rows(listed) + most)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.where(draws.drawn < fewest, chance, 0.0)), dtype=np.float64)


def drawn_from(draws: Draws, temperature: float, cut: Cut) -> FloatArray:
    """Weights of the listed tokens and of the rest at a temperature and cut-off, with the middle of what the rest may
    weigh, shape (N, K + 1)."""
    listed, least, most = weights_at(draws, temperature)
    rest = _middle(least, most)
    if cut == Cut():
        return np.concatenate([listed, rest[:, None]], axis=1)
    kept, _ = _kept(listed, _of_rest(listed, np.full(len(listed), listed.shape[1]), rest, cut), cut)
    rest = _of_rest(listed, kept, rest, cut)
    width = listed.shape[1]
    return np.concatenate([np.where(np.arange(width) < kept[:, None], listed, 0.0), rest[:, None]], axis=1)


def likelihood(draws: Draws, temperature: float, cut: Cut) -> FloatArray:
    """Log of the probability of each drawn token at a temperature (`drawn_from`); (N,)."""
    weights = drawn_from(draws, temperature, cut)
    with np.errstate(divide="ignore"):
        return np.asarray(
            np.log(weights[np.arange(len(draws)), draws.drawn]) - np.log(sums_of_rows(weights)), dtype=np.float64
        )


def winnings(many: Sequence[Draws], asked: float, cut: Cut) -> Iterator[tuple[list[int], FloatArray]]:
    """What each other temperature wins at each position of completions that asked for the same, some completions at a
    time: (their rows in `many`, nats of shape (A, N) in the order of `others_than`, their positions one after the
    other). Those without lists are left out."""
    return of_winnings(many, asked, cut, lambda rows, won: (rows, won), alone)


def of_winnings(
    many: Sequence[Draws], asked: float, cut: Cut, look: Callable[[list[int], FloatArray], R], spread: Spread
) -> Iterator[R]:
    """What `look` makes of each of the `winnings`."""
    rows = [row for row, one in enumerate(many) if len(one) and one.logs.shape[1] >= 2]
    listed = [many[row] for row in rows]

    def of_some(some: slice) -> R:
        return look(rows[some], _won(joined(listed[some]), asked, cut))

    return of_parts(list(portions(listed)), of_some, spread)


def bet(won: FloatArray, asked: float) -> Bet | None:
    """The mean over all other temperatures, and over the places from which on they may be in force, of what they win at
    the positions of one completion, shape (A, N); None where too few tokens have lists."""
    if won.shape[1] < FEWEST:
        return None
    starts = np.arange(0, won.shape[1] - FEWEST + 1, PIECE)
    logs = np.cumsum(won[:, ::-1], axis=1)[:, ::-1][:, starts]
    plain = 1 + (1.0 in others_than(asked))
    logs += np.log(_shared(len(won), plain, ON_PLAIN))[:, None] + np.log(_shared(len(starts), 1, FROM_FIRST))
    most = float(logs.max())
    return Bet(most + float(np.log(np.exp(logs - most).sum())), int(starts[int(logs.max(axis=0).argmax())]))


def _shared(count: int, first: int, each: float) -> FloatArray:
    """Shares of a stake, of which each of the `first` has so much."""
    if count <= first:
        return np.full(count, 1.0 / count)
    return np.array([*[each] * first, *[(1.0 - first * each) / (count - first)] * (count - first)])


def others_than(asked: float) -> list[float]:
    """The temperatures that are bet on: GREEDY, 1 where that is another one, and factors of the one asked for."""
    plain = [GREEDY, *([1.0] if abs(asked - 1) > 0.1 else [])]
    return [*plain, *sorted({asked * factor for factor in FACTORS} - set(plain))]


def bets(many: Sequence[Draws], asked: float, cut: Cut, spread: Spread = alone) -> list[Bet | None]:
    """The bets on completions that asked for the same; None where too few tokens have lists."""

    def look(rows: list[int], won: FloatArray) -> list[tuple[int, Bet | None]]:
        ends = np.cumsum([len(many[row]) for row in rows]).tolist()
        return [(row, bet(won[:, a:b], asked)) for row, a, b in zip(rows, [0, *ends], ends, strict=False)]

    result: list[Bet | None] = [None] * len(many)
    for some in of_winnings(many, asked, cut, look, spread):
        for row, made in some:
            result[row] = made
    return result


def looks_like(draws: Draws, cut: Cut) -> float:
    """The temperature under which the tokens are likeliest; 0 is greedy."""
    fits = [float(np.maximum(likelihood(draws, one, cut), _LEAST).sum()) for one in SHOWN]
    found = SHOWN[int(np.argmax(fits))]
    return 0.0 if found == GREEDY else found


def _won(draws: Draws, asked: float, cut: Cut) -> FloatArray:
    """What each other temperature wins at each position (nats), shape (A, N)."""
    others = others_than(asked)
    if cut == Cut():
        return _won_uncut(draws, asked, others)
    allowed = most_likely(draws, asked, cut)
    # What the asked temperature makes possible stays possible: one odd token does not lose the bet.
    hedge = np.log(HEDGE) + likelihood(draws, asked, cut)
    return np.stack(
        [
            np.maximum(np.logaddexp(np.log(1 - HEDGE) + likelihood(draws, other, cut), hedge), _LEAST)
            - allowed
            - ENOUGH
            for other in others
        ]
    )


def _won_uncut(draws: Draws, asked: float, others: Sequence[float]) -> FloatArray:
    """The same where nothing is cut off."""
    row, (listed, least, most) = np.arange(len(draws)), weights_at(draws, asked)
    whole, own = sums_of_rows(listed), _among(listed)
    fewest, largest = least / (whole + least), most / (whole + most)
    found = np.empty((len(others), len(draws)))
    for number, other in enumerate(others):
        listed, least, most = weights_at(draws, other)
        rest = _middle(least, most)
        share = rest / (sums_of_rows(listed) + rest)
        known = np.clip(np.clip(share, fewest, largest), _NEVER, 1.0 - _NEVER)
        ratio = _among(listed) / own
        ratio *= ((1.0 - HEDGE) * (1.0 - share) / (1.0 - known))[:, None]
        ratio += HEDGE
        of_rest = (1.0 - HEDGE) * share / known + HEDGE
        squares = (1.0 - known) * np.einsum("nk,nk,nk->n", own, ratio, ratio) + known * of_rest * of_rest
        noise = np.log1p(NOISE * np.sqrt(np.maximum(squares - 1.0, 0.0)))
        column = np.minimum(draws.drawn, listed.shape[1] - 1)
        won = np.log(np.where(draws.drawn < listed.shape[1], ratio[row, column], of_rest))
        found[number] = np.maximum(won - np.minimum(ENOUGH, noise), _LEAST)
    return found


def _among(listed: FloatArray) -> FloatArray:
    """Probabilities of the listed tokens, were there no others, (N, K); none too small to divide by."""
    return np.asarray(np.maximum(listed / sums_of_rows(listed)[:, None], np.exp(_LEAST)), dtype=np.float64)


def _middle(least: FloatArray, most: FloatArray) -> FloatArray:
    """Of what the rest may weigh."""
    return np.asarray(np.sqrt(np.maximum(least, most * 1e-6) * most), dtype=np.float64)
