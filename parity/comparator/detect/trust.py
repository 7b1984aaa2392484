"""Habits of the engines that a run's own baseline shows: what their lists are."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from parity.comparator.detect.logprobs import logprob_mismatch
from parity.comparator.reference.own_logprobs import own_gaps, own_rejections
from parity.comparator.reference.scores import Reference
from parity.comparator.statistics import fisher_more
from parity.comparator.streams.pairing import Pairs
from parity.records import Capture, Completion

CALIBRATION = 256
"""Completions of the baseline looked at to learn a habit of the engine."""

LISTS_LOOKED_AT = 32
"""Completions of the baseline whose own logprobs are compared with their scores."""


OTHERWISE = 1e-4
"""p-value below which one arm takes the best token of its raw lists more often than the other."""

RAW_TIE = 0.02
"""Nats by which a chosen token may lie below the best of its own raw list: lists that are rounded have ties."""


OWN_REJECTED, FEW = 0.5, 2
"""Share of the baseline's completions, and the least number, whose own lists put a token that it chose far below the
best: it is not what greedy decoding chooses from them. One by itself may be a fault."""


def rejects_own(baseline: Capture, reference: Reference, tolerance: float) -> tuple[int, int] | None:
    """Of how many of the baseline's completions the own lists reject a token, and how many have lists, where these
    lists cannot be what it chose the best token of. A capture that names no temperature is one of greedy decoding."""
    lists = list(islice(baseline.listing(), CALIBRATION))
    some = sum(own_rejections(one, None, 0, tolerance, reference.shaping(one)) is not None for one in lists)
    return (some, len(lists)) if some >= max(FEW, OWN_REJECTED * len(lists)) else None


def lists_show_choices(
    baseline: Capture, candidate: Capture, reference: Reference, tolerance: float, *, plain: bool
) -> bool:
    """Does a token below the best of the engine's own list show a fault?

    Greedy decoding takes the best. An engine whose lists are not what it chose from (penalties, bias, bad
    words) shows that in the baseline as well. `plain`: no penalties were asked for.
    """
    lists = list(islice(baseline.listing(), CALIBRATION))
    if any(own_rejections(one, None, 0, tolerance, reference.shaping(one)) is not None for one in lists):
        return False
    return plain or (bool(lists) and not _alone_takes_the_best(lists, islice(candidate.listing(), CALIBRATION)))


def _alone_takes_the_best(baseline: Iterable[Completion], candidate: Iterable[Completion]) -> bool:
    """Under penalties: is each of the baseline's tokens the best of its raw list, where the candidate's are not? Then
    nothing shows that the penalties decided what the baseline chose: it ignored them, or lists what it chose from."""
    (off, tokens), (others, of_others) = (_off_the_best(arm) for arm in (baseline, candidate))
    return off == 0 and fisher_more(others, of_others, off, tokens) < OTHERWISE


def _off_the_best(completions: Iterable[Completion]) -> tuple[int, int]:
    """(tokens that are not the best of their own list, tokens)."""
    off = tokens = 0
    for one in completions:
        if (own := own_gaps(one)) is not None:
            off += int((own.gap > RAW_TIE).sum())
            tokens += len(own.gap)
    return off, tokens


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
