"""Row leak: does a span of one request's output belong to another request of the run?

Donors are the prompts and completions (both arms) of every other request. A span counts as leaked when it
matches a donor over at least four tokens, when chance does not explain a match of that length, when the
victim's own prompt and its baseline completion do not hold it as well, and when not many requests share it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from parity.comparator.detect.bigrams import Counts, Language, pairs_of
from parity.comparator.statistics import FloatArray
from parity.comparator.streams.pairing import Pairs
from parity.comparator.streams.sets import distinct, is_in
from parity.messages import Message, message
from parity.records import Capture, Key, RaggedTokens, TokenIds

SEED = 4
"""Tokens that must agree before a match is looked at. Shorter spans are common in any text."""

MAX_CHANCE = 0.02
"""A match is a leak when fewer than this many such matches are expected by chance in the whole run."""

MAX_CHANCE_OF_FAULT = 2.0
"""The same where the reference has already rejected at least SPEAKING tokens of the span: that something is wrong
is settled, and the question left is only where the tokens come from."""

MAX_CHANCE_OF_ANOTHER = 1.0
"""The same where the tokens have another explanation already: a loop, tokens emitted again or lost."""

SPEAKING = 3

MAX_SHARING = 2
SHARED_BY = 12
"""A span that more than MAX_SHARING donor requests and more than one in SHARED_BY of all hold is common text (a
template, a phrase), not a leak."""

MOST_HITS = 64
"""Places looked at for one span of SEED tokens."""

PART_NAMES: Mapping[str, Message] = {
    "baseline completion": message("row_leak.part.baseline", "baseline completion"),
    "candidate completion": message("row_leak.part.candidate", "candidate completion"),
    "prompt": message("row_leak.part.prompt", "prompt"),
    "continuation": message("row_leak.part.continuation", "continuation"),
}
"""What a leak comes from: keys of evidence, and what they are called in a sentence. A continuation is text that no
completion holds and that the scorer says is the donor's (donors.py)."""

PARTS = ("baseline completion", "candidate completion", "prompt")
"""Streams that are searched, in the order in which they are laid end to end."""

_SPEAKING_MOST = 1024
"""Tokens of a span that its chance is counted from."""

_SAMPLE = 300_000
"""Tokens from which the run's language is counted."""


@dataclass(frozen=True, slots=True)
class Query:
    """Where to look: the span of `tokens` around [first, last) of the victim's output."""

    key: Key
    """The victim."""
    tokens: TokenIds
    first: int
    last: int
    earliest: int
    """The leak cannot begin before this position (the streams were still equal)."""
    weights: FloatArray | None
    """Shape (T,): how much each token speaks for a leak: 1 where the reference does not support it, 0 or little
    where it does: what the model itself would say next may well be what it says elsewhere. None without a reference:
    all tokens speak."""
    place: int
    """The position that the leak has to explain."""
    strict: bool = False
    """Another explanation of the tokens stands already."""

    @property
    def request(self) -> str:
        return self.key.request


@dataclass(frozen=True, slots=True)
class Leak:
    """tokens[start : start + length] of the victim equal donor_tokens[donor_start : …] of the donor."""

    start: int
    length: int
    donor_request: str
    donor: Key | None
    """The completion; None: the request's prompt."""
    donor_part: str
    donor_start: int
    chance: float
    """Matches of this span expected by chance in this run."""
    sharing: int


class _Match(NamedTuple):
    """Tokens from `start` to `end` of the query stand in this stream of the run, `diagonal` places further on."""

    stream: int
    diagonal: int
    start: int
    end: int


