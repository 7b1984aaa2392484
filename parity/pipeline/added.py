"""Findings that need neither tokens nor scores, into the comparison of two arms."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from parity.comparator import Comparison
from parity.comparator.classes import with_others
from parity.comparator.conclude.conclude import counted_anew, worst_first
from parity.comparator.population.rates import recounted
from parity.comparator.types import CompletionClass
from parity.messages import Message
from parity.records import Finding, Key, Verdict
from parity.records.many_findings import corrupt_of, heads, joined


def with_findings(
    comparison: Comparison,
    findings: Sequence[Finding],
    verdict: Verdict,
    reasons: Iterable[Message],
    notes: Iterable[Message],
) -> Comparison:
    """The comparison with these findings as well. A completion that has one is corrupt. What to do next stays where the
    verdict does."""
    every = worst_first(joined(comparison.findings, findings), comparison.asked) if findings else comparison.findings
    of_faults = [*heads(corrupt_of(every))] if findings else []
    corrupt: dict[Key, CompletionClass] = {one.key: "corrupt" for one in findings if one.key in comparison.classes}
    classes = with_others(comparison.classes, corrupt)
    stats = recounted(comparison.stats, classes, of_faults) if findings else comparison.stats
    return replace(
        comparison,
        verdict=verdict,
        reasons=counted_anew(reasons, of_faults, stats) if findings else tuple(reasons),
        notes=tuple(notes),
        findings=every,
        classes=classes,
        stats=stats,
        next_steps=comparison.next_steps if verdict is comparison.verdict else (),
    )
