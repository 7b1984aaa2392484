"""The tokens of a pair that lie beyond the tolerance, where nothing but these says that something is wrong."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from parity.comparator.detect.cases import Case
from parity.comparator.detect.events import Event
from parity.comparator.reference.gaps import FloatArray, TokenGaps
from parity.comparator.reference.residuals import chosen_logprobs
from parity.records import Kind

STRONG_ANCHOR = 24
STRONG_CHUNK = 8
"""A chunk of STRONG_CHUNK tokens lost or repeated, with agreement of STRONG_ANCHOR after it, is a shape that a few
tokens little beyond the tolerance do not explain away. Without a reference it proves nothing: where a model may leave a
sentence out or say it again, a near-tie makes the same shape."""


class Beyond(Struct, frozen=True):
    """Tokens beyond the tolerance: where, nats below the best, by how much the engine's own logprobs lie above the
    scores (NaN: unknown), and nats below the best without the penalties that the request asks for, shape (N,)."""

    places: npt.NDArray[np.int64]
    gaps: FloatArray
    residuals: FloatArray
    raw: FloatArray


def beyond_alone(case: Case, tolerance: float, *, by_shape: bool = True, most: float = math.inf) -> Beyond | None:
    """The tokens beyond the tolerance, where nothing but these says that something is wrong.

    None where a length says the same, a long chunk is lost or stands twice with long agreement after it (`by_shape`),
    or a token lies at an unknown distance (but where nothing is scored), or more than `most` nats below the best.
    """
    places = rejected_alone(case, tolerance, by_shape=by_shape)
    if places is None:
        return None
    return measured(case, places, most=most, known=by_shape or case.from_scores)


def rejected_alone(case: Case, tolerance: float, *, by_shape: bool) -> list[int] | None:
    """Where the tokens of `beyond_alone` stand, in order: at least one."""
    gaps, events = case.gaps, case.events
    if gaps is None or not events:
        return None
    shown = is_shown_otherwise if by_shape else _length_says_so
    if not all(_may_be_doubted(event) and not shown(event) for event in events):
        return None
    beyond: set[int] = set()
    for event in _first_hand(events, gaps, tolerance, unknown=not (by_shape and case.from_scores)):
        part = event.places(len(gaps.gap))
        over = case.rejected(part.start, part.stop, tolerance)
        if not over:
            return None
        beyond.update(over)
    return sorted(beyond)


def measured(case: Case, places: Sequence[int], *, most: float = math.inf, known: bool = True) -> Beyond | None:
    """The tokens at these places; None where one lies at a distance that is not `known`, or more than `most` nats below
    the best (looked at first, for most faults are so)."""
    gaps = case.gaps
    if gaps is None or max(map(gaps.gap.item, places)) > most:
        return None
    if known and bool(np.isinf(gaps.most[places]).any()):
        return None
    own = np.full(len(places), np.nan) if case.b.logprobs is None else chosen_logprobs([case.b])[places]
    raw = gaps.best[places] - gaps.chosen[places]
    return Beyond(np.array(places), gaps.gap[places], own - gaps.chosen[places], raw)


def _first_hand(events: Sequence[Event], gaps: TokenGaps, tolerance: float, *, unknown: bool) -> Sequence[Event]:
    """Without an end that the reference supports: what makes it odd are the tokens before it alone. `unknown`: nor one
    of which nothing says that it is not supported."""

    def follows(event: Event) -> bool:
        at = event.position
        if event.kind is not Kind.EARLY_STOP or event.length != 1 or at >= len(gaps.gap):
            return False
        return bool(gaps.gap[at] <= tolerance or (unknown and np.isnan(gaps.gap[at])))

    return [one for one in events if not follows(one)] or events


def _may_be_doubted(event: Event) -> bool:
    return (event.kind.row.may_be_doubted or event.by_gap) and not event.by_rule


def is_shown_otherwise(event: Event) -> bool:
    """Does something else than the gaps of its tokens speak for it?"""
    long = event.length >= STRONG_CHUNK and event.agrees_after >= STRONG_ANCHOR
    return _length_says_so(event) or (long and not event.is_ambiguous)


def _length_says_so(event: Event) -> bool:
    return event.is_corroborated
