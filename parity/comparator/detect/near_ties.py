"""Where near-ties are decided: at the first divergent token, at an end, and little beyond the tolerance.

A near-tie is benign: the reference holds the candidate's token for nearly as good as its best, and rounding chose.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace

from parity.comparator.detect.beyond import beyond_alone, rejected_alone
from parity.comparator.detect.cases import (
    BY_THEMSELVES,
    Case,
    Detector,
    Doubted,
    InDoubt,
    Setup,
    pair_by_pair,
    replaced,
)
from parity.comparator.detect.events import Event
from parity.comparator.detect.like_baseline import Like, is_third, like_the_baseline
from parity.comparator.inputs.settings import of_other_precision
from parity.comparator.reference.gaps import gap_instead
from parity.comparator.reference.isolated import (
    ALIKE,
    BESIDE_NONE,
    MOST,
    MOST_UNSAID,
    NONE,
    ONE_IN_PRECISION,
    Isolated,
    are_apart,
    explains,
    moved,
    too_near,
)
from parity.comparator.reference.moves import others_moved
from parity.comparator.reference.own_logprobs import own_gaps
from parity.comparator.reference.rivals import Rival
from parity.comparator.reference.tolerance import OWN_BELIEF
from parity.comparator.streams.contexts import context_of
from parity.messages import Message, message
from parity.records import Completion, Kind
from parity.records.evidence import NearTieEvidence


def of_ending(b: Completion, why: Message, gap: float) -> Event:
    """The candidate ends where the baseline goes on, and ending lies only `gap` nats below the best token."""
    evidence = NearTieEvidence(why=why, finish_reason=b.finish_reason, gap_of_ending_here=round(gap, 4))
    return Event(Kind.NEAR_TIE, len(b.token_ids), 1, evidence)


def is_supported(case: Case, tolerance: float) -> bool | None:
    """Does the reference support the candidate's token where it takes another branch? None: nothing says so."""
    if case.flip is None or case.gaps is None or case.flip >= len(case.gaps.gap):
        return None
    return case.gaps.supports(case.flip, tolerance) if case.decided is None else case.decided.supports(case.flip)


def _at_the_divergence(case: Case, setup: Setup) -> Case:
    """The first divergent token, where no fault is in its place."""
    flip = case.flip
    if flip is None or case.contradicted or not is_supported(case, setup.tolerance):
        return case
    if any(event.position <= flip < max(event.end, event.position + 1) for event in case.events):
        return case
    return replace(case, benign=(*case.benign, Event(Kind.NEAR_TIE, flip, 1, _evidence(case, flip, setup))))


def _evidence(case: Case, flip: int, setup: Setup) -> NearTieEvidence:
    """Why it is one, and how good the baseline's token is there, where the list says it."""
    unjudged: dict[str, Any] = {}
    if not case.from_scores:
        unjudged = {"looked_until": flip, "limit": _NOT_JUDGED}
    if case.gap_is_the_others:
        return NearTieEvidence(why=_OWN_LIST, **unjudged)
    why = _NEARLY_AS_GOOD
    rival = _rival(case, flip, setup)
    if rival is None or not (rival.is_exact or rival.gap > 0):
        return NearTieEvidence(why=why, **unjudged)
    gap, exact = rival
    if exact and gap <= setup.tolerance:
        why = _BOTH
    bound = None if exact else True
    return NearTieEvidence(
        why=why, gap_of_baseline_token=round(gap, 4), gap_of_baseline_token_is_lower_bound=bound, **unjudged
    )


# Made once: a run has thousands of near-ties.
_NOT_JUDGED = message("near_tie.limit", "no scores: what follows this token could not be judged")
_OWN_LIST = message(
    "near_tie.own_list", "the candidate's own logprobs hold the baseline's token for nearly as likely as its own"
)
_NEARLY_AS_GOOD = message("near_tie.why", "the reference holds the candidate's token for nearly as good as its best")
_BOTH = message("near_tie.both", "both tokens are nearly as likely to the reference")


