"""Does a score record fit other tokens, or other places, better than its own?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from parity.comparator.inputs.numbers import ROUNDING
from parity.records import Capture, Completion, TokenIds, TopLogprobs

FloatArray = npt.NDArray[np.float64]

SURE = 24.0
"""Nats by which other tokens, or another place, must fit better: an engine that draws from the right lists has that
with a probability of e^-24, since what lists of earlier places say of a token is a prediction as well (Ville)."""

PLACES = 6
"""Places that must show it."""

UNLISTED = -12.0
"""Nats: what a token that is not listed is taken for at a place that is only supposed."""

UNUSUAL = 1.5
"""Of drawn completions those whose tokens are so much less likely than expected are looked at."""

_SEARCHED = 32
"""First tokens by which another completion is found."""

_TRIED = 4
"""Of those, by how much the lists like them."""

_MOST = 4096
"""Completions of an arm among which it is looked for."""

_SEARCHES = 256
"""Records of which another completion is looked for."""


class Lists:
    """A record, as it is asked of tokens."""

    def __init__(self, top: TopLogprobs) -> None:
        self._ids = top.ids
        usable = np.isfinite(top.values) & (top.values <= ROUNDING)
        self._values = np.where(usable, top.values, -np.inf)
        self._is_unknown: npt.NDArray[np.bool_] = np.asarray(~usable.any(axis=1))
        self._last = np.where(usable, top.values, np.inf).min(axis=1, initial=np.inf)

    def logprobs(self, tokens: TokenIds, shift: int = 0) -> tuple[FloatArray, FloatArray]:
        """The logprobs of tokens (T,) by the lists `shift` places on, at most and at least; NaN where there is none."""
        most, least = np.full((2, len(tokens)), np.nan)
        begin, end = max(0, -shift), min(len(tokens), len(self._ids) - shift)
        if end <= begin:
            return most, least
        rows, inside = slice(begin + shift, end + shift), slice(begin, end)
        is_own = self._ids[rows] == tokens[inside, None]
        own = np.where(is_own, self._values[rows], -np.inf).max(axis=1, initial=-np.inf)
        listed, last = own > -np.inf, self._last[rows]
        most[inside] = np.where(listed, own, last)
        least[inside] = np.where(listed, own, np.minimum(last, UNLISTED))
        is_unknown = self._is_unknown[rows]
        most[inside][is_unknown] = least[inside][is_unknown] = np.nan
        return most, least


def logprobs_at(top: TopLogprobs, tokens: TokenIds) -> tuple[FloatArray, FloatArray]:
    """`Lists.logprobs` of the places where they stand."""
    return Lists(top).logprobs(tokens)


def fits_from(most: FloatArray, least: FloatArray) -> int | None:
    """From where to the end what stands elsewhere fits better, if it surely does. most: of the lists as they stand,
    least: of those elsewhere."""
    better = np.nan_to_num(least - most, nan=0.0)
    rest = better[::-1].cumsum()[::-1]
    place = int(rest.argmax())
    return place if rest[place] > SURE and int((better[place:] > 1.0).sum()) >= PLACES else None


class Firsts:
    """The completions of a run by their first tokens, to find whose a record is."""

    def __init__(self, arms: Sequence[Capture]) -> None:
        self._arms = arms
        self._known: tuple[list[Completion], npt.NDArray[np.int64]] | None = None
        self._left = _SEARCHES

    def fits(self, one: Completion, top: TopLogprobs, most: FloatArray, *, is_greedy: bool) -> bool:
        """Is it the record of another completion, whose tokens are as likely as the lists expect? Not where it is the
        completion that is another request's."""
        size = min(len(top), len(most))
        listed, expected = _expected(top)
        usual = (1.0 if is_greedy else UNUSUAL) * listed[:size].sum()
        if np.nansum(most[:size]) > usual - SURE or not self._left:
            return False
        self._left -= 1
        tried = len(self._all()[0])
        found = any(_fits(other, one, top, most, expected, tried) for other in self._likely(one, top))
        return found and not self._is_anothers(one)

    def _likely(self, one: Completion, top: TopLogprobs) -> Iterator[Completion]:
        """Completions of which the record may be: those of the request, and those whose first tokens it likes most."""
        for arm in self._arms:
            if (other := arm.completions.get(one.key)) is not None:
                yield other
        others, firsts = self._all()
        lists, values = top.ids[:_SEARCHED], np.where(np.isfinite(top.values[:_SEARCHED]), top.values[:_SEARCHED], -99)
        width = min(len(lists), firsts.shape[1])
        is_own = lists[None, :width] == firsts[:, :width, None]
        likely = np.where(is_own, values[None, :width], UNLISTED).max(axis=2).sum(axis=1)
        yield from (others[number] for number in np.argsort(-likely)[:_TRIED].tolist())

    def _is_anothers(self, one: Completion) -> bool:
        """Does it begin like the completion, or the prompt, of another request, and not so much like its own?"""
        others, firsts = self._all()
        tokens = one.token_ids[:_SEARCHED]
        if not len(tokens):
            return False
        is_mine = np.array([other.key.request == one.key.request for other in others])
        is_itself = np.array([other is one for other in others])
        said = _begin(firsts, tokens)
        prompts = _begin(_first_tokens([other.prompt_token_ids for other in others]), tokens)
        like_another = max(said[~is_mine].max(initial=0), prompts[~is_mine].max(initial=0))
        like_own = max(said[is_mine & ~is_itself].max(initial=0), prompts[is_mine].max(initial=0))
        return bool(like_another >= PLACES and like_another > like_own)

    def _all(self) -> tuple[list[Completion], npt.NDArray[np.int64]]:
        if self._known is None:
            some = [one for arm in self._arms for one in arm.rows[:_MOST]]
            self._known = some, _first_tokens([one.token_ids for one in some])
        return self._known


