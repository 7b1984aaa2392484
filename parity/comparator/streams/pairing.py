"""Two captures side by side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from parity.comparator.inputs.questions import own_differences, temperature_in
from parity.records import Capture, Completion, Key, Lazy, RaggedTokens
from parity.records.lazy import Each, Flagged, Index, Numbered, Picked
from parity.records.ragged import PatchedTokens
from parity.unnamed import kept


class Pairs(Struct, frozen=True):
    """The completions both captures hold, in the candidate's order; P pairs."""

    keys: Sequence[Key]
    baseline: Sequence[Completion]
    candidate: Sequence[Completion]
    parts_at: npt.NDArray[np.int64]
    """Shape (P,): position of the first token that differs, the shorter length where one stream begins the other,
    -1 where the streams are equal."""
    identical: npt.NDArray[np.bool_]
    """Shape (P,): the token streams are equal."""
    same_prompt: npt.NDArray[np.bool_]
    """Shape (P,): the prompt token ids are equal, and so are the requests' own sampling parameters where they have
    some."""
    own_differences: Mapping[Key, tuple[str, ...]]
    """Sampling parameters of their own, by which a request's two completions were asked differently."""
    random: npt.NDArray[np.bool_]
    """Shape (P,): at least one of the two was drawn at a temperature above 0."""
    baseline_tokens: RaggedTokens
    candidate_tokens: RaggedTokens
    aborted: int
    """Pairs of which one side or both were aborted."""

    def whole(self) -> npt.NDArray[np.bool_]:
        """Shape (P,): neither of the two was aborted."""
        if not self.aborted:
            return np.ones(len(self.keys), dtype=np.bool_)
        ran = (not (a.aborted or b.aborted) for a, b in zip(self.baseline, self.candidate, strict=True))
        return np.fromiter(ran, dtype=np.bool_, count=len(self.keys))

    def said_apart(self) -> Iterable[int]:
        """The rows in which something besides tokens and their logprobs may differ: all, where nobody knows."""
        if isinstance(self.baseline, Each) and isinstance(self.candidate, Each):
            found = self.candidate.of.aside(self.baseline.of)
            if found is not None:
                return map(int, found)
        return range(len(self.keys))

    def by_key(self) -> Mapping[Key, int]:
        """`parts_at` of the pairs whose streams differ."""
        rows = np.flatnonzero(~self.identical)
        return self.numbered(rows, self.parts_at[rows])

    def numbered(self, rows: npt.NDArray[np.int64], numbers: npt.NDArray[np.int64]) -> Mapping[Key, int]:
        """Some of the pairs with a number each; rows: ascending, shape (N,), numbers alike."""
        if isinstance(self.keys, Index):
            return Numbered(self.keys, kept(rows), kept(numbers))
        return {self.keys[row]: number for row, number in zip(rows.tolist(), numbers.tolist(), strict=True)}

    def those(self, rows: npt.NDArray[np.bool_]) -> Set[Key]:
        """The keys of some of the pairs; rows: shape (P,)."""
        if isinstance(self.keys, Index):
            return Flagged(self.keys, rows)
        return frozenset(map(self.keys.__getitem__, np.flatnonzero(rows).tolist()))

    def where(self, rows: npt.NDArray[np.bool_]) -> Pairs:
        """Some of the pairs; rows: shape (P,)."""
        if rows.all():
            return self
        some = np.flatnonzero(rows)
        baseline, candidate = at_rows(self.baseline, some), at_rows(self.candidate, some)
        return Pairs(
            at_rows(self.keys, some),
            baseline,
            candidate,
            self.parts_at[rows],
            self.identical[rows],
            self.same_prompt[rows],
            self.own_differences,
            self.random[rows],
            self.baseline_tokens.of_rows(some),
            self.candidate_tokens.of_rows(some),
            sum(a.aborted or b.aborted for a, b in zip(baseline, candidate, strict=True)) if self.aborted else 0,
        )


T = TypeVar("T")


def at_rows(values: Sequence[T], rows: npt.NDArray[np.int64]) -> Sequence[T]:
    """Some of them, made when they are looked at where all of them are."""
    return [values[row] for row in rows.tolist()] if isinstance(values, list | tuple) else Picked(values, rows)


