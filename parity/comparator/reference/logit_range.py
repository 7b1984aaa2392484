"""Where the logits of a run lie, by what its own baseline chose under a repetition penalty.

A repetition penalty takes off a share of the logit. Each token that the baseline chose says something of how much that
was: one seen before and still chosen, that it was not more; one not seen before and better only so, that it was not
less. The range is where log(sum(exp(logits))) lies by a normal distribution fitted to these answers, every fit
that they do not contradict included: few answers make it wide.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from parity.comparator.reference.penalties import ANY_LOGIT, FloatArray, Penalised, penalise
from parity.records import TokenIds, TopLogprobs

CENTRES = np.linspace(2.0, 60.0, 117)
WIDTHS = np.array([0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0])
"""Logits, and standard deviations of them, that are tried."""

WORSE = 5.0
"""Nats of likelihood by which a fit may be worse than the best one and still be taken for possible."""

SPREAD = 4.0
"""Widths at either side of the centre that the range covers."""

ENOUGH = 4000
"""Answers looked at."""

FAR = 50.0
"""Nats beyond all centres from which answers say the same, however far they are."""

GRAIN = 0.1
"""Nats to which answers are rounded: a fifth of the narrowest width, and hundreds of values instead of thousands."""


def logit_range(said: Iterable[tuple[TopLogprobs, TokenIds, Penalised]]) -> tuple[float, float]:
    """From tokens that the baseline chose and their lists; ANY_LOGIT where they say nothing."""
    least, most, count = [], [], 0
    for top, tokens, penalised in said:
        if penalised.penalties.repetition <= 1.0 or not len(tokens):
            continue
        low, high = bounds(top, tokens, penalised)
        least.append(low[np.isfinite(low)])
        most.append(high[np.isfinite(high)])
        count += len(least[-1]) + len(most[-1])
        if count > ENOUGH:
            break
    if not count:
        return ANY_LOGIT
    return _fitted(np.concatenate(least), np.concatenate(most))


def bounds(top: TopLogprobs, tokens: TokenIds, penalised: Penalised) -> tuple[FloatArray, FloatArray]:
    """(at least, at most), shape (T,): what each choice says of log(sum(exp(logits))); infinite where nothing."""
    length = min(len(tokens), len(top))
    ids, values, tokens = top.ids[:length], top.values[:length], tokens[:length]
    seen = penalised.seen(ids, tokens)
    share = 1.0 - 1.0 / penalised.penalties.repetition
    # With a normaliser of 0 and logits above it, scores are logprobs divided; the rest is `share` times the normaliser.
    is_chosen = ids == tokens[:, None]
    usable = values <= 1e-3
    additive, _ = penalise(np.where(usable, values, -np.inf), seen, penalised.additive, 0.0)
    at_zero = np.where(seen.repeated, additive - (values + seen.bias) * share, additive)
    own = np.where(is_chosen & usable, at_zero, -np.inf).max(axis=1, initial=-np.inf)
    own_seen = (is_chosen & seen.repeated).any(axis=1)
    with np.errstate(invalid="ignore"):
        rival_seen = np.where(usable & seen.repeated & ~is_chosen, at_zero, -np.inf).max(axis=1, initial=-np.inf)
        rival_new = np.where(usable & ~seen.repeated & ~is_chosen, at_zero, -np.inf).max(axis=1, initial=-np.inf)
        low = np.where(~own_seen, (rival_seen - own) / share, -np.inf)
        high = np.where(own_seen, (own - rival_new) / share, np.inf)
    low = np.where(np.isfinite(low) & (low > 0) & np.isfinite(own), low, -np.inf)
    return low, np.where(np.isfinite(high) & np.isfinite(own), high, np.inf)


def _fitted(low: FloatArray, high: FloatArray) -> tuple[float, float]:
    """The range by a normal distribution, of which each answer says on which side a value of it lies."""
    centre, width = CENTRES[:, None, None], WIDTHS[None, :, None]
    total = np.zeros((len(CENTRES), len(WIDTHS)))
    for answers, sign in ((low, 1.0), (high, -1.0)):
        near = np.clip(answers, CENTRES[0] - FAR, CENTRES[-1] + FAR)
        rounded, counts = np.unique(np.round(near / GRAIN) * GRAIN, return_counts=True)
        for begin in range(0, len(rounded), 256):
            some = slice(begin, begin + 256)
            total += np.log(_tail(sign * (rounded[some] - centre) / width)) @ counts[some]
    possible = total >= total.max() - WORSE
    where = np.nonzero(possible)
    least = float((CENTRES[where[0]] - SPREAD * WIDTHS[where[1]]).min())
    most = float((CENTRES[where[0]] + SPREAD * WIDTHS[where[1]]).max())
    return max(ANY_LOGIT[0], least), min(ANY_LOGIT[1], most)


def _tail(value: FloatArray) -> FloatArray:
    """P(a standard normal one is above `value`), never less than one answer in 100 being wrong allows."""
    # Within 1 % of the true value: a logistic curve of a cubic (Page 1977).
    with np.errstate(over="ignore"):
        return 0.01 + 0.98 / (1.0 + np.exp(np.clip(1.5976 * value + 0.070566 * value**3, -50, 50)))
