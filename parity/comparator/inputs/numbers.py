"""What kind of numbers stand in lists that should hold natural logarithms of probabilities.

Only what cannot be anything else is named: the probabilities of a list add up to 1 at most, and to 1 at least when
everything that is not listed counts as likely as the last one listed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from parity.messages import Message, message
from parity.records import TopLogprobs

FloatArray = npt.NDArray[np.float64]

ROUNDING = 0.02
"""By which the probabilities of a list may exceed 1: logits and logprobs are rounded."""

DIFFERENT = 0.5
"""Share of the lists that must add up to numbers of their own: those made up by hand add up to anything."""

LACKING = 0.1
"""By which they must stay below 1, everything not listed included, to be no probabilities."""

FEW = 8
"""Lists that must show it."""

SHARE = 0.01
"""Share of the lists that must show it."""

MOST = 0.9
"""Share of the lists that must add up to 1 at most to be probabilities."""

LARGEST_VOCABULARY = 300_000


@dataclass(frozen=True, slots=True)
class Numbers:
    name: Message
    remedy: Message
    as_natural: Callable[[FloatArray], FloatArray]


def _log(values: FloatArray) -> FloatArray:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.log(values))


PROBABILITIES: Final = Numbers(
    message("numbers.probabilities", "probabilities, not logarithms of them"),
    message("numbers.take_logs", "write ln(p) for each"),
    _log,
)
NEGATED: Final = Numbers(
    message("numbers.negated", "positive (-ln p)"),
    message("numbers.negate", "change their sign"),
    lambda values: -values,
)
BASE_2: Final = Numbers(
    message("numbers.base_2", "logarithms to base 2"),
    message("numbers.times_ln_2", "multiply them by 0.693147 (ln 2)"),
    lambda values: values * float(np.log(2)),
)
BASE_10: Final = Numbers(
    message("numbers.base_10", "logarithms to base 10"),
    message("numbers.times_ln_10", "multiply them by 2.302585 (ln 10)"),
    lambda values: values * float(np.log(10)),
)


def kind_of_numbers(tops: Iterable[TopLogprobs], vocab_size: int | None) -> Numbers | None:
    """What the numbers are, where they cannot be natural logarithms of probabilities; None where they can."""
    lists = [_distinct(top) for top in tops if len(top) and top.ids.shape[1]]
    known = np.concatenate([values[np.isfinite(values)] for values in lists]) if lists else np.empty(0)
    if len(known) < FEW:
        return None
    if float(known.min()) >= 0 and float(known.max()) > ROUNDING:
        sums = np.concatenate([np.nansum(np.where(np.isfinite(values), values, 0.0), axis=1) for values in lists])
        fits = float(known.max()) <= 1 + ROUNDING and float((sums <= 1 + 2 * ROUNDING).mean()) >= MOST
        return PROBABILITIES if fits else NEGATED
    if float((known > ROUNDING).mean()) > SHARE:
        return None  # neither: a few values above zero are faults of their own
    sums = _sums(lists, 1.0)
    were_measured = len(np.unique(sums.round(6))) > DIFFERENT * len(sums)
    if were_measured and _too_large(lists, 1.0) and not _too_large(lists, float(np.log(10))):
        return BASE_10
    size = vocab_size or LARGEST_VOCABULARY
    if _too_small(lists, 1.0, size) and not (
        _too_small(lists, float(np.log(2)), size) or _too_large(lists, float(np.log(2)))
    ):
        return BASE_2
    return None


def _distinct(top: TopLogprobs) -> FloatArray:
    """The values of each list without those of tokens that stand in it twice; NaN in their places."""
    values = top.values.copy()
    for column in range(1, top.ids.shape[1]):
        values[(top.ids[:, :column] == top.ids[:, column : column + 1]).any(axis=1), column] = np.nan
    values[top.ids < 0] = np.nan
    return values


def _shows(hits: int, lists: int) -> bool:
    return hits >= FEW and hits >= SHARE * lists


def _sums(lists: list[FloatArray], factor: float) -> FloatArray:
    """What the probabilities of each list add up to."""
    with np.errstate(over="ignore"):  # what is no logarithm may be any number
        return np.concatenate(
            [np.nansum(np.exp(np.where(np.isneginf(one), np.nan, one * factor)), axis=1) for one in lists]
        )


def _too_large(lists: list[FloatArray], factor: float) -> bool:
    """Do the probabilities of lists add up to more than 1?"""
    sums = _sums(lists, factor)
    return _shows(int((sums > 1 + ROUNDING).sum()), len(sums))


def _too_small(lists: list[FloatArray], factor: float, vocab_size: int) -> bool:
    """Do they stay below 1 even if all that is not listed is as likely as the last one listed?

    The last but one, to be sure: the chosen token stands in a list whatever its rank.
    """
    hits = total = 0
    for values in lists:
        total += len(values)
        if values.shape[1] < 3:
            continue
        shown = np.exp(np.where(np.isfinite(values), values * factor, -np.inf))
        ordered = np.sort(shown, axis=1)[:, ::-1]
        count = np.isfinite(values).sum(axis=1)
        rows = np.flatnonzero(count >= 3)
        last = ordered[rows, count[rows] - 2]
        most = shown[rows].sum(axis=1) + (vocab_size - count[rows]) * last
        hits += int((most < 1 - LACKING).sum())
    return _shows(hits, total)
