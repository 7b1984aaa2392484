"""How likely was each drawn token at the step before, over how likely it may be at its own?

An engine that takes the logits of a step before draws tokens that fit there. What the list of that step says of a
token is known before the token is drawn, so this ratio is 1 on average at most where tokens were drawn as asked,
whatever came before: an e-value, and so are mixtures of it with 1 and their product over the tokens of a completion
(likelihood ratios as test martingales: Ville 1939; Grünwald, de Heide, Koolen 2024, Safe Testing). Only the drawn
token's own two logprobs count, not what else a list has.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from parity.comparator.reference.drawn_lists import Cut, Draws, logs_listed
from parity.comparator.reference.temperature import ENOUGH, most_likely_of, weights_at
from parity.comparator.statistics import FloatArray
from parity.comparator.sums import sums_of_rows
from parity.records import TokenIds, TopLogprobs

RATES = (0.02, 0.1, 0.4)
"""Shares of the steps that are taken for such ones; each has a third of the stake."""


class Won(Struct, frozen=True):
    """What the bet that some tokens of a completion were drawn at the step before won.

    log_won: log of an e-value. first, last: places of tokens that are likelier drawn there, and how many there are.
    """

    log_won: float
    first: int
    last: int
    count: int


def log_ratios(
    top: TopLogprobs, tokens: TokenIds, draws: Draws, places: TokenIds, temperature: float, cut: Cut
) -> FloatArray:
    """Logs of these ratios at the output's second token and all after it, shape (T - 1,). draws, places: of the
    positions that have lists (`draws_of`); minus infinity where the step before does not list a token, or
    too little is known."""
    length = min(len(tokens), len(top))
    found = np.full(max(0, length - 1), -np.inf)
    if length < 2 or not len(places):
        return found
    ids, values, chosen = top.ids[:length], logs_listed(top)[:length], tokens[:length, None]
    own = np.where(ids == chosen, values, -np.inf).max(axis=1)[places]
    said = np.where(ids[:-1] == chosen[1:], values[:-1], -np.inf).max(axis=1)
    own = most_likely_of(draws, own, temperature, cut)
    listed, _, most = weights_at(draws, temperature)
    # Of two positions in a row that have lists: the number of the second one among those that do.
    after = np.flatnonzero(np.diff(places) == 1) + 1
    first = places[after] - 1
    log_then = (said[first] - draws.logs[after - 1, 0]) / temperature - np.log((sums_of_rows(listed) + most)[after - 1])
    found[first] = log_then - own[after] - ENOUGH
    return found


def won(ratios: FloatArray) -> Won:
    """The bet on a completion. `ratios`: as of `log_ratios`."""
    rates = np.array(RATES)[:, None]
    each = np.logaddexp(np.log1p(-rates), np.log(rates) + ratios)
    logs = sums_of_rows(each)
    best = int(logs.argmax())
    at = np.flatnonzero(np.log(RATES[best]) + ratios > np.log1p(-RATES[best])) + 1
    first, last = (int(at[0]), int(at[-1])) if len(at) else (0, 0)
    return Won(float(np.logaddexp.reduce(logs) - np.log(len(RATES))), first, last, len(at))


def redrawn(top: TopLogprobs, tokens: TokenIds, temperature: float, every: int) -> tuple[TopLogprobs, TokenIds]:
    """The completion as if each `every`-th token had been drawn at the step before, from the listed ones alone, and its
    lists with an entry for each: of a token that its own list does not have, the most that this leaves for it. What an
    engine would have said after such a token is not known, and stays as it is. The same draws whenever it is asked.

    top: lists of K tokens at T places; what comes back has K + 1."""
    length = min(len(tokens), len(top))
    values = logs_listed(top)[:length]
    places = np.arange(every, length, every)
    places = places[np.isfinite(values[places - 1]).any(axis=1)]  # where a step lists nothing, nothing can be drawn
    reach = np.cumsum(
        np.exp((values[places - 1] - values[places - 1].max(axis=1, keepdims=True)) / temperature), axis=1
    )
    drawn = np.random.default_rng(length).random((len(places), 1)) * reach[:, -1:]
    changed = tokens[:length].copy()
    changed[places] = top.ids[places - 1, (reach <= drawn).sum(axis=1)]
    listed = (top.ids[:length] == changed[:, None]).any(axis=1)
    last = np.where(np.isfinite(values), values, 0.0).min(axis=1)
    rest = np.log(np.clip(1.0 - sums_of_rows(np.exp(values)), 1e-9, 1.0))
    ids = np.concatenate([top.ids[:length], np.where(listed, -1, changed)[:, None]], axis=1)
    most = np.where(listed, -np.inf, np.minimum(last, rest))
    return TopLogprobs(ids, np.concatenate([values, most[:, None]], axis=1)), changed
