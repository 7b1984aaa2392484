"""How a completion ended, given what was found inside it: too early, too late, or as it should.

The rules are asked in the order of `RULES`; each takes a case and gives one back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from msgspec.structs import replace

from parity.comparator.detect import near_ties, stops
from parity.comparator.detect.cases import Case, Detector, Setup, pair_by_pair
from parity.comparator.detect.events import Event
from parity.comparator.inputs.finish_reasons import CUT_OTHERWISE
from parity.comparator.reference.gaps import gap_instead
from parity.messages import Message, message
from parity.records import Completion, Kind
from parity.records.evidence import EndEvidence, TokensEvidence
from parity.records.kinds import Stretch

AFTER_GARBLE = 8
"""Tokens between the last fault and an end of the stream that still belong together."""


# ---------------------------------------------------------------------- equal tokens


def _another_reason(case: Case, setup: Setup) -> Case:
    """Equal tokens, and other finish reasons."""
    a, b, rules = case.a, case.b, setup.rules
    if a.finish_reason is None or b.finish_reason is None or a.aborted or b.aborted:
        return case
    if case.baseline_broke or case.has(Kind.EARLY_STOP):
        return case
    if a.finish_reason == b.finish_reason or stops.same_end(a, b, rules):
        return case
    fault = stops.unexplained_end(a, rules)
    if fault is not None and stops.unexplained_end(b, rules) is None:
        return replace(case, baseline_end=fault)
    why = message(
        "early_stop.reason",
        "finish_reason {reason!r} where the baseline, with the same tokens, has {baseline!r}",
        reason=b.finish_reason,
        baseline=a.finish_reason,
    )
    evidence = EndEvidence(why=why, finish_reason=b.finish_reason, baseline_finish_reason=a.finish_reason)
    return _with(case, Event(Kind.EARLY_STOP, len(b.token_ids), 0, evidence))


# ---------------------------------------------------------------------- what the length says of the events


def _confirm_suspicion(case: Case, setup: Setup) -> Case:
    """A suspicion becomes a finding when the completion's length says the same.

    Short of its limit by just the tokens that are missing, or over it by tokens that stand twice: no near-tie
    does that.
    """
    suspect, limit, b = case.suspect, setup.rules.limit(case.b), case.b
    if suspect is None or limit is None:
        return case
    short = limit - len(b.token_ids) if b.finish_reason == "length" and not b.aborted else 0
    lost = suspect.kind is Kind.OMISSION and suspect.length == short
    gained = suspect.kind is Kind.DUPLICATION and 0 < _surplus(case) <= suspect.length
    if not (lost or gained):
        return case
    confirmed = replace(_with(case, suspect), suspect=None, unjudged_from=None)
    return _corroborated(confirmed, limit)


def _explain_surplus(case: Case, setup: Setup) -> Case:
    """More tokens than were asked for: chunks gained explain it, or it is a finding of its own."""
    past = case.past
    if past is None:
        return case
    if not past.past_limit:
        return _with(case, past)
    named = _name_gained(case, past.length)
    explained = named is not None or _shift(case) >= past.length
    case = case if named is None else named
    if explained:
        return _corroborated(case, past.position)
    return case if _stretched(case, past) else _with(case, past)


def _explain_shortage(case: Case, setup: Setup) -> Case:
    """Fewer tokens than were asked for, by length: chunks lost explain it."""
    limit, b = setup.rules.limit(case.b), case.b
    if limit is None or b.finish_reason != "length" or _cut_off(case, setup) is None:
        return case
    missing = limit - len(b.token_ids)
    lost = sum(event.length for event in case.events if event.kind is Kind.OMISSION)
    if missing == lost or -_shift(case) >= missing:
        return _corroborated(case, limit)
    named = _name_lost(case, missing)
    return case if named is None else _corroborated(named, limit)


# ---------------------------------------------------------------------- the end itself


def _early(case: Case, setup: Setup) -> Case:
    """The first of these that it is: cut off, the mere beginning of the baseline, ended by garbage."""
    b = case.b
    if case.has(Kind.EARLY_STOP):
        return case
    why = _cut_off(case, setup)
    if why is not None:
        return _with(case, Event(Kind.EARLY_STOP, len(b.token_ids), 0, EndEvidence(why=why)))
    if case.flip is None and len(b.token_ids) < len(case.a.token_ids) and case.past is None and not b.aborted:
        return _mere_beginning(case, setup)
    if _ends_in_garble(case, setup):
        note = message("early_stop.garble", "ends right after unsupported tokens, before the baseline does")
        return _with(case, Event(Kind.EARLY_STOP, len(b.token_ids) - 1, 1, EndEvidence(why=note)))
    return case


def _late(case: Case, setup: Setup) -> Case:
    """The candidate has all that the baseline has, and goes on."""
    a, b, at = case.a, case.b, len(case.a.token_ids)
    if len(b.token_ids) <= at or case.past is not None or case.flip not in (None, at) or case.events:
        return case
    if case.baseline_broke:
        return case
    too_short = stops.unexplained_end(a, setup.rules) or _rejected_end(case, setup)
    if too_short is not None:
        return replace(case, baseline_end=too_short)
    if case.flip is not None or setup.rules.leaves_open(a) or _within_limit(case, setup):
        return case
    why = message(
        "overrun.baseline",
        "goes on for {count} tokens where the baseline ended ({reason})",
        count=len(b.token_ids) - at,
        reason=a.finish_reason,
    )
    return _with(case, Event(Kind.OVERRUN, at, len(b.token_ids) - at, EndEvidence(why=why)))


def _rejected_end(case: Case, setup: Setup) -> Message | None:
    """Why the baseline cannot have ended here by a stop token that is not in its stream; None where it may have."""
    a, rules = case.a, setup.rules.of(case.a)
    if a.aborted or a.stop_reason is not None or rules.has_stop_strings:
        return None
    if not rules.counts or not rules.leaves_open(a):
        return None
    gap = _gap_of_ending(case.b, setup.arms[1], len(a.token_ids), setup)
    if gap is None or gap[0] <= setup.contradiction:
        return None
    return message(
        "end.rejected",
        "finish_reason {reason!r} where a stop token lies {gap:.1f} nats below the best one",
        reason=a.finish_reason,
        gap=gap[0],
    )


def _within_limit(case: Case, setup: Setup) -> bool:
    """Did length end the baseline, where ids were made from a text, and has the candidate no more than were allowed?
    Then it was the baseline's context, of which such ids say nothing."""
    rules = setup.rules
    own = stops.own_limit(case.b)
    most = rules.max_tokens if own is None else own
    if rules.counts or case.a.finish_reason != "length" or most is None:
        return False
    return len(case.b.token_ids) <= most + CUT_OTHERWISE


