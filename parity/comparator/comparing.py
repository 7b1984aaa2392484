"""One comparison from start to end: the order of the questions, and what their answers add up to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from parity.comparator.conclude import reasons, verdict
from parity.comparator.conclude.verdict import RUN
from parity.comparator.detect import completeness
from parity.comparator.detect.pairs import Judged, PairJudge
from parity.comparator.detect.sampled import judge_sampled
from parity.comparator.inputs import conventions, plans, served, settings
from parity.comparator.inputs import resolved as asked
from parity.comparator.inputs.churned import churned
from parity.comparator.population import noise_floor as rounds
from parity.comparator.population import rates as population
from parity.comparator.population.statistics import FloatArray
from parity.comparator.reference.gaps import TokenGaps, measure_floor
from parity.comparator.reference.kept import keep_gaps
from parity.comparator.reference.scores import Reference
from parity.comparator.reference.tolerance import doubt_of, in_force
from parity.comparator.streams.pairing import Pairs, pair_up
from parity.comparator.types import CompareOptions, Comparison, CompletionClass
from parity.records import DEFAULT_TOLERANCE, Capture, Finding, Json, Key, Kind, Scores, Severity, TopLogprobs

FEW_LOOPS = 0.001
"""p-value of the paired loop test below which the run gets a finding of its own."""


def compare(
    baseline: Capture,
    candidate: Capture,
    scores: Scores | None = None,
    options: CompareOptions | None = None,
) -> Comparison:
    """Compare the candidate's completions with the baseline's.

    `scores` are the reference's scores of either arm's completions (keyed by arm); those that stand in the
    captures are used as well. Raises ParityError only for options that make no sense; whatever is wrong with
    the data becomes a finding or a reason.
    """
    options = options or CompareOptions()
    given = baseline, candidate
    baseline, candidate = served.level(baseline, candidate)
    levelled = conventions.level(baseline, candidate, scores)
    baseline, candidate, notes = levelled.baseline, levelled.candidate, levelled.notes
    reference = Reference(baseline, candidate, levelled.scores)
    pairs = pair_up(baseline, candidate)
    inconclusive = verdict.different_questions(baseline, candidate)
    other_plan = plans.differences(baseline, candidate, inconclusive)
    random = max(completeness.temperature(baseline), completeness.temperature(candidate)) > 0

    baseline_scored = reference.all_gaps(baseline.header.arm, list(baseline))
    # What is drawn at random may lie anywhere below the best: no floor, and nothing the tolerance is asked about.
    floor = None if random else measure_floor(baseline_scored.values(), DEFAULT_TOLERANCE)
    tolerance = in_force(options, floor, [] if random else notes)

    findings = [run_finding(baseline, candidate, Kind.INPUT_MISMATCH, {"why": problem}) for problem in inconclusive]
    findings += completeness.missing(baseline, candidate, other_plan.not_asked)
    inconclusive += other_plan.reasons
    notes += other_plan.notes
    findings += completeness.duplicates(baseline, candidate, reference, options.alpha)
    if random:
        judged, sampling = judge_sampled(
            baseline, candidate, pairs, reference, options, drops_eos=levelled.candidate_drops_eos
        )
        inconclusive += reasons.sampling_notes(sampling, pairs)
        if sampling["scored"] and "likelihood" not in sampling["adjusted"]:
            notes.append(
                "the likelihood of the arms was not compared: it needs scores of both, for 8 requests or more "
                "(`parity run --score all`)"
            )
    else:
        doubt = doubt_of(options, floor, tolerance, levelled.scores.values())
        judge = PairJudge(
            baseline, candidate, reference, options, tolerance, doubt, drops_eos=levelled.candidate_drops_eos
        )
        judged = judge.judge(pairs)
        notes += judged.notes
        sampling = None
    findings += judged.findings
    findings += served.contradictions(baseline, candidate)
    corrupt = [finding for finding in findings if finding.severity is Severity.CORRUPT]
    if not random:
        findings += completeness.nondeterminism(baseline, candidate, corrupt)

    classes: dict[Key, CompletionClass] = dict(judged.classes)
    for finding in findings:
        if finding.kind is Kind.MISSING_COMPLETION:
            classes[finding.key] = "missing"
        elif finding.severity is Severity.CORRUPT and finding.key in classes:
            classes[finding.key] = "corrupt"

    stats = population.rates(classes, findings)
    stats["tolerance"] = round(tolerance, 4)
    stats["floor"] = None if floor is None else floor.to_json()
    if not random:
        findings += _loop_finding(baseline, candidate, pairs, stats)
        stats["noise_floor"] = rounds.noise_floor(baseline, pairs)
        notes += [rounds.as_note(stats["noise_floor"])] if stats["noise_floor"] else []
        _add_gap_statistics(stats, candidate, pairs, judged, baseline_scored, tolerance, notes)
    else:
        stats["sampling"] = sampling
    proof, not_exercised, unproven = verdict.exercised(candidate)
    stats["exercised"] = proof
    stats["tokens"] = len(pairs.candidate_tokens.flat)
    if not_exercised:
        inconclusive.append(not_exercised)
    if unproven:
        notes.append(unproven)
    moved, not_churned, unseen = churned(candidate)
    stats["exercised"].update(moved)
    inconclusive += [not_churned] if not_churned else []
    notes += [unseen] if unseen else []
    inconclusive += asked.reasons(baseline.header, candidate.header)
    notes += asked.notes(baseline.header, candidate.header)
    if len(pairs.keys) < max(len(baseline.completions), len(candidate.completions)):
        inconclusive += completeness.not_asked_alike(baseline, candidate)
    inconclusive += reasons.coverage(pairs, judged, reference, stats, notes)
    inconclusive += reasons.doubtful(judged, floor, stats, notes)
    inconclusive += reasons.faulty_baseline(judged, baseline_scored, floor)
    inconclusive += [] if random else reasons.blind(pairs, judged, candidate.header.vocab_size, tolerance, stats)
    if reference.chosen_alone:
        notes.append("the scores list the chosen tokens alone: only those with more than half of the probability count")
    notes += sorted(set(reference.misfits))
    stats["differences"] = settings.differences(baseline.header, candidate.header)
    notes += settings.as_notes(stats["differences"])
    notes += reasons.power_notes(floor)
    notes += served.unchecked(baseline, candidate)

    baseline_gaps = {key: gaps for key, (gaps, _) in baseline_scored.items()}
    candidate_gaps = _gaps_of_candidate(baseline_gaps, judged.gaps, candidate, pairs, reference)
    findings = sorted(findings, key=_order)
    decided = verdict.decide(findings, inconclusive)
    return Comparison(
        baseline=baseline.header.arm,
        candidate=candidate.header.arm,
        verdict=decided,
        reasons=_reasons(findings, inconclusive, stats)
        + [f"{arm}: {limit}" for arm, limit in served.limits(baseline, candidate).items()],
        findings=findings,
        classes=classes,
        stats=stats,
        notes=notes,
        baseline_gaps=keep_gaps(baseline_gaps, baseline, given[0]),
        candidate_gaps=keep_gaps(candidate_gaps, candidate, given[1]),
        first_divergence={pairs.keys[row]: int(pairs.parts_at[row]) for row in np.flatnonzero(~pairs.identical)},
    )


def _gaps_of_candidate(
    baseline_gaps: Mapping[Key, TokenGaps],
    differing: Mapping[Key, TokenGaps],
    candidate: Capture,
    pairs: Pairs,
    reference: Reference,
) -> dict[Key, TokenGaps]:
    """Gaps of all scored completions of the candidate; those equal to the baseline's are scored once."""
    found = dict(differing)
    alone = []
    for row, key in enumerate(pairs.keys):
        if key in found or not pairs.identical[row]:
            continue
        if key in baseline_gaps:
            found[key] = baseline_gaps[key]
        else:
            alone.append(pairs.candidate[row])
    scored = reference.all_gaps(candidate.header.arm, alone)
    return found | {key: gaps for key, (gaps, _) in scored.items()}


