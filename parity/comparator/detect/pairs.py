"""All pairs of a greedy run: what is wrong with each candidate completion."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field
from msgspec.structs import replace

from parity.comparator.classes import ORDER, by_row, with_others
from parity.comparator.detect import findings, stops
from parity.comparator.detect.cases import Case, Doubted, InDoubt, Setup
from parity.comparator.detect.cutoffs import Together
from parity.comparator.detect.draft_acceptance import Proposed
from parity.comparator.detect.drawn_places import Tested
from parity.comparator.detect.events import Event
from parity.comparator.detect.many_logprobs import doubtful_rows, listing_rows
from parity.comparator.detect.near_ties import is_supported
from parity.comparator.detect.registry import detectors
from parity.comparator.detect.rules import Broken
from parity.comparator.detect.turns import AT_ONCE, looked_at
from parity.comparator.detect.whole_draws import ArmsDraws
from parity.comparator.reference.at_divergence import gaps_at_divergence
from parity.comparator.reference.gaps import Decided, TokenGaps, decided
from parity.comparator.reference.other_draws import ArmsOdds
from parity.comparator.reference.own_logprobs import own_rejections
from parity.comparator.reference.stored import gaps_alone, overlaid
from parity.comparator.streams.pairing import at_rows
from parity.comparator.types import CompletionClass, Spread
from parity.messages import Message, message
from parity.records import Completion, Finding, Key
from parity.records.kinds import Family
from parity.records.many_findings import Gathering, joined
from parity.records.next_steps import NextStep

T = TypeVar("T")

FEW_OF_BOTH, OF_BOTH = 3, 0.5
"""Tokens that both arms said before they part, and the share of these, from which on a score that rejects them is not
believed. Where experts lie far apart one in twelve of a sound arm is rejected; of a list shifted by a place, or of
another request's, nearly every one is."""


class Judged(Struct, frozen=True):
    """What was found in all pairs."""

    findings: Sequence[Finding] = ()
    classes: Mapping[Key, CompletionClass] = field(default_factory=dict)
    gaps: Mapping[Key, TokenGaps] = field(default_factory=dict)
    """Of scored candidate completions that differ from the baseline's."""
    limited: Mapping[Key, int] = field(default_factory=dict)
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
    baseline_proposed: Proposed | None = None
    """The same of the baseline."""
    draws: ArmsDraws = field(default_factory=ArmsDraws)
    """Of completions drawn at random: what those of baseline and candidate add up to."""
    odds: ArmsOdds | None = None
    """Of completions drawn at random: how likely these are, had they been drawn otherwise."""
    baseline_draws_at: float | None = None
    """Times the temperature asked for, that the baseline's drawn tokens look like by its own scores, where these do not
    explain them."""
    beyond_cutoff: Together | None = None
    """Of the candidate's drawn completions, those with a token a little beyond what their requests cut off, where they
    are too many."""
    baseline_drawn: dict[Key, Message] = field(default_factory=dict)
    """Completions of the baseline that were drawn otherwise than asked, and how it shows."""
    baseline_logprobs: dict[Key, Message] = field(default_factory=dict)
    """Of its other completions those whose own logprobs are not those of their tokens, and how it shows."""
    broken: Broken = field(default_factory=Broken)
    """What the arms broke of the requests' own rules, in all pairs."""
    next_steps: tuple[NextStep, ...] = ()
    """What would say more of what was found."""

    def __add__(self, other: Judged) -> Judged:
        """What was found in other pairs as well; `broken` is of all pairs and stays."""
        return Judged(
            joined(self.findings, other.findings),
            with_others(self.classes, other.classes),
            overlaid(self.gaps, other.gaps),
            overlaid(self.limited, other.limited),
            self.suspects | other.suspects,
            self.doubtful | other.doubtful,
            max(self.excused, other.excused),
            [*self.contradicted, *other.contradicted],
            self.baseline_ends | other.baseline_ends,
            [*self.notes, *other.notes],
            {**self.seen, **other.seen},
            other.places or self.places,
            other.proposed or self.proposed,
            other.baseline_proposed or self.baseline_proposed,
            other.draws if other.draws.candidate else self.draws,
            other.odds or self.odds,
            other.baseline_draws_at or self.baseline_draws_at,
            other.beyond_cutoff or self.beyond_cutoff,
            self.baseline_drawn | other.baseline_drawn,
            self.baseline_logprobs | other.baseline_logprobs,
            self.broken,
            self.next_steps + other.next_steps,
        )


def judge_pairs(setup: Setup, spread: Spread) -> Judged:
    """Findings for every pair; those with another prompt have that one alone."""
    gaps, parts = _differing(setup)
    seen = _Seen(setup)
    every: list[_Parted | _Equal] = [*parts, *_identical(setup)]
    for some in looked_at(
        every,
        lambda part: part.cases(),
        setup,
        detectors(),
        gaps,
        partial(_Some.of, setup),
        spread,
    ):
        seen.add(some)
    return replace(seen.judged(), gaps=gaps)


