"""Rules of the request that the candidate broke (rules.py), as a detector."""

from __future__ import annotations

from msgspec.structs import replace

from parity.comparator.detect.cases import Case, Detector, Setup
from parity.records import Kind


def _look(cases: list[Case], setup: Setup) -> list[Case]:
    anything = setup.broken.candidate or setup.broken.baseline
    return [_with_broken(case, setup) for case in cases] if anything else cases


def _with_broken(case: Case, setup: Setup) -> Case:
    key = case.b.key
    events, broke = setup.broken.candidate.get(key, ()), key in setup.broken.baseline
    return replace(case, events=(*case.events, *events), baseline_broke=broke) if events or broke else case


DETECTOR = Detector(
    frozenset({Kind.FORBIDDEN_TOKEN, Kind.GRAMMAR_VIOLATION, Kind.EARLY_STOP, Kind.OVERRUN, Kind.TEXT_MISMATCH}),
    _look,
)
