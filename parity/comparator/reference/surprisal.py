"""How surprising drawn tokens are to the reference (temperature above 0), and stretches that no sampler draws.

Every p-value is conservative; those of stretches are adjusted for all windows of all completions (Bonferroni).
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from parity.comparator.inputs.numbers import LARGE_VOCABULARY
from parity.comparator.reference.drawn_lists import logs_listed
from parity.comparator.reference.listed import untold
from parity.comparator.reference.penalties import Penalised, as_chosen, few_raised
from parity.comparator.statistics import FloatArray, gamma_tail
from parity.comparator.sums import sums_of_rows
from parity.records import DEFAULT_TOLERANCE, TokenIds, TopLogprobs

WINDOWS = (1, 2, 4, 8, 16, 32)
"""Lengths of the stretches looked at, in tokens."""

SLACK = 0.1
"""Nats by which another backend may see a token as less likely without a fault; taken off each token."""

COLD = 0.2
"""Temperature below which noise of the logits decides: a token that rounding puts first may have e**-10 for its chance
at 0.02."""

COLDEST = 0.01
"""The least that engines divide by: vLLM takes a lower one for this."""

ORDINARY = 3.0
"""Nats of surprisal that one drawn token in twenty has."""

RARE = 4.6
"""Nats of surprisal that a sampler gives to one token in a hundred: next to a stretch that no sampler draws, such a
token belongs to it."""

HABIT = 0.05
"""p-value of the baseline's own tokens by its own lists, below which these are not what it drew from."""

MOST = 30.0
"""Nats of surprisal that count at most for one token in a mean: a token that is not listed has no bound of its own."""


class Unlikely(Struct, frozen=True):
    """A stretch of a sampled completion that the reference's distribution does not explain."""

    position: int
    length: int
    p_value: float
    """Chance of such a stretch anywhere in the run (adjusted for every window looked at)."""


def tail_logs(
    top: TopLogprobs,
    tokens: TokenIds,
    temperature: float,
    vocab_size: int | None,
    penalised: Penalised | None = None,
) -> FloatArray:
    """log of an upper bound on P(a token at most as likely as the chosen one), shape (T,).

    For a token really drawn from the reference at this temperature, P(tail <= x) <= x: a conservative p-value.
    top_p, top_k and min_p only leave out tokens less likely than those drawn, so the bound holds under them too.
    The mass that is not listed is bounded by what is left of 1 and by the number of tokens there are.
    NaN where the score does not list the chosen token, or no logprob of it.

    `penalised`: what the request's penalties do to the lists, where those show it exactly (`shows_penalties`).
    """
    length = min(len(tokens), len(top))
    result = np.full(len(tokens), np.nan)
    if not length or not top.ids.shape[1]:
        return result
    ids, listed = top.ids[:length], logs_listed(top)[:length]
    rest = np.clip(1.0 - sums_of_rows(np.exp(listed)), 0.0, 1.0)
    few = None
    if penalised is not None:
        recorded = None if top.logsumexp is None else top.logsumexp[:length]
        chosen_from = as_chosen(ids, listed, recorded, tokens[:length], penalised)
        if chosen_from is None:
            raise ValueError("the lists do not show what the penalties leave of them")
        listed, raised = chosen_from
        few = few_raised(ids, penalised)
        rest = rest * np.exp(raised) if few is None else rest
    is_chosen = ids == tokens[:length, None]
    chosen = np.where(is_chosen, listed, -np.inf).max(axis=1)
    power = 1.0 / temperature
    vocabulary = float(vocab_size or LARGE_VOCABULARY)
    # All of it over the best one's weight: a large bias at a low temperature makes weights that no float holds.
    most = listed.max(axis=1)
    most = np.where(np.isfinite(most), most, 0.0)
    weights = np.exp((listed - most[:, None]) * power)
    total = sums_of_rows(weights)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        if power >= 1:
            unlisted = rest * np.exp((chosen - most) * (power - 1) - most)
        else:
            unlisted = vocabulary ** (1 - power) * rest**power * np.exp(-most * power)
        if few is not None:  # of those in the tail each is at most as likely as the chosen one
            unlisted = unlisted + few * np.exp((chosen - most) * power)
        unlisted = np.minimum(unlisted, vocabulary * np.exp((chosen - most) * power))
        lower = sums_of_rows(np.where(listed <= chosen[:, None], weights, 0.0))
        logs = np.log(np.minimum(1.0, (lower + unlisted) / total))
    nothing = ~is_chosen.any(axis=1) | untold(ids, top.values[:length] < np.inf, tokens[:length])
    result[:length] = np.where(np.isneginf(chosen) & nothing, np.nan, logs)
    return result


def slack_at(temperature: float) -> float:
    """SLACK, and at low temperatures what the tolerance of greedy decoding is there."""
    return SLACK + DEFAULT_TOLERANCE * max(0.0, 1.0 / temperature - 1.0 / COLD)


def shows_penalties(top: TopLogprobs, penalised: Penalised) -> bool:
    """Do these lists say exactly what the penalties leave of them?"""
    return len(penalised.normalisers(top.logsumexp, len(top))) == 1


def mean_surprisal(logs: FloatArray) -> float:
    """Nats per token of a completion by its tail_logs: at most 1 on average for tokens that were drawn; NaN without."""
    known = -logs[np.isfinite(logs) | np.isneginf(logs)]
    return float(np.minimum(known, MOST).mean()) if len(known) else float("nan")


def find_unlikely(logs: FloatArray, windows_in_run: int, alpha: float, slack: float = SLACK) -> list[Unlikely]:
    """Stretches of one completion whose chance, over the whole run, is below alpha; by position.

    `slack`: nats taken off each token's surprisal.
    """
    surprisal = np.clip(np.nan_to_num(-logs, nan=0.0, posinf=1e4) - slack, 0.0, 1e4)
    found: list[Unlikely] = []
    remaining = surprisal.copy()
    for _ in range(4):
        best: Unlikely | None = None
        sums = np.concatenate([[0.0], np.cumsum(remaining)])
        for size in WINDOWS:
            if size > len(remaining):
                break
            window = sums[size:] - sums[:-size]
            at = int(window.argmax())
            p_value = min(1.0, gamma_tail(size, float(window[at])) * windows_in_run)
            if p_value < alpha and (best is None or p_value < best.p_value):
                first, end = _core(remaining, at, at + size)
                best = Unlikely(first, end - first, p_value)
        if best is None:
            break
        found.append(best)
        remaining[best.position : best.position + best.length] = 0.0
    return _joined(found)


def _core(surprisal: FloatArray, begin: int, end: int) -> tuple[int, int]:
    """Where in a window the unlikely tokens are: the part with the most surprisal above ORDINARY a token, grown over
    rare tokens at either side."""
    best, first, last, total, start = -np.inf, begin, end, 0.0, begin
    for place in range(begin, end):
        if total <= 0:
            total, start = 0.0, place
        total += float(surprisal[place]) - ORDINARY
        if total > best:
            best, first, last = total, start, place + 1
    while first > 0 and surprisal[first - 1] > RARE:
        first -= 1
    while last < len(surprisal) and surprisal[last] > RARE:
        last += 1
    return first, last


def _joined(found: list[Unlikely]) -> list[Unlikely]:
    joined: list[Unlikely] = []
    for one in sorted(found, key=lambda item: item.position):
        if joined and one.position - (joined[-1].position + joined[-1].length) <= 8:
            before = joined[-1]
            end = one.position + one.length
            joined[-1] = Unlikely(before.position, end - before.position, min(before.p_value, one.p_value))
        else:
            joined.append(one)
    return joined
