"""Would it be found? Faults tried on a run's own completions and scores, to say what a clean run excludes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from parity.comparator.reference.temperature import logs_listed
from parity.records import Completion, TokenIds, TopLogprobs

STRETCH: Final = 8
"""Wrong tokens in a row."""

TRIED: Final = 256
"""Completions that are tried."""


def random_tokens_seen(
    completions: Sequence[Completion],
    distribution: Callable[[Completion], TopLogprobs | None],
    is_found: Callable[[Completion, TopLogprobs], bool],
    vocab_size: int | None,
) -> float:
    """The share of completions in which STRETCH random tokens would be found, at a place drawn with a fixed seed.

    distribution: what a completion was drawn from, None where nothing says it. is_found: would these tokens be found,
    by these lists? Only the tokens change, not what an engine would have said after them: real garbage shows rather
    more.
    """
    rng = np.random.default_rng(0)
    long_enough = [one for one in completions if len(one.token_ids) >= STRETCH]
    tried = long_enough[:: max(1, len(long_enough) // TRIED)]
    found = 0
    for one in tried:
        top = distribution(one)
        if top is None or len(top) != len(one.token_ids):
            continue
        place = int(rng.integers(0, len(one.token_ids) - STRETCH + 1))
        wrong = rng.integers(0, vocab_size or 200_000, size=STRETCH)
        tokens = np.concatenate([one.token_ids[:place], wrong, one.token_ids[place + STRETCH :]])
        found += is_found(replace(one, token_ids=tokens), with_entries(top, tokens, vocab_size))
    return found / len(tried) if tried else 0.0


def with_entries(top: TopLogprobs, tokens: TokenIds, vocab_size: int | None) -> TopLogprobs:
    """Lists of T positions with an entry for each of these T tokens: one that is not listed has its share of the mass
    that is left."""
    values = logs_listed(top)
    rest = np.clip(1 - np.exp(values).sum(axis=1), 1e-9, 1.0)
    share = np.log(rest / max(1, (vocab_size or 200_000) - top.ids.shape[1]))
    listed = (top.ids == tokens[:, None]).any(axis=1)
    ids = np.concatenate([top.ids, np.where(listed, -1, tokens)[:, None]], axis=1)
    return TopLogprobs(ids, np.concatenate([values, np.where(listed, -np.inf, share)[:, None]], axis=1))
