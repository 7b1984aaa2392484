"""Whose tokens are those of a drawn completion that something is wrong with? Another request's that holds the very same
ones, else that whose text the scorer says they are of (`detect/donors.py`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache

import numpy as np
from msgspec.structs import replace

from parity.comparator.detect.events import Event
from parity.comparator.detect.leak import Donors, Leak, Query
from parity.comparator.detect.row_leaks import LONG, TAKEN_OVER, is_wrong_too, leaked, query_of
from parity.comparator.reference.gaps import BoolArray
from parity.comparator.statistics import FloatArray
from parity.records import Capture, Completion, Key, Kind
from parity.records.evidence import TemperatureEvidence
from parity.records.kinds import Stretch

Drawn = tuple[Completion, Event]

_SAYS = frozenset({Kind.LOGPROB_MISMATCH, Kind.EARLY_STOP, Kind.WRONG_TEMPERATURE})
"""Kinds that follow from tokens of another request, whatever these look like."""


Rare = Callable[[Completion], BoolArray | None]
"""Tokens of a completion that a sampler draws once in a hundred places or less, shape (T,); None: not known."""


def with_donors(
    events: Sequence[Drawn], donors: Callable[[], Donors], foreign: Mapping[Key, Event], candidate: Capture, rare: Rare
) -> list[Drawn]:
    """The events of drawn completions, as row leaks where the tokens are another request's."""
    found = _searched(events, donors, rare)
    copied: dict[Key, dict[int, Leak]] = {}
    for n, leak in found.items():
        copied.setdefault(events[n][0].key, {}).setdefault(leak.start, leak)
    result: list[Drawn] = []
    for n, (b, event) in enumerate(events):
        mine = copied.get(b.key, {})
        if n in found:
            if mine.pop(found[n].start, None) is not None:
                result.append((b, leaked(event, found[n], b.token_ids)))
        elif b.key in copied and _follows(event, b.key, found, events):
            continue
        elif (
            b.key in copied
            or b.key not in foreign
            or not _is_loose(event)
            or (event.position < foreign[b.key].position and event.kind not in _SAYS)
        ):
            result.append((b, event))
    drawn = ((key, event) for key, event in foreign.items() if key not in copied)
    return [*result, *((candidate.completions[key], event) for key, event in drawn)]


def _searched(events: Sequence[Drawn], donors: Callable[[], Donors], rare: Rare) -> dict[int, Leak]:
    """By the number of the event: what stands elsewhere in the run."""
    asked = [n for n, (_, event) in enumerate(events) if _is_loose(event)]
    if not asked:
        return {}
    leaks = list(donors().search(_query(*events[n], rare) for n in asked))
    named = ((n, leak) for n, leak in zip(asked, leaks, strict=True) if leak is not None and not leak.is_weak)
    wrong: dict[Key, list[Event]] = {}
    for b, event in events:
        if event.kind not in _SAYS:
            wrong.setdefault(b.key, []).append(event)
    return {n: leak for n, leak in named if _is_enough(*events[n], leak) and not is_wrong_too(leak, wrong)}


def _is_loose(event: Event) -> bool:
    """It may be that the tokens are another request's."""
    return event.kind in _SAYS or event.kind.row.stretch is Stretch.UNSUPPORTED


def _query(b: Completion, event: Event, rare: Rare) -> Query:
    """Around the event; around the last tokens for an end, which has none of its own. Of tokens that are unlikely these
    alone speak: what is likely after them, whoever says the same goes on with as well. So too where a completion looks
    colder than asked: two that are decoded greedily may come to one loop."""
    last = max(0, len(b.token_ids) - 1)

    @cache
    def weigh() -> FloatArray | None:
        found = rare(b)
        return None if found is None else found.astype(np.float64)

    about = replace(event, position=min(event.position, last))
    return query_of(b.key, b.token_ids, about, weigh if event.kind not in _SAYS or _is_colder(event) else None)


def _is_colder(event: Event) -> bool:
    found = event.evidence
    return isinstance(found, TemperatureEvidence) and found.looks_like < found.asked


def _is_enough(b: Completion, event: Event, leak: Leak) -> bool:
    """What no token by itself says takes a whole rest, or a long stretch."""
    if event.kind not in _SAYS:
        return True
    to_the_end = leak.start + leak.length == len(b.token_ids)
    return leak.length >= (LONG if to_the_end else TAKEN_OVER)


def _follows(event: Event, key: Key, found: Mapping[int, Leak], events: Sequence[Drawn]) -> bool:
    """Another event of the completion is a leak, and this one is what comes of it."""
    leaks = [leak for n, leak in found.items() if events[n][0].key == key]
    return event.kind in _SAYS or any(leak.start <= event.position < leak.start + leak.length for leak in leaks)
