"""The last floor: the verdict, why, and the comparison as others get it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import cache, partial
from itertools import count

import numpy as np

from parity.comparator.conclude import at_fault, doubted, of_the_run, passed, reasons
from parity.comparator.conclude.kept import keep_gaps
from parity.comparator.conclude.verdict import decide
from parity.comparator.detect.found import Found
from parity.comparator.detect.pairs import Judged
from parity.comparator.inputs import settings
from parity.comparator.inputs.normalise import Inputs
from parity.comparator.population.run import Run
from parity.comparator.reference.gaps import TokenGaps
from parity.comparator.reference.references import References
from parity.comparator.reference.stored import gaps_alone, overlaid
from parity.comparator.stats import Stats
from parity.comparator.streams.pairing import Pairs, at_rows
from parity.comparator.types import Comparison, Remarks
from parity.messages import Message, message
from parity.records import RUN, Finding, Index, Key, Kind, Verdict
from parity.records.many_findings import Placed, corrupt_of, heads, in_order, joined
from parity.records.next_steps import NextStep, Step


def conclude(
    inputs: Inputs,
    references: References,
    pairs: Pairs,
    judged: Judged,
    found: Found,
    run: Run,
) -> Comparison:
    """The verdict from everything found, and why."""
    gaps = _of_candidate(inputs, references, pairs, run)
    remarks = _remarks(inputs, references, pairs, judged, found, run)
    remarks += at_fault.both_beyond_noise(pairs, judged, references, gaps)
    asked = inputs.given[0].keys, inputs.given[1].keys
    ordered = worst_first(joined(found.findings, run.findings), asked)
    corrupt = corrupt_of(ordered)
    baseline, candidate = inputs.arms
    against = _against(corrupt, run.stats, inputs.differences)
    verdict = decide(heads(corrupt), remarks.reasons)
    return Comparison(
        baseline=baseline,
        candidate=candidate,
        verdict=verdict,
        reasons=(
            *(_in_order(verdict, against, remarks.reasons) or passed.said(run.stats)),
            *remarks.limits,
            *(reasons.pinned(inputs) if verdict is Verdict.PASS else ()),
        ),
        findings=ordered,
        classes=found.classes,
        stats=run.stats,
        notes=remarks.notes,
        baseline_gaps=keep_gaps(gaps_alone(references.baseline), inputs.baseline, inputs.given[0]),
        candidate_gaps=keep_gaps(gaps, inputs.candidate, inputs.given[1]),
        first_divergence=pairs.by_key(),
        next_steps=_next_steps(remarks) if verdict is Verdict.INCONCLUSIVE else judged.next_steps + _of_limits(remarks),
        asked=asked,
    )


def _in_order(verdict: Verdict, against: tuple[Message, ...], others: tuple[Message, ...]) -> tuple[Message, ...]:
    """The reason of the verdict first."""
    return others + against if verdict is Verdict.INCONCLUSIVE else against + others


def _next_steps(remarks: Remarks) -> tuple[NextStep, ...]:
    """At least one for each reason: where a check names none, the same again."""
    named = {one.settles for one in remarks.next_steps}
    return remarks.next_steps + tuple(NextStep(Step.AGAIN, one.id) for one in remarks.reasons if one.id not in named)


def _of_limits(remarks: Remarks) -> tuple[NextStep, ...]:
    """What would say more than the verdict does."""
    limits = {one.id for one in remarks.limits}
    return tuple(one for one in remarks.next_steps if one.settles in limits)


def _remarks(inputs: Inputs, references: References, pairs: Pairs, judged: Judged, found: Found, run: Run) -> Remarks:
    """Everything that is said besides findings, in the order in which it is shown."""
    stats = run.stats
    other_precision = settings.of_other_precision(inputs.differences)
    remarks = reasons.different_questions(inputs.questions.differences) + inputs.remarks + references.remarks
    if stats.sampling:
        headers = inputs.baseline.header, inputs.candidate.header
        remarks += of_the_run.random_sampling(
            stats.sampling, pairs, bool(references.baseline), headers, _covered(inputs, references, pairs)
        )
    return (
        remarks
        + Remarks(notes=tuple(judged.notes))
        + of_the_run.noise(stats.noise_floor or None)
        + of_the_run.looping(stats.loops or None, run.findings)
        + of_the_run.drifted(stats.drift or None, stats.numerics or None)
        + of_the_run.numerics(stats.numerics or None, run.findings, run.untested, stats.differences)
        + of_the_run.changed(stats.over_rounds or {})
        + found.lacking
        + reasons.nothing_compared(inputs, pairs)
        + reasons.cut_off(inputs, pairs)
        + reasons.ends_unseen(inputs, pairs, judged)
        + reasons.shaped(pairs, judged, references)
        + reasons.undecided(pairs, judged, references, inputs.vocab_size)
        + reasons.unjudged(inputs, pairs, judged, references, stats.unjudged)
        + reasons.limited(pairs, run.cut_short, stats.tokens_not_judged or 0, judged, references)
        + doubted.doubtful(judged, references.floor, references.tolerance, other_precision=other_precision)
        + at_fault.faulty_baseline(judged, references)
        + at_fault.baseline_penalties(run.baseline_penalties)
        + at_fault.broken_rules(judged)
        + reasons.unread_texts(inputs, pairs)
        + of_the_run.blind(stats.chance_that_any_token_passes or None, run.near_ties)
        + of_the_run.flat(references.floor)
    )


def _covered(inputs: Inputs, references: References, pairs: Pairs) -> tuple[int, int]:
    """Of the candidate's drawn completions that differ: how many are scored, and how many there are."""
    scored = references.lookup.scored(inputs.arms[1])
    rows = np.flatnonzero(~pairs.identical & pairs.same_prompt)
    drawn = [one.key for one in at_rows(pairs.candidate, rows) if inputs.is_drawn(one)]
    return sum(key in scored for key in drawn), len(drawn)


