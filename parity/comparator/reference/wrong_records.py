"""Score records that are not of their completion: shifted, another's, of other numbers, in a file that is right else.

A score is made from the completion's own tokens, so that nothing an engine does makes its lists fit the place before or
after, or the tokens of another completion. Over what both arms say alike, their records are of one text, and so are
their own logprobs. A record that fails there accuses nobody: it is left out, and named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from functools import cache, partial
from itertools import islice

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from parity.comparator.inputs.conventions import says_raw
from parity.comparator.inputs.normalise import Inputs
from parity.comparator.reference.floor import NOT_NOISE
from parity.comparator.reference.many_records import hold_no_logprobs, unnamed
from parity.comparator.reference.record_fits import Firsts, Lists, distances, fits_from, logprobs_at
from parity.comparator.reference.scores import Reference
from parity.comparator.streams.pairing import at_rows
from parity.comparator.types import Remarks, note, reason
from parity.messages import Message, message
from parity.records import Capture, Completion, Key, ScoreKey, Scores, TopLogprobs
from parity.records.next_steps import Step
from parity.records.score_table import ScoreTable

FloatArray = npt.NDArray[np.float64]

FEW_UNNAMED = 2
"""Lists without their token from which on a record may be of other tokens."""

UNNAMED = 0.05
"""Share of the places of a drawn completion: a score names its token, however unlikely that is."""

FEW_LISTS = 6
"""Lists of one text that it takes to say that two records are not of it both."""

SHIFTS = (-2, -1, 1, 2)
"""Places from a token to the list that may be its own."""

BY_HAND = 0.3
"""Share of the records that are no logprobs, or name other tokens, from which on it is no fault of one of them."""

MOST_RECORDS = 0.5
"""Share of the records at fault, beyond which the others are not used either."""

FAR, FEW_PAIRS = 0.25, 8
"""Nats, in most of so many pairs, from which on two records of one text are not of the same numbers."""

_LOOKED_AT, _LISTS_LOOKED_AT = 128, 32
"""Records, and lists of each."""

_AT_ONCE = 256
"""Completions looked at together."""

_NAMED_APART = 8
"""Names that are said; of the others the number."""


class Fault(Enum):
    """What is wrong with a record."""

    NUMBERS = message("scores.record_numbers", "no logarithms of probabilities")
    EARLY = message("scores.record_early", "lists that stand too early")
    LATE = message("scores.record_late", "lists that stand too late")
    UNNAMED = message("scores.record_unnamed", "lists that do not name the tokens that were drawn")
    ANOTHER = message("scores.record_another", "lists that fit another completion")
    CONTRADICTED = message("scores.record_contradicted", "lists that the other arm's of the same text contradict")
    UNLIKE_OWN = message("scores.record_unlike_own", "logprobs that both engines' own of the same text contradict")


def records_at_fault(inputs: Inputs, reference: Reference) -> Mapping[ScoreKey, Fault]:
    """The records of both arms that are not of their completion."""
    arms = inputs.baseline, inputs.candidate
    if not inputs.scores or inputs.arms[0] == inputs.arms[1]:
        return {}
    found: dict[ScoreKey, Fault] = {}
    firsts, are_raw = Firsts(arms), all(says_raw(arm.header) for arm in arms)
    for arm, other in (arms, arms[::-1]):
        run = _Run(firsts, cache(partial(_usual, arm, other, reference)), are_raw)
        for some in _suspects(inputs, arm, reference):
            for suspect in _records(some):
                one = suspect.completion
                twin, is_greedy = _twin(one, other, reference), not inputs.is_drawn(one)
                fault = _fault(suspect, twin, run, is_greedy=is_greedy)
                if fault is not None:
                    found[ScoreKey(arm.header.arm, *one.key)] = fault
    return found


class _Record(Struct, frozen=True):
    """A record, and what was looked up of many at once."""

    completion: Completion
    top: TopLogprobs
    unnamed: int
    """Lists that do not hold the token that they are of."""
    is_odd: bool
    """It holds no logprobs."""


def _records(some: Sequence[tuple[Completion, TopLogprobs]]) -> list[_Record]:
    if not some:
        return []
    completions, tops = zip(*some, strict=True)
    lacking, odd = unnamed(completions, tops).tolist(), hold_no_logprobs(tops).tolist()
    return list(map(_Record, completions, tops, lacking, odd))


class _Twin(Struct, frozen=True):
    """The other arm's completion of the request, and its record."""

    completion: Completion
    alike: int
    """First tokens that both say alike."""
    top: TopLogprobs | None


def _twin(one: Completion, other: Capture, reference: Reference) -> _Twin | None:
    """None where the other arm has no completion of the same prompt."""
    twin = other.completions.get(one.key)
    if twin is None or not np.array_equal(one.prompt_token_ids, twin.prompt_token_ids):
        return None
    size = min(len(one.token_ids), len(twin.token_ids))
    apart = one.token_ids[:size] != twin.token_ids[:size]
    alike = int(apart.argmax()) if apart.any() else size
    return _Twin(twin, alike, reference.score(other.header.arm, twin))


