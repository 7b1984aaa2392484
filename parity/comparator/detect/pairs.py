"""All pairs of a greedy run: what is wrong with each candidate completion."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field
from msgspec.structs import replace

from parity.comparator.classes import of_all, with_others
from parity.comparator.detect import findings, stops
from parity.comparator.detect.cases import Case, InDoubt, Setup
from parity.comparator.detect.draft_acceptance import Proposed
from parity.comparator.detect.drawn_places import Tested
from parity.comparator.detect.events import Event
from parity.comparator.detect.logprobs import doubtful_rows, listing_rows
from parity.comparator.detect.near_ties import is_supported
from parity.comparator.detect.registry import detectors
from parity.comparator.detect.rules import Broken
from parity.comparator.detect.whole_draws import ArmsDraws
from parity.comparator.reference.gaps import TokenGaps, decided
from parity.comparator.reference.other_draws import ArmsOdds
from parity.comparator.reference.scores import gaps_at_divergence, own_rejections
from parity.comparator.streams.pairing import at_rows
from parity.comparator.types import CompletionClass
from parity.messages import Message, message
from parity.records import Completion, Finding, Key
from parity.records.kinds import Family
from parity.records.next_steps import NextStep

T = TypeVar("T")

CONTRADICTION = 0.25
"""Nats beyond the tolerance by which the reference must reject the baseline's own token to be taken as a
contradiction: the baseline chose it, with the noise of one more kernel. More than that where the baseline's own tokens
show more noise (`Doubt.limit`): vLLM 0.32 on CPU chose one of 38,260 that its prefill has 0.56 nats below the best."""


class Judged(Struct, frozen=True):
    """What was found in all pairs."""

    findings: list[Finding] = field(default_factory=list)
    classes: Mapping[Key, CompletionClass] = field(default_factory=dict)
    gaps: dict[Key, TokenGaps] = field(default_factory=dict)
    """Of scored candidate completions that differ from the baseline's."""
    limited: dict[Key, int] = field(default_factory=dict)
    """Completions of which nothing is known from this position on."""
    suspects: dict[Key, Event] = field(default_factory=dict)
    """What unjudged completions look like."""
    doubtful: dict[Key, InDoubt] = field(default_factory=dict)
    """Completions with nothing wrong but a token or two little beyond the tolerance."""
    excused: float = 0.0
    """Nats below the best up to which a lone token does not count as a fault."""
    contradicted: list[Key] = field(default_factory=list)
    """Completions whose score rejects the baseline's own token where the two part."""
    baseline_ends: dict[Key, Message] = field(default_factory=dict)
    """Completions where it is the baseline's end that cannot be right, and why."""
    notes: list[Message] = field(default_factory=list)
    seen: Mapping[str, float] = field(default_factory=dict)
    """Of completions drawn at random: the share that would be found, were all of them faulty in this way."""
    places: Tested | None = None
    """Of completions drawn at random: whether tokens at certain places were drawn otherwise."""
    proposed: Proposed | None = None
    """Drafts of completions drawn at random."""
    draws: ArmsDraws = field(default_factory=ArmsDraws)
    """Of completions drawn at random: what those of baseline and candidate add up to."""
    odds: ArmsOdds | None = None
    """Of completions drawn at random: how likely these are, had they been drawn otherwise."""
    baseline_draws_at: float | None = None
    """Times the temperature asked for, that the baseline's drawn tokens look like by its own scores, where these do not
    explain them."""
    broken: Broken = field(default_factory=Broken)
    """What the arms broke of the requests' own rules, in all pairs."""
    next_steps: tuple[NextStep, ...] = ()
    """What would say more of what was found."""

    def __add__(self, other: Judged) -> Judged:
        """What was found in other pairs as well; `broken` is of all pairs and stays."""
        return Judged(
            [*self.findings, *other.findings],
            with_others(self.classes, other.classes),
            self.gaps | other.gaps,
            self.limited | other.limited,
            self.suspects | other.suspects,
            self.doubtful | other.doubtful,
            max(self.excused, other.excused),
            [*self.contradicted, *other.contradicted],
            self.baseline_ends | other.baseline_ends,
            [*self.notes, *other.notes],
            {**self.seen, **other.seen},
            other.places or self.places,
            other.proposed or self.proposed,
            other.draws if other.draws.candidate else self.draws,
            other.odds or self.odds,
            other.baseline_draws_at or self.baseline_draws_at,
            self.broken,
            self.next_steps + other.next_steps,
        )


def judge_pairs(setup: Setup) -> Judged:
    """Findings for every pair; those with another prompt have that one alone."""
    pairs, arms = setup.pairs, setup.arms
    cases = [*_differing(setup), *_identical(setup)]
    for detector in detectors():
        cases = detector.look(cases, setup)
    mismatches = findings.input_mismatches(arms, pairs)
    others: dict[Key, CompletionClass] = dict.fromkeys((one.key for one in mismatches), "corrupt")
    keys = [case.key for case in cases]
    others |= {key: class_of(case, setup.tolerance) for key, case in zip(keys, cases, strict=True)}
    classes = with_others(of_all(pairs.keys, "identical"), others)
    return replace(
        _seen_in(keys, cases, classes),
        findings=[*mismatches, *(one for case in cases for one in findings.findings_of(case, arms, setup.tolerance))],
        notes=[] if setup.scores_show_lists else [_OTHER_LISTS],
        excused=max(setup.tolerance, setup.doubt.lone),
    )