def _rival(case: Case, flip: int, setup: Setup) -> Rival | None:
    """(gap, is it exact) of the baseline's token."""
    a, b = case.a, case.b
    if flip >= len(a.token_ids):
        return None
    if case.from_scores and flip == case.parts_at:
        return case.rival
    top = setup.reference.score(setup.arms[1], b) if case.from_scores else a.lists
    penalised = setup.reference.shaping(b).penalised(b)
    token, own = int(a.token_ids[flip]), int(b.token_ids[flip])
    found = gap_instead(top, flip, token, b.token_ids[:flip], penalised, own=own)
    return None if found is None else Rival(*found)


def _all_doubtful(cases: Sequence[Case], setup: Setup) -> Sequence[Case]:
    """Those that are left open, and those of which nothing is known for certain."""
    looked = _left_open(cases, setup)
    found = {n: _unjudged(case) for n, case in enumerate(looked) if case.events and _is_at_most(case, setup)}
    return replaced(looked, found)


def _is_at_most(case: Case, setup: Setup) -> bool:
    """Is nothing wrong but a gap that may be smaller?"""
    return case.gap_is_at_most and rejected_alone(case, setup.tolerance, by_shape=False) == [case.parts_at]


def _unjudged(case: Case) -> Case:
    at = case.parts_at
    return replace(case, events=(), gaps=None, gap_is_at_most=False, flip=at, unjudged_from=at)


def _left_open(cases: Sequence[Case], setup: Setup) -> Sequence[Case]:
    """Completions with a token or two little beyond the tolerance, and nothing else wrong.

    Those of which nobody recorded a logprob may lie farther, as long as nothing else in the run is wrong and no more
    completions have some than chance gives a clean run: a fault of the engine's state seldom hits one of them alone.
    """
    looked = _as_near_ties(cases, [n for n, one in enumerate(cases) if one.events and is_doubtful(one, setup)])
    wrong = [n for n, case in enumerate(looked) if case.events]
    most = setup.doubt.silent_rows(setup.pairs.candidate_tokens.total)
    if wrong and all(_is_silent(looked[n], setup) for n in wrong) and len(_contexts(looked, wrong)) <= most:
        return _as_near_ties(looked, wrong, how=Doubted.SILENT)
    if not setup.reference.can_reject:
        return _contradicted(looked, wrong, setup)
    return _of_other_precision(_as_baseline(cases, looked, setup.isolated or NONE, setup), setup)


def _of_other_precision(cases: Sequence[Case], setup: Setup) -> Sequence[Case]:
    """Single tokens of an arm known to compute in other precision, where several completions have some, and none as far
    as damage leaves them."""
    if setup.doubt.is_none or not of_other_precision(setup.inputs.differences):
        return cases

    def is_single(case: Case) -> bool:
        found = beyond_alone(case, setup.tolerance, by_shape=False, most=MOST)
        if found is None or not are_apart(found.places.tolist(), len(case.b.token_ids), ONE_IN_PRECISION):
            return False
        return bool(np.isnan(found.residuals).all()) or moved(found.gaps, found.residuals)

    near = [n for n, case in enumerate(cases) if case.events and is_single(case)]
    if not near or not _is_no_damage(cases, near, setup):
        return cases
    return replaced(cases, {n: _as_near_tie(cases[n], _PRECISION, how=Doubted.PRECISION) for n in near})


FOREIGN = 12
"""Tokens of another request, which an arm whose own logprobs hold them for right came to by itself if there are fewer:
requests share phrases."""


def _contradicted(looked: Sequence[Case], wrong: Sequence[int], setup: Setup) -> Sequence[Case]:
    """Without scores: where the arms' lists contradict each other, which of them is off nobody knows, nor whether this
    model's rounding goes as far; but for another model. A long text that another request has as well is that one's,
    unless logits move so far where nothing parts."""

    def is_foreign(case: Case) -> bool:
        leaks = (one for one in case.events if one.kind is Kind.ROW_LEAK and one.length >= FOREIGN)
        return any(leaks) and not setup.moves().now_and_then

    found = [n for n in wrong if contradicts(looked[n], setup) and not is_foreign(looked[n])]
    if found and setup.moves().of_another_model:
        return looked
    return replaced(looked, {n: _as_near_tie(looked[n], _AGAINST, how=Doubted.CONTRADICTED) for n in found})


