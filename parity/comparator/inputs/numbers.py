"""What kind of numbers stand in lists that should hold natural logarithms of probabilities.

Only what cannot be anything else is named: the probabilities of a list add up to 1 at most, and to 1 at least when
everything that is not listed counts as likely as the last one listed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from parity.messages import Message, message
from parity.records import TopLogprobs

FloatArray = npt.NDArray[np.float64]

LARGE_VOCABULARY = 200_000
"""Tokens of a vocabulary that nobody says the size of: more than most have."""

ROUNDING = 0.02
"""By which the probabilities of a list may exceed 1: logits and logprobs are rounded."""

DIFFERENT = 0.5
"""Share of the lists that must add up to numbers of their own: those made up by hand add up to anything."""

LACKING = 0.1
"""By which they must stay below 1, everything not listed included, to be no probabilities."""

FEW = 8
"""Lists that must show it."""

COARSE = 0.1
"""Nats. The step of numbers with one digit: rounding moves a sum of probabilities by more than ROUNDING."""

MULTIPLE = 0.1
"""Steps by which a multiple may be off: half precision has that of numbers up to 16, in steps of 0.1 nats."""

SHARE = 0.01
"""Share of the lists that must show it."""

MOST = 0.9
"""Share of the lists that must add up to 1 at most to be probabilities."""

LARGEST_VOCABULARY = 300_000
"""Tokens, where a capture does not say how many there are."""


class Numbers(Struct, frozen=True):
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
    return kind_of_blocks(blocks_of(tops), vocab_size)


def blocks_of(tops: Iterable[TopLogprobs]) -> Sequence[FloatArray]:
    """The values that are looked at: blocks of shape (K, N), of lists of K tokens each."""
    some = [top for top in tops if len(top) and top.ids.shape[1]]
    every = max(1, sum(map(len, some)) // LISTS)
    return [_distinct(group, every) for group in _by_width(some)]


def kind_of_blocks(blocks: Sequence[FloatArray], vocab_size: int | None) -> Numbers | None:
    """`kind_of_numbers` of what `blocks_of` gives."""
    known = np.concatenate([values[np.isfinite(values)] for values in blocks]) if blocks else np.empty(0)
    if len(known) < FEW:
        return None
    if float(known.min()) >= 0 and float(known.max()) > ROUNDING:
        return PROBABILITIES if _add_up(blocks) else NEGATED
    if float((known > ROUNDING).mean()) > SHARE:
        return None  # neither: a few values above zero are faults of their own
    shown = [_shown(values, 1.0) for values in blocks]
    sums = np.concatenate([one.sum(axis=0) for one in shown])
    if _are_too_large(sums, _step(known)) and not _too_large(blocks, float(np.log(10))) and _were_measured(sums):
        return BASE_10
    return BASE_2 if _are_of_base_2(blocks, shown, vocab_size or LARGEST_VOCABULARY) else None


class NoLogprobs(Struct, frozen=True):
    name: Message
    remedy: Message


LOGITS: Final = NoLogprobs(
    message("numbers.logits", "logits, not logarithms of probabilities"),
    message("numbers.subtract", "subtract the logsumexp of all logits from each"),
)
TOO_MUCH: Final = NoLogprobs(
    message("numbers.too_much", "no logarithms of probabilities (they call all tokens of a list certain)"),
    message("numbers.write_logs", "write the natural logarithm of each token's probability"),
)
TOO_LITTLE: Final = NoLogprobs(
    message("numbers.too_little", "no natural logarithms of probabilities (those of a list add up to next to nothing)"),
    TOO_MUCH.remedy,
)
AT_LEAST, CERTAIN = 0.1, 0.9
"""What the probabilities of a list add up to at least, everything not listed included, and what the tokens of one list
have on average at most: beyond, they are nothing that somebody rounded or made up."""


def no_logprobs(blocks: Sequence[FloatArray], vocab_size: int | None) -> NoLogprobs | None:
    """What most lists hold that cannot be logarithms of probabilities, to whatever base; None where they may. blocks:
    as `blocks_of` gives them."""
    known = np.concatenate([values[np.isfinite(values)] for values in blocks]) if blocks else np.empty(0)
    if len(known) < FEW:
        return None
    signs = [-values for values in blocks] if float((known > ROUNDING).mean()) > DIFFERENT else blocks
    sums = np.concatenate([_shown(values, 1.0).sum(axis=0) for values in signs])
    too_little = _share_too_small(signs, [_shown(values, 1.0) for values in signs], vocab_size or LARGEST_VOCABULARY)
    if signs is not blocks:
        is_mixed = float(known.min()) < -ROUNDING
        return LOGITS if (is_mixed or too_little > DIFFERENT) and not _add_up(blocks) else None
    counts = np.concatenate([np.isfinite(values).sum(axis=0) for values in signs])
    if float(((sums > CERTAIN * counts) & (counts > 1)).mean()) > DIFFERENT:
        return TOO_MUCH
    return TOO_LITTLE if too_little > DIFFERENT else None


def _share_too_small(blocks: Sequence[FloatArray], probabilities: Sequence[FloatArray], vocab_size: int) -> float:
    """Share of the lists of three and more that add up to less than AT_LEAST."""
    small, count = _small(blocks, probabilities, vocab_size, AT_LEAST)
    return small / count if count >= FEW else 0.0


def _add_up(blocks: Sequence[FloatArray]) -> bool:
    """May these numbers, none below 0, be probabilities?"""
    finite = [np.where(np.isfinite(values), values, 0.0) for values in blocks]
    if max(float(values.max(initial=0.0)) for values in finite) > 1 + ROUNDING:
        return False
    sums = np.concatenate([values.sum(axis=0) for values in finite])
    return float((sums <= 1 + 2 * ROUNDING).mean()) >= MOST


def _are_of_base_2(blocks: Sequence[FloatArray], shown: Sequence[FloatArray], vocab_size: int) -> bool:
    """Do they say too little as natural logarithms, and neither too little nor too much as these?"""
    if not _too_small(blocks, shown, vocab_size):
        return False
    halves = [_shown(values, float(np.log(2))) for values in blocks]
    return not (_too_small(blocks, halves, vocab_size) or _too_large(blocks, float(np.log(2))))


LISTS = 4_096
"""Lists looked at, evenly spaced, where there are more: what is asked is a share of them."""


def _by_width(tops: Iterable[TopLogprobs]) -> Iterable[list[TopLogprobs]]:
    found: dict[int, list[TopLogprobs]] = {}
    for top in tops:
        found.setdefault(top.ids.shape[1], []).append(top)
    return found.values()


def _distinct(tops: Sequence[TopLogprobs], every: int) -> FloatArray:
    """The values of every so many of the lists, one column each: shape (K, N). NaN in the place of tokens that stand in
    a list twice, from the second time on."""
    ids = np.concatenate([top.ids[::every].T for top in tops], axis=1)
    values = np.concatenate([top.values[::every].T for top in tops], axis=1)
    values[ids < 0] = np.nan
    order = np.argsort(ids, axis=0, kind="stable")
    rows, columns = np.nonzero(np.diff(np.take_along_axis(ids, order, axis=0), axis=0) == 0)
    values[order[rows + 1, columns], columns] = np.nan
    return values


def _shows(hits: int, lists: int) -> bool:
    return hits >= FEW and hits >= SHARE * lists


def _shown(values: FloatArray, factor: float) -> FloatArray:
    """The probabilities of a block, 0 where there is none."""
    with np.errstate(over="ignore"):
        found = np.exp(values if factor == 1.0 else values * factor)
    found[np.isnan(found)] = 0.0
    return found


def _were_measured(sums: FloatArray) -> bool:
    return len(np.unique(sums.round(6))) > DIFFERENT * len(sums)


def _are_too_large(sums: FloatArray, step: float = 0.0) -> bool:
    """step: of the numbers, nats; each may have been rounded up by half of it."""
    return _shows(int((sums > (1 + ROUNDING) * np.exp(step / 2)).sum()), len(sums))


def _step(known: FloatArray) -> float:
    """COARSE where all numbers are multiples of it, else 0."""
    with np.errstate(over="ignore"):
        steps = known / COARSE
    if not bool(np.isfinite(steps).all()):
        return 0.0
    return COARSE if bool((np.abs(steps - np.round(steps)) < MULTIPLE).all()) else 0.0


def _too_large(blocks: Sequence[FloatArray], factor: float) -> bool:
    """Do the probabilities of lists add up to more than 1?"""
    return _are_too_large(np.concatenate([_shown(values, factor).sum(axis=0) for values in blocks]))


def _too_small(blocks: Sequence[FloatArray], probabilities: Sequence[FloatArray], vocab_size: int) -> bool:
    """Do they stay below 1 even if all that is not listed is as likely as the last one listed?

    The last but one, to be sure: the chosen token stands in a list whatever its rank.
    """
    hits, _ = _small(blocks, probabilities, vocab_size, 1 - LACKING)
    return _shows(hits, sum(values.shape[1] for values in blocks))


def _small(
    blocks: Sequence[FloatArray], probabilities: Sequence[FloatArray], vocab_size: int, least: float
) -> tuple[int, int]:
    """Of the lists of three tokens and more: how many add up to less than `least`, and how many there are."""
    hits = total = 0
    for values, shown in zip(blocks, probabilities, strict=True):
        if len(values) < 3:
            continue
        finite = np.isfinite(values)
        count = finite.sum(axis=0)
        last, last_but_one = np.full((2, values.shape[1]), np.inf)
        for column, known in zip(shown, finite, strict=True):
            here = np.where(known, column, np.inf)
            np.minimum(last_but_one, np.maximum(last, here), out=last_but_one)
            np.minimum(last, here, out=last)
        with np.errstate(invalid="ignore"):
            most = np.where(finite, shown, 0.0).sum(axis=0) + (vocab_size - count) * last_but_one
        hits += int(((most < least) & (count >= 3)).sum())
        total += int((count >= 3).sum())
    return hits, total
