"""Justification: does the reference support each token that the candidate chose?

In greedy decoding a token is justified when its logprob under the reference, which saw exactly the tokens
before it, lies within the tolerance of the best token's. The score of a completion (teacher-forced with
speculation off) answers that for every position; without it each side's own logprobs answer it for the first
divergent token only, because up to there both sides saw the same text.

Source of the rule: `check_first_divergence` in vLLM's tests/v1/e2e/general/async_scheduling_utils.py, which
also bounds a token outside the top-k by the k-th.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from parity.records import Json, TokenIds, TopLogprobs

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

SMALLEST_TOLERANCE = 0.0625
"""Nats. Half a step of a bf16 logit between 16 and 32: below it, equal logits round apart."""

FLOOR_HEADROOM = 1.5
"""`--tolerance auto` allows this times the largest gap of the baseline's own tokens: a maximum over a few
thousand tokens understates the maximum over the next few thousand."""


PENALTY_REACH = 5.0
"""Nats that a penalty is allowed to take off a token seen before: a repetition penalty of 1.2 takes a sixth off a
logit, and logits stay below 30."""


@dataclass(frozen=True, slots=True)
class Opinion:
    """What the reference says of the T tokens of one completion; arrays of shape (T,), nats.

    gap: best logprob minus the chosen token's, 0 where the chosen token is the best; NaN where unknown.
    bounded: the chosen token was not among the listed ones, `gap` is only a lower bound.
    """

    gap: FloatArray
    bounded: BoolArray
    best_id: npt.NDArray[np.int64]
    best: FloatArray
    chosen: FloatArray

    def unjustified(self, tolerance: float) -> BoolArray:
        with np.errstate(invalid="ignore"):
            return np.asarray(self.gap > tolerance)

    def unknown(self, tolerance: float) -> BoolArray:
        """Positions on which the reference has no say: nothing listed, or a bound that decides nothing."""
        return np.isnan(self.gap) | (self.bounded & ~self.unjustified(tolerance))

    def at(self, position: int) -> dict[str, Json]:
        """The numbers of one position, for evidence."""
        return {
            "gap": _number(self.gap[position]),
            "gap_is_lower_bound": bool(self.bounded[position]),
            "best_token": int(self.best_id[position]),
            "best_logprob": _number(self.best[position]),
            "chosen_logprob": _number(self.chosen[position]),
        }


def _number(value: float) -> float | None:
    return round(float(value), 4) if np.isfinite(value) else None


def opinion(top: TopLogprobs, token_ids: TokenIds, penalised: TokenIds | None = None) -> Opinion:
    """The reference's opinion of `token_ids` (T,), from its top tokens per position.

    Positions that the logprobs do not cover are unknown. Values above zero or NaN are no logprobs and are
    left out.

    `penalised` is given where the engine applied a repetition, presence or frequency penalty, which raw logprobs
    do not show: the tokens penalised from the start (the prompt's, for a repetition penalty; else none). A
    penalty only pushes tokens down that were seen before, so the chosen token must still be about as good as
    the best token *not* seen before; it may lie below a seen one.
    """
    length = len(token_ids)
    covered = min(length, len(top))
    if not covered or not top.ids.shape[1]:
        return Opinion(
            gap=np.full(length, np.nan),
            bounded=np.zeros(length, dtype=np.bool_),
            best_id=np.full(length, -1, dtype=np.int64),
            best=np.full(length, np.nan),
            chosen=np.full(length, np.nan),
        )
    ids, values = top.ids[:covered], top.values[:covered]
    is_chosen = ids == token_ids[:covered, None]
    logprobs = np.where(values <= 1e-3, values, -np.inf)  # NaN fails the test
    rivals = logprobs
    if penalised is not None:
        # Where every listed token was seen before, the chosen one is its own only rival.
        rivals = np.where(_seen_before(ids, token_ids[:covered], penalised) & ~is_chosen, -np.inf, logprobs)
    column = rivals.argmax(axis=1)
    rows = np.arange(covered)
    best = rivals[rows, column]
    own = np.where(is_chosen, logprobs, -np.inf).max(axis=1)
    listed = is_chosen.any(axis=1)
    if not listed.all():
        # A chosen token that is not listed is at most as likely as the last one listed.
        own[~listed] = np.where(np.isneginf(logprobs[~listed]), np.inf, logprobs[~listed]).min(axis=1)
    with np.errstate(invalid="ignore"):
        gap = best - own
        if penalised is not None:
            # Below a token seen before by more than a penalty can take off is no work of a penalty.
            gap = np.maximum(gap, logprobs.max(axis=1) - own - PENALTY_REACH)
    best_id = ids[rows, column]
    nothing = np.isneginf(best)
    if nothing.any():
        gap, best = np.where(nothing, np.nan, gap), np.where(nothing, np.nan, best)
        best_id = np.where(nothing, -1, best_id)
    chosen = np.where(listed, own, np.nan)
    result = Opinion(gap, ~listed & ~nothing, best_id, best, chosen)
    if covered == length:
        return result
    missing = length - covered
    return Opinion(
        np.concatenate([result.gap, np.full(missing, np.nan)]),
        np.concatenate([result.bounded, np.zeros(missing, dtype=np.bool_)]),
        np.concatenate([result.best_id, np.full(missing, -1, dtype=np.int64)]),
        np.concatenate([result.best, np.full(missing, np.nan)]),
        np.concatenate([result.chosen, np.full(missing, np.nan)]),
    )


def gap_of_other(
    top: TopLogprobs | None, position: int, token_id: int, penalised: TokenIds | None = None
) -> tuple[float, bool] | None:
    """How far `token_id` lies below the best token in the list of one position (nats).

    `penalised`: all tokens that a penalty pushes down at this position; they are no rivals.

    (gap, exact); with exact False the token is not listed and the gap is a lower bound. None: no list there.
    """
    if top is None or position >= len(top):
        return None
    ids, values = top.ids[position], top.values[position]
    usable = values <= 1e-3
    if penalised is not None:
        usable = usable & (~np.isin(ids, penalised) | (ids == token_id))
    if not usable.any():
        return None
    best = float(values[usable].max())
    here = usable & (ids == token_id)
    if here.any():
        return best - float(values[here].max()), True
    return best - float(values[usable].min()), False


def _seen_before(ids: npt.NDArray[np.int64], token_ids: TokenIds, penalised: TokenIds) -> BoolArray:
    """For ids of shape (T, K): does the id stand in `penalised` or before position t in token_ids?"""
    known, first = np.unique(token_ids, return_index=True)
    place = np.searchsorted(known, ids)
    place_in = np.minimum(place, len(known) - 1)
    earliest = np.where(known[place_in] == ids, first[place_in], len(token_ids))
    seen = earliest < np.arange(len(token_ids))[:, None]
    return np.asarray(seen | np.isin(ids, penalised))


@dataclass(frozen=True, slots=True)
class Floor:
    """How far the baseline's own tokens lie below the best token when scored: the noise of the method."""

    tokens: int
    largest: float
    mean: float
    share_flat: float
    """Share of positions where the five best tokens lie within the default tolerance: there, nearly any
    token is justified and a fault cannot be seen."""

    def to_json(self) -> dict[str, Json]:
        return {
            "tokens": self.tokens,
            "largest_gap": round(self.largest, 4),
            "mean_gap": round(self.mean, 6),
            "share_of_flat_positions": round(self.share_flat, 4),
        }


def measure_floor(scored: Iterable[tuple[Opinion, TopLogprobs]], tolerance: float) -> Floor | None:
    """The floor from the baseline's own completions and their scores; None without any."""
    tokens, total, largest, flat = 0, 0.0, 0.0, 0
    for view, top in scored:
        known = view.gap[np.isfinite(view.gap)]
        tokens += len(known)
        if not len(known):
            continue
        total += float(known.sum())
        largest = max(largest, float(known.max()))
        if top.values.shape[1] >= 5:
            ordered = np.sort(np.where(np.isnan(top.values), -np.inf, top.values), axis=1)[:, ::-1]
            with np.errstate(invalid="ignore"):
                flat += int((ordered[:, 0] - ordered[:, 4] <= tolerance).sum())
    return Floor(tokens, largest, total / tokens, flat / tokens) if tokens else None


def automatic_tolerance(floor: Floor) -> float:
    """The tolerance that the measured floor asks for (nats)."""
    return max(SMALLEST_TOLERANCE, FLOOR_HEADROOM * floor.largest)