def _against(corrupt: Sequence[Finding], stats: Stats, differences: settings.Differences) -> tuple[Message, ...]:
    """What speaks against the candidate."""
    places = [place for place, one in enumerate(heads(corrupt)) if one.request == RUN]
    of_run = [corrupt[place] for place in places]
    of_run = [one for one in of_run if one.kind is not Kind.INPUT_MISMATCH]
    if not of_run and len(places) == len(corrupt):
        return ()
    found = []
    counted = _counted(heads(corrupt), stats)
    drawn = stats.sampling or None
    tests = () if drawn is None else tuple(name for name in drawn.failed if name not in drawn.of_either)
    of_arm = [finding for finding in of_run if finding.kind is Kind.NUMERICS]
    if counted is not None:
        found.append(counted)
    elif not (tests or of_arm):
        found += [
            message("conclude.run_corrupt", "of the run as a whole: {why}", why=one.evidence.why) for one in of_run
        ]
    if tests:
        found.append(
            message(
                "conclude.samples_differ",
                "the samples of the run as a whole differ from the baseline's: {tests}",
                tests=tests,
            )
        )
    found += [
        message(
            "conclude.numerics",
            "the numerics of the run as a whole differ from the baseline's: {why}",
            why=finding.evidence.why,
        )
        for finding in of_arm
    ]
    other = settings.as_reason(differences)
    return (*found, other) if other else tuple(found)


def _counted(corrupt: Iterable[Placed], stats: Stats) -> Message | None:
    """How many completions are corrupt, and how; None where only the run as a whole is."""
    keys, of_run = set(), set()
    for one in corrupt:
        if one.request != RUN:
            keys.add(one.key)
        elif one.kind is not Kind.INPUT_MISMATCH:
            of_run.add(str(one.kind))
    if not keys:
        return None
    return message(
        "conclude.corrupt",
        "{corrupt} of {completions} completions are corrupt: {kinds}",
        corrupt=len(keys),
        completions=stats.completions,
        kinds=_first_kinds(of_run, stats),
    )


def counted_anew(reasons: Iterable[Message], corrupt: Iterable[Placed], stats: Stats) -> tuple[Message, ...]:
    """The reasons, with the number of corrupt completions as it is with these findings; not that none is."""
    counted = _counted(corrupt, stats)
    return tuple(
        counted if counted is not None and one.id == counted.id else one
        for one in reasons
        if counted is None or one.id != passed.NONE_CORRUPT
    )


def _first_kinds(of_run: Set[str], stats: Stats) -> list[str]:
    """The kinds of first faults, the most frequent first, and those of the run."""
    kinds = dict.fromkeys([*stats.first_faults, *sorted(of_run)])
    return [kind for kind in kinds if kind != Kind.NUMERICS]


def worst_first(findings: Sequence[Finding], asked: tuple[Sequence[Key], Sequence[Key]]) -> Sequence[Finding]:
    """The heaviest first; those of equal weight by their places, as the store and its views have them: requests as they
    were asked, not by name. `asked`: the keys of both captures."""
    if len(findings) < 2:
        return findings
    baseline, candidate = asked
    in_baseline = _places(baseline, findings)
    in_candidate = cache(partial(_places, candidate, findings))

    def order(one: Placed) -> tuple[float, int, Key, int, str]:
        place = in_baseline(one.request, -1)
        if place < 0:
            place = len(baseline) + in_candidate()(one.request, len(candidate))
        return -one.weight, place, one.key, -1 if one.position is None else one.position, str(one.kind)

    return in_order(findings, order)


def _places(keys: Sequence[Key], findings: Sequence[Finding]) -> Callable[[str, int], int]:
    """Where the request of a finding first stands among others of findings; a number given for one that does not."""
    if isinstance(keys, Index):
        return lambda name, otherwise: otherwise if (number := keys.number(name)) is None else number
    names = {one.request for one in heads(findings)}
    return dict(zip(dict.fromkeys([key.request for key in keys if key.request in names]), count(), strict=False)).get


def _of_candidate(inputs: Inputs, references: References, pairs: Pairs, run: Run) -> Mapping[Key, TokenGaps]:
    """Gaps of all scored completions of the candidate, those equal to the baseline's that alone are scored included."""
    arm = inputs.arms[1]
    known = references.lookup.scored(arm).keys() - run.gaps.keys()
    rows = np.flatnonzero(pairs.identical).tolist() if known else ()
    alone = [pairs.candidate[row] for row in rows if pairs.keys[row] in known]
    scored = references.lookup.all_gaps(arm, alone)
    return overlaid(run.gaps, gaps_alone(scored))
