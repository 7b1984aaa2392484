"""Are the engine's own logprobs true: as many as tokens, logprobs at all, of the chosen tokens, near the scores?"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Final

import numpy as np
from msgspec.structs import replace

from parity.comparator.detect.cases import Case, Detector, Doubted, Habit, InDoubt, Setup, Usual, pair_by_pair
from parity.comparator.detect.events import Event
from parity.comparator.detect.many_logprobs import AT_ONCE, lacking
from parity.comparator.detect.off_logprobs import LOGPROB_TOLERANCE, MANY, apart, are_off, of_chosen
from parity.comparator.detect.usual_logprobs import choices_of
from parity.comparator.reference.gaps import BoolArray, FloatArray, TokenGaps
from parity.comparator.reference.isolated import FARTHER, MOST
from parity.comparator.reference.own_logprobs import OwnNoise, has_own, own_gaps
from parity.comparator.reference.scores import Reference
from parity.comparator.streams.pairing import Pairs
from parity.comparator.streams.sides import side_of
from parity.messages import Message, message
from parity.records import Completion, Evidence, Key, Kind, TokenIds
from parity.records.evidence import LogprobEvidence

ALONE = 2.0
FEW = 1
"""Positions in a completion at which logprobs may disagree by up to ALONE times the tolerance: on the embedded
checkpoint one clean token in some 10,000 comes to 0.49 nats."""

ALONE_AMONG_DRAWN = MOST
"""Nats by which they may disagree at FEW positions of a drawn completion. What is drawn is often unlikely, where decode
and prefill are farther apart: vLLM 0.32 on CPU has one token by 1.45 nats in one run of 19,000 drawn tokens and one by
1.75 in another, in whichever arm draws it."""

HEADROOM = 3.0
"""Times the farthest that the baseline's own logprobs lie from their scores, which logprobs of the chosen tokens alone
must exceed as well. They are recorded in every run, and in some models (routed experts, long shared) decode and
prefill are farther apart than LOGPROB_TOLERANCE now and then. Lists that were asked for must exceed either that or
the same factor times the most positions beyond LOGPROB_TOLERANCE in one of the baseline's completions: of a DeepSeek
with random weights one clean token in 15 lies beyond it."""


def logprob_mismatch(
    completion: Completion,
    reference: TokenGaps | None,
    until: int,
    baseline: Completion | None = None,
    parts_at: int = -1,
    noise: Callable[[], OwnNoise | None] | None = None,
    usual: Callable[[], Habit] | None = None,
    alone: float = ALONE * LOGPROB_TOLERANCE,
    *,
    by_scores: bool = True,
) -> Event | None:
    """The engine's own logprobs: as many as tokens, numbers, of the chosen tokens, and near the scores.

    Where only FEW are off, and by little (`alone`, nats), the `baseline`'s own logprobs decide, if it has some: those
    of two engines that both decoded lie nearer to each other than to a score. Its tokens part from these at `parts_at`
    (-1: nowhere).
    Of the chosen tokens alone, which every run records, FEW by little are nothing: another expert at a near-tie of the
    router moved one by 0.73 nats in 3.5 million clean tokens.

    `noise`: the baseline's own, which has to be exceeded HEADROOM times (None: not known); without it all count alike.
    Where it is not known, `usual` says how many positions are off in other completions. Without it logprobs of the
    chosen tokens alone say nothing, and of lists all count.

    by_scores: False where the reference is the baseline's own logprobs. Then FEW by little are nothing of lists either.

    Looks at positions before `until` only: after a fault the engine's state is not the reference's.
    """
    own, tokens = completion.logprobs, completion.token_ids
    if own is None:
        return None
    if len(own) != len(tokens):
        at = min(len(own), len(tokens))
        why = message(
            "logprobs.count", "{logprobs} logprobs for {tokens} tokens", logprobs=len(own), tokens=len(tokens)
        )
        return Event(Kind.LOGPROB_MISMATCH, at, abs(len(own) - len(tokens)), Evidence(why=why))
    until = min(until, len(tokens))
    if until == 0:
        return None
    listed, chosen = of_chosen(completion, until)
    broken = broken_logprobs(completion)
    if broken is not None and broken.position < until:
        return broken
    if not listed.all():
        return _unlisted(listed, chosen)
    if reference is None:
        return None
    expected = reference.chosen[:until]
    off = are_off(chosen, expected)
    if off.any() and noise is not None:
        known, with_lists = noise(), completion.lists is not None
        if known is None and usual is not None:
            of_others = usual()
            found = choices_of(completion, off, apart(chosen, expected), of_others.choices)
            is_unusual = _is_unusual(found, of_others.positions, listed=with_lists)
            off = off if is_unusual else np.zeros_like(off)
        else:
            off = _beyond(known, off, np.abs(chosen - expected), listed=with_lists)
    few = int(off.sum()) <= FEW and not bool((np.abs(chosen - expected)[off] > alone).any())
    if few and (completion.lists is None or not by_scores):  # one in millions of clean tokens: `numerics` counts all
        return None
    if not off.any() or (few and not _baseline_differs(chosen, off, tokens, baseline, parts_at)):
        return None
    return _event(off, chosen, expected, _disagree(int(off.sum()), by_scores=by_scores))


BY_SCORES: Final = "logprobs.scores"
"""What `_disagree` says of logprobs that the scores contradict."""


def _disagree(count: int, *, by_scores: bool) -> Message:
    if by_scores:
        return message(
            "logprobs.scores",
            "the engine's logprobs disagree with the scores at {count} position",
            plural="the engine's logprobs disagree with the scores at {count} positions",
            count=count,
        )
    return message(
        "logprobs.baseline",
        "the engine's logprobs disagree with the baseline's own at {count} position",
        plural="the engine's logprobs disagree with the baseline's own at {count} positions",
        count=count,
    )


def unlike_the_others(
    sides: Sequence[tuple[Completion, TokenGaps]], noise: Callable[[], OwnNoise | None]
) -> dict[Key, Message]:
    """Of an arm's completions those whose own logprobs are not those of their tokens, and how it shows. `noise`: the
    other arm's; None: by how many are off in most of these."""
    known = [(one, gaps) for one, gaps in sides if has_own(one)]

    @cache
    def usual() -> Habit:
        counts = [int(are_off(of_chosen(one, len(one.token_ids))[1], gaps.chosen).sum()) for one, gaps in known]
        return Habit(float(np.quantile(counts, _USUAL)))

    looked = (
        (one.key, logprob_mismatch(one, gaps, len(one.token_ids), noise=noise, usual=usual,
                                   alone=ALONE_AMONG_DRAWN))
        for one, gaps in known
    )  # fmt: skip
    return {key: found.evidence.why for key, found in looked if found is not None}


