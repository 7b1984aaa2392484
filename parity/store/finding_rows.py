"""Findings of a comparison as rows of their table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from parity.records import RUN, Finding, Key, Severity
from parity.records.first_faults import Fault, followed
from parity.records.many_findings import Placed, heads, in_order
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
    findings: Sequence[Finding],
    name_of: Callable[[Finding], str],
    decided: Decided,
) -> Iterable[tuple[Any, ...]]:
    """Of the run and the arm with these numbers, each finding by its place; `name_of`: its fingerprint."""

    def place(one: Placed) -> tuple[int, Key, int]:
        return ordinals.get(one.request, len(ordinals)), one.key, -1 if one.position is None else one.position

    ordered = in_order(findings, place)
    for finding, after in zip(ordered, followed(list(map(_fault, heads(ordered)))), strict=True):
        name, gap = name_of(finding), finding.evidence.gap
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


def _fault(finding: Placed) -> Fault:
    alone = finding.request == RUN or finding.severity != Severity.CORRUPT
    return Fault(None if alone else finding.key, finding.kind, finding.position)