class _Some(Struct):
    """What is known of some cases that all detectors have looked at, by their places in the run: first those that
    part."""

    rows: array[int] = field(default_factory=lambda: array("q"))
    classes: array[int] = field(default_factory=lambda: array("b"))
    """Of each row, in ORDER."""
    limited: tuple[array[int], array[int]] = field(default_factory=lambda: (array("q"), array("q")))
    findings: list[tuple[int, Finding]] = field(default_factory=list)
    suspects: dict[int, Event] = field(default_factory=dict)
    doubtful: dict[int, InDoubt] = field(default_factory=dict)
    contradicted: set[int] = field(default_factory=set)
    baseline_ends: dict[int, Message] = field(default_factory=dict)

    @staticmethod
    def of(setup: Setup, cases: Sequence[Case]) -> _Some:
        found = _Some()
        for case in cases:
            found._add(case, setup)
        return found

    def _add(self, case: Case, setup: Setup) -> None:
        tolerance, row = setup.tolerance, case.row
        place = row + case.is_identical * len(setup.pairs.keys)
        cls = class_of(case, tolerance)
        self.rows.append(row)
        self.classes.append(ORDER.index(cls))
        self.findings += [(place, found) for found in findings.findings_of(case, setup.arms, tolerance)]
        if case.unjudged_from is not None and not case.events:
            for column, number in zip(self.limited, (row, case.unjudged_from), strict=True):
                column.append(number)
        if case.suspect is not None and cls == "unjudged" and not _baseline_is_wrong(case):
            self.suspects[place] = case.suspect
        if case.doubtful is not None:
            self.doubtful[place] = case.doubtful
        if case.contradicted and not _broke_first(case):
            self.contradicted.add(place)
        if case.baseline_end is not None:
            self.baseline_ends[place] = case.baseline_end


