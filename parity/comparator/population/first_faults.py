"""The first fault of each completion: what comes after it in the same completion mostly follows from it."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from parity.comparator.stats import FirstFault
from parity.records import RUN, Capture, Key, Severity
from parity.records.first_faults import FOLLOWS, Fault, followed
from parity.records.many_findings import Placed


def first_faults(findings: Iterable[Placed]) -> Mapping[str, int]:
    """Completions by the kind of their first fault, the most frequent first; a finding about the run counts by itself.

    Which one is the first: `parity.records.first_faults`.
    """
    corrupt = [one for one in findings if one.severity is Severity.CORRUPT]
    places = followed([Fault(None if one.request == RUN else one.key, one.kind, one.position) for one in corrupt])
    counted = Counter(str(one.kind) for one, after in zip(corrupt, places, strict=True) if after != FOLLOWS)
    return most_frequent_first(counted)


PLACES: Final = 64
"""Corrupt completions whose places are kept: enough to see whether arms go wrong at the same ones."""


def first_places(corrupt: Iterable[Placed], candidate: Capture) -> tuple[FirstFault, ...]:
    """The first place of each corrupt completion, of PLACES at most: those that come first by their names, which are
    the same ones in every arm."""
    first: dict[Key, int] = {}
    for one in corrupt:
        if one.request != RUN:
            place = -1 if one.position is None else one.position
            first[one.key] = min(place, first.get(one.key, place))
    return tuple(_place(key, first[key], candidate) for key in heapq.nsmallest(PLACES, first))


def _place(key: Key, position: int, candidate: Capture) -> FirstFault:
    made = candidate.completions.get(key)
    there = made is not None and 0 <= position < len(made.token_ids)
    return FirstFault(
        request=key.request,
        round=key.round,
        sample=key.sample,
        position=None if position < 0 else position,
        token=int(made.token_ids[position]) if made is not None and there else None,
    )


def most_frequent_first(counts: Mapping[str, int]) -> Mapping[str, int]:
    """Kinds with their numbers, the most frequent first."""
    return dict(sorted(counts.items(), key=lambda one: (-one[1], one[0])))
