"""Findings of a comparison as rows of their table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from parity.records import RUN, Finding, Severity
from parity.records.first_faults import Fault, followed
from parity.store.connection import to_text
from parity.store.fitting import rule_of
from parity.store.rows import Rule, TriageState


class Decided(Struct, frozen=True):
    """What was decided before: by fingerprint, and by the rules that fit the arm."""

    states: Mapping[str, str]
    rules: Sequence[Rule]


def finding_rows(
    number: int,
    arm: int,
    ordinals: Mapping[str, int],
    named: Iterable[tuple[str, Finding]],
    decided: Decided,
) -> Iterable[tuple[Any, ...]]:
    """Of the run and the arm with these numbers, each finding with its fingerprint, in the order of their places."""

    def place(one: tuple[str, Finding]) -> tuple[int, str, int, int, int]:
        finding = one[1]
        position = -1 if finding.position is None else finding.position
        ordinal = ordinals.get(finding.request, len(ordinals))
        return ordinal, finding.request, finding.round, finding.sample, position

    ordered = sorted(named, key=place)
    for (name, finding), after in zip(ordered, followed([_fault(one) for _, one in ordered]), strict=True):
        gap = finding.evidence.gap
        kind = str(finding.kind)
        rule = rule_of(decided.rules, kind, finding.position, finding.length, finding.evidence)
        unsaid = TriageState.NEW if rule is None else TriageState.KNOWN
        yield (
            number,
            arm,
            ordinals.get(finding.request, len(ordinals)),
            finding.request,
            finding.round,
            finding.sample,
            kind,
            str(Severity(finding.severity)),
            finding.position,
            finding.length,
            gap if gap is not None and np.isfinite(gap) else None,
            decided.states.get(name, str(unsaid)),
            to_text(finding.evidence.to_json()),
            name,
            finding.weight,
            after,
            rule,
        )


def _fault(finding: Finding) -> Fault:
    alone = finding.request == RUN or finding.severity != Severity.CORRUPT
    return Fault(None if alone else finding.key, finding.kind, finding.position)
