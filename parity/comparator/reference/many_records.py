"""Questions about many score records at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from parity.comparator.inputs.numbers import ROUNDING
from parity.records import Completion, TopLogprobs

BoolArray = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]

FEWEST, ONE_IN = 4, 10
"""Lists whose probabilities add up to more than 1, and one in so many, from which on a record holds no logprobs."""


LISTS = 64
"""Lists of a record, spread over it, that are looked at for its numbers."""


def hold_no_logprobs(tops: Sequence[TopLogprobs]) -> BoolArray:
    """Which of these records, shape (N,), hold numbers above zero, or probabilities that add up to more than 1?"""
    found = np.zeros(len(tops), dtype=np.bool_)
    for places in _of_one_width(tops):
        some = [(top, slice(None, None, max(1, len(top) // LISTS))) for top in map(tops.__getitem__, places)]
        each = [top.values[lists] for top, lists in some]
        sizes = np.array([len(one) for one in each])
        values = np.concatenate(each)
        of = np.repeat(np.arange(len(some)), sizes)
        is_above = values > ROUNDING
        above = np.bincount(of, is_above.sum(axis=1), len(some)) if is_above.any() else np.zeros(len(some))
        too_much = np.flatnonzero(_sums(values) > 1 + 5 * ROUNDING)
        if len(too_much):  # some lists have the chosen token twice
            ids = np.concatenate([top.ids[lists] for top, lists in some])[too_much]
            once = values[too_much]
            for column in range(1, ids.shape[1]):
                once[(ids[:, :column] == ids[:, column : column + 1]).any(axis=1), column] = -np.inf
            too_much = too_much[_sums(once) > 1 + 5 * ROUNDING]
        lists = np.bincount(of[too_much], minlength=len(some))
        found[places] = (above >= 2) & (above * 100 >= sizes * values.shape[1])
        found[places] |= (lists >= FEWEST) & (lists * ONE_IN >= sizes)
    return found


def unnamed(completions: Sequence[Completion], tops: Sequence[TopLogprobs]) -> Ints:
    """Lists of each record, shape (N,), that do not hold the token of the completion that they are of."""
    found = np.zeros(len(tops), dtype=np.int64)
    for places in _of_one_width(tops):
        sizes = np.array([min(len(tops[place]), len(completions[place].token_ids)) for place in places])
        pairs = list(zip(places, sizes.tolist(), strict=True))
        ids = np.concatenate([tops[place].ids[:size] for place, size in pairs])
        tokens = np.concatenate([completions[place].token_ids[:size] for place, size in pairs])
        is_own, is_listed = np.zeros((2, len(ids)), dtype=np.bool_)
        for column in ids.T:  # faster than a reduction over a few columns
            is_own |= column == tokens
            is_listed |= column >= 0
        lacks = is_listed & ~is_own
        found[places] = np.bincount(np.repeat(np.arange(len(places)), sizes)[lacks], minlength=len(places))
    return found


def _of_one_width(tops: Sequence[TopLogprobs]) -> Iterator[list[int]]:
    by_width: dict[int, list[int]] = {}
    for place, top in enumerate(tops):
        by_width.setdefault(top.ids.shape[1], []).append(place)
    return iter(by_width.values())


def _sums(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """What the probabilities of each list, shape (T,), add up to."""
    shown = np.exp(np.minimum(values, 0.0))
    return np.asarray(np.nan_to_num(shown, copy=False) @ np.ones(values.shape[1]))