def _seen_in(keys: Sequence[Key], cases: Sequence[Case], classes: Mapping[Key, CompletionClass]) -> Judged:
    """What is known of the pairs besides findings; `keys`: of the cases, each made once."""
    keyed = list(zip(keys, cases, strict=True))

    def of_each(value: Callable[[Case], T | None]) -> dict[Key, T]:
        return {key: found for key, case in keyed if (found := value(case)) is not None}

    return Judged(
        classes=classes,
        gaps=of_each(lambda case: case.gaps if case.from_scores else None),
        limited=of_each(lambda case: None if case.events else case.unjudged_from),
        suspects=of_each(
            lambda case: (
                case.suspect
                if case.suspect is not None and classes[case.key] == "unjudged" and not _baseline_is_wrong(case)
                else None
            )
        ),
        doubtful=of_each(lambda case: case.doubtful),
        contradicted=[key for key, case in keyed if case.contradicted and not _broke_first(case)],
        baseline_ends=of_each(lambda case: case.baseline_end),
    )


_OTHER_LISTS = message(
    "logprobs.not_compared",
    "the baseline's own logprobs are not those of the scores (another temperature or kind of logprobs?): "
    "the arms' logprobs were compared with each other",
)


def class_of(case: Case, tolerance: float) -> CompletionClass:
    """What a completion is counted as."""
    if case.events:
        return "corrupt"
    if case.is_identical:
        return "identical"
    if _baseline_is_wrong(case):
        return "unjudged"
    if case.flip is None and (case.a.aborted or case.b.aborted):
        return "identical"  # as far as they go
    if case.doubtful is not None:
        return "near_tie"
    if case.flip is None:
        return "near_tie" if case.ends_at_near_tie else "unjudged"
    return "unjudged" if is_supported(case, tolerance) is None else "near_tie"


def _baseline_is_wrong(case: Case) -> bool:
    return case.baseline_end is not None or case.contradicted or case.baseline_broke


def _broke_first(case: Case) -> bool:
    """Did an arm part from the other by breaking a rule of the request? Who did is named then."""
    return case.baseline_broke or any(
        event.kind.row.family is Family.RULES and event.position <= case.parts_at for event in case.events
    )


def _differing(setup: Setup) -> list[Case]:
    """The pairs of equal prompts and other tokens, each with what the reference says of it."""
    pairs = setup.pairs
    where = np.flatnonzero(~pairs.identical & pairs.same_prompt)
    rows, others = where.tolist(), at_rows(pairs.candidate, where)
    scored = setup.reference.all_gaps(setup.arms[1], others)
    said = dict(zip(scored, decided([gaps for gaps, _ in scored.values()], setup.tolerance), strict=True))
    asked_alike = not setup.inputs.candidate.own_sampling
    too_long = stops.may_overrun(pairs.candidate, setup.rules, pairs.candidate_tokens, asked_alike=asked_alike)
    cases = []
    parts_at = pairs.parts_at[rows].tolist()
    for row, at, b, may_overrun in zip(rows, parts_at, others, too_long[rows].tolist(), strict=True):
        past = stops.overrun(b, setup.rules) if may_overrun else None
        if b.key in scored:
            gaps, found = scored[b.key][0], said[b.key]
            rival = setup.rivals.get(b.key)
            against = rival is not None and rival.gap > max(setup.tolerance + CONTRADICTION, setup.doubt.limit)
            cases.append(Case(pairs, row, at, past, gaps, found, from_scores=True, rival=rival, contradicted=against))
        else:
            cases.append(_unscored(row, pairs.baseline[row], b, past, setup))
    return cases


def _unscored(row: int, a: Completion, b: Completion, past: Event | None, setup: Setup) -> Case:
    """A pair without a score: the gaps are those that the engines listed themselves."""
    pairs, parts_at = setup.pairs, int(setup.pairs.parts_at[row])
    shaping = setup.reference.shaping(b)
    if shaping.unknown:
        return Case(pairs, row, parts_at, past)
    gaps, is_the_others = gaps_at_divergence(a, b, parts_at, setup.tolerance, shaping) or (None, False)
    if b.lists is not None and setup.lists_show_choices:
        gaps = own_rejections(b, gaps, parts_at, setup.tolerance, shaping)
    return Case(pairs, row, parts_at, past, gaps, gap_is_the_others=is_the_others)


def _identical(setup: Setup) -> list[Case]:
    """The pairs of equal tokens in which something else is to be looked at."""
    pairs = setup.pairs
    same = pairs.identical & pairs.same_prompt
    rows = np.flatnonzero(same)
    if not any(detector.at_equal_tokens for detector in detectors()):
        rows = np.flatnonzero(same & _odd(setup, rows))
    return [Case(pairs, row, -1) for row in rows.tolist()]


def _odd(setup: Setup, equal: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Shape (P,): pairs with something besides tokens that a detector may have a question to; `equal`: those of equal
    tokens. One thing after another over all pairs: looking at each pair costs more than comparing it."""
    pairs = setup.pairs
    odd = np.zeros(len(pairs.keys), dtype=np.bool_)
    apart = pairs.said_apart()
    if isinstance(apart, range):
        both = zip(pairs.baseline, pairs.candidate, strict=True)
        odd = np.array([a.finish_reason != b.finish_reason or a.text != b.text for a, b in both], dtype=np.bool_)
    else:
        for row in apart:
            a, b = pairs.baseline[row], pairs.candidate[row]
            odd[row] = a.finish_reason != b.finish_reason or a.text != b.text
    keys = setup.invalid | setup.broken.candidate.keys()
    if keys:
        odd |= np.array([key in keys for key in pairs.keys], dtype=np.bool_)
    if setup.inputs.candidate.has_logprobs:
        odd[listing_rows(pairs)] = True
        odd[list(doubtful_rows(pairs, equal))] = True
    return odd
