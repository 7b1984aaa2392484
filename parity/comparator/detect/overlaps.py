"""Where several events explain the same tokens: which of them stands (columns of parity/records/kind_rows.py)."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from parity.comparator.detect.cases import Case, Detector, Setup, pair_by_pair
from parity.comparator.detect.events import Event

REACH = 3
"""Tokens after an event that it still explains."""


def without_overlaps(events: Iterable[Event]) -> tuple[Event, ...]:
    """The most specific event where several explain the same tokens."""
    kept: list[Event] = []
    for event in sorted(events, key=lambda one: one.kind.row.precedence):
        if any(other.kind is event.kind and other.position <= event.position < other.end for other in kept):
            continue
        covered = any(
            other.kind.row.explains_rest and other.position <= event.position < other.end + REACH for other in kept
        )
        if not (covered and event.kind.row.explained_away):
            kept.append(event)
    return tuple(kept)


def _look(case: Case, setup: Setup) -> Case:
    return case if len(case.events) < 2 else replace(case, events=without_overlaps(case.events))


DETECTOR = Detector(frozenset(), pair_by_pair(_look))