HABIT = 0.5
"""Share of the baseline's completions whose own logprobs name other tokens, from which on it is how it writes them."""


def of_other_tokens(pairs: Pairs) -> dict[Key, Message]:
    """The baseline's completions whose own logprobs name other tokens than theirs, at more than MANY positions: two of
    its rows were exchanged, or it says of one what is another's. Needs no score."""
    side = side_of(pairs.baseline)
    rows = np.flatnonzero(side.has_logprobs & ~side.has_own & pairs.same_prompt)
    found = {}
    for begin in range(0, len(rows), AT_ONCE):  # of a large capture each look reads lists from a file
        for one in lacking(side.some(rows[begin : begin + AT_ONCE])):
            event = unlisted_logprobs(one)
            if event is not None:
                found[one.key] = event.evidence.why
    return found if len(found) < HABIT * int(side.has_logprobs.sum()) else {}


def _is_unusual(count: int, usual: float, *, listed: bool) -> bool:
    """Are more positions off than there are in other completions? Where nothing says how many that is, lists count."""
    if listed and math.isinf(usual):
        return count > 0
    return count > MANY + HEADROOM * usual


def _beyond(noise: OwnNoise | None, off: BoolArray, distance: FloatArray, *, listed: bool) -> BoolArray:
    """Those of the positions that are off which the baseline's noise does not explain."""
    if noise is None:
        return off if listed else np.zeros_like(off)
    headroom = HEADROOM if noise.farthest <= LOGPROB_TOLERANCE else FARTHER  # experts far apart
    far = off & (distance > headroom * noise.farthest)
    if listed and int(off.sum()) > HEADROOM * noise.most_beyond(LOGPROB_TOLERANCE):
        return off
    return far if not listed or not far.any() else off


_USUAL = 0.9
"""Share of an arm's completions whose logprobs are taken for true."""


def noise_of(reference: Reference, *, known: bool = True) -> Callable[[], OwnNoise | None]:
    """For `logprob_mismatch`: looked up where something is off, for it takes all of the baseline's scores. `known`:
    these are of all of its completions, not of a few alone."""
    return lambda: reference.own_noise if known else None


def _baseline_differs(
    chosen: FloatArray, off: BoolArray, tokens: TokenIds, baseline: Completion | None, parts_at: int
) -> bool:
    """Is the baseline's own logprob of the same token, after the same tokens, another one as well?"""
    if baseline is None or baseline.logprobs is None or len(baseline.logprobs) != len(baseline.token_ids):
        return False
    for place in np.flatnonzero(off).tolist():
        if parts_at < 0 or place < parts_at:
            listed = baseline.logprobs.ids[place] == tokens[place]
            values = baseline.logprobs.values[place][listed]
            if len(values) and abs(float(values[0]) - float(chosen[place])) > LOGPROB_TOLERANCE:
                return True
    return False


