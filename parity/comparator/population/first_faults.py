"""The first fault of each completion: what comes after it in the same completion mostly follows from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from parity.records import RUN, Severity
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


def most_frequent_first(counts: Mapping[str, int]) -> Mapping[str, int]:
    """Kinds with their numbers, the most frequent first."""
    return dict(sorted(counts.items(), key=lambda one: (-one[1], one[0])))
