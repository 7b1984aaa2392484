"""Row leak: does a span of one request's output belong to another request of the run?

Donors are the prompts and completions (both arms) of every other request. A span counts as leaked when it
matches a donor over at least four tokens, when chance does not explain a match of that length, when the
victim's own prompt and its baseline completion do not hold it as well, and when not many requests share it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from parity.records import Capture, Column, Json, TokenIds

SEED = 4
"""Tokens that must agree before a match is looked at. Shorter spans are common in any text."""

MAX_CHANCE = 0.02
"""A match is a leak when fewer than this many such matches are expected by chance in the whole run."""

MAX_CHANCE_OF_FAULT = 2.0
"""The same where the reference has already rejected at least SPEAKING tokens of the span: that something is wrong
is settled, and the question left is only where the tokens come from."""

SPEAKING = 3

MAX_SHARING = 2
SHARED_BY = 12
"""A span that more than MAX_SHARING donor requests and more than one in SHARED_BY of all hold is common text (a
template, a phrase), not a leak."""

_SAMPLE = 300_000
"""Tokens from which the run's language is counted."""

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Query:
    """Where to look: the span of `tokens` around [first, last) of the victim's output."""

    request: str
    tokens: TokenIds
    first: int
    last: int
    earliest: int
    """The leak cannot begin before this position (the streams were still equal)."""
    unsupported: npt.NDArray[np.bool_] | None
    """Shape (T,): tokens the reference does not support. Only they speak for a leak: what the model itself would
    say next may well be what it says elsewhere. None without a reference: all tokens speak."""


@dataclass(frozen=True, slots=True)
class Leak:
    """tokens[start : start + length] of the victim equal donor_tokens[donor_start : …] of the donor."""

    start: int
    length: int
    donor_request: str
    donor_part: str
    donor_start: int
    chance: float
    """Matches of this span expected by chance in this run."""
    sharing: int

    def to_json(self) -> dict[str, Json]:
        return {
            "donor_request": self.donor_request,
            "donor_part": self.donor_part,
            "donor_start": self.donor_start,
            "donor_end": self.donor_start + self.length,
            "expected_by_chance": self.chance,
            "requests_with_this_span": self.sharing,
        }


