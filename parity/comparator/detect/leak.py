"""Row leak: does a span of one request's output belong to another request of the run?

Donors are the prompts and completions (both arms) of every other request. A span counts as leaked when it
matches a donor over at least four tokens, when chance does not explain a match of that length, when the
victim's own prompt and its baseline completion do not hold it as well, and when not many requests share it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Struct, structs

from parity.comparator.detect.bigrams import Counts, Language, pairs_of
from parity.comparator.detect.numbered import Numbered
from parity.comparator.reference.gaps import BoolArray
from parity.comparator.statistics import FloatArray
from parity.comparator.streams.pairing import Pairs
from parity.comparator.streams.sets import distinct, is_in
from parity.comparator.streams.spans import SEED, Hits, LaidOut, Places, threes
from parity.messages import Message, message
from parity.records import Capture, Index, Key, RaggedTokens, TokenIds
from parity.records.lazy import Picked

MAX_CHANCE = 0.02
"""A match is a leak when fewer than this many such matches are expected by chance in the whole run."""

MAX_CHANCE_OF_FAULT = 2.0
"""The same where the reference has already rejected at least SPEAKING tokens of the span: that something is wrong
is settled, and the question left is only where the tokens come from."""

MAX_CHANCE_OF_ANOTHER = 1.0
"""The same where the tokens have another explanation already: a loop, tokens emitted again or lost."""

SPEAKING = 3
"""Tokens that the reference rejects, which settle that something is wrong."""

FEWEST_WRONG = 3
"""Tokens that the reference rejects, of a span that is called a donor's. Of fewer, that is no more than possible: after
one to three tokens that were wrong by themselves a donor was named in up to 28 of 1,000 rows, since an engine goes on
after them as it does for whoever says the same."""

FEWEST_IN_STEP, LONG_IN_STEP = 2, 16
"""The same of so many tokens or more that stand at the very same place of the donor, or are its first, as where rows
are mixed up."""

MAX_CHANCE_OF_FEW = 1e-3
"""Matches expected by chance in the whole run, of a span of whose tokens lists alone say which are wrong."""

MAX_CHANCE_ELSEWHERE = 1e-4
"""The same of a span that stands elsewhere and has FEWEST_WRONG tokens that a reference rejects: three second best ones
in a row are what some other request says, 6e-4 and 8e-4 expected, in 2 of 97 rows of FLAT."""

FOREIGN_AND_SUPPORTED = 3
"""A leak begins with fewer tokens than this that the reference supports: one or two of another text may happen to
fit, more would be a text of the victim's own."""

MAX_SHARING = 2
SHARED_BY = 12
"""A span that more than MAX_SHARING donor requests and more than one in SHARED_BY of all hold is common text (a
template, a phrase), not a leak."""

NAMED = 8
"""Requests that a finding names besides the donor, where they say the same."""

FOREIGN_TOO = 4
"""Where the reference rejects one in so many of a span's tokens in the donor's completion as well, it is not the
donor's text. A text that was taken over has none, a text with garbage in it most."""

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

_MANY_HITS = 256
"""Places that a query's tokens stand at, from which on weighing them takes less time than following each place."""

_SPEAKING_MOST = 1024
"""Tokens of a span that its chance is counted from."""

_SAMPLE = 300_000
"""Tokens from which the run's language is counted."""


Rejected = Callable[[Key], BoolArray | None]
"""Tokens of a completion of the candidate that the reference does not support, shape (T,); None: not known."""


class Query(Struct, frozen=True):
    """Where to look: the span of `tokens` around [first, last) of the victim's output."""

    key: Key
    """The victim."""
    tokens: TokenIds
    first: int
    last: int
    earliest: int
    """The leak cannot begin before this position (the streams were still equal)."""
    weigh: Callable[[], FloatArray | None] | None
    """Gives the array (T,) of how much each token speaks for a leak: 1 where the reference does not support it, 0 or
    little where it does: what the model itself would say next may well be what it says elsewhere. None without a
    reference: all tokens speak. Asked only where the tokens stand elsewhere and few requests share them."""
    place: int
    """The position that the leak has to explain."""
    strict: bool = False
    """Another explanation of the tokens stands already."""
    rejected: Callable[[], BoolArray] | None = None
    """Without a reference, where the completion's own lists show that the engine did not choose its tokens, shape (T,);
    None: they show nothing."""

    @property
    def request(self) -> str:
        return self.key.request

    @property
    def speaks(self) -> bool:
        """Does any token speak for a leak? Else chance explains whatever matches."""
        weights = None if self.weigh is None else self.weigh()
        return weights is None or bool(weights.any())


