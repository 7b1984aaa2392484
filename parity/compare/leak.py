"""Row leak: does a span of one request's output belong to another request of the run?

Donors are the prompts and completions (both arms) of every other request. A span counts as leaked when it
matches a donor over at least four tokens, when chance does not explain a match of that length, when the
victim's own prompt and its baseline completion do not hold it as well, and when not many requests share it.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from parity.records import Capture, Json, TokenIds

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

_SEPARATOR = -(1 << 40)
_SAMPLE = 1_000_000


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


@dataclass(frozen=True, slots=True)
class _Stream:
    request: str
    part: str
    start: int
    length: int


class Donors:
    """All streams of a run, searchable by spans of SEED tokens."""

    def __init__(self, baseline: Capture, candidate: Capture) -> None:
        pieces: list[TokenIds] = []
        self._streams: list[_Stream] = []
        seen: set[tuple[str, bytes]] = set()
        position = 0
        separator = np.array([_SEPARATOR], dtype=np.int64)
        for part, capture in (("baseline", baseline), ("candidate", candidate)):
            for completion in capture:
                for name, tokens in (("prompt", completion.prompt_token_ids), (part, completion.token_ids)):
                    mark = (completion.key.request, tokens.tobytes())
                    if not len(tokens) or mark in seen:
                        continue
                    seen.add(mark)
                    label = name if name == "prompt" else f"{name} completion"
                    self._streams.append(_Stream(completion.key.request, label, position, len(tokens)))
                    pieces += (tokens, separator)
                    position += len(tokens) + 1
        self._corpus = np.concatenate(pieces) if pieces else np.empty(0, dtype=np.int64)
        self._starts = np.array([stream.start for stream in self._streams], dtype=np.int64)
        self._by_request: dict[str, list[int]] = {}
        for index, stream in enumerate(self._streams):
            self._by_request.setdefault(stream.request, []).append(index)
        self._language: _Language | None = None

    def search(self, queries: list[Query]) -> list[Leak | None]:
        """The most telling leak for each query, or None. One pass over the corpus for all of them."""
        if len(self._corpus) < SEED or not queries:
            return [None] * len(queries)
        grams = [_grams(query.tokens[max(0, query.first) : query.last + SEED - 1]) for query in queries]
        wanted = np.unique(np.concatenate(grams))
        table = np.zeros(1 << 22, dtype=np.bool_)
        table[wanted & ((1 << 22) - 1)] = True
        corpus_grams = _grams(self._corpus)
        places = np.flatnonzero(table[corpus_grams & ((1 << 22) - 1)])
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
                index = int(np.searchsorted(self._starts, place, side="right")) - 1
                if (index, place - position) in matches:
                    continue
                start, length = self._extend(query, position, place, self._streams[index])
                matches[(index, place - position)] = (start, length)
                # The victim may say it of its own accord; its own faulty output does not count.
                stream = self._streams[index]
                if stream.request == query.request and stream.part != "candidate completion":
                    own.append((start, start + length))
        best: Leak | None = None
        for (index, diagonal), (start, length) in matches.items():
            stream = self._streams[index]
            if stream.request == query.request or length < SEED:
                continue
            if best is not None and length <= best.length:
                continue
            if any(first <= start and start + length <= last for first, last in own):
                continue
            span = query.tokens[start : start + length]
            sharing = len(
                {
                    self._streams[other].request
                    for (other, other_diagonal), (other_start, other_length) in matches.items()
                    if other_start <= start and other_start + other_length >= start + length
                }
                - {query.request}
            )
            if sharing > max(MAX_SHARING, len(self._by_request) // SHARED_BY):
                continue
            speaks = None if query.unsupported is None else query.unsupported[start : start + length]
            chance = self._chance(span, speaks, {stream.request, query.request})
            settled = speaks is not None and int(speaks.sum()) >= SPEAKING
            if chance > (MAX_CHANCE_OF_FAULT if settled else MAX_CHANCE):
                continue
            best = Leak(start, length, stream.request, stream.part, diagonal + start - stream.start, chance, sharing)
        return best

    def _extend(self, query: Query, position: int, place: int, stream: _Stream) -> tuple[int, int]:
        tokens, corpus = query.tokens, self._corpus
        first = position
        while first > query.earliest and place - (position - first) > stream.start:
            if tokens[first - 1] != corpus[place - (position - first) - 1]:
                break
            first -= 1
        limit = min(len(tokens) - position, stream.start + stream.length - place)
        different = np.flatnonzero(tokens[position : position + limit] != corpus[place : place + limit])
        forward = int(different[0]) if len(different) else limit
        return first, position - first + forward

    def _chance(self, span: TokenIds, speaks: npt.NDArray[np.bool_] | None, without: Iterable[str]) -> float:
        """Expected number of matches of `span` in the run, by a bigram model of all other requests' text."""
        if self._language is None:
            self._language = _Language(self._corpus[:_SAMPLE])
        left_out = [
            self._corpus[stream.start : stream.start + stream.length]
            for request in without
            for stream in (self._streams[index] for index in self._by_request.get(request, ()))
            if stream.start + stream.length <= _SAMPLE
        ]
        return len(self._corpus) * self._language.probability(span, speaks, left_out)


class _Language:
    """Smoothed bigram counts of a token stream, with other streams left out on demand."""

    def __init__(self, corpus: TokenIds) -> None:
        text = corpus[corpus != _SEPARATOR]
        self._total = len(text)
        self._single = Counter(text.tolist())
        pairs = np.stack([corpus[:-1], corpus[1:]], axis=1)
        self._pair = Counter(map(tuple, pairs.tolist()))

    def probability(self, span: TokenIds, speaks: npt.NDArray[np.bool_] | None, left_out: list[TokenIds]) -> float:
        single: Counter[int] = Counter()
        pair: Counter[tuple[int, int]] = Counter()
        for stream in left_out:
            tokens = stream.tolist()
            single.update(tokens)
            pair.update(itertools.pairwise(tokens))
        total = self._total - sum(single.values())
        vocabulary = len(self._single)

        def alone(token: int) -> float:
            return (self._single[token] - single[token] + 0.5) / (total + 0.5 * vocabulary + 1)

        tokens = span.tolist()
        counted = [True] * len(tokens) if speaks is None else speaks.tolist()
        result = alone(tokens[0]) if counted[0] else 1.0
        for (before, token), counts in zip(itertools.pairwise(tokens), counted[1:], strict=True):
            if not counts:
                continue
            seen_before = self._single[before] - single[before]
            together = self._pair[(before, token)] - pair[(before, token)]
            result *= (together + 2 * alone(token)) / (seen_before + 2)
        return result


def _grams(tokens: TokenIds) -> npt.NDArray[np.int64]:
    """A 63-bit hash of each SEED tokens in a row, shape (max(0, T - SEED + 1),)."""
    count = len(tokens) - SEED + 1
    if count <= 0:
        return np.empty(0, dtype=np.int64)
    mixed = np.zeros(count, dtype=np.uint64)
    with np.errstate(over="ignore"):
        for offset in range(SEED):
            mixed = (mixed ^ tokens[offset : offset + count].astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
            mixed ^= mixed >> np.uint64(29)
    return (mixed >> np.uint64(1)).astype(np.int64)
