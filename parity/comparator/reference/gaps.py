"""Justification: does the reference support each token that the candidate chose?

In greedy decoding a token is justified when its logprob under the reference, which saw exactly the tokens
before it, lies within the tolerance of the best token's. The score of a completion (teacher-forced with
speculation off) answers that for every position; without it each side's own logprobs answer it for the first
divergent token only, because up to there both sides saw the same text.

Source of the rule: `check_first_divergence` in vLLM's tests/v1/e2e/general/async_scheduling_utils.py, which
also bounds a token outside the top-k by the k-th.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from parity.records import Json, TokenIds, TopLogprobs

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

BATCH = 16_384
"""Tokens whose lists are looked at together: enough to make calls cheap, few enough to stay in the processor's
cache."""

PENALTY_REACH = 5.0
"""Nats that a penalty is allowed to take off a token seen before: a repetition penalty of 1.2 takes a sixth off a
logit, and logits stay below 30."""


@dataclass(frozen=True, slots=True)
class TokenGaps:
    """What the reference says of the T tokens of one completion; arrays of shape (T,), nats.

    gap: best logprob minus the chosen token's, 0 where the chosen token is the best; NaN where unknown.
    bounded: the chosen token was not among the listed ones, `gap` is only a lower bound.
    """

    gap: FloatArray
    bounded: BoolArray
    best_id: npt.NDArray[np.int64]
    best: FloatArray
    chosen: FloatArray

    def unsupported(self, tolerance: float) -> BoolArray:
        return np.asarray(self.gap > tolerance)

    def supports(self, position: int, tolerance: float) -> bool | None:
        """Is the token at `position` justified? None where the reference has no say."""
        gap = float(self.gap[position])
        if gap > tolerance:
            return False
        return None if gap != gap or self.bounded[position] else True

    def unknown(self, tolerance: float) -> BoolArray:
        """Positions on which the reference has no say: nothing listed, or a bound that decides nothing."""
        return np.isnan(self.gap) | (self.bounded & ~self.unsupported(tolerance))

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


def token_gaps(top: TopLogprobs, token_ids: TokenIds, penalised: TokenIds | None = None) -> TokenGaps:
    """The gaps of `token_ids` (T,), from the reference's top tokens per position.

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
        return TokenGaps(
            gap=np.full(length, np.nan),
            bounded=np.zeros(length, dtype=np.bool_),
            best_id=np.full(length, -1, dtype=np.int64),
            best=np.full(length, np.nan),
            chosen=np.full(length, np.nan),
        )
    result = _covered(top.ids[:covered], top.values[:covered], token_ids[:covered], penalised)
    if covered == length:
        return result
    missing = length - covered
    return TokenGaps(
        np.concatenate([result.gap, np.full(missing, np.nan)]),
        np.concatenate([result.bounded, np.zeros(missing, dtype=np.bool_)]),
        np.concatenate([result.best_id, np.full(missing, -1, dtype=np.int64)]),
        np.concatenate([result.best, np.full(missing, np.nan)]),
        np.concatenate([result.chosen, np.full(missing, np.nan)]),
    )


def batched_token_gaps(scored: Sequence[tuple[TopLogprobs, TokenIds]]) -> list[TokenGaps]:
    """`token_gaps` of many completions without penalties; the arrays are computed BATCH tokens at a time."""
    result: list[TokenGaps | None] = [None] * len(scored)
    by_width: dict[int, list[int]] = {}
    for row, (top, tokens) in enumerate(scored):
        if len(top) == len(tokens) and len(tokens) and top.ids.shape[1]:
            by_width.setdefault(top.ids.shape[1], []).append(row)
        else:
            result[row] = token_gaps(top, tokens)
    for rows in by_width.values():
        begin = 0
        while begin < len(rows):
            end, size = begin, 0
            while end < len(rows) and (end == begin or size + len(scored[rows[end]][1]) <= BATCH):
                size += len(scored[rows[end]][1])
                end += 1
            some = [scored[row] for row in rows[begin:end]]
            whole = _covered(
                np.concatenate([top.ids for top, _ in some]),
                np.concatenate([top.values for top, _ in some]),
                np.concatenate([tokens for _, tokens in some]),
                None,
            )
            at = 0
            for row, (_, tokens) in zip(rows[begin:end], some, strict=True):
                part = slice(at, at + len(tokens))
                result[row] = TokenGaps(
                    whole.gap[part], whole.bounded[part], whole.best_id[part], whole.best[part], whole.chosen[part]
                )
                at += len(tokens)
            begin = end
    return [one for one in result if one is not None]


