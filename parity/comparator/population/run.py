"""The run as a whole: its numbers, and whether they show a fault that no single completion does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np
from msgspec import UNSET, Struct, UnsetType, structs

from parity.comparator.classes import along
from parity.comparator.detect.found import Found
from parity.comparator.detect.other_penalties import seen_of_another
from parity.comparator.detect.pairs import Judged
from parity.comparator.inputs.bans import terminators
from parity.comparator.inputs.normalise import Inputs
from parity.comparator.inputs.servers import text_alone
from parity.comparator.population import missed, rates
from parity.comparator.population.drawn_run import tested
from parity.comparator.population.first_faults import first_places
from parity.comparator.population.moved import moved
from parity.comparator.population.noise_floor import noise_floor
from parity.comparator.population.penalties import not_as_large, not_kept
from parity.comparator.population.rounds import over_rounds
from parity.comparator.population.whole_arm import whole_arm
from parity.comparator.population.whose import FEW_LOOPS, candidate_alone_is_corrupt
from parity.comparator.reference.gaps import TokenGaps, end_to_end
from parity.comparator.reference.references import References
from parity.comparator.reference.stored import ScoredGaps, changed, overlaid
from parity.comparator.reference.tolerance import chances_supported
from parity.comparator.stats import Doubtful, Loops, Missed, Stats, Suspected
from parity.comparator.streams.pairing import Pairs
from parity.comparator.types import CompareOptions, run_finding
from parity.messages import Message, message
from parity.records import Completion, Finding, Index, Key, Kind
from parity.records.evidence import RunEvidence
from parity.records.many_findings import corrupt_of, heads
from parity.records.objects import object_of

SHOWN = 16
"""Completions listed in the statistics."""


class Run(Struct, frozen=True):
    """What holds for a run as a whole."""

    stats: Stats
    findings: tuple[Finding, ...]
    gaps: Mapping[Key, TokenGaps]
    """Of the candidate's completions that are scored; a completion equal to the baseline's has the baseline's."""
    cut_short: int
    """Completions of which the tokens after a near-tie are not judged; their number is in `stats`."""
    near_ties: int
    """Completions that part at a near-tie and are scored."""
    untested: Message | None = None
    """Why the residuals of the arms could not be tested."""
    baseline_penalties: RunEvidence | None = None
    """How the baseline did not keep to its penalties."""


def measure(
    inputs: Inputs,
    references: References,
    pairs: Pairs,
    judged: Judged,
    completions: Found,
    options: CompareOptions,
) -> Run:
    """The numbers of the run."""
    alpha = options.alpha
    greedy, drawn = pairs.where(~pairs.random), pairs.where(pairs.random)
    gaps = overlaid(_shared(references, pairs), judged.gaps)
    whole = whole_arm(inputs, references, pairs, judged, gaps, completions.findings, alpha, options.spread)
    of_drawn = inputs.drawn_alone(greedy.keys) if inputs.is_random else inputs
    tests, found, ends = (
        tested(of_drawn, references, drawn, judged, whole.numerics, options) if inputs.is_random else (None, (), ())
    )
    counted = rates.rates(completions.classes, (*heads(corrupt_of(completions.findings)), *found))
    found = (*found, *whole.findings)
    cut_short, tokens_not_judged = _not_judged(pairs, judged)
    stats = Stats(
        **structs.asdict(counted),
        tolerance=round(references.tolerance, 4),
        tokens=pairs.candidate_tokens.total,
        exercised=inputs.exercised,
        differences=inputs.differences,
        floor=None if references.floor is None else references.floor.stats(),
        aborted=pairs.aborted or UNSET,
        tokens_not_judged=tokens_not_judged if cut_short else UNSET,
        suspects=_suspects(judged) if counted.unjudged else UNSET,
        doubtful=_doubtful(judged) or UNSET,
        sampling=UNSET if tests is None else tests,
        numerics=whole.numerics,
        over_rounds=over_rounds(pairs, gaps, alpha) or UNSET,
        recorded=_recorded(inputs),
        faults_at=first_places(heads(corrupt_of(completions.findings)), inputs.candidate),
    )
    in_drawn = missed.in_sampled(len(drawn.keys), judged.seen, judged.places, ends) if not counted.corrupt else ()
    if inputs.is_random and not greedy.keys:
        stats = rates.with_findings_of_run(_with_missed(stats, *in_drawn), whole.findings)
        return Run(stats, found, gaps, cut_short, 0, whole.missing)
    part = inputs.greedy_alone(drawn.keys)
    loops = rates.loops(greedy, _ends_put_there(inputs))
    chance, near_ties = _chance_to_pass(greedy, judged, inputs.candidate.header.vocab_size, references.tolerance)
    stats = structs.replace(
        stats,
        loops=loops,
        noise_floor=noise_floor(part.baseline, greedy),
        drift=whole.drift,
        position_in_step=rates.position_in_step(part.candidate.completions, judged.gaps, references.tolerance),
        chance_that_any_token_passes=UNSET if chance is None else round(chance, 4),
        moved=moved(greedy, overlaid(gaps, judged.gaps), judged.limited) or UNSET,
    )
    if not counted.corrupt and not counted.missing:
        identical, whole_ties, cut = _judged_whole(greedy, judged)
        of_greedy = missed.in_greedy(identical, whole_ties, chance, max(references.tolerance, judged.excused), cut)
        of_others = missed.of_penalties(len(greedy.keys), _others_seen(part, references, gaps))
        stats = _with_missed(stats, of_greedy, *of_others, *in_drawn)
    looping = _loop_findings(inputs, loops) if candidate_alone_is_corrupt(judged, greedy) else ()
    arm, of_baseline = _penalties(part, references, gaps)
    penalties = () if arm is None else (run_finding(*part.arms[::-1], Kind.UNJUSTIFIED, arm),)
    own = (*looping, *penalties)
    stats = rates.with_findings_of_run(stats, (*whole.findings, *own))
    return Run(stats, (*found, *own), gaps, cut_short, near_ties, whole.missing, of_baseline)