def _order(finding: Finding) -> tuple[bool, str, int, int, int, str]:
    return (
        finding.severity is not Severity.CORRUPT,
        finding.request,
        finding.round,
        finding.sample,
        -1 if finding.position is None else finding.position,
        str(finding.kind),
    )


def _loop_finding(baseline: Capture, candidate: Capture, pairs: Pairs, stats: dict[str, Json]) -> list[Finding]:
    differing = (
        (pairs.baseline[row], pairs.candidate[row]) for row in np.flatnonzero(~pairs.identical & pairs.same_prompt)
    )
    result = population.loops(differing)
    stats["loops"] = result
    if result["p_candidate_loops_more"] >= FEW_LOOPS:
        return []
    evidence = {
        "why": f"{result['only_candidate']} completions end in a loop in the candidate only, "
        f"{result['only_baseline']} in the baseline only",
        **result,
    }
    return [run_finding(baseline, candidate, Kind.REPETITION, evidence)]


def run_finding(baseline: Capture, candidate: Capture, kind: Kind, evidence: dict[str, Json]) -> Finding:
    """A finding about the run as a whole, not about one completion."""
    return Finding(
        arm=candidate.header.arm,
        baseline=baseline.header.arm,
        request=RUN,
        round=0,
        sample=0,
        kind=kind,
        severity=Severity.CORRUPT,
        position=None,
        length=None,
        evidence=evidence,
    )