def contradicting(inputs: Inputs, reference: Reference) -> Message | None:
    """Scores that say of most places otherwise than the baseline's own logprobs or the other arm's scores, which are
    of the same text: of another temperature, say."""
    names = inputs.arms
    if not inputs.scores or names[0] == names[1]:
        return None
    is_raw = says_raw(inputs.baseline.header)
    if not reference.scored(names[0]) and not (is_raw and inputs.baseline.has_logprobs):
        return None
    of_scores: list[float] = []
    of_own: list[float] = []
    for key in islice(reference.scored(names[1]), _LOOKED_AT):
        one = inputs.candidate.completions.get(key)
        top = None if one is None else reference.score(names[1], one)
        twin = None if one is None else _twin(one, inputs.baseline, reference)
        if one is None or top is None or twin is None:
            continue
        size = min(twin.alike + 1, len(one.token_ids), len(top), _LISTS_LOOKED_AT)
        own = twin.completion.logprobs if is_raw else None
        for found, witness in ((of_scores, twin.top), (of_own, own)):
            if size and witness is not None and len(witness) >= size and witness.ids.shape[1]:
                found += _middle(distances(witness, top, size, listed_alone=True))
    witnesses = (
        (of_scores, message("scores.those_of", "those of {arm}", arm=names[0])),
        (of_own, message("scores.own_of", "the logprobs of {arm} itself", arm=names[0])),
    )
    for found, whose in witnesses:
        if len(found) >= FEW_PAIRS and (far := float(np.median(found))) > FAR:
            return message(
                "scores.contradicted",
                "of what both arms say alike the scores of {arm} and {witness} are {far:.2f} nats apart (median): they "
                "are of another temperature, or of another model. None was used. Score both arms with one engine, "
                "without a temperature (`parity run --score all`)",
                arm=names[1],
                witness=whose,
                far=far,
            )
    return None


def _middle(far: FloatArray) -> list[float]:
    """The median of what is known, if anything is."""
    known = far[np.isfinite(far)]
    return [float(np.median(known))] if len(known) else []


def nearly_all(faults: Mapping[ScoreKey, Fault], reference: Reference) -> Message | None:
    """Where most records are at fault the others are not trusted."""
    if len(faults) <= MOST_RECORDS * len(reference.scores):
        return None
    return message(
        "scores.most_records",
        "{count} score record holds {what}: none was used. Score these captures (`parity run --score all`)",
        plural="{count} of {records} score records are at fault (most hold {what}): none was used. Score these "
        "captures (`parity run --score all`)",
        count=len(faults),
        records=len(reference.scores),
        what=Counter(faults.values()).most_common(1)[0][0].value,
    )


def said(faults: Mapping[ScoreKey, Fault]) -> Remarks:
    """A sentence for each kind of fault. Records of other completions leave open which of the two is wrong."""
    remarks = Remarks()
    for fault in Fault:
        keys = [key for key, one in faults.items() if one is fault]
        names = [f"{key.arm} {Key(*key[1:])}" for key in keys[:_NAMED_APART]]
        if keys and fault is Fault.ANOTHER:
            remarks += reason(
                message(
                    "scores.records_of_others",
                    "{count} score record holds lists that fit another completion, and is left out (first: {names}): "
                    "the records were mixed up, or the completions of the capture. Score that completion again",
                    plural="{count} score records hold lists that fit other completions, and are left out (first: "
                    "{names}): the records were mixed up, or the completions of the capture. Score those completions "
                    "again",
                    count=len(keys),
                    names=names,
                ),
                Step.SCORE,
            )
        elif keys:
            remarks += note(
                message(
                    "scores.records",
                    "{count} score record holds {what}, and is left out (first: {names}). Score that completion again",
                    plural="{count} score records hold {what}, and are left out (first: {names}). Score those "
                    "completions again",
                    count=len(keys),
                    what=fault.value,
                    names=names,
                )
            )
    return remarks


def without(scores: Scores, faults: Mapping[ScoreKey, Fault]) -> Scores:
    """All other records."""
    if not isinstance(scores, ScoreTable):
        return {key: top for key, top in scores.items() if key not in faults}
    by_arm: dict[str, set[Key]] = {}
    for key in faults:
        by_arm.setdefault(key.arm, set()).add(Key(*key[1:]))
    return scores.without({arm: frozenset(keys) for arm, keys in by_arm.items()})


# ------------------------------------------------------------------ which are looked at


def _suspects(inputs: Inputs, arm: Capture, reference: Reference) -> Iterator[Sequence[tuple[Completion, TopLogprobs]]]:
    """Of greedy completions those with a token that is rejected, or with another number of lists; all that are
    drawn. Some at a time."""
    scored = reference.scored(arm.header.arm)
    if not scored:
        return
    rows = np.array([row for row, key in enumerate(arm.keys) if key in scored], dtype=np.int64)
    looked_at = at_rows(arm.rows, rows)
    found = reference.all_gaps(arm.header.arm, looked_at)
    for begin in range(0, len(looked_at), _AT_ONCE):
        yield [
            (one, top)
            for one in looked_at[begin : begin + _AT_ONCE]
            for gaps, top in (found[one.key],)
            if top.ids.shape[1]
            and len(one.token_ids)
            and (inputs.is_drawn(one) or len(top) != len(one.token_ids) or bool((gaps.gap > NOT_NOISE).any()))
        ]


