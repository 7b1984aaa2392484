"""Where else in a run a span of tokens stands: all streams laid end to end, searchable by a few tokens in a row.

A place is counted over all streams; nothing is copied, the captures' own columns serve.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from parity.comparator.streams.alignment import common_prefix
from parity.comparator.streams.sets import distinct, first_of_equals, is_in
from parity.records import RaggedTokens, TokenIds
from parity.records.ragged import Flat

SEED = 4
"""Tokens that must agree before a match is looked at. Shorter spans are common in any text."""

MOST_HITS = 64
"""Places looked at for one span of SEED tokens."""

Places = npt.NDArray[np.int64]


class Hits(Struct, frozen=True):
    """SEED tokens of a span that stand in the run, in the order of the spans. All of shape (H,)."""

    span: Places
    """Which of the spans."""
    offset: Places
    """Where in it they begin."""
    place: Places
    """Where in the run."""
    stream: Places
    """In which of its streams."""

    def at(self, rows: Places | slice) -> Hits:
        return Hits(self.span[rows], self.offset[rows], self.place[rows], self.stream[rows])


class LaidOut:
    """Columns of streams, one after another."""

    def __init__(self, columns: Sequence[RaggedTokens]) -> None:
        self._columns = columns
        self._flats = [column.flat for column in columns]
        self._bases = np.cumsum([0, *map(len, self._flats)])
        self.first_streams = np.cumsum([0, *(len(column.offsets) - 1 for column in columns)])
        """Shape (columns + 1,): the first stream of each column."""
        self._sought = np.empty(0, dtype=np.int64)
        self._known = (self._sought, self._sought)

    def __len__(self) -> int:
        """Tokens."""
        return int(self._bases[-1])

    def column_of(self, streams: Places) -> Places:
        return np.searchsorted(self.first_streams, streams, side="right") - 1

    def stream(self, index: int) -> TokenIds:
        column = int(self.column_of(np.array([index]))[0])
        return self._columns[column].row(index - int(self.first_streams[column]))

    def bounds_of(self, streams: Places) -> tuple[Places, Places]:
        """The places where these streams begin and end, both of their shape."""
        begins, ends, column = np.empty_like(streams), np.empty_like(streams), self.column_of(streams)
        for one in distinct(column).tolist():
            here, base, offsets = np.flatnonzero(column == one), self._bases[one], self._columns[one].offsets
            rows = streams[here] - self.first_streams[one]
            begins[here], ends[here] = offsets[rows] + base, offsets[rows + 1] + base
        return begins, ends

    def streams_at(self, places: Places) -> Places:
        """In which stream each place is."""
        found, column = np.empty_like(places), np.searchsorted(self._bases, places, side="right") - 1
        for one in distinct(column).tolist():
            here = np.flatnonzero(column == one)
            row = np.searchsorted(self._columns[one].offsets, places[here] - self._bases[one], side="right") - 1
            found[here] = row + self.first_streams[one]
        return found

    def first(self, size: int) -> TokenIds:
        """The first `size` tokens of all."""
        parts: list[Flat] = [np.empty(0, dtype=np.int64)]
        for flat in self._flats:
            parts.append(flat[: max(0, size - sum(map(len, parts)))])
        return np.concatenate(parts)

    def hits(self, spans: Sequence[TokenIds]) -> Hits:
        """Where SEED tokens in a row of the spans stand. One pass over the run for all of them."""
        lengths = np.fromiter(map(len, spans), dtype=np.int64, count=len(spans))
        sizes = np.maximum(lengths - SEED + 1, 0)
        span = np.repeat(np.arange(len(spans)), sizes)
        offset = np.arange(len(span)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        if not len(span):
            return Hits(span, span, span, span)
        tokens, at = np.concatenate(spans), np.repeat(np.cumsum(lengths) - lengths, sizes) + offset
        wanted = _grams(tokens)[at]
        pairs = _pair_index(tokens[:-1], tokens[1:])
        values, places = self._all_hits(wanted, np.stack([pairs[at + offset] for offset in range(_PAIRS)]))
        low = np.searchsorted(values, wanted, side="left")
        count = np.minimum(np.searchsorted(values, wanted, side="right") - low, MOST_HITS)
        place = places[np.repeat(low - np.cumsum(count) + count, count) + np.arange(int(count.sum()))]
        return Hits(np.repeat(span, count), np.repeat(offset, count), place, self.streams_at(place))

    def stretched(self, tokens: TokenIds, earliest: int, position: Places, hits: Hits) -> tuple[Places, Places]:
        """The longest matches around tokens[position] and each hit, inside its stream: (start, end) in `tokens`; none
        starts before `earliest`."""
        start, end = position.copy(), position.copy()
        column = self.column_of(hits.stream)
        begins, ends = self.bounds_of(hits.stream)
        back = np.minimum(position - earliest, hits.place - begins)
        ahead = np.minimum(len(tokens) - position, ends - hits.place)
        for one in distinct(column).tolist():
            here = np.flatnonzero(column == one)
            flat, place = self._flats[one], hits.place[here] - self._bases[one]
            start[here] -= _agreeing(tokens, position[here] - 1, flat, place - 1, back[here], -1)
            end[here] += _agreeing(tokens, position[here], flat, place, ahead[here], 1)
        return start, end

    def _all_hits(self, wanted: Places, pairs: Places) -> tuple[Places, Places]:
        """`_hits` of `wanted` and of all that was searched for before, by hash: most questions come up twice, and each
        is a pass over the run."""
        order = np.argsort(wanted, kind="stable")
        order = order[first_of_equals(wanted[order])]
        order = order[~is_in(wanted[order], self._sought)]
        if len(order):
            values, places = self._hits(wanted[order], pairs[:, order])
            if len(self._sought):
                values, places = (np.concatenate(both) for both in zip(self._known, (values, places), strict=True))
                by_value = np.argsort(values, kind="stable")
                values, places = values[by_value], places[by_value]
            self._known, self._sought = (values, places), np.concatenate([self._sought, wanted[order]])
        return self._known

    def _hits(self, wanted: Places, pairs: Places) -> tuple[Places, Places]:
        """Hashes of SEED tokens in the run that are in `wanted` (ascending, each once), ascending, and their first
        MOST_HITS places; `pairs`: shape (_PAIRS, wanted), the `_pair_index` of each two tokens in a row of them."""
        table = _table_of(pairs)
        seen, full = np.zeros(len(wanted), dtype=np.int64), 0
        numbers, all_places = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
        for flat, base in zip(self._flats, self._bases.tolist(), strict=False):
            for near in _near(flat, table):
                if full == len(wanted):
                    break
                values = _mixed([_words(flat[near + offset]) for offset in range(SEED)])
                match = np.minimum(np.searchsorted(wanted, values), len(wanted) - 1)
                same = wanted[match] == values
                numbers.append(match[same])
                all_places.append(near[same] + base)
                seen += np.bincount(match[same], minlength=len(wanted))
                enough = seen >= MOST_HITS
                if int(enough.sum()) > full:  # in a loop that is soon so
                    full = int(enough.sum())
                    table[:] = _table_of(pairs[:, ~enough])
        number, places = np.concatenate(numbers), np.concatenate(all_places)
        few = len(wanted) < 1 << 16  # small numbers are sorted by their digits, in a fifth of the time
        order = np.argsort(number.astype(np.uint16) if few else number, kind="stable")
        number = number[order]
        first = np.arange(len(number)) - np.searchsorted(number, number, side="left") < MOST_HITS
        return wanted[number[first]], places[order[first]]


def _words(tokens: Flat) -> npt.NDArray[np.uint64]:
    return tokens.astype(np.int64, copy=False).view(np.uint64)


def _table_of(pairs: Places) -> npt.NDArray[np.uint8]:
    """Bit n of entry i: some SEED tokens have a pair of index i at their place n; pairs: shape (_PAIRS, N)."""
    table = np.zeros(1 << _TABLE_BITS, dtype=np.uint8)
    for place, of_place in enumerate(pairs):
        table[of_place] |= np.uint8(1 << place)
    return table


def _near(flat: Flat, table: npt.NDArray[np.uint8]) -> Iterator[Places]:
    """Places of SEED tokens in a row that the table does not rule out, ascending, many at a time; the table may change
    in between.

    Of the pairs in any SEED tokens one begins at a multiple of _PAIRS: only these are looked up.
    """
    if len(flat) < SEED:
        return
    last, step = len(flat) - 1, _STRIDE * _PAIRS
    index, maybe = np.empty(_STRIDE, dtype=np.int64), np.empty(_STRIDE, dtype=np.uint8)
    found: list[tuple[Places, npt.NDArray[np.uint8]]] = []
    count = 0
    for begin in range(0, last, step):
        end = min(begin + step, last)
        first, second = flat[begin:end:_PAIRS], flat[begin + 1 : end + 1 : _PAIRS]
        size = len(first)
        # "wrap": all are within the table, and looking for those that are not takes as long as the rest.
        table.take(_pair_index(first, second, index[:size]), out=maybe[:size], mode="wrap")
        hits = (maybe[:size] > 0).nonzero()[0]  # of other than bool it takes five times as long
        found.append((hits * _PAIRS + begin, maybe[hits]))
        count += len(hits)
        if count >= _STRIDE // 4:
            yield _beginning(flat, table, found)
            found, count = [], 0
    if count:
        yield _beginning(flat, table, found)


def _beginning(flat: Flat, table: npt.NDArray[np.uint8], found: list[tuple[Places, npt.NDArray[np.uint8]]]) -> Places:
    """Where SEED tokens may begin, ascending; `found`: places of pairs, and what the table says of them."""
    pairs, said = (np.concatenate(both) for both in zip(*found, strict=True))
    begins = []
    for place in range(_PAIRS):
        begin = pairs[(said & np.uint8(1 << place)) > 0] - place
        begin = begin[(begin >= 0) & (begin <= len(flat) - SEED)]
        # Most are there by chance: a second pair says so.
        other = 0 if place == _PAIRS - 1 else _PAIRS - 1
        second = table[_pair_index(flat[begin + other], flat[begin + other + 1])]
        begins.append(begin[(second & np.uint8(1 << other)) > 0])
    return np.sort(np.concatenate(begins))


def _agreeing(left: TokenIds, at: Places, right: Flat, place: Places, most: Places, way: int) -> Places:
    """How many tokens are equal from left[at] and right[place] on, going `way` (1 or -1); at most `most` each."""
    steps = np.arange(_FEW)
    inside = steps < most[:, None]
    offsets = np.where(inside, steps, 0) * way
    same = inside & (left[at[:, None] + offsets] == right[place[:, None] + offsets])
    equal = np.where(same.all(axis=1), _FEW, same.argmin(axis=1))
    for row in np.flatnonzero(equal == _FEW).tolist():
        ours, theirs = left[int(at[row]) :: way], right[int(place[row]) :: way]
        equal[row] = common_prefix(ours[: int(most[row])], theirs[: int(most[row])])
    return equal


def threes(tokens: TokenIds) -> Places:
    """A 63-bit hash of each three in a row, shape (max(0, T - 2),)."""
    return _rows(tokens, 3)


def _grams(tokens: TokenIds) -> Places:
    """A 63-bit hash of each SEED tokens in a row, shape (max(0, T - SEED + 1),)."""
    return _rows(tokens, SEED)


def _rows(tokens: TokenIds, size: int) -> Places:
    words = np.ascontiguousarray(tokens).view(np.uint64)
    count = max(0, len(words) - size + 1)
    return _mixed([words[offset : offset + count] for offset in range(size)])


def _mixed(words: list[npt.NDArray[np.uint64]]) -> Places:
    """Multiplicative hashing (Knuth 6.4): odd 64-bit constants, arithmetic modulo 2^64."""
    mixed = words[0] * _FACTORS[0]
    for word, factor in zip(words[1:], _FACTORS[1:], strict=False):
        mixed += word * factor
    mixed >>= np.uint64(1)
    return mixed.view(np.int64)


def _pair_index(first: Flat, second: Flat, out: Places | None = None) -> Places:
    """A small number for each of some pairs of tokens: cheap, to leave most of a run out. Of ids of 32 bits it is the
    same as of 64."""
    if first.dtype == second.dtype == np.int32:
        narrow = np.left_shift(second.view(np.uint32), np.uint32(7))
        narrow ^= first.view(np.uint32)
        narrow &= np.uint32((1 << _TABLE_BITS) - 1)
        out = np.empty(len(narrow), dtype=np.int64) if out is None else out
        out[:] = narrow
        return out
    mixed = np.left_shift(_words(second), np.uint64(7), out=None if out is None else out.view(np.uint64))
    mixed ^= _words(first)
    mixed &= np.uint64((1 << _TABLE_BITS) - 1)
    return mixed.view(np.int64)


_FACTORS = [
    np.uint64(factor) for factor in (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93)
]

_TABLE_BITS = 20

_PAIRS = SEED - 1
"""Pairs of tokens in a row among SEED of them."""

_STRIDE = 1 << 14
"""Pairs looked up at once; their numbers stay in the processor's cache."""

_FEW = 64
"""Tokens of all matches that are compared at once; most are shorter."""
