"""Are the engine's own logprobs true: as many as tokens, logprobs at all, of the chosen tokens, near the scores?"""

from __future__ import annotations

import math
from array import array
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence, Set
from functools import cache, partial

import numpy as np
from msgspec.structs import replace

from parity.comparator.detect.cases import Case, Detector, Doubted, Habit, InDoubt, Setup, Usual, pair_by_pair
from parity.comparator.detect.events import Event
from parity.comparator.reference.gaps import BATCH, BoolArray, FloatArray, TokenGaps, batches
from parity.comparator.reference.isolated import FARTHER, IN_FEWEST, MOST
from parity.comparator.reference.scores import LIKELY, OwnNoise, Reference, own_gaps
from parity.comparator.streams.contexts import context_of
from parity.comparator.streams.pairing import Pairs, at_rows
from parity.comparator.streams.sides import Ints, Side, batches_of, side_of
from parity.messages import Message, message
from parity.records import Completion, Evidence, Key, Kind, RaggedTokens, TokenIds
from parity.records.evidence import LogprobEvidence

LOGPROB_TOLERANCE = 0.5
"""Nats between an engine's own logprob of its token and the score. vLLM's tests use 0.5 (`logprob_atol`,
tests/v1/e2e/general/async_scheduling_utils.py), clean runs there stay below 0.38."""

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

MANY = 3
"""Positions that are off where the baseline has no scores, and HEADROOM times as many as are usual (between the arms'
own logprobs, or in the candidate's other scored completions), which a completion must exceed."""

LONG_LOOP = 8
"""Tokens of a loop, at least, of which each one counts once for all times that it comes round."""

LEAST_OTHERS = 256
"""Scored tokens of other completions, from which on they say what is usual."""


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
    listed, chosen = _of_chosen(completion, until)
    broken = broken_logprobs(completion)
    if broken is not None and broken.position < until:
        return broken
    if not listed.all():
        return _unlisted(listed, chosen)
    if reference is None:
        return None
    expected = reference.chosen[:until]
    off = _off(chosen, expected)
    if off.any() and noise is not None:
        known, with_lists = noise(), completion.lists is not None
        if known is None and usual is not None:
            of_others = usual()
            found = _choices(completion, off, chosen - expected, of_others.choices)
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
    known = [(one, gaps) for one, gaps in sides if _has_own(one)]

    @cache
    def usual() -> Habit:
        counts = [int(_off(_of_chosen(one, len(one.token_ids))[1], gaps.chosen).sum()) for one, gaps in known]
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
        for one in _lacking(side.some(rows[begin : begin + AT_ONCE])):
            event = unlisted_logprobs(one)
            if event is not None:
                found[one.key] = event.evidence.why
    return found if len(found) < HABIT * int(side.has_logprobs.sum()) else {}


def _lacking(some: Sequence[Completion]) -> Iterator[Completion]:
    """Those whose own lists lack the chosen token at more than MANY positions."""
    by_width: dict[int, list[Completion]] = {}
    for one in some:
        own = one.logprobs
        if own is not None and own.ids.shape[0] == one.token_ids.shape[0]:
            by_width.setdefault(own.ids.shape[1], []).append(one)
    for same in by_width.values():
        ids = np.concatenate([one.logprobs.ids for one in same if one.logprobs is not None])
        tokens = np.concatenate([one.token_ids for one in same])
        lacks = ~(ids == tokens[:, None]).any(axis=1)
        row = np.repeat(np.arange(len(same)), [one.token_ids.shape[0] for one in same])
        yield from (same[at] for at in np.flatnonzero(np.bincount(row[lacks], minlength=len(same)) > MANY).tolist())


AT_ONCE = 256
"""Completions of which lists are looked at together."""


def _choices(completion: Completion, off: BoolArray, apart: FloatArray, common: Set[Hashable]) -> int:
    """Positions that are off, but for those that are `common`. Those to which a loop comes again count once: an engine
    that comes to the same tokens again makes the same choice. In a short loop each counts."""
    last: dict[Hashable, int] = {}
    count = 0
    for at in np.flatnonzero(off).tolist():
        if _choice(completion, at, apart) in common:
            continue
        context = context_of(completion, at)
        count += context not in last or at - last[context] < LONG_LOOP
        last[context] = at
    return count


def _choice(completion: Completion, at: int, apart: FloatArray) -> Hashable:
    """The tokens after which a logprob is off, and by how much in units of LOGPROB_TOLERANCE."""
    return context_of(completion, at), float(np.rint(apart[at] / LOGPROB_TOLERANCE))  # may be infinite


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


