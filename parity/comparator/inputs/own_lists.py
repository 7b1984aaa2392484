"""Lists of logprobs that an arm writes in a way of its own: how many there are, and numbers of which kind.

What can be turned into natural logarithms is, and stays under all checks; the rest is left out. Each is a habit only
where the whole arm has it: in one completion it is a fault.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TypeAlias

import numpy as np
from msgspec import Struct

from parity.comparator.inputs.bans import terminators
from parity.comparator.inputs.best_alone import of_the_best_alone
from parity.comparator.inputs.conventions import says_nothing
from parity.comparator.inputs.numbers import (
    BASE_2,
    BASE_10,
    PROBABILITIES,
    TOO_LITTLE,
    FloatArray,
    NoLogprobs,
    Numbers,
    blocks_of,
    kind_of_blocks,
    kind_of_numbers,
    no_logprobs,
)
from parity.comparator.inputs.servers import by_others, served
from parity.comparator.inputs.unnumbered import without_unnumbered
from parity.comparator.types import Remarks, note, reason
from parity.messages import Message, joined, message
from parity.records import Capture, Completion, Key, Lazy, ScoreKey, Scores, TokenIds, TopLogprobs, all_scores
from parity.records.next_steps import Step

_LOOKED_AT = 256
"""Completions looked at to learn a habit."""

LIKE_IT = 0.95
"""Share of the completions that must have a habit: some of the others may have a fault besides."""


def as_natural_logs(baseline: Capture, candidate: Capture, scores: Scores) -> tuple[Capture, Capture, Remarks]:
    """Both captures with one list of natural logarithms per token, or without any. `scores`: natural ones."""
    baseline, counts = _one_per_token(baseline)
    candidate, more = _one_per_token(candidate)
    baseline, candidate, unnumbered = without_unnumbered(baseline, candidate)
    remarks = counts + more + unnumbered
    for rule in (partial(_numbers, scores=scores), _certain, _unsaid):
        baseline, of_baseline = rule(baseline)
        candidate, of_candidate = rule(candidate)
        remarks += of_baseline + of_candidate
    odd = of_the_best_alone(baseline, candidate)
    baseline, candidate = (
        arm if some is None else _without_lists(arm, some) for arm, some in zip((baseline, candidate), odd, strict=True)
    )
    remarks += Remarks(notes=tuple(_best_alone(odd, baseline.header.arm, candidate.header.arm)))
    candidate, of_candidate = _by_ratio(baseline, candidate, scores)
    baseline, of_baseline = _by_ratio(candidate, baseline, scores)
    return baseline, candidate, remarks + of_candidate + of_baseline


# ------------------------------------------------------------------ how many


class _Amount(Struct, frozen=True):
    what: Message
    holds: Callable[[Completion, int], bool]
    """Of a completion and the number of its lists."""
    mend: Callable[[Completion, TopLogprobs], TopLogprobs | None]


def _stopped(one: Completion, more: int) -> bool:
    """Are so many lists more than tokens what an end that is left out makes? Where no reason is given, nothing says
    whether there was one."""
    return more in {"stop": (1,), None: (0, 1)}.get(one.finish_reason, (0,))


def _begins_late(one: Completion) -> bool:
    """Do its lists hold the token after theirs rather than their own?"""
    assert one.logprobs is not None
    tokens, ids = one.token_ids, one.logprobs.ids[: len(one.token_ids)]
    here, after = ((ids[: len(some)] == some[: len(ids), None]).any(axis=1) for some in (tokens, tokens[1:]))
    return bool(after.mean() > here.mean()) if len(after) else not here.any()


def _before_own(one: Completion) -> int | None:
    """Lists before those that name its tokens, which are the last ones, or all but that of a token that it stopped at;
    None where there are no such."""
    assert one.logprobs is not None
    more = len(one.logprobs) - len(one.token_ids)
    for begin in [more, *([more - 1] if _stopped(one, 1) else [])]:
        ids = one.logprobs.ids[begin : begin + len(one.token_ids)]
        if begin > 0 and bool((ids == one.token_ids[:, None]).any(axis=1).all()):
            return begin
    return None


_AMOUNTS = (
    _Amount(
        message("inputs.lists_first", "it gives logprobs of the first token alone: left out"),
        lambda one, size: size == min(1, len(one.token_ids)),
        lambda one, top: None,
    ),
    _Amount(
        message("inputs.lists_but_first", "it gives logprobs of all tokens but the first: left out"),
        lambda one, size: size == max(0, len(one.token_ids) - 1),
        lambda one, top: None,
    ),
    _Amount(
        message(
            "inputs.lists_but_first_of_end",
            "it gives logprobs of all tokens but the first, and of that it stopped at, which its ids lack: left out",
        ),
        lambda one, size: _stopped(one, size - len(one.token_ids) + 1) and _begins_late(one),
        lambda one, top: None,
    ),
    _Amount(
        message("inputs.lists_of_prompt", "its logprobs begin with those of the prompt: these are left out"),
        lambda one, size: size == len(one.prompt_token_ids) + len(one.token_ids),
        lambda one, top: top.part(len(one.prompt_token_ids)),
    ),
    _Amount(
        message(
            "inputs.lists_of_prompt_but_first",
            "its logprobs begin with those of the prompt but for its first token: these are left out",
        ),
        lambda one, size: size == len(one.prompt_token_ids) + len(one.token_ids) - 1,
        lambda one, top: top.part(len(one.prompt_token_ids) - 1),
    ),
    _Amount(
        message("inputs.lists_of_end", "it has a logprob of the token it stopped at, which its ids lack: left out"),
        lambda one, size: _stopped(one, size - len(one.token_ids)),
        lambda one, top: top.part(stop=len(one.token_ids)),
    ),
    _Amount(
        message(
            "inputs.lists_of_prompt_and_end",
            "its logprobs begin with those of the prompt, and end with that of the token it stopped at: left out",
        ),
        lambda one, size: _stopped(one, size - len(one.prompt_token_ids) - len(one.token_ids)),
        lambda one, top: top.part(len(one.prompt_token_ids), len(one.prompt_token_ids) + len(one.token_ids)),
    ),
    _Amount(
        message(
            "inputs.lists_of_more",
            "its logprobs begin with those of something else (its prompts, which were not recorded?): left out",
        ),
        lambda one, size: size > len(one.token_ids) and not len(one.prompt_token_ids) and _before_own(one) is not None,
        lambda one, top: top.part(begin := _before_own(one) or 0, begin + len(one.token_ids)),
    ),
)


def _one_per_token(arm: Capture) -> tuple[Capture, Remarks]:
    if not by_others(arm.header) or not arm.has_logprobs:
        return arm, Remarks()
    # Those in a column have as many as tokens. Of the others only the odd ones are kept.
    odd = [
        (one, size)
        for one in arm.with_logprobs()
        if one.logprobs is not None and (size := len(one.logprobs)) != len(one.token_ids) > 1
    ]
    if len(odd) < 2 and not any(_ends_listed(one, size, arm) for one, size in odd):
        return arm, Remarks()
    looked = _counted(arm)
    for amount in _AMOUNTS:
        holding = [amount.holds(*pair) for pair in looked]
        if sum(holding) >= LIKE_IT * len(looked) and any(amount.holds(*pair) for pair in odd):
            mended = {
                one.key: replace(one, logprobs=None if one.logprobs is None else amount.mend(one, one.logprobs))
                for one in arm
                if one.logprobs is not None and amount.holds(one, len(one.logprobs))
            }
            return arm.but(mended), _habit(arm, amount.what)
    return arm, Remarks()


def _ends_listed(one: Completion, size: int, arm: Capture) -> bool:
    """Is the one list more than its tokens that of a token that ends completions, where it stopped? Then it is enough
    that one completion of the run has it: the others ended by length."""
    if one.logprobs is None or size != len(one.token_ids) + 1 or one.finish_reason != "stop":
        return False
    return bool(np.isin(one.logprobs.ids[-1], list(terminators(arm.header))).any())


def _counted(some: Iterable[Completion]) -> list[tuple[Completion, int]]:
    """Those that say something of a habit, and how many lists they have."""
    return [(one, len(one.logprobs)) for one in some if one.logprobs is not None and len(one.token_ids) > 1]


def _habit(arm: Capture, what: Message) -> Remarks:
    return Remarks(notes=(message("inputs.habit", "{arm}: {what}", arm=arm.header.arm, what=what),))


# ------------------------------------------------------------------ of which kind

RATIOS = {1 / float(np.log(2)): BASE_2, 1 / float(np.log(10)): BASE_10}
"""By what natural logarithms are multiplied in another base."""

LIKELY = -0.2
"""Nats. Logprobs above it are too near to 0 for a ratio."""

TOKENS = 32
"""Tokens that it takes to see a ratio."""


def _numbers(arm: Capture, scores: Scores) -> tuple[Capture, Remarks]:
    """Numbers that cannot be natural logarithms of probabilities; but where most are those of the scores, it is a few
    lists that are wrong."""
    if not arm.has_logprobs:
        return arm, Remarks()
    kind = kind_of_numbers(_some(arm), arm.header.vocab_size)
    if kind is PROBABILITIES and _rounded_to_nothing(arm):
        what = message(
            "inputs.rounded_probabilities",
            "its probabilities are rounded, those of some chosen tokens to 0: its logprobs are left out",
        )
        return _without_lists(arm), _habit(arm, what)
    if kind is None or _constant_near(_ratios(_beside_scores(arm, scores))[0], 1.0):
        return arm, Remarks()
    return _converted(arm, kind)


def _constant_near(ratios: FloatArray, wanted: float) -> bool:
    found = _constant(ratios)
    return found is not None and abs(found / wanted - 1) < CLOSE


DIGITS = 1000
"""One over the finest step that rounded probabilities are looked for in."""


def _rounded_to_nothing(arm: Capture) -> bool:
    """Is the probability of a chosen token 0, where all are written with a few decimals?"""
    some = [one for one in islice(arm, _LOOKED_AT) if one.logprobs is not None]
    steps = np.concatenate([one.logprobs.values.ravel() for one in some if one.logprobs is not None]) * DIGITS
    steps = steps[np.isfinite(steps)]
    return bool((np.abs(steps - np.round(steps)) < 1e-6).all()) and any(_gives_chosen(one, 0.0) for one in arm)


def _converted(arm: Capture, kind: Numbers) -> tuple[Capture, Remarks]:
    changed = {
        key: replace(one, logprobs=replace(one.logprobs, values=kind.as_natural(one.logprobs.values)))
        for key, one in arm.completions.items()
        if one.logprobs is not None
    }
    what = message("inputs.other_numbers", "its logprobs are {what}: taken as such", what=kind.name)
    return arm.but(changed), _habit(arm, what)


def _by_ratio(baseline: Capture, candidate: Capture, scores: Scores) -> tuple[Capture, Remarks]:
    """The candidate's logprobs beside the baseline's of the same tokens, or where that has none beside its scores:
    another base, or another temperature."""
    if not candidate.has_logprobs:
        return candidate, Remarks()
    chosen, spread = _ratios(_beside_arm(candidate, baseline) if baseline.has_logprobs else ())
    base = _constant(chosen)
    others = base is not None and by_others(candidate.header) and bool(scores)
    if base is None or others:  # it is the baseline's that may be of another kind, or both
        of_scores = _ratios(_beside_scores(candidate, scores))
        if (other := _constant(of_scores[0])) is not None or base is None:
            base, spread = other, of_scores[1]
    scale = _constant(spread)
    for ratio, kind in RATIOS.items():
        # Another base changes the distances within a list as much; another temperature does not.
        if base is not None and abs(base / ratio - 1) < CLOSE and (scale is None or abs(scale / ratio - 1) < CLOSE):
            return _converted(candidate, kind)
    if served(candidate.header) and scale is not None and abs(scale - 1) > OTHER_TEMPERATURE:
        what = message(
            "inputs.other_temperature",
            "its logprobs are those of another temperature ({temperature:.2g}): left out",
            temperature=1 / scale,
        )
        return _without_lists(candidate), _habit(candidate, what)
    if served(candidate.header) and scale is None and _surer_throughout(baseline, candidate, scores):
        what = message(
            "inputs.as_other_temperature",
            "its logprobs differ from the reference's to one side throughout, as those of another temperature do: left "
            "out",
        )
        return _without_lists(candidate), _habit(candidate, what)
    return candidate, Remarks()


def _surer_throughout(baseline: Capture, candidate: Capture, scores: Scores) -> bool:
    """Where lists hold the chosen tokens alone: is each that has more than half of the probability farther from even
    odds than the reference has it, or each nearer? A temperature does that. Noise goes both ways."""
    for pairs in (_beside_arm(candidate, baseline) if baseline.has_logprobs else (), _beside_scores(candidate, scores)):
        odds = [(np.empty(0), np.empty(0))]
        for tokens, mine_top, other_top in islice(pairs, _LOOKED_AT):
            mine, theirs = (_of_two(top, len(tokens), tokens)[0] for top in (mine_top, other_top))
            known = (theirs > AROUND_EVEN[0]) & (theirs < AROUND_EVEN[1]) & (mine < 0) & np.isfinite(mine)
            odds.append((_log_odds(mine[known]), _log_odds(theirs[known])))
        mine, theirs = (np.concatenate(side) for side in zip(*odds, strict=True))
        if len(theirs) >= TOKENS:
            up = float((mine > theirs).mean())
            return max(up, 1 - up) >= LIKE_IT and abs(float(np.median(mine / theirs)) - 1) > OTHER_TEMPERATURE
    return False


AROUND_EVEN = (float(np.log(0.55)), float(np.log(0.95)))
"""Nats: logprobs of tokens that are the best, and not so sure that rounding hides by how much."""


def _log_odds(logprobs: FloatArray) -> FloatArray:
    return np.asarray(logprobs - np.log(-np.expm1(logprobs)))


CLOSE = 0.03
"""By which ratios may differ and be the same."""

OTHER_TEMPERATURE = 0.1
"""By which the differences within lists must be larger or smaller throughout to be of another temperature."""


Beside: TypeAlias = tuple[TokenIds, TopLogprobs, TopLogprobs]
"""The tokens that two lists are of, and both."""


def _beside_arm(arm: Capture, other: Capture) -> Iterator[Beside]:
    for key, one in arm.completions.items():
        twin = other.completions.get(key)
        if twin is None or one.logprobs is None or twin.logprobs is None:
            continue
        size = min(len(one.token_ids), len(twin.token_ids), len(one.logprobs), len(twin.logprobs))
        same = one.token_ids[:size] == twin.token_ids[:size]
        size = int(np.argmin(same)) if not same.all() else size
        yield one.token_ids[:size], one.logprobs, twin.logprobs


def _beside_scores(arm: Capture, scores: Scores) -> Iterator[Beside]:
    for key, one in arm.completions.items():
        top = scores.get(ScoreKey(arm.header.arm, *key))
        if top is not None and one.logprobs is not None:
            yield one.token_ids[: min(len(one.token_ids), len(one.logprobs), len(top))], one.logprobs, top


def _ratios(pairs: Iterable[Beside]) -> tuple[FloatArray, FloatArray]:
    """The first list over the second: logprobs of the tokens that both name, and differences between the two best."""
    chosen: list[FloatArray] = []
    spread: list[FloatArray] = []
    for tokens, mine_top, other_top in _joined(islice(pairs, _LOOKED_AT)):
        mine, theirs = (_of_two(top, len(tokens), tokens) for top in (mine_top, other_top))
        if mine_top.ids.shape[1] == other_top.ids.shape[1] == 1:  # the usual case
            known = (theirs[0] < LIKELY) & (mine[0] < 0)
            with np.errstate(invalid="ignore"):
                chosen.append(mine[0][known] / theirs[0][known])
            continue
        chosen += _shared(mine_top, other_top, len(tokens))
        apart = (mine[2] == theirs[2]) & (np.abs(theirs[1]) > -LIKELY) & np.isfinite(mine[1]) & np.isfinite(theirs[1])
        spread.append(mine[1][apart] / theirs[1][apart])
    return tuple(np.concatenate(one) if one else np.empty(0) for one in (chosen, spread))  # type: ignore[return-value]


def _joined(pairs: Iterable[Beside]) -> Iterator[Beside]:
    """The same lists, those of equal widths one after another in two: numpy pays by the call, not by the row."""
    by_width: dict[tuple[int, int], list[Beside]] = {}
    for one in pairs:
        by_width.setdefault((one[1].ids.shape[1], one[2].ids.shape[1]), []).append(one)
    for some in by_width.values():
        sides = (
            [mine.part(0, len(tokens)) for tokens, mine, _ in some],
            [theirs.part(0, len(tokens)) for tokens, _, theirs in some],
        )
        mine, theirs = (
            TopLogprobs(np.concatenate([top.ids for top in side]), np.concatenate([top.values for top in side]))
            for side in sides
        )
        yield np.concatenate([tokens for tokens, _, _ in some]), mine, theirs


COLUMNS = 4
"""Of a list, that are looked up in the other one."""


def _shared(mine: TopLogprobs, theirs: TopLogprobs, size: int) -> Iterator[FloatArray]:
    """Of the first `size` tokens: numbers of one list over those of the other, by column of the other."""
    ids, values = mine.ids[:size], mine.values[:size]
    for column in range(min(COLUMNS, theirs.ids.shape[1]) if ids.shape[1] else 0):
        token, other = theirs.ids[:size, column], theirs.values[:size, column]
        here = ids == token[:, None]
        own = values[np.arange(size), here.argmax(axis=1)]
        known = here.any(axis=1) & (other < LIKELY) & (own < 0) & np.isfinite(own) & np.isfinite(other)
        yield own[known] / other[known]


def _of_two(top: TopLogprobs, size: int, tokens: TokenIds) -> tuple[FloatArray, FloatArray, TokenIds]:
    """Of the first `size` tokens: logprob of the chosen one, its distance from the best other one, and its id."""
    ids, values = top.ids[:size], top.values[:size]
    if not size or not ids.shape[1]:
        return np.full(size, np.nan), np.full(size, np.nan), np.full(size, -1, dtype=np.int64)
    if ids.shape[1] == 1:  # the usual case: the chosen token alone
        own = np.where(ids[:, 0] == tokens[:size], values[:, 0], -np.inf)
        return own, np.full(size, np.nan), ids[:, 0]
    is_chosen = ids == tokens[:size, None]
    with np.errstate(invalid="ignore"):
        own = np.where(is_chosen, values, -np.inf).max(axis=1)
        others = np.where(is_chosen | ~np.isfinite(values), -np.inf, values)
        column = others.argmax(axis=1)
        best = others[np.arange(size), column]
        return own, own - best, ids[np.arange(size), column]


def _constant(ratios: FloatArray) -> float | None:
    """The ratio that nearly all have; None where there is none."""
    ratios = ratios[np.isfinite(ratios)]
    if len(ratios) < TOKENS:
        return None
    middle = float(np.median(ratios))
    near = np.abs(ratios - middle) <= 3 * CLOSE * abs(middle)
    return middle if middle > 0 and float(near.mean()) >= MOST else None


MOST = 0.75
"""Share of the tokens that must show a ratio."""


def _certain(arm: Capture) -> tuple[Capture, Remarks]:
    """An arm that calls every token certain (processed logprobs of greedy decoding)."""
    if not by_others(arm.header) or arm.header.engine.get("logprobs_mode") is not None or not says_nothing(arm):
        return arm, Remarks()
    what = message("inputs.certain", "its logprobs call every token certain: left out")
    return _without_lists(arm), _habit(arm, what)


UNSAID = -9999.0
"""What OpenAI gives, and those who do as it does, for a token that is not among the likeliest: no logprob."""


def _unsaid(arm: Capture) -> tuple[Capture, Remarks]:
    """An arm that does not say how likely its own token was where others were likelier. Without those tokens alone the
    rest would look as if drawn too carefully."""
    if not by_others(arm.header) or not arm.has_logprobs:
        return arm, Remarks()
    # A generator costs a call for each.
    some = [one for one in arm.with_logprobs() if one.logprobs is not None and UNSAID in one.logprobs.values]
    if not (any(_gives_chosen(one, UNSAID) for one in some) or _column_leaves_unsaid(arm)):
        return arm, Remarks()
    what = message(
        "inputs.unsaid", "it gives -9999 for chosen tokens that are not among the likeliest: its logprobs are left out"
    )
    return _without_lists(arm), _habit(arm, what)


def _gives_chosen(one: Completion, number: float) -> bool:
    """Does it have this number for one of its own tokens?"""
    top = one.logprobs
    if top is None:
        return False
    size = min(len(top), len(one.token_ids))
    return bool(((top.ids[:size] == one.token_ids[:size, None]) & (top.values[:size] == number)).any())


def _column_leaves_unsaid(arm: Capture) -> bool:
    """The same of completions whose logprobs are a column, of chosen tokens alone."""
    if not isinstance(arm.completions, Lazy):
        return False
    rows = np.flatnonzero(arm.completions.has_own)
    parts = (rows[begin : begin + _AT_ONCE] for begin in range(0, len(rows), _AT_ONCE))
    return any(UNSAID in arm.completions.own_logprobs(part) for part in parts)


_AT_ONCE = 4096
"""Completions of which logprobs are looked at together."""


_BEST_ALONE = message(
    "inputs.best_alone",
    "both arms list the best tokens alone, and some that were chosen are not among them: their logprobs are left out",
)


def _best_alone(odd: tuple[frozenset[Key] | None, frozenset[Key] | None], *arms: str) -> Iterator[Message]:
    """`odd`: of each of the arms, as `of_the_best_alone` has it."""
    named = [arm for arm, some in zip(arms, odd, strict=True) if some is not None]
    if len(named) == 2:
        yield _BEST_ALONE
    elif named:
        yield message(
            "inputs.best_alone_in_one",
            "{arm} lists the best tokens alone, and some that were chosen are not among them: its logprobs are left "
            "out",
            arm=named[0],
        )


def _without_lists(arm: Capture, but: frozenset[Key] = frozenset()) -> Capture:
    completions = {key: one if key in but else replace(one, logprobs=None) for key, one in arm.completions.items()}
    return replace(arm, completions=completions)


def _some(arm: Capture) -> Iterator[TopLogprobs]:
    return islice((one.logprobs for one in arm if one.logprobs is not None), _LOOKED_AT)


# ------------------------------------------------------------------ scores


def natural_scores(
    baseline: Capture, candidate: Capture, scores: Scores | None, echoed: Mapping[ScoreKey, int]
) -> tuple[Scores, Remarks]:
    """All scores there are, those in the captures among them. None where they cannot be natural logarithms of
    probabilities: whoever wrote them must say what they are.

    `echoed`: lengths of the outputs that came with their prompt. Where scores are of more tokens than that, whoever
    made them put the prompt there twice: they say nothing.
    """
    merged = all_scores((baseline.scores, candidate.scores, scores or {}))
    twice = [key for key, length in echoed.items() if key in merged and len(merged[key]) > length]
    remarks = Remarks()
    if twice:
        merged = {key: top for key, top in merged.items() if key not in set(twice)}
        remarks = note(
            message(
                "inputs.echo_scored",
                "{arms}: the scores are of outputs that begin with their prompt, which the model was given twice: not "
                "used. Score the outputs without it",
                arms=joined(sorted({key.arm for key in twice})),
            )
        )
    size = candidate.header.vocab_size or baseline.header.vocab_size
    blocks = blocks_of(islice(merged.values(), _LOOKED_AT))
    kind: Numbers | NoLogprobs | None = no_logprobs(blocks, size)
    if kind is None or kind is TOO_LITTLE:
        kind = kind_of_blocks(blocks, size) or kind
    if kind is None:
        return merged, remarks
    said = message(
        "inputs.scores_are",
        "the scores are {what}: none was used; {remedy}, and compare again",
        what=kind.name,
        remedy=kind.remedy,
    )
    return {}, reason(said, Step.SCORE, Step.REFERENCE)