class Leak(Struct, frozen=True):
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
    others: tuple[str, ...] = ()
    """Other requests that say the same tokens, of these the first NAMED."""
    is_weak: bool = False
    """So few tokens of it are rejected that they may well be the donor's by chance."""


class _Match(NamedTuple):
    """Tokens from `start` to `end` of the query stand in this stream of the run, `diagonal` places further on."""

    stream: int
    diagonal: int
    start: int
    end: int


_AT_ONCE = 1 << 14
"""Queries that are looked for in one pass: a pass takes as long as hashing the run."""

_TOKENS_AT_ONCE = 1 << 24
"""Tokens of their completions, which are in memory meanwhile: 128 MiB. Of 512 tokens each, half of the queries."""


def _first_rows(keys: Sequence[Key]) -> npt.NDArray[np.int64]:
    """Where each request first stands, ascending."""
    if isinstance(keys, Index):
        return keys.firsts
    first: dict[str, int] = {}
    for row, key in enumerate(keys):
        first.setdefault(key.request, row)
    return np.array([*first.values()], dtype=np.int64)


class Donors:
    """All streams of a run, searchable: baseline completions, the candidate's where they differ from the baseline's,
    and prompts. `rejected`: where the candidate's own tokens are wrong."""

    def __init__(self, baseline: Capture, candidate: Capture, pairs: Pairs, rejected: Rejected | None = None) -> None:
        self._rejected = rejected
        differing = np.flatnonzero(~pairs.identical)
        alone = (
            [] if candidate.keys == baseline.keys else [one for one in candidate if one.key not in baseline.completions]
        )
        self._keys = baseline.keys
        self._more: Sequence[Key] = Picked(pairs.keys, differing)
        if alone:
            self._more = [*self._more, *(one.key for one in alone)]
        self._requests = Numbered(self._keys, self._more)
        other_prompts = [pairs.candidate[row] for row in np.flatnonzero(~pairs.same_prompt).tolist()]
        if len(self._requests) == len(baseline.keys) and not other_prompts and not alone:
            prompts = baseline.prompts
        else:
            rows = _first_rows(baseline.keys)
            first: dict[str, TokenIds] = {}
            for one in alone:
                if self._requests.number(one.key.request) >= len(rows):
                    first.setdefault(one.key.request, one.prompt_token_ids)
            prompts = baseline.prompts.of_rows(rows)
            if more := [*first.values(), *(one.prompt_token_ids for one in other_prompts)]:
                prompts = RaggedTokens.of([*prompts.streams(0, len(prompts)), *more])
        others = pairs.candidate_tokens.of_rows(differing)
        if alone:
            others = RaggedTokens.of([*others.streams(0, len(differing)), *(one.token_ids for one in alone)])
        self._run = LaidOut((baseline.tokens, others, prompts))
        theirs = np.array([self._requests.number(one.key.request) for one in other_prompts], dtype=np.int32)
        self._numbers = (*self._requests.of_streams(), theirs)
        """By part, the request of each stream; of the prompts without one of each request, which come first."""
        self._language: Language | None = None
        self._sampled: TokenIds | None = None
        self._own_counts: dict[str, tuple[Counts, Counts]] = {}
        self._threes: dict[str, Places] = {}

    def search(self, queries: Iterable[Query]) -> Iterator[Leak | None]:
        """The most telling leak for each query, a weak one where there is no other, or None. One pass over the run for
        some thousand of them."""
        some: list[Query] = []
        tokens = 0
        for query in queries:
            some.append(query)
            tokens += len(query.tokens)
            if len(some) == _AT_ONCE or tokens >= _TOKENS_AT_ONCE:
                yield from self._search(some)
                some, tokens = [], 0
        yield from self._search(some)

    def _search(self, queries: list[Query]) -> list[Leak | None]:
        result: list[Leak | None] = [None] * len(queries)
        if not queries:
            return result
        hits = self._run.hits([query.tokens[query.first : query.last + SEED - 1] for query in queries])
        numbers = np.array([self._requests.number(query.request) for query in queries])
        foreign = self._owners(hits.stream) != numbers[hits.span]
        first = np.searchsorted(hits.span, np.arange(len(queries) + 1)).tolist()
        for index in distinct(hits.span[foreign]).tolist():
            query, here = queries[index], slice(first[index], first[index + 1])
            if here.stop - here.start < _MANY_HITS or query.speaks:
                result[index] = self._best(query, hits.at(here))
        return result

    def _best(self, query: Query, hits: Hits) -> Leak | None:
        """The most telling of the matches at the hits."""
        stream, diagonal, start, end = self._matches(query, hits)
        owner, mine = self._owners(stream), self._requests.number(query.request)
        from_candidate = self._run.column_of(stream) == PARTS.index("candidate completion")
        # The victim may say it of its own accord; its own faulty output does not count.
        own = (owner == mine) & ~from_candidate
        foreign = (owner != mine) & (end - start >= SEED) & (start <= query.place) & (query.place < end)
        foreign[foreign] = ~_within(start[foreign], end[foreign], start[own], end[own])

        @cache
        def sharing(first: int, last: int) -> Places:
            """Other requests that say the same."""
            saying = distinct(owner[(start <= first) & (end >= last)])
            return np.asarray(saying[saying != mine])

        @cache
        def chance(first: int, last: int, donor: str) -> tuple[float, float]:
            return self._chance(query, first, last, donor)

        # The longest match is the most telling; of those as long, not a candidate's own, one of the same round, and one
        # at the very same place: a loop says its tokens at many.
        same_round = np.array([self._round(one) == query.key.round for one in stream[foreign].tolist()], dtype=np.bool_)
        in_step = diagonal[foreign] == self._run.bounds_of(stream[foreign])[0]
        weak: Leak | None = None
        rank = 8 * (end - start)[foreign] + 4 * ~from_candidate[foreign] + 2 * same_round + in_step
        for at in np.flatnonzero(foreign)[np.argsort(-rank, kind="stable")].tolist():
            match = _Match(*(int(column[at]) for column in (stream, diagonal, start, end)))
            if bool(from_candidate[at]) and self._is_wrong_there(match):
                continue
            shared = sharing(match.start, match.end)
            if len(shared) <= max(MAX_SHARING, len(self._requests) // SHARED_BY):
                leak = self._leak(match, shared, chance)
                if leak is not None and self._is_weak(query, match, leak):
                    weak = weak or structs.replace(leak, is_weak=True)
                elif leak is not None:
                    return leak
        return weak

    def _is_weak(self, query: Query, match: _Match, leak: Leak) -> bool:
        weights = None if query.weigh is None else query.weigh()
        in_step = leak.donor_start in (0, match.start)
        # What was wrong before belongs to another event.
        here = slice(max(match.start, query.place - FOREIGN_AND_SUPPORTED + 1), match.end)
        if weights is None:  # of one token, at most, it is known that it is wrong
            if leak.chance > MAX_CHANCE_OF_FEW or query.rejected is None:
                return leak.chance > MAX_CHANCE_OF_FEW
            wrong = query.rejected()
            rejected = int(wrong[here].sum())
            # After one wrong token an engine goes on as it does for whoever says the same, at whichever place.
            is_apart = rejected != 1 or match.start <= SEED or leak.sharing == 1
            if in_step and leak.length >= LONG_IN_STEP and is_apart:
                return False
            # One wrong token may upset the two after it.
            return rejected <= FEWEST_WRONG or self._chance_of(query, match, leak, wrong) > MAX_CHANCE_OF_FEW
        rejected = int((weights[here] >= 1).sum())
        if in_step:
            return rejected < (FEWEST_IN_STEP if leak.length >= LONG_IN_STEP else FEWEST_WRONG)
        return rejected < FEWEST_WRONG or (rejected == FEWEST_WRONG and leak.chance > MAX_CHANCE_ELSEWHERE)

    def _chance_of(self, query: Query, match: _Match, leak: Leak, wrong: BoolArray) -> float:
        """The leak's chance, where of its tokens these alone speak, shape (T,)."""
        weighed = structs.replace(query, weigh=lambda: wrong.astype(np.float64))
        probability, _ = self._chance(weighed, match.start, match.end, leak.donor_request)
        return self._places(leak.donor_start, match.start) * probability

    def _is_wrong_there(self, match: _Match) -> bool:
        """Are these tokens no more the donor's own than the victim's? The same garbage stands in both then."""
        key = self._key(match.stream)
        rejected = None if self._rejected is None or key is None else self._rejected(key)
        if rejected is None:
            return False
        at = self._position(match)
        return FOREIGN_TOO * int(rejected[at : at + match.end - match.start].sum()) >= match.end - match.start

    def _matches(self, query: Query, hits: Hits) -> tuple[Places, Places, Places, Places]:
        """Each run of equal tokens once, in the order of the hits: stream, diagonal, start and end in the query."""
        position = query.first + hits.offset
        diagonal = hits.place - position
        order = np.lexsort((diagonal, hits.stream))
        again = (np.diff(hits.stream[order]) == 0) & (np.diff(diagonal[order]) == 0)
        kept = np.sort(order[np.concatenate([[True], ~again])])
        hits = hits.at(kept)
        start, end = self._run.stretched(query.tokens, query.earliest, position[kept], hits)
        return hits.stream, diagonal[kept], start, end

    def _position(self, match: _Match) -> int:
        """Where in the donor's stream it begins."""
        return match.diagonal + match.start - int(self._run.bounds_of(np.array([match.stream]))[0][0])

    def _owners(self, streams: Places) -> Places:
        """The request of each of these streams."""
        found, part = np.empty(len(streams), dtype=np.int64), self._run.column_of(streams)
        for number, of_part in enumerate(self._numbers):
            here = np.flatnonzero(part == number)
            rows = streams[here] - self._run.first_streams[number]
            if number < len(PARTS) - 1:
                found[here] = of_part[rows]
                continue
            first = rows < len(self._requests)
            found[here[first]], found[here[~first]] = rows[first], of_part[rows[~first] - len(self._requests)]
        return found

    def _streams_of(self, request: int) -> Places:
        """All streams of a request, by its number."""
        own, more, prompts = (np.flatnonzero(one == request) for one in self._numbers)
        first = self._run.first_streams
        prompt = [request] if request >= 0 else []
        return np.concatenate([own, more + first[1], first[2] + np.array([*prompt, *(prompts + len(self._requests))])])

    def _key(self, stream: int) -> Key | None:
        """The completion; None for a prompt."""
        if stream < len(self._keys):
            return self._keys[stream]
        rest = stream - len(self._keys)
        return self._more[rest] if rest < len(self._more) else None

    def _round(self, stream: int) -> int | None:
        key = self._key(stream)
        return None if key is None else key.round

    def _leak(
        self, match: _Match, sharing: Places, chance_of: Callable[[int, int, str], tuple[float, float]]
    ) -> Leak | None:
        """The match as a leak; None where chance explains it. `sharing`: the requests that say the same."""
        owner = int(self._owners(np.array([match.stream]))[0])
        donor = self._requests.name(owner)
        at = self._position(match)
        probability, most = chance_of(match.start, match.end, donor)
        chance = self._places(at, match.start) * probability
        if chance > most:
            return None
        part = PARTS[int(self._run.column_of(np.array([match.stream]))[0])]
        others = tuple(self._requests.name(one) for one in sharing[sharing != owner][:NAMED].tolist())
        length, key = match.end - match.start, self._key(match.stream)
        return Leak(match.start, length, donor, key, part, at, chance, len(sharing), others)

    def _alike(self, left: str, right: str) -> bool:
        """Do the prompts of two requests share most of what stands three in a row in the shorter one?"""
        one, other = self._prompt_threes(left), self._prompt_threes(right)
        return 2 * int(is_in(one, other).sum()) >= min(len(one), len(other))

    def _prompt_threes(self, request: str) -> Places:
        """Hashes of all that stands three in a row in a prompt, ascending."""
        if request not in self._threes:
            self._threes[request] = distinct(threes(self._prompt(request)))
        return self._threes[request]

    def _prompt(self, request: str) -> TokenIds:
        number, prompts = self._requests.number(request), int(self._run.first_streams[PARTS.index("prompt")])
        return np.empty(0, dtype=np.int64) if number < 0 else self._run.stream(prompts + number)

    def _places(self, donor_start: int, start: int) -> int:
        """Places of the run at which a match would have counted as one like this: where rows are mixed up, a stream is
        taken up from its beginning or at the very same token, and there are far fewer such places than tokens."""
        in_step = donor_start in (0, start)
        return min(len(self._run), 4 * int(self._run.first_streams[-1])) if in_step else len(self._run)

    def _chance(self, query: Query, start: int, end: int, donor: str) -> tuple[float, float]:
        """Chance of this span at one place of the run, by a bigram model of all other requests' text; and how many such
        matches may be expected by chance where it is a leak.

        An upper bound for very long spans: their first tokens are improbable enough.
        """
        if not query.speaks:
            return np.inf, 0.0
        whole = None if query.weigh is None else query.weigh()
        weights = None if whole is None else whole[start:end]
        if weights is not None and query.strict and self._alike(query.request, donor):
            weights = np.floor(weights)  # the model itself comes to the same text after prompts alike
        settled = weights is not None and int((weights >= 1).sum()) >= SPEAKING
        most = MAX_CHANCE_OF_ANOTHER if query.strict else MAX_CHANCE_OF_FAULT
        span, weights = query.tokens[start:end][:_SPEAKING_MOST], None if weights is None else weights[:_SPEAKING_MOST]
        sample = self._sample()
        if self._language is None:
            self._language = Language(sample)
        left_out = [self._counted(request, sample) for request in {donor, query.request}]
        return self._language.probability(span, weights, left_out), most if settled else MAX_CHANCE

    def _counted(self, request: str, sample: TokenIds) -> tuple[Counts, Counts]:
        """Tokens and pairs in the request's streams, as far as the language was counted from them."""
        if request not in self._own_counts:
            begins, ends = self._run.bounds_of(self._streams_of(self._requests.number(request)))
            own = [sample[start:end] for start, end in zip(begins.tolist(), ends.tolist(), strict=True)]
            own = [one for one, end in zip(own, ends.tolist(), strict=True) if end <= len(sample)]
            none = [np.empty(0, dtype=np.int64)]
            self._own_counts[request] = (
                Counts(np.concatenate(none + own)),
                Counts(np.concatenate(none + list(map(pairs_of, own)))),
            )
        return self._own_counts[request]

    def _sample(self) -> TokenIds:
        if self._sampled is None:
            self._sampled = self._run.first(_SAMPLE)
        return self._sampled


def as_well(others: Sequence[str], count: int) -> Message | None:
    """That the tokens do not tell the donor from `count` more requests, the first of them `others`."""
    if not count:
        return None
    if count > len(others):
        return message(
            "row_leak.as_well_more",
            "the text of {others} and of {more} more requests explains them as well",
            others=list(others),
            more=count - len(others),
        )
    return message("row_leak.as_well", "the text of {others} explains them as well", others=list(others))


def _within(start: Places, end: Places, starts: Places, ends: Places) -> npt.NDArray[np.bool_]:
    """Shape of `start`: does one of the spans [starts, ends) hold all of [start, end)?"""
    order = np.argsort(starts, kind="stable")
    reach = np.concatenate([[-1], np.maximum.accumulate(ends[order])])
    return np.asarray(reach[np.searchsorted(starts[order], start, side="right")] >= end)
