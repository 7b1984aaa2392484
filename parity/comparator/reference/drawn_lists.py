"""What lists say of drawn tokens: which of the best tokens was drawn at each position, or none of them.

The lists name the best tokens; all others are one outcome, "the rest". A drawn token stands in its list whatever its
rank, so that some lists are longer than what all of them name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
from msgspec import Struct, structs

from parity.comparator.inputs.numbers import LARGE_VOCABULARY
from parity.comparator.statistics import FloatArray
from parity.comparator.sums import sums_of_rows
from parity.records import Json, TokenIds, TopLogprobs

NEARLY_ALL = 0.9
"""Share of lists in which the chosen token is the last, from which on it is not one of the best that all name: of lists
that all name it among 20, it is the last in one of twenty."""


IN_CACHE = 1 << 16
"""Logprobs of which an array of numbers each stays in a processor's cache."""


class Draws(Struct, frozen=True):
    """The outcomes of N positions: which listed token was drawn, or none of them.

    logs: (N, K), logprobs of the K best tokens, best first. rest: (N,), probability of all others together.
    drawn: (N,), column of the drawn token, K where it is none of them. others: how many tokens the rest are. pushed:
    (N, K), whether penalties or biases push a token down or up (1, -1); None: no token.
    """

    logs: FloatArray
    rest: FloatArray
    drawn: npt.NDArray[np.int64]
    others: int
    pushed: FloatArray | None = None

    def __len__(self) -> int:
        return len(self.drawn)

    def where(self, kept: npt.NDArray[np.bool_] | slice) -> Draws:
        """Some of the positions."""
        pushed = None if self.pushed is None else self.pushed[kept]
        return Draws(self.logs[kept], self.rest[kept], self.drawn[kept], self.others, pushed)


class Cut(Struct, frozen=True):
    """How the request cuts the distribution off (top_k 0, top_p 1 and min_p 0: not at all)."""

    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0

    @staticmethod
    def of(sampling: Mapping[str, Json]) -> Cut:
        def number(name: str, default: float) -> float:
            value = sampling.get(name)
            return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else default

        return Cut(max(0, int(number("top_k", 0))), number("top_p", 1.0) or 1.0, number("min_p", 0.0))


def joined(many: Sequence[Draws]) -> Draws:
    """The positions of all of them, one after the other."""
    return Draws(
        np.concatenate([one.logs for one in many]),
        np.concatenate([one.rest for one in many]),
        np.concatenate([one.drawn for one in many]),
        many[0].others,
        None if many[0].pushed is None else np.concatenate([one.pushed for one in many if one.pushed is not None]),
    )


def portions(many: Sequence[Draws]) -> Iterator[slice]:
    """Some of them at a time, in order: so many that what is reckoned of them stays in a processor's cache."""
    begin, size = 0, 0
    for at, one in enumerate(many):
        if at > begin and size + one.logs.size > IN_CACHE:
            yield slice(begin, at)
            begin, size = at, 0
        size += one.logs.size
    if len(many) > begin:
        yield slice(begin, len(many))


def listed_width(lists: Sequence[TopLogprobs], tokens: Sequence[TokenIds]) -> int:
    """How many of the best tokens every list of a run names, besides the chosen one (`tokens`): fewer in one position
    of 100 at most."""
    counts, chosen_last = [], []
    for top, chosen in zip(lists, tokens, strict=True):
        if top.ids.size:
            usable = _usable(top)
            counts.append(np.asarray(usable.sum(axis=1)))
            chosen_last.append(_is_last(top, usable, chosen))
    if not counts:
        return 0
    count = np.concatenate(counts)
    width = int(np.quantile(count, 0.01, method="lower"))
    # Where hardly a token is one of the best, nearly every list has one more.
    return width - int(width > 1 and np.concatenate(chosen_last)[count == width].mean() > NEARLY_ALL)


def _is_last(top: TopLogprobs, usable: npt.NDArray[np.bool_], tokens: TokenIds) -> npt.NDArray[np.bool_]:
    """Whether no listed token is less likely than the chosen one, shape (T,)."""
    length = min(len(tokens), len(top))
    least = np.where(usable, top.values, np.inf).min(axis=1, keepdims=True)[:length]
    chosen = usable[:length] & (top.ids[:length] == tokens[:length, None])
    found = np.zeros(len(top), dtype=np.bool_)
    found[:length] = (chosen & (top.values[:length] <= least)).any(axis=1)
    return found


def draws_of(top: TopLogprobs, tokens: TokenIds, width: int, vocab_size: int | None) -> tuple[Draws, TokenIds]:
    """The outcomes of the positions that have a list, and these positions, shape (N,)."""
    length = min(len(tokens), len(top))
    nothing = Draws(np.empty((0, width)), np.empty(0), np.empty(0, dtype=np.int64), 1), np.empty(0, dtype=np.int64)
    if width < 1 or top.ids.shape[1] < width or not length:
        return nothing
    ids, values = top.ids[:length], logs_listed(top)[:length]
    usable = np.isfinite(values)
    chosen = np.where((ids == tokens[:length, None]) & usable, values, -np.inf).max(axis=1)
    order = _best_first(ids, values, tokens[:length], width)[:, :width]
    best, best_ids = np.take_along_axis(values, order, 1), np.take_along_axis(ids, order, 1)
    banned = ((ids >= 0) & ~usable).any(axis=1) & (usable.sum(axis=1) < width)
    known = np.isfinite(best).all(axis=1) & np.isfinite(chosen) & ~banned
    place = np.flatnonzero(known)
    hit = best_ids[place] == tokens[place, None]
    rest = np.clip(1.0 - sums_of_rows(np.exp(best[place])), 0.0, 1.0)
    drawn = np.where(hit.any(axis=1), hit.argmax(axis=1), width)
    rest = np.where(drawn == width, np.maximum(rest, np.exp(chosen[place])), rest)
    return Draws(best[place], rest, drawn, max(1, (vocab_size or LARGE_VOCABULARY) - width)), place


