"""Does another request's text explain a drawn completion? A likelihood ratio, with a mean of at most 1 where not.

For tokens that were drawn after their own prompt, the product of `probability after the other text / probability after
the own one` has a mean of at most 1, whatever the two distributions are, so it exceeds 1/a with a chance of at most a
(Markov's inequality; Grünwald, de Heide, Koolen 2024, Safe Testing). Lists name the best tokens and the chosen one:
where they leave something open, the own probability is taken as large and the other one as small as it can be.
"""

from __future__ import annotations

import math

import numpy as np
from msgspec import Struct

from parity.comparator.reference.drawn_lists import Cut, draws_of, listed_width
from parity.comparator.reference.own_logprobs import LIKELY
from parity.comparator.reference.surprisal import WINDOWS, find_unlikely, tail_logs
from parity.comparator.reference.temperature import ENOUGH, FEWEST, most_likely_of, weights_at
from parity.comparator.statistics import FloatArray
from parity.comparator.sums import sums_of_rows
from parity.records import TokenIds, TopLogprobs

LITTLE = 1e-3
"""Stands for a probability, or a variance, of nothing."""

LEAST = -50.0
"""Log of the least probability of a token after the other text: what is not listed there has no bound of its own."""

EXPLAINED = 0.001
"""p-value of the least likely stretch after the other text, below which that text does not explain the tokens."""


NEARER = 0.95
"""Share of the tokens whose own logprobs are nearer to the other text's, where they are of that."""


class Asked(Struct, frozen=True):
    """What a request asked of the sampler."""

    temperature: float
    cut: Cut


def log_won(
    own: TopLogprobs, other: TopLogprobs, tokens: TokenIds, asked: tuple[Asked, Asked], vocab_size: int | None
) -> float:
    """Log of the ratio for `tokens` (T,), both lists of T entries; `asked`: of their own request and of the other.

    ENOUGH nats are taken off each token for the rounding of the engine that drew.
    """
    most = _bounds(own, tokens, asked[0], vocab_size)[1]
    least = _bounds(other, tokens, asked[1], vocab_size)[0]
    return float((least - most - ENOUGH).sum())


def log_over_blind(other: TopLogprobs, tokens: TokenIds, asked: Asked, vocab_size: int | None) -> float:
    """Log of the same ratio against tokens drawn blindly from the whole vocabulary; inf where its size is not known.

    Garbage is unlikely after any text, and likeliest after the one that leaves most open: it is nobody's.
    """
    if vocab_size is None:
        return math.inf
    return float((_bounds(other, tokens, asked, vocab_size)[0] + math.log(vocab_size)).sum())


def excess(top: TopLogprobs, tokens: TokenIds, temperature: float) -> float:
    """How much less likely drawn tokens are than tokens drawn there are usually: standard deviations of the sum."""
    draws, places = draws_of(top, tokens, listed_width([top], [tokens]), None)
    if not len(places) or not draws.logs.shape[1]:
        return 0.0
    # What is not listed counts as one token of about the last one's weight: this is to compare rows, not to judge them.
    logs = np.concatenate([draws.logs, np.minimum(draws.logs[:, -1:], np.log(draws.rest + LITTLE)[:, None])], axis=1)
    weights = np.exp((logs - logs[:, :1]) / temperature)
    weights[:, -1] = np.exp(-draws.logs[:, 0] / temperature) * (draws.rest + LITTLE) ** (1 / max(temperature, 1.0))
    chance = weights / sums_of_rows(weights)[:, None]
    logs = logs / temperature
    mean = sums_of_rows(chance * logs)
    spread = sums_of_rows(chance * logs * logs) - mean * mean
    drawn = np.maximum(_chosen(top, tokens)[places], LEAST) / temperature
    return float((mean - drawn).sum() / np.sqrt(np.maximum(spread, 0.0).sum() + LITTLE))


def explains(other: TopLogprobs, tokens: TokenIds, temperature: float, vocab_size: int | None) -> bool:
    """Are `tokens` what a sampler draws after the other text, from the first to the last?"""
    logs = tail_logs(other, tokens, temperature, vocab_size)
    return not np.isnan(logs).any() and not find_unlikely(logs, len(tokens) * len(WINDOWS), EXPLAINED)


def _bounds(top: TopLogprobs, tokens: TokenIds, asked: Asked, vocab_size: int | None) -> tuple[FloatArray, FloatArray]:
    """(least, most) log probability of each drawn token, shape (T,)."""
    least, most = np.full(len(tokens), LEAST), np.zeros(len(tokens))
    draws, places = draws_of(top, tokens, listed_width([top], [tokens]), vocab_size)
    if not len(places):
        return least, most
    chosen = _chosen(top, tokens)[places]
    listed, _, rest = weights_at(draws, asked.temperature)
    whole = sums_of_rows(listed)
    own = (chosen - draws.logs[:, 0]) / asked.temperature
    least[places] = np.maximum(own - np.log(whole + rest), LEAST)
    most[places] = most_likely_of(draws, chosen, asked.temperature, asked.cut)
    return least, most


def _chosen(top: TopLogprobs, tokens: TokenIds) -> FloatArray:
    """The logprob of each token in its list, -inf where it is not there."""
    usable = (top.ids[: len(tokens)] == tokens[:, None]) & np.isfinite(top.values[: len(tokens)])
    return np.asarray(np.where(usable, np.minimum(top.values[: len(tokens)], 0.0), -np.inf).max(axis=1))


def residual(said: TopLogprobs, top: TopLogprobs, tokens: TokenIds) -> float | None:
    """How far an engine's own logprobs of `tokens` (T,) lie from these scores: the root of the mean square, nats, where
    both are known and one holds the token for likely; None for fewer than FEWEST."""
    own, score = _chosen(said, tokens), _chosen(top, tokens)
    known = np.isfinite(own) & np.isfinite(score) & (np.maximum(own, score) > LIKELY)
    if known.sum() < FEWEST:
        return None
    return float(np.sqrt(np.mean((own[known] - score[known]) ** 2)))


def residual_sizes(said: TopLogprobs, top: TopLogprobs, tokens: TokenIds) -> FloatArray:
    """How far own logprobs of `tokens` lie from their scores, nats, where both are known and one is likely."""
    own, score = _chosen(said, tokens), _chosen(top, tokens)
    known = np.isfinite(own) & np.isfinite(score) & (np.maximum(own, score) > LIKELY)
    return np.abs(own[known] - score[known])


def set_apart(said: TopLogprobs, own: TopLogprobs, other: TopLogprobs, tokens: TokenIds, sizes: FloatArray) -> float:
    """Log of the evidence that an engine's own logprobs of `tokens` (T,) are those after the other text.

    For those after the own one, a token's lies nearer to the other score only where its residual is half as large as
    the two scores are apart, as `sizes` of the run (ascending) are so often: each token is a bet with a mean of at most
    1.
    """
    stated, here, there = (_chosen(one, tokens) for one in (said, own, other))
    known = np.isfinite(stated) & np.isfinite(here) & np.isfinite(there) & (np.maximum(here, there) > LIKELY)
    stated, here, there = stated[known], here[known], there[known]
    beyond = len(sizes) - np.searchsorted(sizes, np.abs(here - there) / 2)
    chance = (1.0 + beyond) / (1.0 + len(sizes))
    tells = chance < 1 - NEARER
    nearer = np.abs(stated - there) < np.abs(stated - here)
    won = np.where(nearer, np.log(NEARER / chance), np.log((1 - NEARER) / (1 - np.minimum(chance, 0.5))))
    return float(won[tells].sum())