RULES: Final[tuple[Callable[[Case, Setup], Case], ...]] = (
    _confirm_suspicion,
    _explain_surplus,
    _explain_shortage,
    _late,
    _early,
)


def _look(case: Case, setup: Setup) -> Case:
    if case.is_identical:
        return _another_reason(case, setup)
    if _is_in_order(case, setup):
        return case
    for rule in RULES:
        case = rule(case, setup)
    return case


DETECTOR = Detector(frozenset({Kind.EARLY_STOP, Kind.OVERRUN, Kind.OMISSION, Kind.DUPLICATION}), pair_by_pair(_look))


# ---------------------------------------------------------------------- what the rules ask


def _is_in_order(case: Case, setup: Setup) -> bool:
    """Ended by length with as many tokens as were asked for, and as the baseline has: no rule has a question. Most
    pairs are so."""
    b = case.b
    if b.finish_reason != "length" or case.suspect is not None or case.past is not None:
        return False
    limit, count = setup.rules.limit(b), len(b.token_ids)
    return limit is not None and count >= limit and count == len(case.a.token_ids)


def _with(case: Case, event: Event) -> Case:
    return replace(case, events=(*case.events, event))


def _shift(case: Case) -> int:
    """Tokens by which what was found makes the completion longer."""
    return sum(event.kind.row.lengthens * event.length for event in case.events)


def _surplus(case: Case) -> int:
    """Tokens past the limit."""
    return case.past.length if case.past is not None and case.past.past_limit else 0


def _corroborated(case: Case, limit: int) -> Case:
    """The chunks lost or gained are what the length lacks or has too much."""
    said = stops.tokens_for_limit(case.b, limit)
    events = (one.but(corroborated_by=said) if one.kind.row.lengthens else one for one in case.events)
    return replace(case, events=tuple(events))


def _stretched(case: Case, past: Event) -> bool:
    """Too long because tokens were gained that could not be named: keep the cause, not the length."""
    made_of = (Stretch.FOREIGN, Stretch.UNSUPPORTED, Stretch.COPY)
    return any(event.kind.row.stretch in made_of and event.length >= past.length for event in case.events)


def _name_gained(case: Case, surplus: int) -> Case | None:
    """Tokens too many, and what seems lost in text that repeats itself: they stand twice, not too few times."""
    tokens = case.b.token_ids
    for index, event in enumerate(case.events):
        at = event.position
        if event.kind is not Kind.OMISSION or at < surplus:
            continue
        if not np.array_equal(tokens[at - surplus : at], tokens[at : at + surplus]):
            continue
        why = message(
            "duplication.surplus",
            "the token before it is emitted again, and there is one too many",
            plural="the {count} tokens before it are emitted again, and there are as many too many",
            count=surplus,
        )
        ambiguous = message(
            "duplication.or_omission",
            "the text repeats itself here; by its structure alone: omission of {count}",
            count=event.length,
        )
        evidence = TokensEvidence(why=why, ambiguous=ambiguous, source_start=at - surplus, source_end=at)
        named = replace(event, kind=Kind.DUPLICATION, length=surplus, evidence=evidence)
        return _replaced(case, index, named)
    return None


