"""Lists of logprobs that an arm writes in a way of its own: how many there are, and numbers of which kind.

What can be turned into natural logarithms is, and stays under all checks; the rest is left out. Each is a habit only
where the whole arm has it: in one completion it is a fault.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from itertools import islice

import numpy as np
from msgspec import Struct

from parity.comparator.inputs.conventions import says_nothing
from parity.comparator.inputs.numbers import BASE_2, BASE_10, FloatArray, Numbers, kind_of_numbers
from parity.comparator.inputs.servers import by_others, served
from parity.comparator.types import Remarks
from parity.messages import Message, message
from parity.records import Capture, Completion, ScoreKey, Scores, TokenIds, TopLogprobs

_LOOKED_AT = 256
"""Completions looked at to learn a habit."""

LIKE_IT = 0.95
"""Share of the completions that must have a habit: some of the others may have a fault besides."""


def as_natural_logs(baseline: Capture, candidate: Capture) -> tuple[Capture, Capture, Remarks]:
    """Both captures with one list of natural logarithms per token, or without any."""
    baseline, counts = _one_per_token(baseline)
    candidate, more = _one_per_token(candidate)
    remarks = counts + more
    for rule in (_numbers, _certain):
        baseline, of_baseline = rule(baseline)
        candidate, of_candidate = rule(candidate)
        remarks += of_baseline + of_candidate
    candidate, of_candidate = _by_ratio(baseline, candidate)
    baseline, of_baseline = _by_ratio(candidate, baseline)
    return baseline, candidate, remarks + of_candidate + of_baseline


# ------------------------------------------------------------------ how many


class _Amount(Struct, frozen=True):
    what: Message
    holds: Callable[[Completion, int], bool]
    """Of a completion and the number of its lists."""
    mend: Callable[[Completion, TopLogprobs], TopLogprobs | None]


def _stopped(one: Completion) -> bool:
    return one.finish_reason == "stop"


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
        message("inputs.lists_of_prompt", "its logprobs begin with those of the prompt: these are left out"),
        lambda one, size: size == len(one.prompt_token_ids) + len(one.token_ids),
        lambda one, top: top.part(len(one.prompt_token_ids)),
    ),
    _Amount(
        message("inputs.lists_of_end", "it has a logprob of the token it stopped at, which its ids lack: left out"),
        lambda one, size: size == len(one.token_ids) + _stopped(one),
        lambda one, top: top.part(stop=len(one.token_ids)),
    ),
)


def _one_per_token(arm: Capture) -> tuple[Capture, Remarks]:
    if not by_others(arm.header) or not arm.has_logprobs:
        return arm, Remarks()
    looked = [(one, len(one.logprobs)) for one in arm if one.logprobs is not None and len(one.token_ids) > 1]
    odd = [pair for pair in looked if pair[1] != len(pair[0].token_ids)]
    if len(odd) < 2:
        return arm, Remarks()
    for amount in _AMOUNTS:
        holding = [amount.holds(*pair) for pair in looked]
        if sum(holding) >= LIKE_IT * len(looked) and any(amount.holds(*pair) for pair in odd):
            mended = {
                one.key: replace(one, logprobs=None if one.logprobs is None else amount.mend(one, one.logprobs))
                for one in arm
                if one.logprobs is not None and amount.holds(one, len(one.logprobs))
            }
            return replace(arm, completions={**arm.completions, **mended}), _habit(arm, amount.what)
    return arm, Remarks()


def _habit(arm: Capture, what: Message) -> Remarks:
    return Remarks(notes=(message("inputs.habit", "{arm}: {what}", arm=arm.header.arm, what=what),))


# ------------------------------------------------------------------ of which kind

RATIOS = {1 / float(np.log(2)): BASE_2, 1 / float(np.log(10)): BASE_10}
"""By what natural logarithms are multiplied in another base."""

LIKELY = -0.2
"""Nats. Logprobs above it are too near to 0 for a ratio."""

TOKENS = 32
"""Tokens that it takes to see a ratio."""


def _numbers(arm: Capture) -> tuple[Capture, Remarks]:
    """Numbers that cannot be natural logarithms of probabilities."""
    if not arm.has_logprobs:
        return arm, Remarks()
    kind = kind_of_numbers(_some(arm), arm.header.vocab_size)
    return (arm, Remarks()) if kind is None else _converted(arm, kind)


def _converted(arm: Capture, kind: Numbers) -> tuple[Capture, Remarks]:
    changed = {
        key: replace(one, logprobs=replace(one.logprobs, values=kind.as_natural(one.logprobs.values)))
        for key, one in arm.completions.items()
        if one.logprobs is not None
    }
    what = message("inputs.other_numbers", "its logprobs are {what}: taken as such", what=kind.name)
    return replace(arm, completions={**arm.completions, **changed}), _habit(arm, what)


def _by_ratio(baseline: Capture, candidate: Capture) -> tuple[Capture, Remarks]:
    """The candidate's logprobs beside the baseline's of the same tokens: another base, or another temperature."""
    if not (baseline.has_logprobs and candidate.has_logprobs):
        return candidate, Remarks()
    chosen, spread = _ratios(baseline, candidate)
    base = _constant(chosen)
    for ratio, kind in RATIOS.items():
        if base is not None and abs(base / ratio - 1) < CLOSE:
            return _converted(candidate, kind)
    scale = _constant(spread)
    if served(candidate.header) and scale is not None and abs(scale - 1) > OTHER_TEMPERATURE:
        what = message(
            "inputs.other_temperature",
            "its logprobs are those of another temperature ({temperature:.2g}): left out",
            temperature=1 / scale,
        )
        return _without_lists(candidate), _habit(candidate, what)
    return candidate, Remarks()


CLOSE = 0.03
"""By which ratios may differ and be the same."""

OTHER_TEMPERATURE = 0.1
"""By which the differences within lists must be larger or smaller throughout to be of another temperature."""


def _ratios(baseline: Capture, candidate: Capture) -> tuple[FloatArray, FloatArray]:
    """Candidate over baseline: logprobs of the tokens that both chose, and differences between the two best tokens."""
    chosen: list[FloatArray] = []
    spread: list[FloatArray] = []
    for key, one in candidate.completions.items():
        if len(chosen) == _LOOKED_AT:
            break
        other = baseline.completions.get(key)
        if other is None or one.logprobs is None or other.logprobs is None:
            continue
        size = min(len(one.token_ids), len(other.token_ids), len(one.logprobs), len(other.logprobs))
        same = one.token_ids[:size] == other.token_ids[:size]
        size = int(np.argmin(same)) if not same.all() else size
        mine, theirs = (_of_two(top, size, other.token_ids) for top in (one.logprobs, other.logprobs))
        known = (theirs[0] < LIKELY) & (mine[0] < 0)
        with np.errstate(invalid="ignore"):
            chosen.append(mine[0][known] / theirs[0][known])
        apart = (mine[2] == theirs[2]) & (np.abs(theirs[1]) > -LIKELY) & np.isfinite(mine[1]) & np.isfinite(theirs[1])
        spread.append(mine[1][apart] / theirs[1][apart])
    return tuple(np.concatenate(one) if one else np.empty(0) for one in (chosen, spread))  # type: ignore[return-value]


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


def _without_lists(arm: Capture) -> Capture:
    return replace(arm, completions={key: replace(one, logprobs=None) for key, one in arm.completions.items()})


def _some(arm: Capture) -> Iterator[TopLogprobs]:
    return islice((one.logprobs for one in arm if one.logprobs is not None), _LOOKED_AT)


# ------------------------------------------------------------------ scores


def natural_scores(
    baseline: Capture, candidate: Capture, scores: Scores | None, but: Collection[ScoreKey]
) -> tuple[Scores, Remarks]:
    """All scores there are, those in the captures among them, without those of `but`. None where they cannot be natural
    logarithms of probabilities: whoever wrote them must say what they are."""
    merged: dict[ScoreKey, TopLogprobs] = {}
    for source in (baseline.scores, candidate.scores, scores or {}):
        merged.update(source)
    if but:
        merged = {key: top for key, top in merged.items() if key not in but}
    size = candidate.header.vocab_size or baseline.header.vocab_size
    kind = kind_of_numbers(islice(merged.values(), _LOOKED_AT), size)
    if kind is None:
        return merged, Remarks()
    reason = message(
        "inputs.scores_are",
        "the scores are {what}: none was used; {remedy}, and compare again",
        what=kind.name,
        remedy=kind.remedy,
    )
    return {}, Remarks(reasons=(reason,))