class _Shared:
    """What `_choice` says of the logprobs that are off, and the prompts of which it says it."""

    def __init__(self) -> None:
        self._prompts: defaultdict[Hashable, set[int]] = defaultdict(set)

    def add(self, completion: Completion, off: BoolArray, apart: FloatArray) -> None:
        for at in np.flatnonzero(off).tolist():
            self._prompts[_choice(completion, at, apart)].add(hash(completion.prompt_token_ids.tobytes()))

    def common(self) -> Set[Hashable]:
        return {choice for choice, prompts in self._prompts.items() if len(prompts) >= IN_FEWEST}


def usual_between(pairs: Pairs) -> Callable[[], Habit]:
    """How many logprobs of the chosen tokens are off between the arms in a completion, up to where they part, as
    `most_have` says, and after which tokens. Looked up where something is off."""

    @cache
    def found() -> Habit:
        counts, shared = [], _Shared()
        for a, b, parts_at in zip(pairs.baseline, pairs.candidate, pairs.parts_at.tolist(), strict=True):
            theirs, until = own_gaps(a), len(b.token_ids) if parts_at < 0 else parts_at
            if theirs is not None and b.logprobs is not None and len(b.logprobs) == len(b.token_ids):
                mine, expected = _of_chosen(b, until)[1], theirs.chosen[:until]
                off = _off(mine, expected)
                counts.append(int(off.sum()))
                with np.errstate(invalid="ignore"):  # two tokens without probability
                    shared.add(b, off, mine - expected)
        return Habit(most_have(counts), shared.common())

    return found


FEW_HAVE, MOST_HAVE = 0.65, 0.95
"""Shares of the completions: the first without any, nothing is usual; else what the second have at most is. Of
three clean arms of `parity model tiny --arch deepseek_v3` (vLLM 0.32 on CPU) 28 to 46 of 64 completions have some."""


def most_have(counts: Sequence[int] | Ints) -> float:
    """How many are usual, where completions have so many positions that are off.

    None where no more than one completion in three has some. Where more have, the model moves its logits now and then,
    as routers of random weights do: as many as 19 in 20 completions have at most.
    """
    some, most = np.quantile(counts, (FEW_HAVE, MOST_HAVE), method="lower").tolist() if len(counts) else (0.0, 0.0)
    return float(most) if some else 0.0


def listing_rows(pairs: Pairs) -> Ints:
    """The pairs whose candidate's own logprobs list other tokens as well."""
    side = side_of(pairs.candidate)
    rows = np.flatnonzero(side.has_logprobs & ~side.has_own)
    lists = (pairs.candidate[row].lists is not None for row in rows.tolist())
    return rows[np.fromiter(lists, dtype=np.bool_, count=len(rows))]


def doubtful_rows(pairs: Pairs, rows: Ints) -> set[int]:
    """Of these pairs with equal tokens, those to be looked at: where the candidate's own logprobs are of the chosen
    tokens alone and are not one for each of them, are no logprobs, or are not about the baseline's.

    Over all of them at once: each run records these, and looking at each pair would cost more than the comparison.
    """
    sides = side_of(pairs.baseline), side_of(pairs.candidate)
    in_columns = sides[0].has_own[rows] & sides[1].has_own[rows]
    doubtful = set(_doubtful_in_columns(sides, rows[in_columns]))
    whole: list[int] = []
    for row in rows[~in_columns & sides[1].has_logprobs[rows]].tolist():
        a, b = pairs.baseline[row], pairs.candidate[row]
        if b.logprobs is None or b.lists is not None:
            continue
        if len(b.logprobs) != len(b.token_ids) or not b.logprobs.ids.shape[1]:
            if len(b.token_ids) or len(b.logprobs):
                doubtful.add(row)
            continue
        if a.lists is not None:
            doubtful.add(row)
            continue
        whole.append(row)
    for batch in batches([len(pairs.candidate[row].token_ids) for row in whole]):
        doubtful.update(_doubtful_of(pairs, whole[batch]))
    return doubtful


def _doubtful_in_columns(sides: tuple[Side, Side], rows: Ints) -> Iterator[int]:
    """`_doubtful_of` where both sides have columns."""
    for at in batches_of(sides[1].sizes[rows], BATCH):
        some = rows[at]
        theirs, values = (side.own(some) for side in sides)
        usable = (values <= 1e-3) & (values > -np.inf)  # NaN fails the test
        with np.errstate(invalid="ignore"):
            hits = np.flatnonzero((np.abs(values - theirs) > LOGPROB_TOLERANCE / 2) | ~usable)
        if len(hits):
            ends = np.cumsum(sides[1].sizes[some])
            yield from some[np.unique(np.searchsorted(ends, hits, side="right"))].tolist()


