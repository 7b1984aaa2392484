"""The residual of a token: the engine's own logprob of it minus the score's.

Both are of one token after the same tokens, so whatever the model thinks of it cancels and what is left is rounding:
of the kernel that chose the token, of the kernel that scored it, and of nothing else in a healthy engine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct

from parity.comparator.reference.gaps import BATCH, BoolArray, FloatArray, TokenGaps
from parity.comparator.streams.sides import Ints, Side, batches_of, side_of
from parity.records import Completion, Key, RaggedTokens, TopLogprobs
from parity.records.lazy import Rows
from parity.unnamed import kept

NO_LOGPROB = 1e-3
"""Nats. A value above it is no logprob."""


class PairedResiduals(Struct, frozen=True):
    """The residuals of both arms at the N tokens where both are known, pairs in a row and tokens in order.

    baseline, candidate: own logprob minus score, nats, shape (N,); the baseline's are 0 where there are no scores, and
    the candidate's are against the baseline's own logprobs then. score: logprob of the candidate's token and of the
    baseline's by the score (else by the baseline itself), shape (N,). row: the pair, place: the token's position;
    context: how many tokens stand before it, the prompt's included. Of these three, 32 bits each.
    baseline_token, candidate_token: the ids that these are of, shape (N,).
    """

    baseline: FloatArray
    candidate: FloatArray
    baseline_score: FloatArray
    candidate_score: FloatArray
    row: Ints
    place: Ints
    context: Ints
    baseline_token: Ints
    candidate_token: Ints
    by_scores: bool

    def __len__(self) -> int:
        return len(self.row)


def chosen_logprobs(completions: Sequence[Completion], tokens: RaggedTokens | None = None) -> FloatArray:
    """The engine's own logprobs of the chosen tokens, all completions in a row; NaN where it lists none, shape (T,).

    tokens: those of all of them, where they are in a row already.
    """
    if tokens is not None and all(
        one.logprobs is not None and one.logprobs.ids.shape == (len(one.token_ids), 1) for one in completions
    ):  # the usual case
        return _chosen_of(completions, tokens)
    found: list[FloatArray] = [np.full(len(one.token_ids), np.nan) for one in completions]
    by_width: dict[int, list[int]] = {}
    for at, one in enumerate(completions):
        if one.logprobs is None or not len(one.token_ids) or not one.logprobs.ids.shape[1]:
            continue
        if len(one.logprobs) == len(one.token_ids):
            by_width.setdefault(one.logprobs.ids.shape[1], []).append(at)
        else:
            found[at] = _with_unequal_lengths(one, one.logprobs)
    for members in by_width.values():
        some = [completions[at] for at in members]
        tokens = RaggedTokens.of([one.token_ids for one in some])
        flat = _chosen_of(some, tokens)
        for at, (begin, end) in zip(members, pairwise(tokens.offsets.tolist()), strict=True):
            found[at] = flat[begin:end]
    return np.concatenate(found) if found else np.empty(0)


def _chosen_of(completions: Sequence[Completion], tokens: RaggedTokens) -> FloatArray:
    """The same of completions whose lists are all of one width, one list for each token."""
    tops = [one.logprobs for one in completions if one.logprobs is not None]
    return _chosen(np.concatenate([top.ids for top in tops]), np.concatenate([top.values for top in tops]), tokens.flat)


def _with_unequal_lengths(one: Completion, top: TopLogprobs) -> FloatArray:
    covered = min(len(top), len(one.token_ids))
    found = np.full(len(one.token_ids), np.nan)
    found[:covered] = _chosen(top.ids[:covered], top.values[:covered], one.token_ids[:covered])
    return found


def _chosen(ids: Ints, values: FloatArray, tokens: Ints) -> FloatArray:
    """The value of each token in its list, NaN where it is not listed or no logprob; ids of shape (T, K)."""
    if ids.shape[1] == 1:
        found = np.where(ids[:, 0] == tokens, values[:, 0], np.nan)
    else:
        found = np.full(len(tokens), np.nan)
        for column in range(ids.shape[1]):
            here = (ids[:, column] == tokens) & np.isnan(found)
            np.copyto(found, values[:, column], where=here)
    return _usable(found)


def _usable(found: FloatArray) -> FloatArray:
    """Logprobs, in place: NaN for what is none, and none above 0."""
    with np.errstate(invalid="ignore"):
        found[~((found <= NO_LOGPROB) & (found > -np.inf))] = np.nan
    return np.minimum(found, 0.0, out=found)


class Residuals:
    """The residuals of a run in stretches of whole completions; of some of them there may be none. Those of a large run
    are not held: they are computed anew each time."""

    def __init__(self, stretch: Callable[[int], PairedResiduals], count: int, most: int) -> None:
        """stretch: one of these `count` by its number; most: tokens there may be."""
        self._stretch, self.count, self.most = stretch, count, most
        self._held: dict[int, PairedResiduals] = {}

    @staticmethod
    def of(*held: PairedResiduals) -> Residuals:
        """Of stretches that are there."""
        return Residuals(held.__getitem__, len(held), sum(map(len, held)))

    @property
    def are_held(self) -> bool:
        return self.most <= HELD

    def at(self, number: int) -> PairedResiduals:
        found = self._held.get(number)
        if found is None:
            found = self._stretch(number)
            if self.are_held:
                self._held[number] = found
        return found


STRETCH = 1 << 17
"""Tokens of a stretch, about: with what is computed of them, 30 MB."""

HELD = 1 << 19
"""Tokens up to which the residuals of a run are held: 30 MB."""


def paired_residuals(
    completions: tuple[Sequence[Completion], Sequence[Completion]],
    parts_at: Sequence[int] | Ints,
    scores: tuple[Mapping[Key, TokenGaps], Mapping[Key, TokenGaps]],
    since: Mapping[Key, int],
    until: Mapping[Key, int],
    vocab_size: int | None,
) -> Residuals | None:
    """The residuals of P pairs of the same prompts, the baseline's and the candidate's completions; None where no pair
    has logprobs of its own on both sides.

    parts_at: as in `Pairs`. scores: gaps by score of the baseline's and of the candidate's completions; up to where a
    pair parts, the score of the one is the score of the other. since, until: the tokens of a pair to look at, where not
    all of them. Tokens from the first id outside the vocabulary on are left out.
    """
    sides = side_of(completions[0]), side_of(completions[1])
    parts = np.asarray(parts_at, dtype=np.int64)
    ends = sides[1].spread(until, _ALL)
    rows = kept(np.flatnonzero(sides[0].has_logprobs & sides[1].has_logprobs & (ends > 0)))
    by_scores = False
    if any(scores):
        known = [_known(sides[1].keys(rows[at]), scores) for at in batches_of(sides[1].sizes[rows], BATCH)]
        of_known = rows[np.concatenate([np.empty(0, dtype=np.bool_), *known])]
        if by_scores := len(of_known) > 0:  # of the others nothing is known
            rows = kept(of_known)
    batches = list(batches_of(sides[1].sizes[rows], BATCH))
    looked = _Looked(sides, parts, sides[1].spread(since, 0), ends, scores if by_scores else None)
    ends_at = np.minimum(np.minimum(sides[0].sizes[rows], sides[1].sizes[rows]), ends[rows])
    sizes = np.maximum(ends_at - looked.first[rows], 0)
    of_batches = np.array([sizes[batch].sum() for batch in batches], dtype=np.int64)
    stretches = list(batches_of(of_batches, STRETCH))

    def stretch(number: int) -> PairedResiduals:
        here = stretches[number]
        found = _Columns(int(of_batches[here].sum()))
        for batch in batches[here]:
            found.add(_of_batch(looked, rows[batch], vocab_size))
        return found.whole(by_scores=by_scores)

    found = Residuals(stretch, len(stretches), int(sizes.sum()))
    return found if any(len(found.at(number)) for number in range(found.count)) else None


def _known(keys: Sequence[Key], scores: tuple[Mapping[Key, TokenGaps], Mapping[Key, TokenGaps]]) -> BoolArray:
    """Which of these are scored, by either arm's completion."""
    return np.array([key in scores[0] or key in scores[1] for key in keys], dtype=np.bool_)


