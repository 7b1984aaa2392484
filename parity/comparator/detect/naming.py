"""Row leaks of a greedy run: all suspicious stretches are looked for in all other requests, in one pass."""

from __future__ import annotations

from parity.comparator.detect.findings import Case, become_leak, leak_wins
from parity.comparator.detect.leak import Donors, Query
from parity.comparator.detect.structure import Event
from parity.comparator.detect.unscored import proven_copy, seeming_leaks
from parity.comparator.streams.pairing import Pairs
from parity.records import Capture, Kind
from parity.records.kinds import Stretch

_LOOSE = (Stretch.UNSUPPORTED, Stretch.COPY)
"""Stretches that may be another request's tokens."""


def name_leaks(cases: list[Case], baseline: Capture, candidate: Capture, pairs: Pairs, tolerance: float) -> None:
    """Turn events of `cases` into row leaks where another request explains them better, and find the leaks that
    need no reference."""
    loose = [(case, event) for case in cases for event in case.events if event.kind.row.stretch in _LOOSE]
    bare = [
        (case, case.walked.flip)
        for case in cases
        if case.walked.flip is not None and case.walked.unjudged_from == case.walked.flip and not case.events
    ]
    if not loose and not bare:
        return
    donors = Donors(baseline, candidate, pairs)
    queries = [
        Query(
            case.b.key.request,
            case.b.token_ids,
            max(event.earliest, event.position - 3),
            min(len(case.b.token_ids), event.position + max(12, min(event.length, 64))),
            event.earliest,
            case.unsupported(tolerance),
        )
        for case, event in loose
    ]
    for (case, event), leak in zip(loose, donors.search(queries), strict=True):
        if leak is not None and leak_wins(event, leak, case.unsupported(tolerance)):
            become_leak(case, event, leak)
    for case, _ in bare:
        suspect = case.walked.suspect
        if suspect is not None and proven_copy(case.b, suspect, baseline, len(bare)):
            suspect.evidence["judged_by"] = "the baseline says nothing nearly as long twice"
            case.events.append(suspect)
    for index, leak, is_proven in seeming_leaks([(case.a, case.b, flip) for case, flip in bare], donors, baseline):
        case, flip = bare[index]
        if case.events:
            continue
        event = Event(Kind.ROW_LEAK, flip, leak.length, earliest=flip)
        become_leak(case, event, leak)
        if not is_proven:
            case.walked.suspect = case.walked.suspect or event
            continue
        event.evidence["judged_by"] = "no two requests of the baseline have nearly as long a span in common"
        case.events.append(event)