def broken_logprobs(completion: Completion) -> Event | None:
    """Logprobs of chosen tokens that are NaN, infinite or above zero, anywhere in the completion."""
    own = completion.logprobs
    if own is None:
        return None
    length = min(len(own), len(completion.token_ids))
    ids, values = own.ids[:length], own.values[:length]
    is_chosen = ids == completion.token_ids[:length, None]
    bad = (is_chosen & (np.isnan(values) | (values > 1e-3) | np.isneginf(values))).any(axis=1)
    if not bad.any():
        return None
    chosen = np.where(is_chosen, values, -np.inf).max(axis=1)
    why = message(
        "logprobs.broken", "the logprob of the chosen token is not a logprob at {count} positions", count=int(bad.sum())
    )
    return _event(bad, chosen, None, why)


def unlisted_logprobs(completion: Completion) -> Event | None:
    """The engine's own lists leave the chosen token out, anywhere in the completion. vLLM always adds it."""
    own = completion.logprobs
    if own is None or len(own) != len(completion.token_ids):
        return None
    listed = (own.ids == completion.token_ids[:, None]).any(axis=1)
    return None if listed.all() else _unlisted(listed, np.full(len(listed), np.nan))


def _unlisted(listed: BoolArray, own: FloatArray) -> Event:
    why = message(
        "logprobs.unlisted",
        "the chosen token is not among the engine's own logprobs at {count} positions",
        count=int((~listed).sum()),
    )
    return _event(~listed, own, None, why)


def _event(bad: BoolArray, own: FloatArray, expected: FloatArray | None, why: Message) -> Event:
    positions = np.flatnonzero(bad)
    first = int(positions[0])
    worst = first
    if expected is not None:
        worst = int(positions[np.abs(own - expected)[positions].argmax()])
    value = float(own[worst])
    evidence = LogprobEvidence(
        why=why,
        count=len(positions),
        positions=tuple(positions[:16].tolist()),
        logprob=round(value, 4) if np.isfinite(value) else None,
        score=None if expected is None else round(float(expected[worst]), 4),
        worst_position=worst,
    )
    return Event(Kind.LOGPROB_MISMATCH, first, int(positions[-1]) - first + 1, evidence)


def _at_equal_tokens(case: Case, setup: Setup, usual: Usual | None) -> Event | None:
    """Against the score of either completion, else the baseline's own logprobs: logprobs of the chosen tokens alone
    against these as well where nothing says how far the baseline's lie off its scores."""
    a, b = case.a, case.b
    gaps = None
    if setup.scores_show_lists:
        gaps = setup.reference.gaps(setup.arms[1], b)
        gaps = setup.reference.gaps(setup.arms[0], a) if gaps is None and setup.knows_own_noise else gaps
    noise = noise_of(setup.reference, known=setup.knows_own_noise)
    if gaps is not None:
        found = logprob_mismatch(b, gaps, len(b.token_ids), a, noise=noise)
        if found is not None or b.lists is not None or noise() is not None:
            return found
        if int(are_off(of_chosen(b, len(b.token_ids))[1], gaps.chosen).sum()) <= MANY:
            return None  # if the arms' lie apart, it is the baseline's that are off
    between = None if usual is None else usual.between
    return logprob_mismatch(b, own_gaps(a), len(b.token_ids), a, noise=noise, usual=between, by_scores=False)


def _after_parting(case: Case, setup: Setup, usual: Usual | None) -> Event | None:
    """What is no logprob at all counts anywhere; the rest is not asked beside another fault."""
    a, b = case.a, case.b
    broken = broken_logprobs(b)
    if broken is not None or case.events:
        return broken
    by_scores = case.from_scores and setup.scores_show_lists
    gaps = case.gaps if by_scores else own_gaps(a)
    until = len(b.token_ids) if by_scores else case.flip or 0
    noise = noise_of(setup.reference, known=setup.knows_own_noise)
    in_others = None if usual is None else partial(usual.by_scores, b) if by_scores else usual.between
    return unlisted_logprobs(b) or logprob_mismatch(
        b, gaps, until, a, case.parts_at, noise, in_others, by_scores=by_scores
    )


def _look(case: Case, setup: Setup) -> Case:
    if case.b.logprobs is None:
        return case
    look = _at_equal_tokens if case.is_identical else _after_parting
    event = look(case, setup, setup.usual)
    if event is not None:
        return replace(case, events=(*case.events, event))
    # Nothing beside what is usual in this run, where no score says whether that is rounding.
    usual = look(case, setup, None) if case.b.lists is not None and case.doubtful is None else None
    return case if usual is None else replace(case, doubtful=_in_doubt(usual))


def _in_doubt(event: Event) -> InDoubt:
    found = event.evidence
    assert isinstance(found, LogprobEvidence)
    apart = abs(found.logprob - found.score) if found.logprob is not None and found.score is not None else 0.0
    return InDoubt(event.position if found.worst_position is None else found.worst_position, apart, Doubted.APART)


DETECTOR = Detector(frozenset({Kind.LOGPROB_MISMATCH}), pair_by_pair(_look))