def contradicts(case: Case, setup: Setup) -> bool:
    """Without scores: does each arm's own list hold its own token for the best where they part, and reject the other's,
    and is nothing else wrong?

    A token that was changed after it was chosen has the logprob of the one that was, but for rounding, and those of the
    others are as they were.
    """
    if case.from_scores or not case.events or case.parts_at < 0 or setup.doubt.is_none:
        return False
    penalised, at, lists = setup.reference.shaping(case.b).penalised(case.b), case.parts_at, case.b.lists
    own, other = own_gaps(case.b, penalised), own_gaps(case.a, penalised)
    if own is None or other is None or lists is None or at >= min(len(own.gap), len(other.gap)):
        return False
    found = beyond_alone(case, setup.tolerance, by_shape=False)
    if found is None or found.places.tolist() != [at] or found.gaps[0] > MOST_UNSAID:
        return False
    if max(own.gap[at], other.gap[at]) > setup.tolerance:
        return False
    theirs = lists.values[at][lists.ids[at] == case.a.token_ids[at]]
    stands_apart = penalised is None and bool((theirs < max(own.chosen[at], other.chosen[at]) - OWN_BELIEF).all())
    hidden = penalised is not None and setup.moves().now_and_then  # lists say less of each place, and more of the model
    return stands_apart or hidden or others_moved(case.a, case.b, at)


_AGAINST = message(
    "near_tie.contradicted",
    "each arm's own logprobs hold its own token for the best and reject the other's; no score says which is off",
)


def _as_near_ties(cases: Sequence[Case], places: Sequence[int], *, how: Doubted = Doubted.LITTLE) -> Sequence[Case]:
    """The cases, those in these places as near-ties."""
    return replaced(cases, {n: _as_near_tie(cases[n], how=how) for n in places})


def _as_baseline(cases: Sequence[Case], looked: Sequence[Case], isolated: Isolated, setup: Setup) -> Sequence[Case]:
    """Single tokens that the scores reject, where they reject such of the baseline's own as often and as far. `looked`:
    the cases without those that are little beyond the tolerance."""
    alike = _alike(cases, isolated, setup)
    if isolated.of_few and not isolated.says_something:  # then the candidate's own gaps may say what the model is like
        supposed = replace(isolated, shown=ALIKE)
        wrong = (case for n, case in enumerate(cases) if looked[n].events)
        if all(like_the_baseline(case, supposed, setup) is not None for case in wrong):  # most runs end at the first
            as_rough = _alike(cases, supposed, setup)
            if _is_no_damage(cases, as_rough, setup):
                alike, isolated = as_rough, supposed
    alone = {n for n, one in alike.items() if one.alone is not None and looked[n].events}
    if any(case.events and n not in alike for n, case in enumerate(looked)) or (
        not isolated.has_any and len(_contexts(cases, alone)) > BESIDE_NONE
    ):  # beside other faults such tokens are one as well
        alike = {n: one for n, one in alike.items() if n not in alone}
    beyond = {n: one.how for n, one in alike.items() if looked[n].events}
    counted = _contexts(cases, (n for n, one in alike.items() if n in beyond or one.how not in BY_THEMSELVES))
    if not explains(isolated, [max(alike[n].times for n in same) for same in counted]):
        return looked
    return replaced(looked, {n: _as_near_tie(looked[n], _WHY[how], how=how) for n, how in beyond.items()})


def _alike(cases: Sequence[Case], isolated: Isolated, setup: Setup) -> Mapping[int, Like]:
    """Those that are like the baseline's, by their places."""
    found = ((n, like_the_baseline(case, isolated, setup)) for n, case in enumerate(cases) if case.events)
    return {n: one for n, one in found if one is not None}