def _ends_put_there(inputs: Inputs) -> frozenset[int]:
    """Tokens that may stand at the end of ids that were made from a text, though the engine said none: "stop" alone
    says that one did, and some servers say it of every end."""
    arms = [arm.header for arm in (inputs.baseline, inputs.candidate)]
    return frozenset[int]().union(*map(terminators, arms)) if any(map(text_alone, arms)) else frozenset()


def _judged_whole(pairs: Pairs, judged: Judged) -> tuple[int, int, int]:
    """(completions equal to the baseline's, those that part at near-ties and are judged to their end, those that are
    not)."""
    classes = Counter(along(pairs.keys, judged.classes))
    open_ones = sum(judged.classes.get(key) == "near_tie" for key in judged.limited)  # greedy ones alone are limited
    return classes["identical"], classes["near_tie"] - open_ones, open_ones


def _with_missed(stats: Stats, *found: Missed) -> Stats:
    return structs.replace(stats, missed=found, fault_rate_not_excluded=missed.not_excluded(found))


def _shared(references: References, pairs: Pairs) -> Mapping[Key, TokenGaps]:
    """Gaps of completions equal to the baseline's: scored once."""
    if isinstance(references.baseline, ScoredGaps) and isinstance(pairs.keys, Index):
        scored, paired = references.baseline.gaps, pairs.keys
        others = {paired[row] for row in np.flatnonzero(~pairs.identical).tolist()}
        others.update(key for key in scored if key not in paired)
        return changed(scored, lambda _, gaps: gaps, lambda key: key not in others)
    rows = np.flatnonzero(pairs.identical).tolist() if references.baseline else ()
    keys = (pairs.keys[row] for row in rows)
    return {key: references.baseline[key][0] for key in keys if key in references.baseline}


def _loop_findings(inputs: Inputs, loops: Loops) -> tuple[Finding, ...]:
    """Where completions of the candidate are corrupt by themselves: else it may be the baseline that loops too seldom
    (`of_the_run.looping`)."""
    if loops.p_candidate_loops_more >= FEW_LOOPS:
        return ()
    why = message(
        "repetition.run",
        "{count} completions end in a loop in the candidate only, {other} in the baseline only",
        count=loops.only_candidate,
        other=loops.only_baseline,
    )
    evidence = RunEvidence(why=why, **loops.to_json())
    return (run_finding(*inputs.arms[::-1], Kind.REPETITION, evidence),)


