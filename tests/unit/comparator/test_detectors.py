"""A detector finds the kinds that it says it finds, and no other."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from parity.comparator.detect import pairs, registry
from parity.comparator.detect.cases import Case, Detector, Setup

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import planted_set


def watched(detector: Detector, seen: set[str]) -> Detector:
    """The detector, which fails where it adds an event of a kind that it does not name."""

    def look(cases: list[Case], setup: Setup) -> list[Case]:
        before = {case.b.key: (*case.events, *case.benign) for case in cases}
        found = detector.look(cases, setup)
        for case in found:
            added = (one for one in (*case.events, *case.benign) if one not in before[case.b.key])
            kinds = {event.kind for event in added}
            assert kinds <= detector.kinds, (case.b.key, kinds - detector.kinds)
            seen.update(kinds)
        return found

    return replace(detector, look=look)


def test_detectors_find_what_they_name(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[str] = set()
    every = [watched(one, seen) for one in registry.detectors()]
    monkeypatch.setattr(pairs, "detectors", lambda: every)
    for case in [*planted_set.cases("A")][::6]:
        planted_set.ask(case)
    assert len(seen) >= 5
