"""Without a score: what the arms' own lists say of the token where they part."""

from __future__ import annotations

import math

import numpy as np
from msgspec import Struct

from parity.comparator.reference.gaps import EXACT, TokenGaps, bounds_instead, no_gaps
from parity.comparator.reference.own_logprobs import has_own
from parity.comparator.reference.shaping import Shaping
from parity.comparator.reference.tolerance import DOUBT
from parity.records import Completion


class AtDivergence(Struct, frozen=True):
    """What the arms' own lists say of the token where they part; of all others nothing."""

    gaps: TokenGaps
    is_the_others: bool
    """The gap is that of the baseline's token, in the candidate's list."""
    is_at_most: bool
    """The gap is the largest that the penalties allow: beyond the tolerance, and the smallest is within it."""


def gaps_at_divergence(
    baseline: Completion,
    candidate: Completion,
    position: int,
    tolerance: float,
    shaping: Shaping,
) -> AtDivergence | None:
    """Without a score: both sides' own logprobs, at the first divergent token alone.

    The baseline's list there is what the score would be: the text before it is the same. Where the baseline
    gave none, or one too short to say, the candidate's own list says whether it saw the baseline's token as a
    near-tie, and the gap is that token's. None when neither says anything, nor where both have one raw
    logprob of the baseline's token: what parts them then is what either made of its penalties.
    """
    length = len(candidate.token_ids)
    if position >= length or position >= len(baseline.token_ids):
        return None
    chosen, other = int(candidate.token_ids[position]), int(baseline.token_ids[position])
    penalised, said = shaping.penalised(candidate), candidate.token_ids[:position]
    for source, token, own in ((baseline, chosen, other), (candidate, other, chosen)):
        lists = source.lists if has_own(source) else None
        view = bounds_instead(lists, position, token, said, penalised, own=own)
        if lists is None or view is None:
            continue
        least, most = view
        is_exact = most <= least + EXACT
        # Little below for certain: nothing that the other list leaves out says otherwise.
        is_little = source is baseline and most <= DOUBT * tolerance
        is_at_most = is_little and not is_exact and least <= tolerance < most
        if is_little:
            least = most
        if not (is_exact or is_little or least > tolerance):
            continue
        if source is candidate and penalised is not None and least > tolerance:
            listed_by = (_listed(one, position, other) for one in (baseline, candidate))
            if abs(next(listed_by) - next(listed_by)) <= tolerance:
                continue
        result = no_gaps(length)
        result.gap[position], result.bounded[position] = max(0.0, least), most > least + EXACT
        result.most[position] = max(most, result.gap[position])
        ids, values = lists.ids[position], lists.values[position]
        column = int(np.nanargmax(np.where(values <= 1e-3, values, -np.inf)))
        result.best_id[position], result.best[position] = ids[column], values[column]
        listed = values[ids == chosen]
        if len(listed):
            result.chosen[position] = listed[0]
        return AtDivergence(result, is_the_others=source is candidate, is_at_most=is_at_most)
    return None


def _listed(completion: Completion, position: int, token: int) -> float:
    """The raw logprob of a token in the completion's own list there; NaN where that does not name it."""
    top = completion.logprobs
    if top is None or not has_own(completion):
        return math.nan
    found = top.values[position][top.ids[position] == token]
    return float(found[0]) if len(found) else math.nan