def _doubtful_of(pairs: Pairs, rows: Sequence[int]) -> Iterator[int]:
    """Of pairs whose candidate has a logprob for each token: those where some are none, of other tokens, or not about
    the baseline's."""
    own, theirs = [], []
    for row in rows:
        a, b = pairs.baseline[row].logprobs, pairs.candidate[row].logprobs
        assert b is not None
        own.append(b)
        theirs.append(a.values[:, 0] if a is not None and a.ids.shape == b.ids.shape else b.values[:, 0])
    tokens = RaggedTokens.of([pairs.candidate[row].token_ids for row in rows])
    values = np.concatenate([one.values[:, 0] for one in own])
    usable = (values <= 1e-3) & (values > -np.inf)  # NaN fails the test
    usable &= np.concatenate([one.ids[:, 0] for one in own]) == tokens.flat
    with np.errstate(invalid="ignore"):
        far = np.abs(values - np.concatenate(theirs)) > LOGPROB_TOLERANCE / 2
    return (rows[index] for index in tokens.rows_with(far | ~usable))


def usual_by_scores(
    pairs: Pairs, reference: Reference, arm: str, own_noise: Callable[[], OwnNoise | None]
) -> Callable[[Completion], Habit]:
    """How many logprobs of the chosen tokens lie off their scores in a completion as long as this one: by the share in
    the candidate's other scored completions that part from the baseline's, and at least as many as `most_have` says of
    these, and as in any of those of the baseline that are scored; infinite where the others have fewer than
    LEAST_OTHERS tokens. Needed where not all of the baseline is scored, which would say it better. `arm`: the
    candidate's name; `own_noise`: of the few of the baseline's tokens that are scored.
    """

    def counts(completion: Completion, gaps: TokenGaps, shared: _Shared | None = None) -> tuple[int, int]:
        length = len(completion.token_ids)
        if not _has_own(completion):
            return 0, 0
        mine = _of_chosen(completion, length)[1]
        off = _off(mine, gaps.chosen)
        if shared is not None:
            shared.add(completion, off, mine - gaps.chosen)
        return int(off.sum()), length

    @cache
    def whole() -> tuple[Ints, int, Set[Hashable]]:
        rows, off, tokens = np.flatnonzero(~pairs.identical & pairs.same_prompt), array("q"), 0
        shared = _Shared()
        for begin in range(0, len(rows), _AT_ONCE):
            some = at_rows(pairs.candidate, rows[begin : begin + _AT_ONCE])
            scored = reference.all_gaps(arm, some)
            each = [counts(one, scored[one.key][0], shared) for one in some if one.key in scored]
            off.extend(count for count, length in each if length)
            tokens += sum(length for _, length in each)
        return np.sort(np.array(off, dtype=np.int64)), tokens, shared.common()

    def usual(completion: Completion) -> Habit:
        gaps = reference.gaps(arm, completion)
        off, tokens = (0, 0) if gaps is None else counts(completion, gaps)
        every, total, common = whole()
        if total - tokens < LEAST_OTHERS:
            return Habit(float("inf"))
        others = np.delete(every, np.searchsorted(every, off)) if tokens else every
        noise = own_noise()
        least = 0 if noise is None else noise.most_beyond(LOGPROB_TOLERANCE)
        share = int(others.sum()) * len(completion.token_ids) / (total - tokens)
        return Habit(max(least, most_have(others), share), common)

    return usual


_AT_ONCE = 256
"""Completions whose gaps are held together."""


def _has_own(completion: Completion) -> bool:
    own = completion.logprobs
    return own is not None and len(own) == len(completion.token_ids)


def noise_of(reference: Reference, *, known: bool = True) -> Callable[[], OwnNoise | None]:
    """For `logprob_mismatch`: looked up where something is off, for it takes all of the baseline's scores. `known`:
    these are of all of its completions, not of a few alone."""
    return lambda: reference.own_noise if known else None


def _of_chosen(completion: Completion, until: int) -> tuple[BoolArray, FloatArray]:
    """Is the chosen token listed, and its own logprob; shape (until,)."""
    assert completion.logprobs is not None
    ids, values = completion.logprobs.ids[:until], completion.logprobs.values[:until]
    is_chosen = ids == completion.token_ids[:until, None]
    chosen = np.where(is_chosen, values, -np.inf).max(axis=1) if ids.shape[1] else np.full(until, np.nan)
    return is_chosen.any(axis=1), chosen


def _off(chosen: FloatArray, expected: FloatArray) -> BoolArray:
    """Positions at which two logprobs of one likely token are not the same."""
    with np.errstate(invalid="ignore"):
        off = np.abs(chosen - expected) > LOGPROB_TOLERANCE
        off &= np.maximum(chosen, expected) > LIKELY
    return np.asarray(off & np.isfinite(expected))


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
        if int(_off(_of_chosen(b, len(b.token_ids))[1], gaps.chosen).sum()) <= MANY:
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