def _first_tokens(streams: Sequence[TokenIds]) -> npt.NDArray[np.int64]:
    """Shape (N, _SEARCHED), filled up with -2."""
    firsts = np.full((len(streams), _SEARCHED), -2, dtype=np.int64)
    for row, tokens in enumerate(streams):
        firsts[row, : len(tokens)] = tokens[:_SEARCHED]
    return firsts


def _begin(firsts: npt.NDArray[np.int64], tokens: TokenIds) -> npt.NDArray[np.int64]:
    """How many of `tokens`, _SEARCHED at most, each begins with."""
    return np.asarray(np.logical_and.accumulate(firsts[:, : len(tokens)] == tokens, axis=1).sum(axis=1))


def _fits(
    other: Completion, one: Completion, top: TopLogprobs, most: FloatArray, expected: FloatArray, tried: int
) -> bool:
    """Is the record of `one` that of `other`, of so many that are tried? most: of `one`; expected: of its lists."""
    if other is one or np.array_equal(other.token_ids, one.token_ids):
        return False
    least = logprobs_at(top, other.token_ids)[1]
    together = min(len(least), len(most), len(top))
    fit, own = np.nansum(least[:together]), np.nansum(most[:together])
    if fit < 2.0 * expected[:together].sum() - 10.0 or fit <= own + SURE + np.log(tried):
        return False
    return int((np.nan_to_num(least[:together] - most[:together]) > 1.0).sum()) >= PLACES


def _expected(top: TopLogprobs) -> tuple[FloatArray, FloatArray]:
    """The logprob that each list expects of its token, shape (T,): of the tokens that it lists, and at least."""
    values = np.where(np.isfinite(top.values) & (top.values <= ROUNDING), top.values, -np.inf)
    with np.errstate(invalid="ignore"):
        listed = np.where(np.isfinite(values), np.exp(values) * values, 0.0).sum(axis=1)
    rest = np.clip(1.0 - np.exp(values).sum(axis=1), 0.0, 1.0)
    return np.asarray(listed), np.asarray(listed + rest * UNLISTED)


def distances(one: TopLogprobs, other: TopLogprobs, size: int, *, listed_alone: bool = False) -> FloatArray:
    """Nats between what two records of one text say of the best token, of the first `size` places. NaN where one says
    nothing; where the other does not list the token, at least so much, or NaN (`listed_alone`)."""
    if not one.ids.shape[1]:
        return np.full(size, np.nan)
    values = np.where(np.isfinite(one.values[:size]), one.values[:size], -np.inf)
    at = values.argmax(axis=1)[:, None]
    best = np.take_along_axis(values, at, axis=1)[:, 0]
    tokens = np.take_along_axis(one.ids[:size], at, axis=1)[:, 0]
    most, _ = logprobs_at(other, tokens)
    if listed_alone:
        lists = other.ids[: len(tokens)]
        most[: len(lists)][~(lists == tokens[: len(lists), None]).any(axis=1)] = np.nan
    with np.errstate(invalid="ignore"):
        far = np.abs(best - most)
    far[~np.isfinite(far)] = np.nan
    return np.asarray(far)
