"""Row leaks of a greedy run: all suspicious stretches are looked for in all other requests, in one pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from parity.comparator.detect.beyond import STRONG_CHUNK
from parity.comparator.detect.cases import Case, Detector, Setup, replaced
from parity.comparator.detect.events import Event
from parity.comparator.detect.leak import (
    FOREIGN_AND_SUPPORTED,
    PART_NAMES,
    PARTS,
    SPEAKING,
    Donors,
    Leak,
    Query,
    as_well,
)
from parity.comparator.detect.near_ties import contradicts, is_as_baseline, is_doubtful
from parity.comparator.detect.unscored import proven_copy, repeated_in, seeming_leaks
from parity.comparator.reference.gaps import BoolArray, FloatArray
from parity.comparator.streams.sets import is_in, stood_before
from parity.comparator.streams.spans import threes
from parity.messages import message
from parity.records import Key, Kind, TokenIds
from parity.records.evidence import JudgedBy, LeakEvidence, TokensEvidence
from parity.records.kinds import Stretch
from parity.records.lazy import Picked

LONG = 12
"""Tokens of another request, from which on the rest of a completion is compared with it before anything else is said
of how the completion goes on and ends."""

SUPPORTED = 1 / 3
"""Weight of a token that the reference supports and that the request does not say elsewhere: the model may come to
another request's text by itself, though hardly to all of it."""

TAKEN_OVER = 24
"""The same where the completion goes on after them."""

_LOOSE = (Stretch.UNSUPPORTED, Stretch.COPY)
"""Stretches that may be another request's tokens."""


Weigh = Callable[[], FloatArray | None]


def query_of(
    key: Key,
    tokens: TokenIds,
    event: Event,
    weigh: Weigh | None,
    *,
    strict: bool = False,
    rejected: Callable[[], BoolArray] | None = None,
) -> Query:
    """Where to look for another request's tokens around an event."""
    first = max(event.earliest, event.position - 3)
    last = min(len(tokens), event.position + max(12, min(event.length, 64)))
    return Query(key, tokens, first, last, event.earliest, weigh, event.position, strict, rejected)


def leaked(event: Event, leak: Leak, tokens: TokenIds) -> Event:
    """The event as a row leak: its tokens are another request's."""
    had = event.evidence if isinstance(event.evidence, TokensEvidence) else None
    evidence = LeakEvidence(
        why=message(
            "row_leak.why",
            "{count} tokens are as in the {part} of {donor} from its position {start} on",
            count=leak.length,
            part=PART_NAMES[leak.donor_part],
            donor=leak.donor_request if leak.donor is None else str(leak.donor),
            start=leak.donor_start,
        ),
        donor_request=leak.donor_request,
        donor_round=None if leak.donor is None else leak.donor.round,
        donor_sample=None if leak.donor is None else leak.donor.sample,
        donor_part=leak.donor_part,
        donor_start=leak.donor_start,
        donor_end=leak.donor_start + leak.length,
        expected_by_chance=leak.chance,
        requests_with_this_span=leak.sharing,
        ambiguous=as_well(leak.others, leak.sharing - 1),
        leaked_tokens=tuple(tokens[leak.start : leak.start + leak.length].tolist()[:64]),
        agree_again_for=had.agree_again_for if had else None,
        baseline_tokens=had.baseline_tokens if had else None,
        p_value=had.p_value if had else None,
        judged_by=event.evidence.judged_by,
    )
    return replace(event, kind=Kind.ROW_LEAK, position=leak.start, length=leak.length, evidence=evidence)


def taken_over(cases: Sequence[Case], setup: Setup) -> Sequence[Case]:
    """The cases with events as leaks where, from an event on, the completion is another request's.

    Its tokens may look like a loop, like tokens emitted again or like tokens lost: the donor's text is what it is. So
    only tokens speak that the reference rejects and that the completion has not said before.
    """
    loose = [
        (n, at)
        for n, case in enumerate(cases)
        # One token little beyond the tolerance, or as far as the baseline's own, proves no other text: those of two
        # requests may come together, and from there on each says what the other does.
        if case.events and case.from_scores and not is_doubtful(case, setup) and not is_as_baseline(case, setup)
        for at, event in enumerate(case.events)
        if event.kind.row.stretch is not Stretch.NONE and not _is_own(event, case)
    ]
    if not loose:
        return cases

    @cache
    def weights(n: int) -> FloatArray | None:
        return _weights(cases[n], setup.tolerance)

    queries = (
        query_of(cases[n].b.key, cases[n].b.token_ids, cases[n].events[at], partial(weights, n), strict=True)
        for n, at in loose
    )
    wrong = _events_of(cases)
    changed: dict[int, Case] = {}
    for (n, at), leak in zip(loose, setup.donors().search(queries), strict=True):
        case = changed.get(n, cases[n])
        event, tokens = case.events[at], case.b.token_ids
        if leak is None or leak.is_weak or is_wrong_too(leak, wrong):
            continue
        own = _without_own(event, leak)
        if own.length < event.agrees_after + SPEAKING:
            continue  # both streams go on alike
        to_the_end = own.start + own.length == len(tokens)
        if not to_the_end and _is_short(case, setup):
            continue  # tokens were lost, and the model went on with its own
        if own.length >= (LONG if to_the_end else TAKEN_OVER):
            changed[n] = replace(case, events=(*case.events[:at], leaked(event, own, tokens), *case.events[at + 1 :]))
    return replaced(cases, changed)