_ALL = np.iinfo(np.int64).max
"""So many tokens are all that there are."""


class _Looked(NamedTuple):
    """What `paired_residuals` is asked about; by pair, shape (P,): where they part, and the tokens from `first` to
    before `end`."""

    sides: tuple[Side, Side]
    parts_at: Ints
    first: Ints
    end: Ints
    scores: tuple[Mapping[Key, TokenGaps], Mapping[Key, TokenGaps]] | None
    """None to do without."""


class _Columns:
    """Residuals, some after others. Room is made for as many as there may be: what nobody writes to takes none."""

    def __init__(self, most: int) -> None:
        self._most, self.count = most, 0
        self._found: dict[str, np.typing.NDArray[Any]] = {}

    def add(self, some: PairedResiduals) -> None:
        before, self.count = self.count, self.count + len(some)
        self._most = max(self._most, self.count)  # of one completion that is longer than a stretch
        for name in _WRITTEN:
            if name == "baseline" and not some.by_scores:
                continue  # all 0
            values, like = getattr(some, name), _ALIKE.get(name)
            if like is not None and name not in self._found:
                if values is getattr(some, like):
                    continue
                self._found[name] = self._found[like].copy() if before else self._room(values)
            if name not in self._found:
                self._found[name] = self._room(values)
            column = self._found[name]
            if column.dtype.itemsize < values.dtype.itemsize:
                column = self._found[name] = column.astype(values.dtype)
            if len(column) < self._most:
                column = self._found[name] = np.resize(column, self._most)
            column[before : self.count] = values

    def _room(self, like: np.typing.NDArray[Any]) -> np.typing.NDArray[Any]:
        return np.empty(self._most, dtype=like.dtype)

    def whole(self, *, by_scores: bool) -> PairedResiduals:
        found = {name: column[: self.count] for name, column in self._found.items()}
        found = {"baseline": np.broadcast_to(0.0, self.count)} | found
        found |= {name: found[like] for name, like in _ALIKE.items() if name not in found}
        return PairedResiduals(**found, by_scores=by_scores)