class Donors:
    """All streams of a run, searchable by spans of SEED tokens: baseline completions, the candidate's where they
    differ from the baseline's, and prompts.

    A place is counted over all of them laid end to end; nothing is copied, the captures' own columns serve.
    """

    def __init__(self, baseline: Capture, candidate: Capture, pairs: Pairs) -> None:
        differing = [pairs.candidate[row] for row in np.flatnonzero(~pairs.identical).tolist()]
        alone = [one for one in candidate if one.key not in baseline.completions]
        prompts: dict[str, TokenIds] = {}
        for completion in (*baseline, *alone):
            prompts.setdefault(completion.key.request, completion.prompt_token_ids)
        other_prompts = [pairs.candidate[row] for row in np.flatnonzero(~pairs.same_prompt).tolist()]
        columns = [
            baseline.tokens,
            RaggedTokens.of([one.token_ids for one in (*differing, *alone)]),
            RaggedTokens.of([*prompts.values(), *(one.prompt_token_ids for one in other_prompts)]),
        ]
        self._keys = [one.key for one in (*baseline, *differing, *alone)]
        owners = [
            [one.key.request for one in baseline],
            [one.key.request for one in (*differing, *alone)],
            [*prompts, *(one.key.request for one in other_prompts)],
        ]
        self._flats = [column.flat for column in columns]
        self._bases = np.cumsum([0, *map(len, self._flats)]).tolist()
        self._first_streams = np.cumsum([0, *map(len, owners)])
        self._owners = [request for part in owners for request in part]
        shifted = [column.offsets[:-1] + base for column, base in zip(columns, self._bases, strict=False)]
        self._bounds = np.concatenate([*shifted, [self._bases[-1]]])
        self._numbers = {request: number for number, request in enumerate(prompts)}
        self._owner_numbers = np.fromiter(
            map(self._numbers.__getitem__, self._owners), dtype=np.int64, count=len(self._owners)
        )
        self._sought = np.empty(0, dtype=np.int64)
        self._known = (self._sought, self._sought)
        self._language: Language | None = None
        self._sampled: TokenIds | None = None
        self._own_counts: dict[str, list[tuple[Counts, Counts]]] = {}
        self._threes: dict[str, npt.NDArray[np.int64]] = {}

    def search(
        self, queries: list[Query], weigh: Callable[[int], FloatArray | None] | None = None
    ) -> list[Leak | None]:
        """The most telling leak for each query, or None. One pass over the run for all of them.

        weigh: gives the weights of a query by its index, where they are only worth computing for those whose tokens
        stand elsewhere.
        """
        result: list[Leak | None] = [None] * len(queries)
        spans = [query.tokens[query.first : query.last + SEED - 1] for query in queries]
        grams = [_grams(span) for span in spans]
        if not sum(map(len, grams)):
            return result
        wanted = np.concatenate(grams)
        values, places = self._all_hits(distinct(wanted), [span for span in spans if len(span) >= SEED])
        asking = np.repeat(np.arange(len(queries)), [len(one) for one in grams])
        position = np.concatenate(
            [query.first + np.arange(len(one)) for query, one in zip(queries, grams, strict=True)]
        )
        low = np.searchsorted(values, wanted, side="left")
        count = np.minimum(np.searchsorted(values, wanted, side="right") - low, MOST_HITS)
        hit = np.repeat(low - np.cumsum(count) + count, count) + np.arange(int(count.sum()))
        asking, position, place = np.repeat(asking, count), np.repeat(position, count), places[hit]
        stream = np.searchsorted(self._bounds, place, side="right") - 1
        numbers = np.array([self._numbers.get(query.request, -1) for query in queries])
        foreign = self._owner_numbers[stream] != numbers[asking]
        first = np.searchsorted(asking, np.arange(len(queries) + 1))
        for index in distinct(asking[foreign]).tolist():
            mine = slice(int(first[index]), int(first[index + 1]))
            found = zip(position[mine].tolist(), place[mine].tolist(), stream[mine].tolist(), strict=True)
            query = queries[index] if weigh is None else replace(queries[index], weights=weigh(index))
            result[index] = self._best(query, found)
        return result

    def _all_hits(
        self, wanted: npt.NDArray[np.int64], spans: list[TokenIds]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """`_hits` of `wanted` and of all that was searched for before: most questions come up twice, and each is a pass
        over the run."""
        new = wanted[~is_in(wanted, self._sought)]
        if len(new):
            values, places = (np.concatenate(both) for both in zip(self._known, self._hits(new, spans), strict=True))
            order = np.argsort(values, kind="stable")
            self._known, self._sought = (values[order], places[order]), np.concatenate([self._sought, new])
        return self._known

    def _hits(
        self, wanted: npt.NDArray[np.int64], spans: list[TokenIds]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Hashes of SEED tokens in the run that are in `wanted` (sorted), ascending, and their places."""
        table = np.zeros(1 << _TABLE_BITS, dtype=np.bool_)
        for span in spans:
            table[_pair_index(span.astype(np.uint64))[: len(span) - SEED + 1]] = True
        all_values, all_places = [], []
        for flat, base in zip(self._flats, self._bases, strict=False):
            words = flat.view(np.uint64)
            last = len(words) - SEED + 1
            for begin in range(0, last, _STRIDE):
                chunk = words[begin : min(begin + _STRIDE, last) + 1]
                near = np.flatnonzero(table.take(_pair_index(chunk)))
                if not len(near):
                    continue
                near += begin
                values = _mixed([words[near + offset] for offset in range(SEED)])
                match = np.minimum(np.searchsorted(wanted, values), len(wanted) - 1)
                same = wanted[match] == values
                all_values.append(values[same])
                all_places.append(near[same] + base)
        if not all_values:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        values, places = np.concatenate(all_values), np.concatenate(all_places)
        order = np.argsort(values, kind="stable")
        return values[order], places[order]

    def _part(self, stream: int) -> int:
        return int(np.searchsorted(self._first_streams, stream, side="right")) - 1

    def _best(self, query: Query, hits: Iterable[tuple[int, int, int]]) -> Leak | None:
        """The most telling of the matches at (position in the query, place in the run, stream)."""
        matches, own = self._matches(query, hits)
        best: Leak | None = None
        rank = 0, False, False
        for match in matches:
            mine = self._rank(query, match)
            if mine <= rank or not self._may_be_foreign(query, match, own):
                continue
            leak = self._leak(query, match, self._sharing(query, match, matches))
            best, rank = (best, rank) if leak is None else (leak, mine)
        return best

    def _key(self, stream: int) -> Key | None:
        """The completion; None for a prompt."""
        return self._keys[stream] if stream < len(self._keys) else None

    def _rank(self, query: Query, match: _Match) -> tuple[int, bool, bool]:
        """The longest match is the most telling; of those as long, not a candidate's own, and one of the same round."""
        key, part = self._key(match.stream), PARTS[self._part(match.stream)]
        same_round = key is not None and key.round == query.key.round
        return match.end - match.start, part != "candidate completion", same_round

    def _matches(
        self, query: Query, hits: Iterable[tuple[int, int, int]]
    ) -> tuple[list[_Match], list[tuple[int, int]]]:
        """Each run of equal tokens once, and those (start, end) that the request says of its own accord."""
        matches: dict[tuple[int, int], _Match] = {}
        own: list[tuple[int, int]] = []
        for position, place, index in hits:
            diagonal = place - position
            if (index, diagonal) in matches:
                continue
            start, length = self._extend(query, position, place, index)
            matches[(index, diagonal)] = _Match(index, diagonal, start, start + length)
            # The victim may say it of its own accord; its own faulty output does not count.
            if self._owners[index] == query.request and PARTS[self._part(index)] != "candidate completion":
                own.append((start, start + length))
        return list(matches.values()), own

    def _may_be_foreign(self, query: Query, match: _Match, own: Iterable[tuple[int, int]]) -> bool:
        """Long enough, at the place asked about, of another request, and not said by this one elsewhere."""
        if self._owners[match.stream] == query.request or match.end - match.start < SEED:
            return False
        if not match.start <= query.place < match.end:
            return False
        return not any(first <= match.start and match.end <= last for first, last in own)

    def _sharing(self, query: Query, match: _Match, matches: Iterable[_Match]) -> int:
        """Other requests that say the same."""
        saying = {self._owners[one.stream] for one in matches if one.start <= match.start and one.end >= match.end}
        return len(saying - {query.request})

    def _leak(self, query: Query, match: _Match, sharing: int) -> Leak | None:
        """The match as a leak; None where chance explains it."""
        if sharing > max(MAX_SHARING, len(self._numbers) // SHARED_BY):
            return None
        donor = self._owners[match.stream]
        weights = None if query.weights is None else query.weights[match.start : match.end]
        if weights is not None and query.strict and self._alike(query.request, donor):
            weights = np.floor(weights)  # the model itself comes to the same text after prompts alike
        at = match.diagonal + match.start - int(self._bounds[match.stream])
        span = query.tokens[match.start : match.end]
        chance = self._places(at, match.start) * self._probability(span, weights, {donor, query.request})
        settled = weights is not None and int((weights >= 1).sum()) >= SPEAKING
        most = MAX_CHANCE_OF_ANOTHER if query.strict else MAX_CHANCE_OF_FAULT
        if chance > (most if settled else MAX_CHANCE):
            return None
        part = PARTS[self._part(match.stream)]
        return Leak(match.start, match.end - match.start, donor, self._key(match.stream), part, at, chance, sharing)

    def _extend(self, query: Query, position: int, place: int, index: int) -> tuple[int, int]:
        """The longest match around (position, place) inside one stream: its start in the query and its length."""
        part = self._part(index)
        tokens, donor, base = query.tokens, self._flats[part], self._bases[part]
        place -= base
        stream_start, stream_end = int(self._bounds[index]) - base, int(self._bounds[index + 1]) - base
        back = min(position - query.earliest, place - stream_start)
        back = max(0, back)
        differs = np.flatnonzero(tokens[position - back : position] != donor[place - back : place])
        first = position - back + (int(differs[-1]) + 1 if len(differs) else 0)
        limit = min(len(tokens) - position, stream_end - place)
        different = np.flatnonzero(tokens[position : position + limit] != donor[place : place + limit])
        forward = int(different[0]) if len(different) else limit
        return first, position - first + forward

    def _alike(self, left: str, right: str) -> bool:
        """Do the prompts of two requests share most of what stands three in a row in the shorter one?"""
        one, other = self._prompt_threes(left), self._prompt_threes(right)
        return 2 * int(is_in(one, other).sum()) >= min(len(one), len(other))

    def _prompt_threes(self, request: str) -> npt.NDArray[np.int64]:
        """Hashes of all that stands three in a row in a prompt, ascending."""
        if request not in self._threes:
            self._threes[request] = distinct(threes(self._prompt(request)))
        return self._threes[request]

    def _prompt(self, request: str) -> TokenIds:
        number, first = self._numbers.get(request, -1), int(self._first_streams[PARTS.index("prompt")])
        mine = np.flatnonzero(self._owner_numbers[first:] == number)
        if not len(mine):
            return np.empty(0, dtype=np.int64)
        base = self._bases[PARTS.index("prompt")]
        start, end = (self._bounds[first + int(mine[0]) :][:2] - base).tolist()
        return self._flats[PARTS.index("prompt")][start:end]

    def _places(self, donor_start: int, start: int) -> int:
        """Places of the run at which a match would have counted as one like this: where rows are mixed up, a stream is
        taken up from its beginning or at the very same token, and there are far fewer such places than tokens."""
        in_step = donor_start in (0, start)
        return min(int(self._bases[-1]), 4 * len(self._owners)) if in_step else int(self._bases[-1])

    def _probability(self, span: TokenIds, weights: FloatArray | None, without: Iterable[str]) -> float:
        """Chance of `span` at one place of the run, by a bigram model of all other requests' text.

        An upper bound for very long spans: their first tokens are improbable enough.
        """
        span, weights = span[:_SPEAKING_MOST], None if weights is None else weights[:_SPEAKING_MOST]
        sample = self._sample()
        if self._language is None:
            self._language = Language(sample)
        left_out = [counted for request in without for counted in self._counted(request, sample)]
        return self._language.probability(span, weights, left_out)

    def _counted(self, request: str, sample: TokenIds) -> list[tuple[Counts, Counts]]:
        """Tokens and pairs in each of the request's streams, as far as the language was counted from them."""
        if request not in self._own_counts:
            streams = np.flatnonzero(self._owner_numbers == self._numbers.get(request, -1)).tolist()
            spans = [self._bounds[index : index + 2].tolist() for index in streams]
            own = [sample[start:end] for start, end in spans if end <= len(sample)]
            self._own_counts[request] = [(Counts(stream), Counts(pairs_of(stream))) for stream in own]
        return self._own_counts[request]

    def _sample(self) -> TokenIds:
        if self._sampled is None:
            parts, size = [], 0
            for flat in self._flats:
                parts.append(flat[: max(0, _SAMPLE - size)])
                size += len(parts[-1])
            self._sampled = np.concatenate(parts)
        return self._sampled


def threes(tokens: TokenIds) -> npt.NDArray[np.int64]:
    """A 63-bit hash of each three in a row, shape (max(0, T - 2),)."""
    words = np.ascontiguousarray(tokens).view(np.uint64)
    last = max(0, len(words) - 2)
    return _mixed([words[offset : offset + last] for offset in range(3)])


def _grams(tokens: TokenIds) -> npt.NDArray[np.int64]:
    """A 63-bit hash of each SEED tokens in a row, shape (max(0, T - SEED + 1),)."""
    count = len(tokens) - SEED + 1
    if count <= 0:
        return np.empty(0, dtype=np.int64)
    words = np.ascontiguousarray(tokens).view(np.uint64)
    return _mixed([words[offset : offset + count] for offset in range(SEED)])


def _mixed(words: list[npt.NDArray[np.uint64]]) -> npt.NDArray[np.int64]:
    """Multiplicative hashing (Knuth 6.4): odd 64-bit constants, arithmetic modulo 2^64."""
    mixed = words[0] * _FACTORS[0]
    for word, factor in zip(words[1:], _FACTORS[1:], strict=False):
        mixed += word * factor
    mixed >>= np.uint64(1)
    return mixed.view(np.int64)


def _pair_index(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """A small number for each two tokens in a row, shape (T - 1,): cheap, to leave most of a run out."""
    mixed = words[1:] << np.uint64(7)
    mixed ^= words[:-1]
    mixed &= np.uint64((1 << _TABLE_BITS) - 1)
    return mixed.view(np.int64)


_FACTORS = [
    np.uint64(factor) for factor in (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93)
]

_TABLE_BITS = 20

_STRIDE = 1 << 15
"""Tokens hashed at once; their numbers stay in the processor's cache."""