def pair_up(baseline: Capture, candidate: Capture) -> Pairs:
    """Pair completions by key."""
    keys: Sequence[Key]
    left: Sequence[Completion]
    right: Sequence[Completion]
    if candidate.keys == baseline.keys:
        # The usual case: both in plan order. The captures' own columns serve as they are.
        keys, left, right = candidate.keys, baseline.rows, candidate.rows
        tokens, other = candidate.tokens, baseline.tokens
        prompts, other_prompts = candidate.prompts, baseline.prompts
    else:
        place = {} if isinstance(baseline.completions, Lazy) else {key: row for row, key in enumerate(baseline.keys)}
        find = baseline.completions.row if isinstance(baseline.completions, Lazy) else place.get
        rows = np.array([-1 if (row := find(key)) is None else row for key in candidate.keys], dtype=np.int64)
        mine = np.flatnonzero(rows >= 0)
        rows = rows[mine]
        keys, left, right = at_rows(candidate.keys, mine), at_rows(baseline.rows, rows), at_rows(candidate.rows, mine)
        tokens, prompts = candidate.tokens.of_rows(mine), candidate.prompts.of_rows(mine)
        other, other_prompts = baseline.tokens.of_rows(rows), baseline.prompts.of_rows(rows)
    parts_at = kept(first_differences(tokens, other))
    same_prompt = first_differences(prompts, other_prompts) < 0
    hottest = max(temperature_in(arm.header.sampling) for arm in (baseline, candidate))
    random = np.full(len(keys), hottest > 0)
    differences: dict[Key, tuple[str, ...]] = {}
    own = baseline.own_sampling | candidate.own_sampling
    for row, (a, b) in enumerate(zip(left, right, strict=True)) if own else ():
        if b.key in own:
            asked = baseline.sampling_of(a), candidate.sampling_of(b)
            found = own_differences(a, b, *asked)
            if found:
                differences[b.key], same_prompt[row] = found, False
            random[row] = max(map(temperature_in, asked)) > 0
    aborted = baseline.aborted | candidate.aborted
    stopped = aborted and aborted & frozenset(keys)
    equal = parts_at < 0
    return Pairs(keys, left, right, parts_at, equal, same_prompt, differences, random, other, tokens, len(stopped))


_AT_ONCE = 1 << 15
"""Tokens compared at once, to stay in the processor's cache."""


def first_differences(mine: RaggedTokens, theirs: RaggedTokens) -> npt.NDArray[np.int64]:
    """Stream by stream, where two columns of P streams first differ; see `Pairs.parts_at`. Shape (P,).

    Streams of equal length lie side by side in both columns, so a run of them is compared at once.
    """
    result = np.full(len(mine), -1, dtype=np.int64)
    if mine is theirs:
        return result
    if isinstance(mine, PatchedTokens) and mine.like is theirs and len(mine) == len(theirs):
        result[mine.rows] = _of_patches(mine, theirs)
        return result
    sizes, other_sizes = mine.sizes, theirs.sizes
    uneven = np.flatnonzero(sizes != other_sizes)
    for row in uneven.tolist():
        size = int(min(sizes[row], other_sizes[row]))
        a = mine.flat[mine.offsets[row] : mine.offsets[row] + size]
        b = theirs.flat[theirs.offsets[row] : theirs.offsets[row] + size]
        different = np.flatnonzero(a != b)
        result[row] = different[0] if len(different) else size
    begin = 0
    for end in [*uneven.tolist(), len(sizes)]:
        if end > begin:
            _even_run(mine, theirs, begin, end, result)
        begin = end + 1
    return result


def _of_patches(mine: PatchedTokens, theirs: RaggedTokens) -> npt.NDArray[np.int64]:
    """`first_differences` of the rows of a column that are not the other's."""
    found = [np.empty(0, dtype=np.int64)]
    for begin in range(0, len(mine.rows), _ROWS_AT_ONCE):
        rows = mine.rows[begin : begin + _ROWS_AT_ONCE]
        found.append(first_differences(mine.own.part(begin, begin + len(rows)), theirs.of_rows(rows)))
    return np.concatenate(found)


_ROWS_AT_ONCE = 1 << 10
"""Streams of the other column that are put together to be compared."""


def _even_run(mine: RaggedTokens, theirs: RaggedTokens, begin: int, end: int, result: npt.NDArray[np.int64]) -> None:
    """`first_differences` of streams [begin, end), which have the same lengths in both columns."""
    offsets = mine.offsets[begin : end + 1]
    a = mine.flat[offsets[0] : offsets[-1]]
    b = theirs.flat[theirs.offsets[begin] : theirs.offsets[end]]
    pieces = range(0, len(a), _AT_ONCE)
    if not len(pieces):
        return
    different = np.concatenate([(a[at : at + _AT_ONCE] != b[at : at + _AT_ONCE]).nonzero()[0] + at for at in pieces])
    if not len(different):
        return
    starts = offsets - offsets[0]
    place = np.searchsorted(different, starts[:-1])
    first = different[np.minimum(place, len(different) - 1)]
    parts = (place < len(different)) & (first < starts[1:])
    result[begin:end][parts] = (first - starts[:-1])[parts]
