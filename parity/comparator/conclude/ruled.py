"""Where the arbiter decides: it supports one side throughout, and the baseline's own reference left that open.

One side in every completion that differs, or both (noise), and by more than rounding explains. A candidate that the
baseline's reference cleared stays cleared: two engines may disagree about a near-tie.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace

import msgspec
from msgspec import UnsetType

from parity.comparator.conclude.conclude import worst_first
from parity.comparator.population import missed
from parity.comparator.population.rates import recounted
from parity.comparator.reference.arbiter import ARBITER_TOLERANCE, Ruling, Side
from parity.comparator.reference.floor import NOT_NOISE
from parity.comparator.types import Comparison, CompletionClass
from parity.messages import message
from parity.records import Finding, Key, Kind, Severity, Verdict, words
from parity.records.evidence import JudgedBy, Numbers, TokensEvidence
from parity.records.many_findings import heads, joined
from parity.records.next_steps import Step

DECISIVE = ARBITER_TOLERANCE * NOT_NOISE
"""Nats below the arbiter's best token that are not explained by rounding, even that of two engines."""

UNJUDGED = frozenset({"conclude.unjudged", "conclude.unjudged_server", "conclude.unjudged_hidden"})
"""Reasons that nothing judges what differs."""

ONE_SIDED = 0.01
"""Chance at which noise that hits either side alike would leave one side alone unsupported so often."""


def decided(comparison: Comparison, found: Mapping[Key, Ruling], arbiter: str) -> Comparison:
    """The comparison (with its rulings, `with_rulings`), with what follows for its verdict and its headline.

    An INCONCLUSIVE run is decided where every completion that differs has a ruling and the arms were asked the same.
    Where the candidate is supported and the baseline is not, it is the baseline that is at fault, whatever its own
    scores say of the candidate.
    """
    side = side_of(found)
    if not comparison.first_divergence.keys() <= {key for key, one in found.items() if one.whole}:
        return comparison
    if any(one.step is Step.SAME_QUESTIONS for one in comparison.next_steps):
        return comparison
    if side is None:
        return _left_open(comparison, found, arbiter)
    if side == "candidate":
        return _against_baseline(comparison, found, arbiter)
    if comparison.verdict is not Verdict.INCONCLUSIVE:
        return comparison
    return _against_candidate(comparison, found, arbiter) if side == "baseline" else _noise(comparison, found, arbiter)


def side_of(found: Mapping[Key, Ruling]) -> Side | None:
    """The one side that is supported throughout, beside completions in which both are; "both" where that is all.

    None where it is now this side and now that, or neither, and where noise could look the same.
    """
    sides = {ruling.supports for ruling in found.values()} - {"both"}
    if not sides:
        return "both" if found else None
    if len(sides) > 1 or sides == {"neither"}:
        return None
    (side,) = sides
    worst = [
        ruling.candidate_worst if side == "baseline" else ruling.baseline_worst
        for ruling in found.values()
        if ruling.supports == side
    ]
    return side if max(worst) > DECISIVE or 0.5 ** len(worst) <= ONE_SIDED else None


def _against_baseline(comparison: Comparison, found: Mapping[Key, Ruling], arbiter: str) -> Comparison:
    corrupt = {one.key for one in heads(comparison.corrupt)}
    if comparison.verdict is Verdict.PASS or not corrupt <= found.keys():
        return comparison
    ruled = comparison.stats.arbiter
    assert not isinstance(ruled, UnsetType)
    said = message(
        "arbiter.baseline_at_fault",
        "it is the baseline that is at fault: {arbiter} supports {candidate} and not {baseline} in {completions}, and "
        "nowhere the other way round",
        arbiter=arbiter,
        candidate=comparison.candidate,
        baseline=comparison.baseline,
        completions=words.completions(sum(one.supports == "candidate" for one in found.values())),
    )
    numbers = msgspec.structs.replace(ruled, baseline_at_fault=True)
    settled = _settled(comparison)
    known = replace(comparison, stats=msgspec.structs.replace(comparison.stats, arbiter=numbers))
    return _counted(
        replace(
            known,
            verdict=Verdict.DIVERGED,
            reasons=(said, *(one for one in comparison.reasons if one.id not in settled)),
            next_steps=(),
        ),
        _noisy(comparison, found),
    )


def _against_candidate(comparison: Comparison, found: Mapping[Key, Ruling], arbiter: str) -> Comparison:
    """A finding for each completion in which the candidate's tokens are rejected."""
    rejected = {key: ruling for key, ruling in found.items() if ruling.supports == "baseline"}
    settled = _settled(comparison)
    said = message(
        "arbiter.candidate_at_fault",
        "{arbiter} supports {baseline} and not {candidate} in {completions}, and nowhere the other way round",
        arbiter=arbiter,
        candidate=comparison.candidate,
        baseline=comparison.baseline,
        completions=words.completions(len(rejected)),
    )
    findings = worst_first(
        joined(
            (_finding(comparison, ruling, arbiter) for ruling in rejected.values()),
            (one for one in comparison.findings if one.key not in rejected),
        ),
        comparison.asked,
    )
    return _counted(
        replace(
            comparison,
            verdict=Verdict.DIVERGED,
            reasons=(said, *(one for one in comparison.reasons if one.id not in settled)),
            findings=findings,
            next_steps=(),
        ),
        {**_noisy(comparison, found), **dict.fromkeys(rejected, "corrupt")},
    )