def _add_gap_statistics(
    stats: dict[str, Json],
    candidate: Capture,
    pairs: Pairs,
    judged: Judged,
    baseline_scored: dict[Key, tuple[TokenGaps, TopLogprobs]],
    tolerance: float,
    notes: list[str],
) -> None:
    baseline_gaps: dict[Key, FloatArray] = {key: view.gap for key, (view, _) in baseline_scored.items()}
    candidate_gaps: dict[Key, FloatArray] = {key: view.gap for key, view in judged.gaps.items()}
    for row, key in enumerate(pairs.keys):
        if pairs.identical[row] and key in baseline_gaps:
            candidate_gaps.setdefault(key, baseline_gaps[key])
    stats["drift"] = population.drift(baseline_gaps, candidate_gaps)
    if stats["drift"] and stats["drift"]["drifted"]:
        notes.append(
            f"the candidate's mean gap is {stats['drift']['candidate_mean_gap']:.4f} nats against the baseline's "
            f"{stats['drift']['baseline_mean_gap']:.4f} (p = {stats['drift']['p_value']:.2g}): a small systematic "
            "difference, though no single token shows it"
        )
    stats["position_in_step"] = population.position_in_step(candidate.completions, judged.gaps, tolerance)


def _reasons(findings: list[Finding], inconclusive: Iterable[str], stats: dict[str, Json]) -> list[str]:
    told = []
    corrupt = [
        finding
        for finding in findings
        if finding.severity is Severity.CORRUPT and not (finding.kind is Kind.INPUT_MISMATCH and finding.request == RUN)
    ]
    if corrupt:
        keys = {finding.key for finding in corrupt if finding.request != RUN}
        kinds = ", ".join(sorted({str(finding.kind) for finding in corrupt}))
        told_of_all = sorted(str(finding.evidence["test"]) for finding in corrupt if "test" in finding.evidence)
        if keys or not told_of_all:
            told.append(f"{len(keys)} of {stats['completions']} completions are corrupt: {kinds}")
        if told_of_all:
            told.append(f"the samples of the run as a whole differ from the baseline's: {', '.join(told_of_all)}")
        other = settings.as_reason(stats["differences"])
        told += [other] if other else []
    told += inconclusive
    if not told:
        bound, skipped = stats["fault_rate_not_excluded"], stats.get("tokens_not_judged", 0)
        noise = f"{stats['near_tie']} part at near-ties" if stats["near_tie"] else "none differs"
        if stats["sampled"] and stats["sampling"]["scored"]:
            noise = f"drawn at temperature {stats['sampling']['temperature']:g}, no test tells the arms apart"
        told.append(
            f"{stats['completions']} completions, {noise}, none is corrupt"
            + (
                f"; a fault that hits fewer than {bound:.2%} of completions, each by itself, could have been missed "
                "(95 %)"
                if bound
                else ""
            )
            + (f"; {skipped} tokens behind near-ties were not judged: there are no scores" if skipped else "")
        )
    return told


__all__ = ["RUN", "compare", "run_finding"]
