"""The first fault of each completion: what comes after it in the same completion mostly follows from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from parity.records import RUN, Finding, Key, Severity


def first_faults(findings: Iterable[Finding]) -> Mapping[str, int]:
    """Completions by the kind of their first fault, the most frequent first; a finding about the run counts by itself.

    The first is the one at the first token; of several there, the one of the lowest precedence. A fault of the
    completion as a whole comes before all.
    """
    first: dict[Key, Finding] = {}
    counted: Counter[str] = Counter()
    for finding in findings:
        if finding.severity is not Severity.CORRUPT:
            continue
        if finding.request == RUN:
            counted[str(finding.kind)] += 1
        elif finding.key not in first or _place(finding) < _place(first[finding.key]):
            first[finding.key] = finding
    counted.update(str(finding.kind) for finding in first.values())
    return dict(sorted(counted.items(), key=lambda one: (-one[1], one[0])))


def _place(finding: Finding) -> tuple[int, int]:
    return -1 if finding.position is None else finding.position, finding.kind.row.precedence
