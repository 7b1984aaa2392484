"""One comparison from start to end: the order of the questions, and what their answers add up to."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from parity.compare import asked, completeness, population, rounds, served, settings, verdict
from parity.compare.churned import churned
from parity.compare.columns import Pairs, pair_up
from parity.compare.findings import DOUBT
from parity.compare.justify import (
    FLOOR_HEADROOM,
    Floor,
    Opinion,
    automatic_tolerance,
    measure_floor,
)
from parity.compare.pairs import Judged, PairJudge
from parity.compare.reference import Reference
from parity.compare.sampled_pairs import judge_sampled
from parity.compare.statistics import FloatArray
from parity.compare.types import CompareOptions, Comparison, CompletionClass
from parity.compare.verdict import RUN
from parity.errors import ParityError
from parity.records import DEFAULT_TOLERANCE, Capture, Finding, Json, Key, Kind, Scores, Severity, TopLogprobs

FLAT = 0.2
"""Share of flat positions from which a checkpoint's distributions leave little power."""

FEW_LOOPS = 0.001
"""p-value of the paired loop test below which the run gets a finding of its own."""


def compare(
    baseline: Capture,
    candidate: Capture,
    scores: Scores | None = None,
    options: CompareOptions | None = None,
) -> Comparison:
    """Compare the candidate's completions with the baseline's.

    `scores` are the reference's opinions of either arm's completions (keyed by arm); those that stand in the
    captures are used as well. Raises ParityError only for options that make no sense; whatever is wrong with
    the data becomes a finding or a reason.
    """
    options = options or CompareOptions()
    baseline, candidate = served.level(baseline, candidate)
    reference = Reference(baseline, candidate, scores)
    pairs = pair_up(baseline, candidate)
    notes: list[str] = []
    inconclusive = verdict.different_questions(baseline, candidate)
    random = max(completeness.temperature(baseline), completeness.temperature(candidate)) > 0

    baseline_scored = reference.opinions(baseline.header.arm, list(baseline))
    # What is drawn at random may lie anywhere below the best: no floor, and nothing the tolerance is asked about.
    floor = None if random else measure_floor(baseline_scored.values(), DEFAULT_TOLERANCE)
    tolerance = _tolerance(options, floor, [] if random else notes)

    findings = [run_finding(baseline, candidate, Kind.INPUT_MISMATCH, {"why": problem}) for problem in inconclusive]
    findings += completeness.missing(baseline, candidate)
    findings += completeness.duplicates(baseline, candidate, reference)
    if random:
        judged, sampling = judge_sampled(baseline, candidate, pairs, reference, options)
        inconclusive += _sampling_notes(sampling, pairs)
        if sampling["scored"] and "likelihood" not in sampling["adjusted"]:
            notes.append(
                "the likelihood of the arms was not compared: it needs scores of both, for 8 requests or more "
                "(`parity run --score all`)"
            )
    else:
        judged = PairJudge(baseline, candidate, reference, options, tolerance, _doubt(options, floor, tolerance)).judge(
            pairs
        )
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
    inconclusive += _coverage(pairs, judged, reference, stats, notes)
    inconclusive += _doubtful(judged, floor, stats, notes)
    if judged.contradicted:
        inconclusive.append(
            f"the scores reject the baseline's own token in {len(judged.contradicted)} completions "
            f"(first: {judged.contradicted[0]}): the baseline is at fault there, or the scores are not of these arms"
        )
    notes += sorted(set(reference.misfits))
    stats["differences"] = settings.differences(baseline.header, candidate.header)
    notes += settings.as_notes(stats["differences"])
    notes += _power_notes(floor)
    notes += served.unchecked(baseline, candidate)

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
    )


def _order(finding: Finding) -> tuple[bool, str, int, int, int, str]:
    return (
        finding.severity is not Severity.CORRUPT,
        finding.request,
        finding.round,
        finding.sample,
        -1 if finding.position is None else finding.position,
        str(finding.kind),
    )


def _tolerance(options: CompareOptions, floor: Floor | None, notes: list[str]) -> float:
    if options.tolerance == "auto":
        if floor is None:
            notes.append(
                f"--tolerance auto needs scores of the baseline's own completions; using {DEFAULT_TOLERANCE} nats"
            )
            return DEFAULT_TOLERANCE
        return automatic_tolerance(floor)
    value = float(options.tolerance)
    if not np.isfinite(value) or value < 0:
        raise ParityError(f"the tolerance must be a number of nats of 0 or more, got {value}")
    return value


def _doubt(options: CompareOptions, floor: Floor | None, tolerance: float) -> float:
    """Nats up to which a lone token convicts nobody: DOUBT times the tolerance, but no more than the baseline's own
    tokens bear out where they are scored. None of it where the tolerance was calibrated."""
    if options.tolerance == "auto":
        return tolerance
    measured = DOUBT * tolerance if floor is None else FLOOR_HEADROOM * floor.largest
    return max(tolerance, min(DOUBT * tolerance, measured))


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
    baseline_scored: dict[Key, tuple[Opinion, TopLogprobs]],
    tolerance: float,
    notes: list[str],
) -> None:
    baseline_gaps: dict[Key, FloatArray] = {key: view.gap for key, (view, _) in baseline_scored.items()}
    candidate_gaps: dict[Key, FloatArray] = {key: view.gap for key, view in judged.opinions.items()}
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
    stats["position_in_step"] = population.position_in_step(candidate.completions, judged.opinions, tolerance)