def _is_no_damage(cases: Sequence[Case], places: Collection[int], setup: Setup) -> bool:
    """Do the single tokens of these completions lie nearer the best than damage leaves them, and is one of them not
    even the second best? A router moves all logits; who takes the second best for the best, or a draft unchecked, has
    the second best."""
    farthest = [max(cases[n].widest()[1] for n in same) for same in _contexts(cases, places)]
    return too_near(farthest) and any(is_third(cases[n], setup) for n in places)


def _contexts(cases: Sequence[Case], places: Iterable[int]) -> Collection[Sequence[int]]:
    """The cases in these places by their worst token and those before it: an engine that comes to the same tokens
    again makes the same choice."""
    found: dict[object, list[int]] = {}
    for n in places:
        found.setdefault(context_of(cases[n].b, cases[n].widest()[0]), []).append(n)
    return found.values()


LITTLE = message(
    "near_tie.doubtful",
    "a token or two little beyond the tolerance, and nothing else: two kernels may differ by that much",
)
_WHY: Mapping[Doubted, Message] = {
    Doubted.BY_FEW: message(
        "near_tie.by_few",
        "single tokens beyond the tolerance, no more than chance makes of an arm like the baseline, by the few of the "
        "baseline's tokens that are scored",
    ),
    Doubted.AS_BASELINE: message(
        "near_tie.as_baseline",
        "single tokens beyond the tolerance, no more than chance makes beside those of the baseline's own",
    ),
    Doubted.MOVED: message(
        "near_tie.moved",
        "single tokens beyond the tolerance, where the engine's own logprobs say that its logits moved, as the "
        "baseline's do elsewhere",
    ),
    Doubted.IN_A_ROW: message(
        "near_tie.in_a_row",
        "a few tokens in a row beyond the tolerance and nothing else, as logits that moved leave them for a while: the "
        "baseline's move as well",
    ),
    Doubted.ALONE: message(
        "near_tie.alone",
        "single tokens beyond the tolerance, in no more completions than chance makes of an arm like the baseline, and "
        "none as damage leaves them",
    ),
    Doubted.UNSAID: message(
        "near_tie.unsaid",
        "single tokens beyond the tolerance, in no more completions than chance makes of an arm like the baseline; the "
        "engine's own logprobs of them were not recorded",
    ),
}


_PRECISION = message(
    "near_tie.precision",
    "single tokens beyond the tolerance, as in other completions and nearer the best than damage leaves them, of an "
    "arm in other precision",
)


def _as_near_tie(case: Case, why: Message = LITTLE, *, how: Doubted = Doubted.LITTLE) -> Case:
    at, gap = case.widest()
    event = Event(Kind.NEAR_TIE, at, 1, NearTieEvidence(why=why, would_be=str(case.events[0].kind)))
    doubtful = InDoubt(at, gap, how, case.events if how is Doubted.ALONE else ())
    return replace(case, events=(), benign=(*case.benign, event), doubtful=doubtful)


def is_doubtful(case: Case, setup: Setup) -> bool:
    """Is all that is wrong a token or two little beyond the tolerance?"""
    found = beyond_alone(case, setup.tolerance, most=setup.doubt.most)
    return found is not None and setup.doubt.covers(found.gaps, len(case.b.token_ids), found.residuals)


def is_as_baseline(case: Case, setup: Setup) -> bool:
    """Is all that is wrong what the scores reject in the baseline's own completions as well?"""
    found = like_the_baseline(case, setup.isolated or NONE, setup)
    return found is not None and found.alone is not Doubted.ALONE


def _is_silent(case: Case, setup: Setup) -> bool:
    found = beyond_alone(case, setup.tolerance)
    return found is not None and setup.doubt.covers_silent(found.gaps, len(case.b.token_ids), found.residuals)


DOUBTFUL = Detector(frozenset({Kind.NEAR_TIE}), _all_doubtful, together=lambda case, setup: bool(case.events))
DETECTOR = Detector(frozenset({Kind.NEAR_TIE}), pair_by_pair(_at_the_divergence))