class _Seen:
    """What is known of all cases, in any order."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._classes = np.full(len(setup.pairs.keys), ORDER.index("identical"), dtype=np.int8)
        self._findings = Gathering()
        self._all = _Some()

    def add(self, some: _Some) -> None:
        self._classes[some.rows] = some.classes
        for place, found in some.findings:
            self._findings.append(place, found)
        for column, numbers in zip(self._all.limited, some.limited, strict=True):
            column.extend(numbers)
        self._all.suspects |= some.suspects
        self._all.doubtful |= some.doubtful
        self._all.contradicted |= some.contradicted
        self._all.baseline_ends |= some.baseline_ends

    def judged(self) -> Judged:
        """With those that were not asked alike."""
        pairs = self._setup.pairs
        mismatches = findings.input_mismatches(self._setup.arms, pairs)
        self._classes[~pairs.same_prompt] = ORDER.index("corrupt")
        rows, unjudged_from = (np.array(one, dtype=np.int64) for one in self._all.limited)
        order = np.argsort(rows)
        recorded = self._setup.inputs.candidate.has_logprobs
        return Judged(
            findings=joined(mismatches, self._findings.in_order()),
            classes=by_row(pairs.keys, self._classes),
            limited=pairs.numbered(rows[order], unjudged_from[order]),
            suspects=self._by_key(self._all.suspects),
            doubtful=self._by_key(self._all.doubtful),
            contradicted=list(map(self._key, sorted(self._all.contradicted))),
            baseline_ends=self._by_key(self._all.baseline_ends),
            notes=list(_of_lists(self._setup)),
            excused=max(self._setup.tolerance, self._setup.doubt.excused(own_logprobs=recorded)),
        )

    def _key(self, place: int) -> Key:
        return self._setup.pairs.keys[place % len(self._classes)]

    def _by_key(self, of_places: Mapping[int, T]) -> dict[Key, T]:
        return {self._key(place): value for place, value in sorted(of_places.items(), key=lambda item: item[0])}


_OTHER_LISTS = message(
    "logprobs.not_compared",
    "the baseline's own logprobs are not those of the scores (another temperature or kind of logprobs?): "
    "the arms' logprobs were compared with each other",
)


HIDDEN_CHOICES = message(
    "logprobs.hidden_choices",
    "the baseline's own logprobs, under the penalties that were asked for, do not explain what it chose: it ignored "
    "them, or gives logprobs after them; where a pair is not scored they decide nothing",
)


def _of_lists(setup: Setup) -> Iterator[Message]:
    if not setup.scores_show_lists:
        yield _OTHER_LISTS
    if setup.lists_hide_choices:
        yield HIDDEN_CHOICES
    if setup.rejects_own is not None:
        some, of = setup.rejects_own
        yield message(
            "logprobs.rejects_own",
            "the baseline's own logprobs put tokens that it chose more than {tolerance:.2g} nats below the best, in "
            "{some} of {of} completions: it did not decode greedily (does its capture name the temperature?), or they "
            "are not of what it chose from; where a pair is not scored they decide nothing",
            tolerance=setup.tolerance,
            some=some,
            of=of,
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
    if case.doubtful is not None and case.doubtful.how is not Doubted.APART:
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


class _Parted(Struct, frozen=True):
    """Pairs of other tokens: their rows, and which of them may be too long, shape (N,)."""

    rows: npt.NDArray[np.int64]
    gaps: Mapping[Key, TokenGaps]
    too_long: npt.NDArray[np.bool_]
    setup: Setup

    def cases(self) -> Sequence[Case]:
        return _parted(self.rows, self.gaps, self.too_long, self.setup)


class _Equal(Struct, frozen=True):
    """Pairs of equal tokens: their rows, shape (N,)."""

    rows: npt.NDArray[np.int64]
    setup: Setup

    def cases(self) -> Sequence[Case]:
        return [Case(self.setup.pairs, row, -1) for row in self.rows.tolist()]


def _differing(setup: Setup) -> tuple[Mapping[Key, TokenGaps], Sequence[_Parted]]:
    """Gaps of the candidate's scored completions that part from the baseline's; and the pairs of equal
    prompts and other tokens, each with what the reference says of it."""
    pairs = setup.pairs
    where = np.flatnonzero(~pairs.identical & pairs.same_prompt)
    gaps = gaps_alone(setup.reference.all_gaps(setup.arms[1], at_rows(pairs.candidate, where)))
    asked_alike = not setup.inputs.candidate.own_sampling
    too_long = stops.may_overrun(pairs.candidate, setup.rules, pairs.candidate_tokens, asked_alike=asked_alike)
    parts = (where[begin : begin + AT_ONCE] for begin in range(0, len(where), AT_ONCE))
    return gaps, [_Parted(part, gaps, too_long[part], setup) for part in parts]


def _parted(
    where: npt.NDArray[np.int64],
    gaps: Mapping[Key, TokenGaps],
    too_long: npt.NDArray[np.bool_],
    setup: Setup,
) -> list[Case]:
    """The pairs in these rows; `too_long`: those that may be, shape (N,)."""
    pairs, cases = setup.pairs, []
    rows, others = where.tolist(), at_rows(pairs.candidate, where)
    views = [gaps.get(b.key) for b in others] if gaps else [None] * len(rows)
    said = iter(decided([view for view in views if view is not None], setup.tolerance))
    believed, can_reject = setup.contradiction, setup.reference.can_reject
    parts_at = pairs.parts_at[where].tolist()
    for row, at, b, view, may_overrun in zip(rows, parts_at, others, views, too_long.tolist(), strict=True):
        past = stops.overrun(b, setup.rules) if may_overrun else None
        if view is None:
            cases.append(_unscored(row, pairs.baseline[row], b, past, setup))
            continue
        decisions = next(said)
        if _rejects_both(decisions, view, at, believed):
            cases.append(replace(_unscored(row, pairs.baseline[row], b, past, setup), contradicted=True))
            continue
        if not can_reject:
            listed = _unscored(row, pairs.baseline[row], b, past, setup)
            if listed.gaps is not None and bool((listed.gaps.gap > setup.tolerance).any()):
                cases.append(listed)
                continue
        rival = setup.rivals.find(b.key)
        against = rival is not None and rival.gap > believed
        cases.append(Case(pairs, row, at, past, view, decisions, from_scores=True, rival=rival, contradicted=against))
    return cases


def _rejects_both(found: Decided, view: TokenGaps, at: int, believed: float) -> bool:
    """Does the score reject what both arms said before they part, at `at`? Then it is not of this text, or both are
    wrong: it says nothing of the candidate alone."""
    rejected = found.rejected_in(0, at)
    if len(rejected) < max(FEW_OF_BOTH, OF_BOTH * at):
        return False
    beyond = sum(view.gap.item(place) > believed for place in rejected)
    return beyond >= max(FEW_OF_BOTH, OF_BOTH * at)


def _unscored(row: int, a: Completion, b: Completion, past: Event | None, setup: Setup) -> Case:
    """A pair without a score: the gaps are those that the engines listed themselves."""
    pairs, parts_at = setup.pairs, int(setup.pairs.parts_at[row])
    shaping = setup.reference.shaping(b)
    if shaping.hidden or setup.rejects_own is not None or (shaping.penalises and setup.lists_hide_choices):
        return Case(pairs, row, parts_at, past)
    found = gaps_at_divergence(a, b, parts_at, setup.tolerance, shaping)
    gaps = None if found is None else found.gaps
    if b.lists is not None and setup.lists_show_choices:
        gaps = own_rejections(b, gaps, parts_at, setup.tolerance, shaping)
    case = Case(pairs, row, parts_at, past, gaps)
    if found is None:
        return case
    return replace(case, gap_is_the_others=found.is_the_others, gap_is_at_most=found.is_at_most)


def _identical(setup: Setup) -> Sequence[_Equal]:
    """The pairs of equal tokens in which something else is to be looked at."""
    pairs = setup.pairs
    same = pairs.identical & pairs.same_prompt
    rows = np.flatnonzero(same)
    if not any(detector.at_equal_tokens for detector in detectors()):
        rows = np.flatnonzero(same & _odd(setup, rows))
    return [_Equal(rows[begin : begin + AT_ONCE], setup) for begin in range(0, len(rows), AT_ONCE)]


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