def _is_own(event: Event, case: Case) -> bool:
    """Is all that a leak could cover, to the end, what the request's baseline says as many places before?

    So it is after a copy, and what a request says of its own accord is no leak.
    """
    rest, begin = case.b.token_ids[event.earliest :], event.earliest - event.length
    if event.kind.row.stretch is not Stretch.COPY or begin < 0:
        return False
    return np.array_equal(case.a.token_ids[begin : begin + len(rest)], rest)


def _is_short(case: Case, setup: Setup) -> bool:
    """Ended by length with fewer tokens than were asked for."""
    limit = setup.rules.limit(case.b)
    return limit is not None and case.b.finish_reason == "length" and len(case.b.token_ids) < limit


def _weights(case: Case, tolerance: float) -> FloatArray | None:
    """How much each token speaks for another request: not at all where it belongs to three in a row that the request
    has said before, and little where the reference supports it."""
    rejected = case.unsupported(tolerance)
    if rejected is None:
        return None
    here = threes(case.b.token_ids)
    in_prompt = is_in(here, threes(case.b.prompt_token_ids))
    said = _spread(in_prompt | stood_before(here), len(rejected))
    if said.all():
        return np.zeros(len(rejected))
    usual = _spread(in_prompt | is_in(here, threes(case.a.token_ids)), len(rejected))
    return np.where(rejected, 1.0, np.where(usual, 0.0, SUPPORTED)) * ~said


def is_wrong_too(leak: Leak, wrong: Mapping[Key, Sequence[Event]]) -> bool:
    """Is something wrong with these tokens in the donor's completion as well, so that they are not its own either?"""
    events = wrong.get(leak.donor, ()) if leak.donor is not None and leak.donor_part == PARTS[1] else ()
    end = leak.donor_start + leak.length
    return any(one.position < end and leak.donor_start < max(one.end, one.position + 1) for one in events)


def _by_own_lists(case: Case, event: Event, tolerance: float) -> Callable[[], BoolArray] | None:
    """`Query.rejected`: what the baseline says at the very place is the victim's own."""
    if case.from_scores or case.b.lists is None:
        return None
    gaps, length = case.gaps, len(case.b.token_ids)

    def rejected() -> BoolArray:
        if gaps is None:
            return np.zeros(length, dtype=np.bool_)
        found = _without_agreement(event, gaps.unsupported(tolerance)) > 0
        same = min(length, len(case.a.token_ids))
        found[:same] &= case.a.token_ids[:same] != case.b.token_ids[:same]
        return found

    return rejected


def _without_agreement(event: Event, rejected: BoolArray) -> FloatArray:
    """`rejected` as weights, but for the tokens after the event in which both streams agree again: upset by what was
    wrong before them, the reference may reject some, and they are the victim's own."""
    found = rejected.astype(np.float64)
    found[event.end : event.end + event.agrees_after] = 0.0
    return found


def _possible(event: Event, leak: Leak) -> Event:
    """The event with the request that says the same, where too few tokens speak for it."""
    # Of longer ones near_ties.py asks whether the tokens leave open what they are.
    if event.kind not in (Kind.UNJUSTIFIED, Kind.GARBLED) or event.is_ambiguous or event.length >= STRONG_CHUNK:
        return event
    return event.but(
        ambiguous=message(
            "row_leak.possible",
            "{donor} says the same {count} tokens, which may be chance: too few of them are wrong here",
            donor=leak.donor_request if leak.donor is None else str(leak.donor),
            count=leak.length,
        )
    )


def _spread(threes_of: BoolArray, length: int) -> BoolArray:
    """Tokens (length,) that belong to one of these three in a row, of which the first begins at the first token."""
    found = np.zeros(length, dtype=np.bool_)
    for offset in range(3 if len(threes_of) else 0):
        found[offset : offset + len(threes_of)] |= threes_of
    return found


def _may_leak(event: Event, unsupported: BoolArray | None, end: int | None = None) -> bool:
    """Could another request's tokens up to `end` explain the event better than its structure does?

    A copy explains its own tokens; only unsupported ones after it speak for another request.
    """
    if event.kind.row.stretch is not Stretch.COPY:
        return True
    return unsupported is not None and int(unsupported[event.end : end].sum()) >= SPEAKING


def _leak_wins(event: Event, leak: Leak, unsupported: BoolArray | None) -> bool:
    """Does the match with another request explain the event better than its structure does?"""
    is_long = event.kind.row.stretch is not Stretch.COPY or leak.length >= event.length + 4
    return is_long and _may_leak(event, unsupported, leak.start + leak.length)


