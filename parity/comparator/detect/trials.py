"""Would it be found? Faults tried on a run's own completions and scores, to say what a clean run excludes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from parity.comparator.inputs.numbers import LARGE_VOCABULARY
from parity.comparator.reference.drawn_lists import logs_listed
from parity.comparator.shared_out import of_each
from parity.comparator.sums import sums_of_rows
from parity.comparator.types import Spread, alone
from parity.records import Completion, TokenIds, TopLogprobs

STRETCH: Final = 8
"""Wrong tokens in a row."""

TRIED: Final = 256
"""Completions that are tried."""

FLATTEST: Final = 1e-6
"""Nats between a token of a tail and the next, at least: a list may end with one that is next to impossible."""


def random_tokens_seen(
    completions: Sequence[Completion],
    distribution: Callable[[Completion], TopLogprobs | None],
    is_found: Callable[[Completion, TopLogprobs], bool],
    vocab_size: int | None,
    spread: Spread = alone,
) -> float:
    """The share of completions in which STRETCH random tokens would be found, at a place drawn with a fixed seed.

    distribution: what a completion was drawn from, None where nothing says it. is_found: would these tokens be found,
    by these lists? Only the tokens change, not what an engine would have said after them: real garbage shows rather
    more.
    """

    def put(one: Completion, rng: np.random.Generator) -> TokenIds | None:
        place = int(rng.integers(0, len(one.token_ids) - STRETCH + 1))
        wrong = rng.integers(0, vocab_size or LARGE_VOCABULARY, size=STRETCH)
        return np.concatenate([one.token_ids[:place], wrong, one.token_ids[place + STRETCH :]])

    long_enough = [one for one in completions if len(one.token_ids) >= STRETCH]
    return _seen(long_enough, put, distribution, is_found, vocab_size, spread)


def early_ends_seen(
    completions: Sequence[Completion],
    end_of: Callable[[Completion], int | None],
    distribution: Callable[[Completion], TopLogprobs | None],
    is_found: Callable[[Completion, TopLogprobs], bool],
    vocab_size: int | None,
    spread: Spread = alone,
) -> float:
    """The same of an end token (`end_of`; None: the request has none) put at such a place, after which nothing
    follows."""

    def put(one: Completion, rng: np.random.Generator) -> TokenIds | None:
        place, end = int(rng.integers(0, len(one.token_ids))), end_of(one)
        return None if end is None else np.append(one.token_ids[:place], end)

    return _seen([one for one in completions if len(one.token_ids)], put, distribution, is_found, vocab_size, spread)


def _seen(
    completions: Sequence[Completion],
    put: Callable[[Completion, np.random.Generator], TokenIds | None],
    distribution: Callable[[Completion], TopLogprobs | None],
    is_found: Callable[[Completion, TopLogprobs], bool],
    vocab_size: int | None,
    spread: Spread,
) -> float:
    """Of some of the completions, the share whose fault would be found. put: the tokens with the fault."""
    rng = np.random.default_rng(0)
    tried = completions[:: max(1, len(completions) // TRIED)]
    known = [(one, top) for one in tried if (top := distribution(one)) is not None and len(top) == len(one.token_ids)]
    faults = [(one, top, tokens) for one, top in known if (tokens := put(one, rng)) is not None]

    def is_seen(fault: tuple[Completion, TopLogprobs, TokenIds]) -> bool:
        one, top, tokens = fault
        lists = with_entries(top.part(stop=len(tokens)), tokens, vocab_size)
        return is_found(replace(one, token_ids=tokens), lists)

    return sum(of_each(faults, is_seen, spread)) / len(tried) if tried else 0.0


def with_entries(top: TopLogprobs, tokens: TokenIds, vocab_size: int | None) -> TopLogprobs:
    """Lists of T positions with an entry for each of these T tokens: one that is not listed has its share of the mass
    that is left."""
    values = logs_listed(top)
    rest = np.clip(1 - sums_of_rows(np.exp(values)), 1e-9, 1.0)
    share = np.log(rest / max(1, (vocab_size or LARGE_VOCABULARY) - top.ids.shape[1]))
    listed = (top.ids == tokens[:, None]).any(axis=1)
    ids = np.concatenate([top.ids, np.where(listed, -1, tokens)[:, None]], axis=1)
    return TopLogprobs(ids, np.concatenate([values, np.where(listed, -np.inf, share)[:, None]], axis=1))


def drawn_again(top: TopLogprobs, temperature: float, rng: np.random.Generator) -> tuple[TokenIds, TopLogprobs]:
    """Tokens drawn from these lists at this temperature (T,), with nothing cut off, and the lists with an entry for
    each. One beyond them has an id that no vocabulary has.

    What is not listed has its mass in a tail in which each token is likelier than the next by the same factor: text has
    longer ones, so that a token of it lies no farther below the last that is listed than it would.
    """
    values = logs_listed(top)
    last = np.where(np.isfinite(values), values, np.inf).min(axis=1, initial=0.0)
    with np.errstate(divide="ignore"):
        rest = np.log(np.clip(1 - sums_of_rows(np.exp(values)), 1e-9, 1.0))
        falls = np.minimum(rest - np.logaddexp(rest, last), -FLATTEST)  # nats from one token of the tail to the next
        beyond = last / temperature - np.log(np.expm1(-falls / temperature))
        weights = np.column_stack([values / temperature, beyond])
        taken = (weights + rng.gumbel(size=weights.shape)).argmax(axis=1)
    at, count = np.arange(len(top)), values.shape[1]
    ranks = rng.geometric(-np.expm1(falls / temperature))
    inside = taken < count
    ids = np.column_stack([top.ids, np.full(len(top), np.iinfo(np.int32).max)])
    tokens = ids[at, taken]
    own = np.where(inside, -np.inf, last + falls * ranks)
    return tokens, TopLogprobs(np.column_stack([top.ids, np.where(inside, -1, tokens)]), np.column_stack([values, own]))