def _name_lost(case: Case, missing: int) -> Case | None:
    """The request asked for more tokens than came: a junction that is not supported is where they went."""
    named_already = (Kind.OMISSION, Kind.EARLY_STOP, Kind.INVALID_TOKEN, Kind.ROW_LEAK)
    loose = (n for n, one in enumerate(case.events) if one.kind not in named_already and one is not case.past)
    index = next(loose, None)
    if index is None or missing < 1:
        return None
    event = case.events[index]
    why = message(
        "omission.limit",
        "the tokens are not supported here, and {count} tokens are missing from a completion that ended by length: "
        "they were lost here",
        count=missing,
    )
    evidence = event.evidence if isinstance(event.evidence, TokensEvidence) else TokensEvidence(why=why)
    evidence = replace(evidence, why=why, unsupported_tokens=event.length)
    if event.kind.row.stretch is Stretch.COPY:
        ambiguous = message(
            "omission.or_copy", "the text repeats itself here; by its structure alone: {kind}", kind=str(event.kind)
        )
        evidence = replace(evidence, ambiguous=ambiguous)
    return _replaced(case, index, replace(event, kind=Kind.OMISSION, length=missing, evidence=evidence))


def _replaced(case: Case, index: int, event: Event) -> Case:
    return replace(case, events=(*case.events[:index], event, *case.events[index + 1 :]))


def _cut_off(case: Case, setup: Setup) -> Message | None:
    """Why this end cannot be right; None also where a chunk lost explains it, or the baseline ends like that as well:
    a habit of this server."""
    why = stops.unexplained_end(case.b, setup.rules)
    if why is None or stops.unexplained_end(case.a, setup.rules) is not None or case.has(Kind.EARLY_STOP):
        return None
    is_short = case.b.finish_reason == "length" and setup.rules.limit(case.b) is not None
    return None if is_short and any(event.is_corroborated for event in case.events) else why


def _ends_in_garble(case: Case, setup: Setup) -> bool:
    a, b = case.a, case.b
    inside = [event for event in case.events if event is not case.past]
    if b.finish_reason != "stop" or len(b.token_ids) >= len(a.token_ids) or not inside:
        return False
    if not len(b.token_ids) or int(b.token_ids[-1]) not in setup.rules.of(b).terminators or case.has(Kind.EARLY_STOP):
        return False
    last = max(event.end for event in inside)
    made_of = (Stretch.UNSUPPORTED, Stretch.FOREIGN)
    return len(b.token_ids) - last <= AFTER_GARBLE and any(one.kind.row.stretch in made_of for one in inside)


def _mere_beginning(case: Case, setup: Setup) -> Case:
    """The candidate is the baseline's beginning and ended there without a token that says so."""
    a, b, at = case.a, case.b, len(case.b.token_ids)
    if case.baseline_broke or (setup.writer.is_server and b.finish_reason in stops.CALLS):
        return case  # what a call says is not in a server's text, nor among its ids
    too_long = stops.overrun(a, setup.rules)
    if too_long is not None and too_long.position <= at and not case.events:
        return replace(case, baseline_end=too_long.evidence.why)
    why = message(
        "end.prefix",
        "ends here ({reason}) where the baseline goes on for {count} tokens",
        reason=b.finish_reason,
        count=len(a.token_ids) - at,
    )
    gap = _gap_of_ending(a, setup.arms[0], at, setup)
    if gap is None:
        keeps = setup.rules.keeps_terminator and setup.rules.of(b).terminators
        if b.finish_reason in ("stop", None) and not keeps:
            return case  # undecidable: no reference for the end of the stream
        evidence = EndEvidence(why=why, finish_reason=b.finish_reason)
    elif gap[0] <= setup.tolerance:
        benign = (near_ties.of_ending(b, why, gap[0]),) if gap[1] else ()
        return replace(case, benign=(*case.benign, *benign))
    else:
        evidence = EndEvidence(why=why, finish_reason=b.finish_reason, gap_of_ending_here=round(gap[0], 4))
    return _with(case, Event(Kind.EARLY_STOP, at, 0, evidence))


def _gap_of_ending(of: Completion, arm: str, at: int, setup: Setup) -> tuple[float, bool] | None:
    """(gap of the likeliest terminator at `at`, is it exact); None where nothing says it. of: who goes on there."""
    top = setup.reference.score(arm, of) or of.lists
    penalised, said = setup.reference.shaping(of).penalised(of), of.token_ids[:at]
    gaps = [gap_instead(top, at, token, said, penalised) for token in sorted(setup.rules.of(of).terminators)]
    return min((gap for gap in gaps if gap is not None), default=None)
