"""Tokens of a drawn completion that stand twice in a row, where no sampler says them again by chance.

That the next tokens are the very ones just said has the product of their probabilities for its chance, whatever came
before. So a copy whose chance times the copies looked at in the run is below alpha is no chance (Bonferroni). A loop
that the model itself falls into is likely to it, and proves nothing.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from msgspec import Struct

from parity.comparator.reference.drawn_lists import Cut, logs_listed
from parity.comparator.reference.listed import untold
from parity.comparator.statistics import FloatArray
from parity.comparator.sums import sums_of_rows
from parity.records import TokenIds, TopLogprobs

LENGTHS: Final = (*range(1, 17), 24, 32)
"""Tokens of the chunks looked at: those of a step with drafts, and blocks."""


def chance_logs(top: TopLogprobs, tokens: TokenIds, temperature: float, cut: Cut) -> FloatArray:
    """log of an upper bound of each token's probability, shape (T,); NaN where the list does not hold it, or no logprob
    of it. Of a request without penalties: what is listed makes the others no likelier than this, and a cut-off keeps so
    much at least."""
    length = min(len(tokens), len(top))
    result = np.full(len(tokens), np.nan)
    if not length or not top.ids.shape[1]:
        return result
    listed = logs_listed(top)[:length]
    is_chosen = top.ids[:length] == tokens[:length, None]
    most = listed.max(axis=1)
    most = np.where(np.isfinite(most), most, 0.0)
    weights = -np.sort(-np.exp((listed - most[:, None]) / temperature), axis=1)
    within = weights[:, : cut.top_k] if cut.top_k else weights
    kept = np.minimum(cut.top_p * sums_of_rows(within), sums_of_rows(np.where(weights >= cut.min_p, weights, 0.0)))
    with np.errstate(divide="ignore", invalid="ignore"):
        chosen = np.where(is_chosen, listed, -np.inf).max(axis=1)
        logs = (chosen - most) / temperature - np.log(kept)
    known = is_chosen.any(axis=1) & ~untold(top.ids[:length], top.values[:length] < np.inf, tokens[:length])
    result[:length] = np.where(known, np.minimum(logs, 0.0), np.nan)
    return result


class Copied(Struct, frozen=True):
    """Tokens [position, position + length) are those that stand just before them."""

    position: int
    length: int
    p_value: float
    """Chance of such a copy anywhere in the run."""


def find_copy(tokens: TokenIds, logs: FloatArray, tokens_in_run: int, alpha: float, slack: float) -> Copied | None:
    """The least likely copy of one completion whose chance, over the whole run, is below alpha.

    logs: of an upper bound of each token's probability (`surprisal.tail_logs`), shape (T,), NaN where unknown. slack:
    nats taken off each token's surprisal.
    """
    surprisal = np.clip(np.nan_to_num(-logs, nan=0.0, posinf=1e4) - slack, 0.0, 1e4)
    sums = np.concatenate([[0.0], np.cumsum(surprisal)])
    needed = float(np.log(max(1, tokens_in_run) * len(LENGTHS) / alpha))
    best: Copied | None = None
    for length in LENGTHS:
        if 2 * length > len(tokens):
            break
        same = tokens[length:] == tokens[:-length]
        if np.count_nonzero(same) < length:
            continue
        equal = np.concatenate([[0], np.cumsum(same)])
        begins = length + np.flatnonzero(equal[length:] - equal[:-length] == length)
        if not len(begins):
            continue
        nats = sums[begins + length] - sums[begins]
        at = int(nats.argmax())
        if nats[at] > needed:
            p_value = float(np.exp(needed - nats[at])) * alpha
            if best is None or p_value < best.p_value:
                best = Copied(int(begins[at]), length, p_value)
    return best