_ALIKE = {"candidate_score": "baseline_score", "candidate_token": "baseline_token"}
"""Columns that may be another one, which stands before them."""

_WRITTEN = [name for name in PairedResiduals.__struct_fields__ if name not in ("by_scores", *_ALIKE)] + list(_ALIKE)


def _of_batch(looked: _Looked, rows: Rows, vocab_size: int | None) -> PairedResiduals:
    """`paired_residuals` of some of the pairs."""
    sides, scores = looked.sides, looked.scores
    parts, first = looked.parts_at[rows], looked.first[rows]
    tokens = [side.tokens(rows) for side in sides]
    size = np.minimum(np.minimum(tokens[0].sizes, tokens[1].sizes), looked.end[rows])
    if scores is None:
        size = np.where(parts >= 0, np.minimum(size, parts), size)
    begin = np.cumsum(size) - size
    place = np.arange(int(size.sum())) - np.repeat(begin, size)
    first_ones = [_first_of_each(one, size, place) for one in tokens]
    own = [_own(side, rows, one)[at] for side, one, at in zip(sides, tokens, first_ones, strict=True)]
    ids = [one.flat[at] for one, at in zip(tokens, first_ones, strict=True)]
    if scores is None:
        score = [own[0], own[0]]
    else:
        keys = sides[1].keys(rows)
        score = [_scores_of(side, keys, parts.tolist(), size.tolist(), scores) for side in (0, 1)]
    residuals = own[0] - score[0], own[1] - score[1]
    known = np.isfinite(residuals[0]) & np.isfinite(residuals[1]) & (place >= np.repeat(first, size))
    known &= _before_invalid(tokens, place, size, vocab_size)
    of_baseline, token = score[0][known], ids[0][known]
    return PairedResiduals(
        baseline=residuals[0][known],
        candidate=residuals[1][known],
        baseline_score=of_baseline,
        candidate_score=of_baseline if score[0] is score[1] else score[1][known],
        row=_narrow(np.repeat(rows, size)[known]),
        place=_narrow(place[known]),
        context=_narrow((place + np.repeat(sides[1].prompt_sizes[rows], size))[known]),
        baseline_token=token,
        candidate_token=token if np.array_equal(ids[0], ids[1]) else ids[1][known],
        by_scores=scores is not None,
    )


def _narrow(values: Ints) -> Ints:
    """Numbers of rows and places, which are below 2 ** 31 in any file that is read, in half the room."""
    return np.asarray(values, dtype=np.int32)


def _own(side: Side, rows: Rows, tokens: RaggedTokens) -> FloatArray:
    """`chosen_logprobs` of these."""
    if side.has_own[rows].all():
        return _usable(side.own(rows).copy())
    return chosen_logprobs(side.some(rows), tokens)


def _first_of_each(tokens: RaggedTokens, size: Ints, place: Ints) -> Ints | slice:
    """Where the first `size` tokens of each row stand among all of them."""
    start = tokens.offsets
    return slice(None) if np.array_equal(np.diff(start), size) else np.repeat(start[:-1], size) + place


def _scores_of(
    side: int,
    keys: Sequence[Key],
    parts: Sequence[int],
    lengths: Sequence[int],
    scores: tuple[Mapping[Key, TokenGaps], Mapping[Key, TokenGaps]],
) -> FloatArray:
    """Scores of the tokens of one side, pairs in a row: by its own score, else by the other's up to where they part."""
    found: list[FloatArray] = []
    for key, part, length in zip(keys, parts, lengths, strict=True):
        if (own := scores[side].get(key)) is not None:
            found.append(_padded(own.chosen[:length], length))
        elif (other := scores[1 - side].get(key)) is not None:
            found.append(_padded(other.chosen[: length if part < 0 else min(part, length)], length))
        else:
            found.append(np.full(length, np.nan))
    return np.concatenate(found) if found else np.empty(0)


def _padded(values: FloatArray, length: int) -> FloatArray:
    return values if len(values) == length else np.concatenate([values, np.full(length - len(values), np.nan)])


def _before_invalid(
    tokens: Sequence[RaggedTokens],
    place: Ints,
    size: Ints,
    most: int | None,
) -> BoolArray:
    """Tokens that stand before the first id that is none, on either side; shape of `place`. `most`: ids there are."""
    if most is None:
        return np.ones(len(place), dtype=np.bool_)
    first = np.full(len(size), np.iinfo(np.int64).max)
    for side in tokens:
        wrong = (side.flat >= most) | (side.flat < 0)
        for row in side.rows_with(wrong):
            here = wrong[side.offsets[row] : side.offsets[row + 1]]
            first[row] = min(int(first[row]), int(here.argmax()))
    if (first == np.iinfo(np.int64).max).all():
        return np.ones(len(place), dtype=np.bool_)
    return np.asarray(place < np.repeat(first, size))