def _noise(comparison: Comparison, found: Mapping[Key, Ruling], arbiter: str) -> Comparison:
    """PASS, where nothing else was open."""
    settled = _settled(comparison)
    if not settled or {one.settles for one in comparison.next_steps} > settled:
        return comparison
    bounded = _with_missed(_counted(comparison, _noisy(comparison, found)), found)
    said = message(
        "arbiter.noise",
        "{arbiter} finds both sides' tokens likely in {number} completions that differ: noise",
        arbiter=arbiter,
        number=len(found),
    )
    return replace(
        bounded,
        verdict=Verdict.PASS,
        reasons=(
            said,
            *missed.said(bounded.stats.missed),
            *(one for one in comparison.reasons if one.id not in settled),
        ),
        next_steps=(),
    )


def _left_open(comparison: Comparison, found: Mapping[Key, Ruling], arbiter: str) -> Comparison:
    """Where nothing else judged what differs, that the arbiter has: how much of it is noise, and what is not."""
    unjudged = {one.id for one in comparison.reasons} & UNJUDGED
    open_ = [one for one in found.values() if one.supports != "both"]
    if comparison.verdict is not Verdict.INCONCLUSIVE or not unjudged or not open_:
        return comparison
    worst = max(open_, key=lambda one: max(one.baseline_worst, one.candidate_worst))
    said = message(
        "arbiter.open",
        "of {number} completions that differ, {arbiter} finds {both} to be noise; in {open} it rejects tokens (at "
        "worst {gap:.2f} nats below its best, {first}), now of this side and now of that, or so few and so little that "
        "two engines may differ by it",
        number=len(found),
        arbiter=arbiter,
        both=len(found) - len(open_),
        open=len(open_),
        gap=max(worst.baseline_worst, worst.candidate_worst),
        first=str(worst.key),
    )
    steps = (
        replace(one, settles=said.id) if one.settles in unjudged else one
        for one in comparison.next_steps
        if one.step is not Step.ARBITER or one.settles not in unjudged
    )
    others = (one for one in comparison.reasons if one.id not in unjudged)
    known = replace(comparison, reasons=(said, *others), next_steps=tuple(steps))
    return _counted(known, _noisy(comparison, found))


def _with_missed(comparison: Comparison, found: Mapping[Key, Ruling]) -> Comparison:
    """With what could have been missed, now that the arbiter has judged what differs to its end."""
    stats = comparison.stats
    ruled = stats.arbiter
    assert not isinstance(ruled, UnsetType)
    chances = [one.chance for one in found.values() if one.chance is not None]
    drawn = tuple(one for one in stats.missed if one.fault not in missed.OF_GREEDY)
    judged = missed.in_greedy(
        stats.identical, stats.near_tie, sum(chances) / len(chances) if chances else None, ruled.tolerance
    )
    all_of_it = (judged, *drawn) if stats.identical or stats.near_tie else drawn
    return replace(
        comparison,
        stats=msgspec.structs.replace(stats, missed=all_of_it, fault_rate_not_excluded=missed.not_excluded(all_of_it)),
    )


def _settled(comparison: Comparison) -> Set[str]:
    """Ids of the reasons that an arbiter settles."""
    return {one.settles for one in comparison.next_steps if one.step is Step.ARBITER}


def _noisy(comparison: Comparison, found: Mapping[Key, Ruling]) -> dict[Key, CompletionClass]:
    """Classes in which what nothing judged is a near-tie where the arbiter finds both sides likely."""
    return {
        key: "near_tie" if one == "unjudged" and key in found and found[key].supports == "both" else one
        for key, one in comparison.classes.items()
    }


def _counted(comparison: Comparison, classes: Mapping[Key, CompletionClass]) -> Comparison:
    """The comparison with these classes, and the numbers that follow from them."""
    return replace(comparison, classes=classes, stats=recounted(comparison.stats, classes, heads(comparison.corrupt)))


def _finding(comparison: Comparison, ruling: Ruling, arbiter: str) -> Finding:
    return Finding(
        arm=comparison.candidate,
        baseline=comparison.baseline,
        request=ruling.key.request,
        round=ruling.key.round,
        sample=ruling.key.sample,
        kind=Kind.UNJUSTIFIED,
        severity=Severity.CORRUPT,
        position=ruling.position,
        length=1,
        evidence=TokensEvidence(
            why=ruling.why(arbiter),
            numbers=Numbers(gap=ruling.candidate_gap),
            largest_gap=ruling.candidate_worst,
            judged_by=JudgedBy.ARBITER,
            first_divergent_token=ruling.position,
            arbiter=ruling.to_json(arbiter),
        ),
    )
