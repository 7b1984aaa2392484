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
from parity.records import Finding, Key, Kind
from parity.records.evidence import RunEvidence
from parity.records.many_findings import corrupt_of, heads, joined


class Found(Struct, frozen=True):
    """What is known of all completions, before the run as a whole is looked at."""

    findings: Sequence[Finding]
    classes: Mapping[Key, CompletionClass]
    lacking: Remarks
    """Completions that did not come and that the candidate is not accused of."""


def found_in(inputs: Inputs, references: References, pairs: Pairs, judged: Judged, alpha: float) -> Found:
    """`alpha`: error rate of the tests of a run."""
    findings = _findings(inputs, references, pairs, judged, alpha)
    return Found(findings, _classes(judged, findings), completeness.not_returned(inputs))


def _findings(inputs: Inputs, references: References, pairs: Pairs, judged: Judged, alpha: float) -> Sequence[Finding]:
    baseline, candidate = inputs.arms
    found = [
        run_finding(candidate, baseline, Kind.INPUT_MISMATCH, RunEvidence(why=difference))
        for difference in inputs.questions.differences
    ]
    found += completeness.missing(inputs)
    greedy, drawn = pairs.where(~pairs.random).keys, pairs.where(pairs.random).keys
    if inputs.is_random:
        found += completeness.duplicates(inputs.drawn_alone(greedy), references.lookup, alpha)
    every = joined(found, judged.findings, inputs.contradictions)
    if inputs.is_random and not greedy:
        return every
    corrupt = heads(corrupt_of(every))
    return joined(every, completeness.nondeterminism(inputs.greedy_alone(drawn), corrupt))


def _classes(judged: Judged, findings: Sequence[Finding]) -> Mapping[Key, CompletionClass]:
    classes: dict[Key, CompletionClass] = {}
    for one in heads(corrupt_of(findings)):
        if one.kind is Kind.MISSING_COMPLETION:
            classes[one.key] = "missing"
        elif one.key in classes or one.key in judged.classes:
            classes[one.key] = "corrupt"
    return with_others(judged.classes, classes)
