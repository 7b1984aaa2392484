"""Logprobs of the same tokens beside each other: by what factor are those of one list those of the other?

Another base multiplies all of them, another temperature the distances within a list.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeAlias

import numpy as np

from parity.comparator.inputs.conventions import LOOKED_AT
from parity.comparator.inputs.numbers import FloatArray
from parity.records import Capture, ScoreKey, Scores, TokenIds, TopLogprobs

LIKELY = -0.2
"""Nats. Logprobs above it are too near to 0 for a ratio."""

TOKENS = 32
"""Tokens that it takes to see a ratio."""

MOST = 0.75
"""Share of the tokens that must show a ratio."""

SURE = 0.95
"""The same of lists of the chosen tokens alone, which must all lie to one side."""

CLOSE = 0.03
"""By which ratios may differ and be the same."""

OTHER_TEMPERATURE = 0.1
"""By which the differences within lists must be larger or smaller throughout to be of another temperature."""

Beside: TypeAlias = tuple[TokenIds, TopLogprobs, TopLogprobs]
"""The tokens that two lists are of, and both."""


def beside_arm(arm: Capture, other: Capture) -> Iterator[Beside]:
    for key, one in arm.completions.items():
        twin = other.completions.get(key)
        if twin is None or one.logprobs is None or twin.logprobs is None:
            continue
        size = min(len(one.token_ids), len(twin.token_ids), len(one.logprobs), len(twin.logprobs))
        same = one.token_ids[:size] == twin.token_ids[:size]
        size = int(np.argmin(same)) if not same.all() else size
        yield one.token_ids[:size], one.logprobs, twin.logprobs


def beside_scores(arm: Capture, scores: Scores) -> Iterator[Beside]:
    for key, one in arm.completions.items():
        top = scores.get(ScoreKey(arm.header.arm, *key))
        if top is not None and one.logprobs is not None:
            yield one.token_ids[: min(len(one.token_ids), len(one.logprobs), len(top))], one.logprobs, top


def ratios_of(pairs: Iterable[Beside]) -> tuple[FloatArray, FloatArray]:
    """The first list over the second: logprobs of the tokens that both name, and differences between the two best."""
    chosen: list[FloatArray] = []
    spread: list[FloatArray] = []
    for tokens, mine_top, other_top in _joined(islice(pairs, LOOKED_AT)):
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


def constant(ratios: FloatArray) -> float | None:
    """The ratio that nearly all have; None where there is none."""
    ratios = ratios[np.isfinite(ratios)]
    if len(ratios) < TOKENS:
        return None
    middle = float(np.median(ratios))
    near = np.abs(ratios - middle) <= 3 * CLOSE * abs(middle)
    return middle if middle > 0 and float(near.mean()) >= MOST else None


def is_constant(ratios: FloatArray, wanted: float) -> bool:
    """Is this the ratio that nearly all have?"""
    found = constant(ratios)
    return found is not None and abs(found / wanted - 1) < CLOSE


def surer_throughout(baseline: Capture, candidate: Capture, scores: Scores) -> bool:
    """Where lists hold the chosen tokens alone: is each that has more than half of the probability farther from even
    odds than the reference has it, or each nearer? A temperature does that. Noise goes both ways."""
    for pairs in (beside_arm(candidate, baseline) if baseline.has_logprobs else (), beside_scores(candidate, scores)):
        odds = [(np.empty(0), np.empty(0))]
        for tokens, mine_top, other_top in islice(pairs, LOOKED_AT):
            mine, theirs = (_of_two(top, len(tokens), tokens)[0] for top in (mine_top, other_top))
            known = (theirs > AROUND_EVEN[0]) & (theirs < AROUND_EVEN[1]) & (mine < 0) & np.isfinite(mine)
            odds.append((_log_odds(mine[known]), _log_odds(theirs[known])))
        mine, theirs = (np.concatenate(side) for side in zip(*odds, strict=True))
        if len(theirs) >= TOKENS:
            up = float((mine > theirs).mean())
            return max(up, 1 - up) >= SURE and abs(float(np.median(mine / theirs)) - 1) > OTHER_TEMPERATURE
    return False


AROUND_EVEN = (float(np.log(0.55)), float(np.log(0.95)))
"""Nats: logprobs of tokens that are the best, and not so sure that rounding hides by how much."""


def _log_odds(logprobs: FloatArray) -> FloatArray:
    return np.asarray(logprobs - np.log(-np.expm1(logprobs)))