def _best_first(ids: npt.NDArray[np.int64], values: FloatArray, tokens: TokenIds, width: int) -> npt.NDArray[np.int64]:
    """Columns of lists, best first, shape (T, K).

    The drawn token stands in the list whatever its rank: where there is one more than `width`, it is none of the best.
    Logits of 16 bits, or logprobs written with few digits, are often equal. Of equals at the end of the best it must
    not decide which of them was drawn: the smallest id comes first.
    """
    order = np.argsort(-values, axis=1, kind="stable")
    if values.shape[1] <= width:
        return order
    last, next_ = (np.take_along_axis(values, order[:, [at]], 1)[:, 0] for at in (width - 1, width))
    tied = np.flatnonzero((last == next_) & np.isfinite(last))
    one_more = np.isfinite(values[tied]).sum(axis=1) == width + 1
    drawn = one_more[:, None] & (ids[tied] == tokens[tied, None])
    order[tied] = np.lexsort((ids[tied], drawn, -values[tied]), axis=1)
    return order


def best_of(top: TopLogprobs, tokens: TokenIds, width: int) -> TopLogprobs:
    """Lists of the `width` best alone: the drawn token stands in a list whatever its rank, and a bias that lifts it
    would put it among the best of that list, where it is missing whenever another was drawn."""
    length = min(len(tokens), len(top))
    top = TopLogprobs(top.ids[:length], top.values[:length], None if top.logsumexp is None else top.logsumexp[:length])
    values = logs_listed(top)
    rank = np.argsort(_best_first(top.ids, values, tokens[:length], width), axis=1, kind="stable")
    kept = (rank < width) & np.isfinite(values)
    return replace(top, ids=np.where(kept, top.ids, -1), values=np.where(kept, top.values, np.nan))


def listed_alone(draws: Draws) -> Draws:
    """The positions whose token is listed, as if no other could have come: that is known at any temperature, whatever
    the lists leave out."""
    kept = draws.where(draws.drawn < draws.logs.shape[1])
    logs = kept.logs - kept.logs[:, :1]
    logs = logs - np.log(sums_of_rows(np.exp(logs))[:, None])
    return structs.replace(kept, logs=logs, rest=np.zeros(len(logs)), others=1)


def among_listed(
    top: TopLogprobs, tokens: TokenIds, width: int, pushed: FloatArray | None = None
) -> tuple[Draws, TokenIds]:
    """`listed_alone` of the `width` best. `pushed`: of each entry of the lists."""
    draws, places = draws_of(top, tokens, width, None)
    places = places[draws.drawn < width]
    if pushed is not None:
        order = _best_first(top.ids[places], logs_listed(top)[places], tokens[places], width)[:, :width]
        pushed = np.take_along_axis(pushed[places], order, 1)
    return structs.replace(listed_alone(draws), pushed=pushed), places


def among_left(
    top: TopLogprobs, tokens: TokenIds, width: int, pushed: FloatArray | None = None
) -> tuple[Draws, TokenIds]:
    """The same of lists from which tokens were taken out, so that each place has its own number of them, `width` at
    most. What a list has must not depend on what was drawn: such lists have nothing where the drawn token was not among
    the best (`inputs/bans.py`)."""
    length = min(len(tokens), len(top))
    values = logs_listed(top)[:length]
    order = np.argsort(-values, axis=1, kind="stable")[:, :width]
    best, ids, moved = (
        np.take_along_axis(one[:length], order, 1)
        for one in (values, top.ids.astype(np.float64), np.zeros(top.ids.shape) if pushed is None else pushed)
    )
    hit = (ids == tokens[:length, None]) & np.isfinite(best)
    places = np.flatnonzero(hit.any(axis=1))
    missing = [(0, 0), (0, max(0, width - best.shape[1]))]
    logs = np.pad(best[places], missing, constant_values=-np.inf)
    draws = Draws(logs, np.zeros(len(places)), hit[places].argmax(axis=1), 1)
    return structs.replace(listed_alone(draws), pushed=np.pad(moved[places], missing)), places


def logs_listed(top: TopLogprobs) -> FloatArray:
    """What lists say of tokens, each once, shape (T, K); minus infinity where it is nothing."""
    return np.where(_usable(top), np.minimum(top.values, 0.0), -np.inf)


def _usable(top: TopLogprobs) -> npt.NDArray[np.bool_]:
    """Entries that are logprobs of a token that no entry before them has, shape (T, K)."""
    usable: npt.NDArray[np.bool_] = np.isfinite(top.values) & (top.ids >= 0)
    ids = top.ids
    if not usable.all():
        ids = np.where(usable, ids, -1 - np.arange(ids.shape[1]))  # what is not usable is like no other
    ordered = np.sort(ids, axis=1)
    same = ordered[:, 1:] == ordered[:, :-1]
    if same.any():
        twice = np.flatnonzero(same.any(axis=1))
        order = np.argsort(ids[twice], axis=1, kind="stable")
        row, place = np.nonzero(same[twice])
        usable[twice[row], order[row, place + 1]] = False
    return usable
