"""Rules of the request that the candidate broke (rules.py), as a detector."""

from __future__ import annotations

from msgspec.structs import replace

from parity.comparator.detect.cases import Case, Detector, Setup, pair_by_pair
from parity.records import Kind


def _is_asked(setup: Setup) -> bool:
    return bool(setup.broken.candidate or setup.broken.baseline)


def _look(case: Case, setup: Setup) -> Case:
    key = case.b.key
    found, broke = setup.broken.candidate.get(key, ()), key in setup.broken.baseline
    events = [replace(event, by_rule=True) for event in found]
    return replace(case, events=(*case.events, *events), baseline_broke=broke) if events or broke else case


DETECTOR = Detector(
    frozenset({Kind.FORBIDDEN_TOKEN, Kind.GRAMMAR_VIOLATION, Kind.EARLY_STOP, Kind.OVERRUN, Kind.TEXT_MISMATCH}),
    pair_by_pair(_look),
    is_asked=_is_asked,
)