def _penalties(
    part: Inputs, references: References, gaps: Mapping[Key, TokenGaps]
) -> tuple[RunEvidence | None, RunEvidence | None]:
    """How candidate and baseline did not keep to their penalties; `part`: what was decoded greedily."""
    if not references.lookup.penalises:
        return None, None
    baseline, arm = part.arms

    def scored() -> Iterator[tuple[Completion, TokenGaps]]:
        return ((one, gaps[one.key]) for one in part.candidate if one.key in gaps)

    def own() -> Iterator[tuple[Completion, TokenGaps]]:
        return ((one, references.baseline[one.key][0]) for one in part.baseline if one.key in references.baseline)

    lookup = references.lookup
    of_candidate = not_kept(arm, scored(), lookup) or not_as_large((own(), scored()), lookup)
    return of_candidate, not_kept(baseline, own(), lookup) or not_as_large((scored(), own()), lookup)


def _others_seen(part: Inputs, references: References, gaps: Mapping[Key, TokenGaps]) -> float | None:
    """The share of greedy completions in which another request's penalties would be found."""
    if len(references.lookup.penalties_asked) < 2:
        return None
    arms = part.arms[::-1]
    scored = [
        (one, top, gaps[one.key])
        for one in part.candidate
        if one.key in gaps
        and (top := next((found for arm in arms if (found := references.lookup.score(arm, one)) is not None), None))
    ]
    return seen_of_another(scored, references.lookup, references.tolerance, len(part.candidate.completions))


def _suspects(judged: Judged) -> tuple[Suspected, ...]:
    """What unjudged completions look like, the first of them."""
    return tuple(
        Suspected(
            request=key.request,
            round=key.round,
            sample=key.sample,
            looks_like=str(event.kind),
            position=event.position,
            length=event.length,
        )
        for key, event in list(judged.suspects.items())[:SHOWN]
    )


def _not_judged(pairs: Pairs, judged: Judged) -> tuple[int, int]:
    """(completions, their tokens) after near-ties on which the reference says nothing."""
    completions = tokens = 0
    rows = np.flatnonzero(~pairs.identical) if judged.limited else np.empty(0, dtype=np.int64)
    for row, size in zip(rows.tolist(), pairs.candidate_tokens.sizes[rows].tolist(), strict=True):
        key = pairs.keys[row]
        at = judged.limited.get(key)
        if at is not None and judged.classes.get(key) == "near_tie":
            completions, tokens = completions + 1, tokens + size - at
    return completions, tokens


def _chance_to_pass(pairs: Pairs, judged: Judged, vocab_size: int | None, tolerance: float) -> tuple[float | None, int]:
    """(chance that a token taken at random is supported after a near-tie, near-ties that this is the mean of)."""
    total, places, near_ties = 0.0, 0, 0
    rows = np.flatnonzero(~pairs.identical)
    for begin in range(0, len(rows), AT_ONCE):
        tied = [
            judged.gaps[key].best[int(pairs.parts_at[row]) :]
            for row in rows[begin : begin + AT_ONCE].tolist()
            for key in (pairs.keys[row],)
            if judged.classes.get(key) == "near_tie" and key in judged.gaps
        ]
        near_ties += len(tied)
        for best in end_to_end(tied):
            chances, of = chances_supported(best, tolerance, vocab_size)
            total, places = total + chances, places + of
    return total / places if places else None, near_ties


AT_ONCE = 1 << 10
"""Pairs that are looked at together."""


def _doubtful(judged: Judged) -> tuple[Doubtful, ...]:
    """The first of them, for the statistics."""
    return tuple(
        Doubtful(request=key.request, round=key.round, sample=key.sample, position=one.position, gap=round(one.gap, 4))
        for key, one in list(judged.doubtful.items())[:SHOWN]
    )


def _recorded(inputs: Inputs) -> tuple[str, str] | UnsetType:
    """The arms that the two are recordings of."""
    baseline, candidate = (
        str(object_of(arm.header.extra.get("replayed")).get("arm") or arm.header.arm)
        for arm in (inputs.baseline, inputs.candidate)
    )
    return UNSET if (baseline, candidate) == inputs.arms else (baseline, candidate)