def _covered(
    ids: npt.NDArray[np.int64], values: FloatArray, token_ids: TokenIds, penalised: TokenIds | None
) -> TokenGaps:
    """`token_gaps` where every token has an entry: ids and values of shape (T, K), K and T above 0."""
    length, width = ids.shape
    best, own = np.full(length, -np.inf), np.full(length, -np.inf)
    top_of_all = best
    best_id = np.full(length, -1, dtype=np.int64)
    listed = np.zeros(length, dtype=np.bool_)
    seen = None
    if penalised is not None:
        seen = _seen_before(ids, token_ids, penalised)
        top_of_all = best.copy()
    # Column by column: a reduction over K values a row costs numpy ten times as much.
    for column in range(width):
        usable = values[:, column] <= 1e-3  # NaN fails the test
        logprobs = np.where(usable, values[:, column], -np.inf)
        is_chosen = ids[:, column] == token_ids
        listed |= is_chosen
        np.maximum(own, logprobs, out=own, where=is_chosen)
        better = logprobs > best
        if seen is not None:
            # Where every listed token was seen before, the chosen one is its own only rival.
            np.maximum(top_of_all, logprobs, out=top_of_all)
            better &= ~seen[:, column] | is_chosen
        np.copyto(best, logprobs, where=better)
        np.copyto(best_id, ids[:, column], where=better)
    if not listed.all():
        # A chosen token that is not listed is at most as likely as the last one listed.
        usable_values = np.where(values[~listed] <= 1e-3, values[~listed], np.inf)
        own[~listed] = np.where(np.isneginf(usable_values), np.inf, usable_values).min(axis=1)
    with np.errstate(invalid="ignore"):
        gap = best - own
        if penalised is not None:
            # Below a token seen before by more than a penalty can take off is no work of a penalty.
            gap = np.maximum(gap, top_of_all - own - PENALTY_REACH)
    nothing = np.isneginf(best)
    if nothing.any():
        gap[nothing] = best[nothing] = np.nan
    chosen = own if listed.all() else np.where(listed, own, np.nan)
    return TokenGaps(gap, ~listed & ~nothing, best_id, best, chosen)


def gap_of_other(
    top: TopLogprobs | None,
    position: int,
    token_id: int,
    penalised: TokenIds | None = None,
    *,
    own: int | None = None,
) -> tuple[float, bool] | None:
    """How far `token_id` lies below the best token in the list of one position (nats).

    `penalised`: all tokens that a penalty pushes down at this position; they are no rivals. `own`: the token that the
    list was made for, which stands in it whatever its rank, so that others may lie between it and the rest.

    (gap, exact); with exact False the token is not listed and the gap is a lower bound. None: no list there.
    """
    if top is None or position >= len(top):
        return None
    ids, values = top.ids[position], top.values[position]
    if penalised is not None:
        values = np.where(np.isin(ids, penalised) & (ids != token_id), np.nan, values)
    # One short list: plain Python is faster than arrays here.
    usable = [
        (value, listed) for listed, value in zip(ids.tolist(), values.tolist(), strict=True) if -np.inf < value <= 1e-3
    ]
    if not usable:
        return None
    best = max(usable)[0]
    here = [value for value, listed in usable if listed == token_id]
    if here:
        return best - max(here), True
    ranked = [value for value, listed in usable if listed != own]
    return best - min(ranked, default=best), False


def _seen_before(ids: npt.NDArray[np.int64], token_ids: TokenIds, penalised: TokenIds) -> BoolArray:
    """For ids of shape (T, K): does the id stand in `penalised` or before position t in token_ids?"""
    known, first = np.unique(token_ids, return_index=True)
    place = np.searchsorted(known, ids)
    place_in = np.minimum(place, len(known) - 1)
    earliest = np.where(known[place_in] == ids, first[place_in], len(token_ids))
    seen = earliest < np.arange(len(token_ids))[:, None]
    return np.asarray(seen | np.isin(ids, penalised))
