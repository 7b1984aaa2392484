"""Everything that is wrong, in the pairs and in the arms as sets of completions, and what each completion counts as."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from parity.comparator.classes import with_others
from parity.comparator.detect import completeness
from parity.comparator.detect.pairs import Judged
from parity.comparator.inputs.normalise import Inputs
from parity.comparator.reference.references import References
from parity.comparator.streams.pairing import Pairs
from parity.comparator.types import CompletionClass, Remarks, run_finding
from parity.records import Finding, Key, Kind, Severity
from parity.records.evidence import RunEvidence


class Found(Struct, frozen=True):
    """What is known of all completions, before the run as a whole is looked at."""

    findings: tuple[Finding, ...]
    classes: Mapping[Key, CompletionClass]
    lacking: Remarks
    """Samples that neither arm returned."""


def found_in(inputs: Inputs, references: References, pairs: Pairs, judged: Judged, alpha: float) -> Found:
    """`alpha`: error rate of the tests of a run."""
    findings = _findings(inputs, references, pairs, judged, alpha)
    return Found(tuple(findings), _classes(judged, findings), completeness.returned_by_none(inputs))


def _findings(inputs: Inputs, references: References, pairs: Pairs, judged: Judged, alpha: float) -> list[Finding]:
    baseline, candidate = inputs.arms
    found = [
        run_finding(candidate, baseline, Kind.INPUT_MISMATCH, RunEvidence(why=difference))
        for difference in inputs.questions.differences
    ]
    found += completeness.missing(inputs)
    greedy, drawn = pairs.where(~pairs.random).keys, pairs.where(pairs.random).keys
    if inputs.is_random:
        found += completeness.duplicates(inputs.without(greedy), references.lookup, alpha)
    found += judged.findings
    found += inputs.contradictions
    if greedy or not inputs.is_random:
        part = inputs.without(drawn)
        corrupt = [one for one in found if one.severity is Severity.CORRUPT and one.key in part.candidate.completions]
        found += completeness.nondeterminism(part, corrupt)
    return found


def _classes(judged: Judged, findings: Sequence[Finding]) -> Mapping[Key, CompletionClass]:
    classes: dict[Key, CompletionClass] = {}
    for finding in findings:
        if finding.kind is Kind.MISSING_COMPLETION:
            classes[finding.key] = "missing"
        elif finding.severity is Severity.CORRUPT and (finding.key in classes or finding.key in judged.classes):
            classes[finding.key] = "corrupt"
    return with_others(judged.classes, classes)