class Donors:
    """All streams of a run, searchable by spans of SEED tokens: prompts, baseline completions, and the
    candidate's where they differ from the baseline's."""

    def __init__(self, baseline: Capture, candidate: Capture) -> None:
        pieces: list[TokenIds] = []
        self._owners: list[tuple[str, str]] = []  # (request, part) of each stream
        prompts: dict[tuple[str, bytes], TokenIds] = {}
        for part, capture in (("baseline completion", baseline), ("candidate completion", candidate)):
            for completion in capture:
                request = completion.key.request
                prompts.setdefault((request, completion.prompt_token_ids.tobytes()), completion.prompt_token_ids)
                twin = baseline.completions.get(completion.key) if capture is candidate else None
                if twin is not None and np.array_equal(twin.token_ids, completion.token_ids):
                    continue
                self._owners.append((request, part))
                pieces.append(completion.token_ids)
        for (request, _), tokens in prompts.items():
            self._owners.append((request, "prompt"))
            pieces.append(tokens)
        self._column = Column.of(pieces)
        self._corpus = self._column.flat
        self._by_request: dict[str, list[int]] = {}
        for index, (request, _) in enumerate(self._owners):
            self._by_request.setdefault(request, []).append(index)
        self._language: _Language | None = None

    def search(self, queries: list[Query]) -> list[Leak | None]:
        """The most telling leak for each query, or None. One pass over the corpus for all of them."""
        if len(self._corpus) < SEED or not queries:
            return [None] * len(queries)
        grams = [_grams(query.tokens[max(0, query.first) : query.last + SEED - 1]) for query in queries]
        wanted = np.unique(np.concatenate(grams))
        table = np.zeros(1 << 22, dtype=np.bool_)
        table[wanted >> 41] = True
        corpus_grams = _grams(self._corpus)
        places = np.flatnonzero(table[corpus_grams >> 41])
        values = corpus_grams[places]
        order = np.argsort(values, kind="stable")
        values, places = values[order], places[order]
        return [self._best(query, gram, values, places) for query, gram in zip(queries, grams, strict=True)]

    def _best(
        self,
        query: Query,
        grams: npt.NDArray[np.int64],
        values: npt.NDArray[np.int64],
        places: npt.NDArray[np.int64],
    ) -> Leak | None:
        matches: dict[tuple[int, int], tuple[int, int]] = {}  # (stream, diagonal) -> (start, length)
        own: list[tuple[int, int]] = []
        low = np.searchsorted(values, grams, side="left")
        high = np.searchsorted(values, grams, side="right")
        for offset in range(len(grams)):
            position = query.first + offset
            for place in places[low[offset] : min(high[offset], low[offset] + 64)].tolist():
                index = int(np.searchsorted(self._column.offsets, place, side="right")) - 1
                if (index, place - position) in matches:
                    continue
                start, length = self._extend(query, position, place, index)
                matches[(index, place - position)] = (start, length)
                # The victim may say it of its own accord; its own faulty output does not count.
                request, part = self._owners[index]
                if request == query.request and part != "candidate completion":
                    own.append((start, start + length))
        best: Leak | None = None
        for (index, diagonal), (start, length) in matches.items():
            donor, part = self._owners[index]
            if donor == query.request or length < SEED:
                continue
            if best is not None and length <= best.length:
                continue
            if any(first <= start and start + length <= last for first, last in own):
                continue
            span = query.tokens[start : start + length]
            sharing = len(
                {
                    self._owners[other][0]
                    for (other, other_diagonal), (other_start, other_length) in matches.items()
                    if other_start <= start and other_start + other_length >= start + length
                }
                - {query.request}
            )
            if sharing > max(MAX_SHARING, len(self._by_request) // SHARED_BY):
                continue
            speaks = None if query.unsupported is None else query.unsupported[start : start + length]
            chance = self._chance(span, speaks, {donor, query.request})
            settled = speaks is not None and int(speaks.sum()) >= SPEAKING
            if chance > (MAX_CHANCE_OF_FAULT if settled else MAX_CHANCE):
                continue
            at = diagonal + start - int(self._column.offsets[index])
            best = Leak(start, length, donor, part, at, chance, sharing)
        return best

    def _extend(self, query: Query, position: int, place: int, index: int) -> tuple[int, int]:
        """The longest match around (position, place) inside one stream: its start in the query and its length."""
        tokens, corpus = query.tokens, self._corpus
        stream_start, stream_end = self._column.offsets[index : index + 2].tolist()
        back = min(position - query.earliest, place - stream_start)
        differs = np.flatnonzero(tokens[position - back : position] != corpus[place - back : place]) if back > 0 else ()
        first = position if back <= 0 else position - back + (int(differs[-1]) + 1 if len(differs) else 0)
        limit = min(len(tokens) - position, stream_end - place)
        different = np.flatnonzero(tokens[position : position + limit] != corpus[place : place + limit])
        forward = int(different[0]) if len(different) else limit
        return first, position - first + forward

    def _chance(self, span: TokenIds, speaks: npt.NDArray[np.bool_] | None, without: Iterable[str]) -> float:
        """Expected number of matches of `span` in the run, by a bigram model of all other requests' text."""
        if self._language is None:
            self._language = _Language(self._corpus[:_SAMPLE])
        left_out = []
        for request in without:
            for index in self._by_request.get(request, ()):
                start, end = self._column.offsets[index : index + 2].tolist()
                if end <= _SAMPLE:
                    left_out.append(self._corpus[start:end])
        return len(self._corpus) * self._language.probability(span, speaks, left_out)


class _Language:
    """Smoothed bigram counts of a token stream, with other streams left out on demand."""

    def __init__(self, corpus: TokenIds) -> None:
        self._total = len(corpus)
        self._single = _Counts(corpus)
        self._pair = _Counts(_pairs(corpus))

    def probability(self, span: TokenIds, speaks: npt.NDArray[np.bool_] | None, left_out: list[TokenIds]) -> float:
        """Chance that text of this run says `span` at one place, from the tokens that speak."""
        total = self._total - sum(map(len, left_out))
        without_single = [_Counts(stream) for stream in left_out]
        without_pair = [_Counts(_pairs(stream)) for stream in left_out]

        def count(counts: _Counts, without: list[_Counts], wanted: npt.NDArray[np.int64]) -> FloatArray:
            result = counts.of(wanted)
            for other in without:
                result = result - other.of(wanted)
            return np.maximum(result, 0.0)

        alone = (count(self._single, without_single, span) + 0.5) / (total + 0.5 * len(self._single) + 1)
        before = count(self._single, without_single, span[:-1])
        together = count(self._pair, without_pair, _pairs(span))
        chances = np.concatenate([alone[:1], (together + 2 * alone[1:]) / (before + 2)])
        return float(np.prod(chances if speaks is None else chances[speaks]))


class _Counts:
    """How often each value stands in an array."""

    def __init__(self, values: npt.NDArray[np.int64]) -> None:
        self._values, self._counts = np.unique(values, return_counts=True)

    def __len__(self) -> int:
        return len(self._values)

    def of(self, wanted: npt.NDArray[np.int64]) -> FloatArray:
        if not len(self._values):
            return np.zeros(len(wanted))
        place = np.minimum(np.searchsorted(self._values, wanted), len(self._values) - 1)
        return np.where(self._values[place] == wanted, self._counts[place], 0).astype(np.float64)


def _pairs(tokens: TokenIds) -> npt.NDArray[np.int64]:
    """Each two adjacent tokens as one number, shape (max(0, T - 1),)."""
    with np.errstate(over="ignore"):
        return tokens[:-1] * np.int64(1_000_003 * 4099) + tokens[1:]


def _grams(tokens: TokenIds) -> npt.NDArray[np.int64]:
    """A 63-bit hash of each SEED tokens in a row, shape (max(0, T - SEED + 1),)."""
    count = len(tokens) - SEED + 1
    if count <= 0:
        return np.empty(0, dtype=np.int64)
    # Multiplicative hashing (Knuth 6.4): odd 64-bit constants, arithmetic modulo 2^64, the high bits are mixed.
    words = np.ascontiguousarray(tokens).view(np.uint64)
    with np.errstate(over="ignore"):
        mixed = words[:count] * _FACTORS[0]
        for offset in range(1, SEED):
            mixed += words[offset : offset + count] * _FACTORS[offset]
    mixed >>= np.uint64(1)
    return mixed.view(np.int64)


_FACTORS = [
    np.uint64(factor) for factor in (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93)
]