def _without_own(event: Event, leak: Leak) -> Leak:
    """The leak from the event on where so many supported tokens come before it: they are the victim's own, and the
    donor's by chance."""
    shift = event.position - leak.start
    if shift < FOREIGN_AND_SUPPORTED:
        return leak
    return replace(leak, start=event.position, length=leak.length - shift, donor_start=leak.donor_start + shift)


def _look(cases: Sequence[Case], setup: Setup) -> Sequence[Case]:
    loose = [
        (n, at)
        for n, case in enumerate(cases)
        # Where one token alone lies little beyond the tolerance, or where the arms' own lists contradict each other,
        # either text may be right, and two requests' come together.
        if not (not case.from_scores and case.events and is_doubtful(case, setup))
        and not (contradicts(case, setup) and setup.moves().now_and_then)
        for at, event in enumerate(case.events)
        if event.kind.row.stretch in _LOOSE and not _is_own(event, case)
    ]
    bare = np.array([n for n, case in enumerate(cases) if _is_unjudged(case)], dtype=np.int64)
    if not loose and not len(bare):
        return cases
    donors = setup.donors()
    return _unscored(_named(cases, loose, donors, setup), bare, donors, setup)


def _is_unjudged(case: Case) -> bool:
    """It parts, and nothing judges it from there on."""
    return case.flip is not None and case.unjudged_from == case.flip and not case.events


def _named(cases: Sequence[Case], loose: list[tuple[int, int]], donors: Donors, setup: Setup) -> Sequence[Case]:
    """The cases with events as leaks where another request explains them better; `loose`: (case, event)."""
    unsupported = {n: cases[n].unsupported(setup.tolerance) for n, _ in loose}
    loose = [(n, at) for n, at in loose if _may_leak(cases[n].events[at], unsupported[n])]

    def weights(n: int, at: int) -> FloatArray | None:
        rejected = unsupported[n]
        return None if rejected is None else _without_agreement(cases[n].events[at], rejected)

    queries = (
        query_of(
            cases[n].b.key,
            cases[n].b.token_ids,
            cases[n].events[at],
            cache(partial(weights, n, at)),
            rejected=_by_own_lists(cases[n], cases[n].events[at], setup.tolerance),
        )
        for n, at in loose
    )
    wrong = _events_of(cases)
    changed: dict[int, Case] = {}
    for (n, at), leak in zip(loose, donors.search(queries), strict=True):
        case = changed.get(n, cases[n])
        event = case.events[at]
        if leak is None or not _leak_wins(event, leak, unsupported[n]):
            continue
        own = _without_own(event, leak) if case.from_scores else leak
        named = (
            _possible(event, own) if leak.is_weak or is_wrong_too(own, wrong) else leaked(event, own, case.b.token_ids)
        )
        changed[n] = replace(case, events=(*case.events[:at], named, *case.events[at + 1 :]))
    return replaced(cases, changed)


def _unscored(cases: Sequence[Case], bare: npt.NDArray[np.int64], donors: Donors, setup: Setup) -> Sequence[Case]:
    """The cases with what proves itself where nothing judges; `bare`: those that part and that nothing judges."""
    changed: dict[int, Case] = {}
    baseline = setup.inputs.baseline
    is_repeated = repeated_in(baseline)
    for n in bare.tolist():
        case = cases[n]
        if case.suspect is not None and proven_copy(case.b, case.suspect, baseline, len(bare), is_repeated):
            proven = case.suspect.but(judged_by=JudgedBy.NO_OTHER_COPY)
            changed[n] = replace(case, suspect=proven, events=(proven,))
    for index, leak, is_proven in seeming_leaks(Picked(cases, bare), donors, baseline):
        n = int(bare[index])
        case = changed.get(n, cases[n])
        if case.events:
            continue
        why = message("row_leak.seeming", "goes on with what one other request says")
        seeming = Event(Kind.ROW_LEAK, leak.start, leak.length, TokensEvidence(why=why), earliest=leak.start)
        event = leaked(seeming, leak, case.b.token_ids)
        if is_proven:
            case = replace(case, events=(event.but(judged_by=JudgedBy.NO_OTHER_SPAN),))
        elif case.suspect is None:
            case = replace(case, suspect=event)
        changed[n] = case
    return replaced(cases, changed)


def _events_of(cases: Sequence[Case]) -> dict[Key, Sequence[Event]]:
    return {case.b.key: case.events for case in cases if case.events}


def _may_be_taken(case: Case, setup: Setup) -> bool:
    return case.from_scores and bool(case.events)


def _may_be_foreign(case: Case, setup: Setup) -> bool:
    return bool(case.events) or _is_unjudged(case)


TAKEN = Detector(frozenset({Kind.ROW_LEAK}), taken_over, together=_may_be_taken)
DETECTOR = Detector(frozenset({Kind.ROW_LEAK, Kind.DUPLICATION}), _look, together=_may_be_foreign)
