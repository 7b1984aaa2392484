"""Row leaks of a greedy run: all suspicious stretches are looked for in all other requests, in one pass."""

from __future__ import annotations

import dataclasses

from msgspec.structs import replace

from parity.comparator.detect.cases import Case, Detector, Setup
from parity.comparator.detect.events import Event
from parity.comparator.detect.leak import SPEAKING, Donors, Leak, Query
from parity.comparator.detect.unscored import proven_copy, seeming_leaks
from parity.comparator.reference.gaps import BoolArray
from parity.messages import message
from parity.records import Kind, TokenIds
from parity.records.evidence import JudgedBy, LeakEvidence, TokensEvidence
from parity.records.kinds import Stretch

FOREIGN_AND_SUPPORTED = 3
"""A leak begins with fewer tokens than this that the reference supports: one or two of another text may happen to
fit, more would be a text of the victim's own."""

_LOOSE = (Stretch.UNSUPPORTED, Stretch.COPY)
"""Stretches that may be another request's tokens."""


def query_of(request: str, tokens: TokenIds, event: Event, unsupported: BoolArray | None) -> Query:
    """Where to look for another request's tokens around an event."""
    first = max(event.earliest, event.position - 3)
    last = min(len(tokens), event.position + max(12, min(event.length, 64)))
    return Query(request, tokens, first, last, event.earliest, unsupported)


def leaked(event: Event, leak: Leak, tokens: TokenIds) -> Event:
    """The event as a row leak: its tokens are another request's."""
    had = event.evidence if isinstance(event.evidence, TokensEvidence) else None
    evidence = LeakEvidence(
        why=message(
            "row_leak.why",
            "{count} tokens are those of the {part} of {request} from its position {start} on",
            count=leak.length,
            part=leak.donor_part,
            request=leak.donor_request,
            start=leak.donor_start,
        ),
        donor_request=leak.donor_request,
        donor_part=leak.donor_part,
        donor_start=leak.donor_start,
        donor_end=leak.donor_start + leak.length,
        expected_by_chance=leak.chance,
        requests_with_this_span=leak.sharing,
        leaked_tokens=tuple(tokens[leak.start : leak.start + leak.length].tolist()[:64]),
        agree_again_for=had.agree_again_for if had else None,
        baseline_tokens=had.baseline_tokens if had else None,
        p_value=had.p_value if had else None,
        judged_by=event.evidence.judged_by,
    )
    return replace(event, kind=Kind.ROW_LEAK, position=leak.start, length=leak.length, evidence=evidence)


def _leak_wins(event: Event, leak: Leak, unsupported: BoolArray | None) -> bool:
    """Does the match with another request explain the event better than its structure does?"""
    end = leak.start + leak.length
    covers = leak.covers(event.position)
    if event.kind.row.stretch is not Stretch.COPY:
        return covers
    if unsupported is None or not covers or leak.length < event.length + 4:
        return False
    # The copy explains its own tokens; only unsupported ones after it speak for another request.
    return int(unsupported[event.end : end].sum()) >= SPEAKING


def _without_own(event: Event, leak: Leak) -> Leak:
    """The leak from the event on where so many supported tokens come before it: they are the victim's own, and the
    donor's by chance."""
    shift = event.position - leak.start
    if shift < FOREIGN_AND_SUPPORTED:
        return leak
    return dataclasses.replace(
        leak, start=event.position, length=leak.length - shift, donor_start=leak.donor_start + shift
    )


def _look(cases: list[Case], setup: Setup) -> list[Case]:
    loose = [
        (n, at)
        for n, case in enumerate(cases)
        for at, event in enumerate(case.events)
        if event.kind.row.stretch in _LOOSE
    ]
    bare = [
        n
        for n, case in enumerate(cases)
        if case.flip is not None and case.unjudged_from == case.flip and not case.events
    ]
    if not loose and not bare:
        return cases
    donors = setup.donors()
    return _unscored(_named(cases, loose, donors, setup), bare, donors, setup)


def _named(cases: list[Case], loose: list[tuple[int, int]], donors: Donors, setup: Setup) -> list[Case]:
    """The cases with events as leaks where another request explains them better; `loose`: (case, event)."""
    unsupported = {n: cases[n].unsupported(setup.tolerance) for n, _ in loose}
    queries = []
    for n, at in loose:
        b = cases[n].b
        queries.append(query_of(b.key.request, b.token_ids, cases[n].events[at], unsupported[n]))
    result = list(cases)
    for (n, at), leak in zip(loose, donors.search(queries), strict=True):
        case = result[n]
        event = case.events[at]
        if leak is None or not _leak_wins(event, leak, unsupported[n]):
            continue
        own = _without_own(event, leak) if case.from_scores else leak
        named = leaked(event, own, case.b.token_ids)
        result[n] = replace(case, events=(*case.events[:at], named, *case.events[at + 1 :]))
    return result


def _unscored(cases: list[Case], bare: list[int], donors: Donors, setup: Setup) -> list[Case]:
    """The cases with what proves itself where nothing judges; `bare`: those that part and that nothing judges."""
    result = list(cases)
    for n in bare:
        suspect = result[n].suspect
        if suspect is not None and proven_copy(result[n].b, suspect, setup.baseline, len(bare)):
            proven = suspect.but(judged_by=JudgedBy.NO_OTHER_COPY)
            result[n] = replace(result[n], suspect=proven, events=(proven,))
    places = [(case.a, case.b, case.flip) for case in (cases[n] for n in bare) if case.flip is not None]
    for index, leak, is_proven in seeming_leaks(places, donors, setup.baseline):
        case = result[bare[index]]
        if case.events:
            continue
        why = message("row_leak.seeming", "goes on with what one other request says")
        seeming = Event(Kind.ROW_LEAK, leak.start, leak.length, TokensEvidence(why=why), earliest=leak.start)
        event = leaked(seeming, leak, case.b.token_ids)
        if is_proven:
            case = replace(case, events=(event.but(judged_by=JudgedBy.NO_OTHER_SPAN),))
        elif case.suspect is None:
            case = replace(case, suspect=event)
        result[bare[index]] = case
    return result


DETECTOR = Detector("row leaks", frozenset({Kind.ROW_LEAK, Kind.DUPLICATION}), _look)