def _coverage(
    pairs: Pairs, judged: Judged, reference: Reference, stats: dict[str, Json], notes: list[str]
) -> list[str]:
    problems = []
    if not pairs.keys:
        problems.append("no completion is in both captures: nothing was compared")
    taken_back = sum(a.aborted or b.aborted for a, b in zip(pairs.baseline, pairs.candidate, strict=True))
    if taken_back:
        stats["aborted"] = taken_back
        notes.append(f"{taken_back} completions were taken back while they ran: compared as far as they go")
        if taken_back == len(pairs.keys) and not len(pairs.candidate_tokens.flat):
            problems.append("every completion was taken back before its first token: nothing was compared")
    unjudged = stats["unjudged"]
    if unjudged:
        problems.append(
            f"{unjudged} completions differ and nothing says whether that is noise: score them "
            "(`parity run --score all`) or capture with --logprobs" + _suspicions(judged, stats)
        )
    limited = {key: at for key, at in judged.limited.items() if judged.classes.get(key) == "near_tie"}
    if limited:
        skipped = sum(
            len(pairs.candidate[row].token_ids) - limited[key] for row, key in enumerate(pairs.keys) if key in limited
        )
        stats["tokens_not_judged"] = skipped
        message = f"{len(limited)} completions could be judged only up to their first divergent token"
        if reference and judged.opinions:
            problems.append(f"the scores do not cover {skipped} tokens of {len(limited)} completions")
        else:
            notes.append(f"{message} ({skipped} tokens behind it not judged): there are no scores")
    return problems


def _suspicions(judged: Judged, stats: dict[str, Json]) -> str:
    """What unjudged completions look like, for the reason and the statistics."""
    stats["suspects"] = [
        {"request": key.request, "round": key.round, "sample": key.sample, "looks_like": str(event.kind)}
        | {"position": event.position, "length": event.length}
        for key, event in list(judged.suspects.items())[:16]
    ]
    if not judged.suspects:
        return ""
    key, event = next(iter(judged.suspects.items()))
    return (
        f"; {len(judged.suspects)} of them look like a chunk lost or emitted again (first: {key}, {event.kind} of "
        f"{event.length} tokens at {event.position}), which a near-tie can look like as well"
    )


def _doubtful(judged: Judged, floor: Floor | None, stats: dict[str, Json], notes: list[str]) -> list[str]:
    """Tokens little beyond the tolerance: noise where the baseline's own tokens show such gaps, else left open."""
    if not judged.doubtful:
        return []
    stats["doubtful"] = [
        {"request": key.request, "round": key.round, "sample": key.sample, "position": at, "gap": round(gap, 4)}
        for key, (at, gap) in list(judged.doubtful.items())[:16]
    ]
    key, (at, gap) = max(judged.doubtful.items(), key=lambda item: item[1][1])
    what = (
        f"{len(judged.doubtful)} completions have a token or two little beyond the tolerance and nothing else wrong "
        f"(the widest gap: {gap:.3f} nats, {key} at {at})"
    )
    if floor is not None:
        notes.append(f"{what}; the baseline's own tokens lie up to {floor.largest:.3f} nats below the best: noise")
        return []
    return [f"{what}: score the baseline's own completions as well (`--score all`), or use `--tolerance auto`"]


def _sampling_notes(sampling: dict[str, Json], pairs: Pairs) -> list[str]:
    if sampling["scored"] or (len(pairs.keys) and bool((pairs.identical & pairs.same_prompt).all())):
        return []  # equal draws need no distribution
    return ["sampling is random and there are no scores: only the run's statistics could be compared"]


def _power_notes(floor: Floor | None) -> list[str]:
    notes = []
    if floor is not None and floor.share_flat > FLAT:
        notes.append(
            f"at {floor.share_flat:.0%} of positions the five best tokens lie within {DEFAULT_TOLERANCE} nats "
            "(random weights?): nearly any token passes there, and little power is left"
        )
    if floor is not None and floor.largest > 2.0:
        notes.append(
            f"the baseline's own tokens lie up to {floor.largest:.2f} nats below the best when scored: the scoring "
            "engine does not agree with the baseline, or the baseline itself is faulty"
        )
    return notes


def _reasons(findings: list[Finding], inconclusive: Iterable[str], stats: dict[str, Json]) -> list[str]:
    reasons = []
    corrupt = [finding for finding in findings if finding.severity is Severity.CORRUPT]
    if corrupt:
        keys = {finding.key for finding in corrupt if finding.request != RUN}
        kinds = ", ".join(sorted({str(finding.kind) for finding in corrupt}))
        told_of_all = sorted(str(finding.evidence["test"]) for finding in corrupt if "test" in finding.evidence)
        if keys or not told_of_all:
            reasons.append(f"{len(keys)} of {stats['completions']} completions are corrupt: {kinds}")
        if told_of_all:
            reasons.append(f"the samples of the run as a whole differ from the baseline's: {', '.join(told_of_all)}")
        other = settings.as_reason(stats["differences"])
        reasons += [other] if other else []
    reasons += inconclusive
    if not reasons:
        bound, skipped = stats["fault_rate_not_excluded"], stats.get("tokens_not_judged", 0)
        noise = f"{stats['near_tie']} part at near-ties" if stats["near_tie"] else "none differs"
        if stats["sampled"] and stats["sampling"]["scored"]:
            noise = f"drawn at temperature {stats['sampling']['temperature']:g}, no test tells the arms apart"
        reasons.append(
            f"{stats['completions']} completions, {noise}, none is corrupt"
            + (f"; a fault rarer than {bound:.2%} of completions could have been missed (95 %)" if bound else "")
            + (f"; {skipped} tokens behind near-ties were not judged: there are no scores" if skipped else "")
        )
    return reasons


__all__ = ["RUN", "compare", "run_finding"]
