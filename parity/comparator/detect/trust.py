"""Habits of the engines that a run's own baseline shows: what their lists are."""

from __future__ import annotations

from itertools import islice

from parity.comparator.detect.logprobs import logprob_mismatch
from parity.comparator.reference.scores import Reference, own_rejections
from parity.comparator.streams.pairing import Pairs
from parity.records import Capture

CALIBRATION = 256
"""Completions of the baseline looked at to learn a habit of the engine."""

LISTS_LOOKED_AT = 32
"""Completions of the baseline whose own logprobs are compared with their scores."""


def lists_show_choices(baseline: Capture, reference: Reference, tolerance: float, *, plain: bool) -> bool:
    """Does a token below the best of the engine's own list show a fault?

    Greedy decoding takes the best. An engine whose lists are not what it chose from (penalties, bias, bad
    words) shows that in the baseline as well. `plain`: no penalties were asked for.
    """
    lists = list(islice(baseline.listing(), CALIBRATION))
    return (bool(lists) or plain) and not any(
        own_rejections(one, None, 0, tolerance, reference.shaping(one)) is not None for one in lists
    )


def scores_show_lists(arms: tuple[Capture, Capture], pairs: Pairs, reference: Reference) -> bool:
    """Are the engines' own logprobs of the kind that scores are? The baseline's say so, where it is scored as well:
    a temperature or another base of the logarithm in both arms is a habit, and no fault of the candidate."""
    baseline_arm, candidate_arm = (arm.header.arm for arm in arms)
    looked = wrong = 0
    if not (reference.scored(baseline_arm) or reference.scored(candidate_arm)):
        return True
    if not all(arm.has_logprobs for arm in arms):
        return True
    for row, a in enumerate(pairs.baseline):
        if looked == LISTS_LOOKED_AT:
            break
        if a.logprobs is None or pairs.candidate[row].logprobs is None:
            continue
        until = len(a.token_ids)
        view = reference.gaps(baseline_arm, a)
        if view is None:
            view = reference.gaps(candidate_arm, pairs.candidate[row])
            until = int(pairs.parts_at[row]) if pairs.parts_at[row] >= 0 else until
        if view is None or not until:
            continue
        looked += 1
        wrong += logprob_mismatch(a, view, until) is not None
    return wrong * 2 <= looked
