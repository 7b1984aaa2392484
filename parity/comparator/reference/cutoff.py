"""How far beyond its request's cut-off (top_k, top_p, min_p) does a drawn token lie, by the reference?

In nats by which the reference's logits would have to be off for the token to have been allowed: rounding moves them by
hundredths. What the lists do not name counts for the token.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from parity.comparator.inputs.numbers import LARGE_VOCABULARY
from parity.comparator.reference.drawn_lists import Cut
from parity.comparator.reference.isolated import MOST
from parity.comparator.statistics import FloatArray
from parity.comparator.sums import sums_of_rows
from parity.records import TokenIds, TopLogprobs

STEPS = (0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 3.0, 4.0)
"""Nats that are tried for top_p, whose sums have no such distance of their own."""


def beyond(
    top: TopLogprobs,
    tokens: TokenIds,
    tempered: Collection[float],
    cut: Cut,
    vocab_size: int | None = None,
    given: FloatArray | None = None,
) -> FloatArray:
    """Nats for each of `tokens` (T,): 0 for a token that is allowed, or of which the lists do not say it.

    `tempered`: the temperatures of the logits that are cut off, of which the smallest figure counts. An engine cuts off
    after it has applied the temperature (vLLM), or before (llama.cpp: 1).
    given: the engine's own logprobs of the tokens (T,), NaN where there are none. A token to which the engine gave more
    than the reference does was drawn from other logits, which is no matter of a cut-off.
    """
    length = min(len(tokens), len(top))
    result = np.zeros(len(tokens))
    if not length or not top.ids.shape[1]:
        return result
    ids, values = top.ids[:length], top.values[:length]
    usable = np.isfinite(values) & (ids >= 0)
    logs = np.where(usable, np.minimum(values, 0.0), -np.inf)
    is_own = ids == tokens[:length, None]
    own = np.where(is_own, logs, -np.inf).max(axis=1)
    if given is not None:
        own = np.where(np.isfinite(own), np.fmin(np.fmax(own, given[:length]), own + MOST), own)
    rivals = np.where(is_own, -np.inf, logs)
    unlisted = max(1, (vocab_size or LARGE_VOCABULARY) - ids.shape[1])
    found = np.minimum.reduce([_beyond(own, rivals, one, cut, unlisted) for one in tempered])
    result[:length] = np.where(np.isfinite(own), found, 0.0)
    return result


def _beyond(own: FloatArray, rivals: FloatArray, temperature: float, cut: Cut, unlisted: int) -> FloatArray:
    """`own`: logprob of the drawn tokens (T,); `rivals`: those of the others that are listed (T, K); `unlisted`: how
    many are not."""
    far = np.zeros(len(own))
    with np.errstate(invalid="ignore"):
        if 0 < cut.top_k <= rivals.shape[1]:
            last = -np.sort(-rivals, axis=1)[:, cut.top_k - 1]
            far = np.maximum(far, last - own)
        if cut.min_p > 0:
            far = np.maximum(far, rivals.max(axis=1) - own + temperature * np.log(cut.min_p))
        if cut.top_p < 1:
            far = np.maximum(far, _beyond_top_p(own, rivals, 1.0 / temperature, cut.top_p, unlisted))
    return np.where(np.isfinite(far), far, 0.0)


def _beyond_top_p(own: FloatArray, rivals: FloatArray, power: float, top_p: float, unlisted: int) -> FloatArray:
    """A token is kept unless those that are likelier reach top_p without it. What is not listed weighs as much as it
    can: at low temperatures gathered at the last rank, at high ones spread over all tokens."""
    rest = np.clip(1.0 - sums_of_rows(np.exp(rivals)) - np.exp(own), 0.0, 1.0)
    best = np.maximum(rivals.max(axis=1), own)
    listed = np.where(np.isfinite(rivals), rivals, np.inf).min(axis=1)
    last = np.minimum(np.where(np.isfinite(listed), listed, own), best)
    with np.errstate(divide="ignore", invalid="ignore"):
        if power >= 1.0:
            others = np.log(rest) + (power - 1.0) * last
        else:
            others = np.log(unlisted) + power * np.minimum(np.log(rest) - np.log(unlisted), last)
        weights = np.exp((rivals - best[:, None]) * power)
        whole = sums_of_rows(weights) + np.exp((own - best) * power) + np.exp(others - best * power)
    far = np.zeros(len(own))
    wanted = np.log(top_p) - np.log1p(-top_p)
    for step in STEPS:
        above = sums_of_rows(np.where(rivals > own[:, None] + step, weights, 0.0)) / whole
        with np.errstate(divide="ignore"):
            odds = np.log(above) - np.log1p(-np.minimum(above, 1.0 - 1e-12))
        far = np.where(odds - wanted >= step * power, step, far)
    return far