# ------------------------------------------------------------------ what is asked of each


def _fault(record: _Record, twin: _Twin | None, run: _Run, *, is_greedy: bool) -> Fault | None:
    if record.is_odd and not run.usual().by_hand:
        return Fault.NUMBERS
    one, top = record.completion, record.top
    # A record that names its tokens was made of them, however unlikely they are.
    if len(top) != len(one.token_ids) or record.unnamed >= FEW_UNNAMED:
        fault = _of_others(record, 0 if twin is None else twin.alike, run, is_greedy=is_greedy)
        if fault is not None:
            return fault
    if twin is None:
        return None
    if twin.top is not None and _is_contradicted(one, top, twin.alike, twin.top):
        return Fault.CONTRADICTED
    is_unlike = is_greedy and run.are_raw and _is_unlike_own(one, twin.completion, top, twin.alike)
    return Fault.UNLIKE_OWN if is_unlike else None


def _of_others(record: _Record, alike: int, run: _Run, *, is_greedy: bool) -> Fault | None:
    """Does it fit other places, or another completion?"""
    one, top = record.completion, record.top
    tokens, lists = one.token_ids, Lists(top)
    most, _ = lists.logprobs(tokens)
    for shift in dict.fromkeys((*SHIFTS, len(top) - len(tokens))):
        place = fits_from(most, lists.logprobs(tokens, shift)[1]) if shift else None
        if place is None:
            continue
        # A token twice, and each after it chosen one step late: an engine with stale logits does that too.
        is_stale = is_greedy and shift < 0 and place >= alike and place > 0 and tokens[place] == tokens[place - 1]
        if not is_stale:
            return Fault.EARLY if shift < 0 else Fault.LATE
    if run.firsts.fits(one, top, most, is_greedy=is_greedy):
        return Fault.ANOTHER
    is_unnamed = not is_greedy and record.unnamed >= max(FEW_UNNAMED, UNNAMED * len(tokens)) and run.usual().are_named
    return Fault.UNNAMED if is_unnamed else None


class _Usual(Struct, frozen=True):
    """What many records of an arm have, and is then no fault of one of them."""

    by_hand: bool
    """They, and those of the other arm, add up to anything, as those that somebody made up for a test do."""
    are_named: bool
    """They name the tokens that they are of."""


class _Run(Struct, frozen=True):
    """What is known of the run besides."""

    firsts: Firsts
    usual: Callable[[], _Usual]
    are_raw: bool
    """Both arms' own logprobs are those of the model."""


def _usual(arm: Capture, other: Capture, reference: Reference) -> _Usual:
    some, theirs = (_records(_some(one, reference)) for one in (arm, other))
    lacking = sum(one.unnamed >= FEW_UNNAMED for one in some)
    return _Usual(_are_odd(some) and (not theirs or _are_odd(theirs)), lacking <= BY_HAND * len(some))


def _some(arm: Capture, reference: Reference) -> list[tuple[Completion, TopLogprobs]]:
    scored = reference.scored(arm.header.arm)
    return [(one, scored[key]) for key in islice(scored, _LOOKED_AT) if (one := arm.completions.get(key)) is not None]


def _are_odd(some: Sequence[_Record]) -> bool:
    return sum(one.is_odd for one in some) > BY_HAND * len(some)


def _is_contradicted(one: Completion, top: TopLogprobs, alike: int, other: TopLogprobs) -> bool:
    """Does the other arm's record of the same text say otherwise throughout, and like the text better?"""
    size = min(alike + 1, len(top), len(other), len(one.token_ids))
    if size < FEW_LISTS or np.nanmedian(np.nan_to_num(distances(other, top, size))) <= NOT_NOISE:
        return False
    mine, theirs = (logprobs_at(it, one.token_ids[: size - 1])[0] for it in (top, other))
    return bool(np.nansum(theirs) > np.nansum(mine) + 8.0)


def _is_unlike_own(one: Completion, twin: Completion, top: TopLogprobs, alike: int) -> bool:
    """Do both engines' own logprobs of what they say alike agree with one another, and not with the record?"""
    size = min(alike, len(top))
    own, other = (_own(it, size) for it in (one, twin))
    if own is None or other is None or size < 8:
        return False
    most, _ = logprobs_at(top, one.token_ids)
    with np.errstate(invalid="ignore"):
        far = np.abs(most[:size] - own) > 0.5
        far &= np.abs(most[:size] - other) > 0.5
        far &= np.abs(own - other) < 0.25
    return int(far.sum()) >= max(4, size // 4)


def _own(one: Completion, size: int) -> FloatArray | None:
    if one.logprobs is None or len(one.logprobs) != len(one.token_ids):
        return None
    return logprobs_at(one.logprobs.part(0, size), one.token_ids[:size])[1]
