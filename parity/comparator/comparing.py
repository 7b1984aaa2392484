"""One comparison from start to end: down the floors once, each giving the next a value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from parity.comparator.conclude.conclude import conclude
from parity.comparator.detect import completeness, tokenizers
from parity.comparator.detect.leak import Donors
from parity.comparator.detect.pairs import Judged, judge_pairs
from parity.comparator.detect.rules import requested
from parity.comparator.detect.sampled import judge_sampled
from parity.comparator.detect.setup import setup_of
from parity.comparator.inputs import servers
from parity.comparator.inputs.bad_words import asks_for_bad_words, without_bad_words
from parity.comparator.inputs.normalise import Inputs, normalise
from parity.comparator.population.run import measure
from parity.comparator.reference.references import References, references_of
from parity.comparator.reference.tolerance import doubt_of
from parity.comparator.streams.pairing import Pairs, pair_up
from parity.comparator.types import CompareOptions, Comparison, CompletionClass, run_finding
from parity.records import Capture, Finding, Key, Kind, Scores, Severity
from parity.records.crossings import Crossed
from parity.records.evidence import RunEvidence


def compare(
    baseline: Capture,
    candidate: Capture,
    scores: Scores | None = None,
    options: CompareOptions | None = None,
    crossed: Crossed | None = None,
) -> Comparison:
    """Compare the candidate's completions with the baseline's.

    `scores` are the reference's scores of either arm's completions (keyed by arm); those that stand in the captures
    are used as well. `crossed`: what it says of completions after the text of other requests, where it was asked
    (`detect/crossings.py`). Raises ParityError only for options that make no sense; whatever is wrong with the data
    becomes a finding or a reason.
    """
    options = options or CompareOptions()
    inputs = _unmasked(normalise(baseline, candidate, scores, options.detokenize), options)
    references = references_of(inputs, options)
    pairs = pair_up(inputs.baseline, inputs.candidate)
    judged = _judge(inputs, references, pairs, options, crossed or {})
    findings = _findings(inputs, references, pairs, judged, options)
    classes = _classes(judged, findings)
    run = measure(inputs, references, pairs, judged, classes, findings, options.alpha)
    return conclude(inputs, references, pairs, judged, run, classes, [*findings, *run.findings])


def _unmasked(inputs: Inputs, options: CompareOptions) -> Inputs:
    """Without what `bad_words` forbade, where a tokenizer says which tokens these are."""
    if not any(map(asks_for_bad_words, (inputs.baseline, inputs.candidate))):
        return inputs
    read = tokenizers.words_of(options, inputs.baseline, inputs.candidate)
    return inputs if read is None else without_bad_words(inputs, read)


def _judge(inputs: Inputs, references: References, pairs: Pairs, options: CompareOptions, crossed: Crossed) -> Judged:
    """What is wrong with each completion: greedy ones against the baseline's tokens, drawn ones by their likelihood."""
    greedy, drawn = pairs.where(~pairs.random), pairs.where(pairs.random)

    @cache
    def donors() -> Donors:
        return Donors(inputs.baseline, inputs.candidate, pairs)

    rules = requested(inputs, pairs, options)
    judged = Judged(broken=rules.broken)
    if greedy.keys or not inputs.is_random:
        part = inputs.without(drawn.keys)
        setup = setup_of(
            part.baseline,
            part.candidate,
            greedy,
            references.lookup,
            references.tolerance,
            doubt_of(options, references.floor, references.tolerance, references.lookup.scores.values()),
            donors,
            rules,
            drops_eos=inputs.candidate_drops_eos,
        )
        judged += judge_pairs(setup)
    if not inputs.is_random:
        return judged
    part = inputs.without(greedy.keys)
    return judged + judge_sampled(part, references.lookup, drawn, options, donors, rules, crossed)


def _findings(
    inputs: Inputs, references: References, pairs: Pairs, judged: Judged, options: CompareOptions
) -> list[Finding]:
    """What was found in the pairs, and in the arms as sets of completions."""
    baseline, candidate = inputs.baseline, inputs.candidate
    found = [
        run_finding(candidate.header.arm, baseline.header.arm, Kind.INPUT_MISMATCH, RunEvidence(why=difference))
        for difference in inputs.questions.differences
    ]
    found += completeness.missing(baseline, candidate, inputs.plans.not_asked)
    greedy, drawn = pairs.where(~pairs.random).keys, pairs.where(pairs.random).keys
    if inputs.is_random:
        found += completeness.duplicates(inputs.without(greedy), references.lookup, options.alpha)
    found += judged.findings
    found += servers.contradictions(baseline, candidate, inputs.counts.wrong)
    if greedy or not inputs.is_random:
        part = inputs.without(drawn)
        corrupt = [one for one in found if one.severity is Severity.CORRUPT and one.key in part.candidate.completions]
        found += completeness.nondeterminism(part.baseline, part.candidate, corrupt)
    return found


def _classes(judged: Judged, findings: Sequence[Finding]) -> Mapping[Key, CompletionClass]:
    classes: dict[Key, CompletionClass] = dict(judged.classes)
    for finding in findings:
        if finding.kind is Kind.MISSING_COMPLETION:
            classes[finding.key] = "missing"
        elif finding.severity is Severity.CORRUPT and finding.key in classes:
            classes[finding.key] = "corrupt"
    return classes
