"""The residual of a token: the engine's own logprob of it minus the score's.

Both are of one token after the same tokens, so whatever the model thinks of it cancels and what is left is rounding:
of the kernel that chose the token, of the kernel that scored it, and of nothing else in a healthy engine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
from msgspec import Struct, structs

from parity.comparator.reference.gaps import BoolArray, FloatArray, TokenGaps, batches
from parity.records import Completion, Key, RaggedTokens, TopLogprobs

NO_LOGPROB = 1e-3
"""Nats. A value above it is no logprob."""


class PairedResiduals(Struct, frozen=True):
    """The residuals of both arms at the N tokens where both are known, pairs in a row and tokens in order.

    baseline, candidate: own logprob minus score, nats, shape (N,); the baseline's are 0 where there are no scores, and
    the candidate's are against the baseline's own logprobs then. score: logprob of the candidate's token and of the
    baseline's by the score (else by the baseline itself), shape (N,). row: the pair, place: the token's position;
    context: how many tokens stand before it, the prompt's included.
    baseline_token, candidate_token: the ids that these are of, shape (N,).
    """

    baseline: FloatArray
    candidate: FloatArray
    baseline_score: FloatArray
    candidate_score: FloatArray
    row: np.typing.NDArray[np.int64]
    place: np.typing.NDArray[np.int64]
    context: np.typing.NDArray[np.int64]
    baseline_token: np.typing.NDArray[np.int64]
    candidate_token: np.typing.NDArray[np.int64]
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


def _chosen(ids: np.typing.NDArray[np.int64], values: FloatArray, tokens: np.typing.NDArray[np.int64]) -> FloatArray:
    """The value of each token in its list, NaN where it is not listed or no logprob; ids of shape (T, K)."""
    if ids.shape[1] == 1:
        found = np.where(ids[:, 0] == tokens, values[:, 0], np.nan)
    else:
        found = np.full(len(tokens), np.nan)
        for column in range(ids.shape[1]):
            here = (ids[:, column] == tokens) & np.isnan(found)
            np.copyto(found, values[:, column], where=here)
    with np.errstate(invalid="ignore"):
        found[~((found <= NO_LOGPROB) & (found > -np.inf))] = np.nan
    return np.minimum(found, 0.0, out=found)


def paired_residuals(
    sides: tuple[Sequence[Completion], Sequence[Completion]],
    parts_at: Sequence[int],
    scores: tuple[Mapping[Key, TokenGaps], Mapping[Key, TokenGaps]],
    since: Mapping[Key, int],
    until: Mapping[Key, int],
    vocab_size: int | None,
) -> PairedResiduals | None:
    """The residuals of P pairs of the same prompts, the baseline's and the candidate's completions; None where no pair
    has logprobs of its own on both sides.

    parts_at: as in `Pairs`. scores: gaps by score of the baseline's and of the candidate's completions; up to where a
    pair parts, the score of the one is the score of the other. since, until: the tokens of a pair to look at, where not
    all of them. Tokens from the first id outside the vocabulary on are left out.
    """
    rows = _with_logprobs(sides, until)
    keys = [sides[1][row].key for row in rows]
    by_scores = any(not one.keys().isdisjoint(keys) for one in scores)
    if by_scores:  # of the others nothing is known
        rows = [row for row, key in zip(rows, keys, strict=True) if key in scores[0] or key in scores[1]]
    found = []
    for at in batches([len(sides[1][row].token_ids) for row in rows]):
        some = rows[at]
        batch = [sides[0][row] for row in some], [sides[1][row] for row in some]
        parts = [int(parts_at[row]) if parts_at[row] >= 0 else None for row in some]
        one = _of_batch(batch, some, parts, scores if by_scores else None, since, until, vocab_size)
        if len(one):
            found.append(one)
    return _joined(found) if found else None


def _joined(parts: list[PairedResiduals]) -> PairedResiduals:
    """One after another. Each column of the parts is let go once it is joined, so that there are not two of all."""
    first = parts[0]
    columns = {name: [getattr(one, name) for one in parts] for name in first.__struct_fields__ if name != "by_scores"}
    parts.clear()
    return structs.replace(first, **{name: np.concatenate(columns.pop(name)) for name in list(columns)})


def _of_batch(
    sides: tuple[Sequence[Completion], Sequence[Completion]],
    rows: Sequence[int],
    parts: Sequence[int | None],
    scores: tuple[Mapping[Key, TokenGaps], Mapping[Key, TokenGaps]] | None,
    since: Mapping[Key, int],
    until: Mapping[Key, int],
    vocab_size: int | None,
) -> PairedResiduals:
    """`paired_residuals` of some of the pairs, which are these rows of all; scores: None to do without."""
    keys = [one.key for one in sides[1]]
    tokens = [RaggedTokens.of([one.token_ids for one in side]) for side in sides]
    lengths = _lengths(sides, parts if scores is None else [None] * len(rows), until)
    size = np.array(lengths, dtype=np.int64)
    begin = np.cumsum(size) - size
    place = np.arange(int(size.sum())) - np.repeat(begin, size)
    kept = [_first_of_each(one, size, place) for one in tokens]
    own = [chosen_logprobs(side, one)[at] for side, one, at in zip(sides, tokens, kept, strict=True)]
    ids = [one.flat[at] for one, at in zip(tokens, kept, strict=True)]
    score = [own[0], own[0]] if scores is None else [_scores_of(side, keys, parts, lengths, scores) for side in (0, 1)]
    residuals = own[0] - score[0], own[1] - score[1]
    prompt = np.array([len(one.prompt_token_ids) for one in sides[1]], dtype=np.int64)
    first = np.array([since.get(key, 0) for key in keys], dtype=np.int64)
    known = np.isfinite(residuals[0]) & np.isfinite(residuals[1]) & (place >= np.repeat(first, size))
    known &= _before_invalid(tokens, place, size, vocab_size)
    return PairedResiduals(
        baseline=residuals[0][known],
        candidate=residuals[1][known],
        baseline_score=score[0][known],
        candidate_score=score[1][known],
        row=np.repeat(np.array(rows, dtype=np.int64), size)[known],
        place=place[known],
        context=(place + np.repeat(prompt, size))[known],
        baseline_token=ids[0][known],
        candidate_token=ids[1][known],
        by_scores=scores is not None,
    )


def _with_logprobs(sides: tuple[Sequence[Completion], Sequence[Completion]], until: Mapping[Key, int]) -> list[int]:
    """The pairs that have logprobs of their own on both sides, and tokens to look at."""
    return [
        row
        for row, (a, b) in enumerate(zip(*sides, strict=True))
        if a.logprobs is not None and b.logprobs is not None and until.get(b.key, 1) > 0
    ]


def _lengths(
    sides: tuple[Sequence[Completion], Sequence[Completion]], most: Sequence[int | None], until: Mapping[Key, int]
) -> list[int]:
    """Tokens of each pair that both sides have, up to `until` and `most` of them."""
    found = []
    for a, b, end in zip(*sides, most, strict=True):
        length = min(len(a.token_ids), len(b.token_ids), until.get(b.key, len(b.token_ids)))
        found.append(length if end is None else min(length, end))
    return found


def _first_of_each(
    tokens: RaggedTokens, size: np.typing.NDArray[np.int64], place: np.typing.NDArray[np.int64]
) -> np.typing.NDArray[np.int64] | slice:
    """Where the first `size` tokens of each row stand among all of them."""
    start = tokens.offsets
    return slice(None) if np.array_equal(np.diff(start), size) else np.repeat(start[:-1], size) + place


def _scores_of(
    side: int,
    keys: Sequence[Key],
    parts: Sequence[int | None],
    lengths: Sequence[int],
    scores: tuple[Mapping[Key, TokenGaps], Mapping[Key, TokenGaps]],
) -> FloatArray:
    """Scores of the tokens of one side, pairs in a row: by its own score, else by the other's up to where they part."""
    found: list[FloatArray] = []
    for key, part, length in zip(keys, parts, lengths, strict=True):
        own, other = scores[side].get(key), scores[1 - side].get(key)
        if own is not None:
            found.append(_padded(own.chosen[:length], length))
        elif other is not None:
            found.append(_padded(other.chosen[: length if part is None else min(part, length)], length))
        else:
            found.append(np.full(length, np.nan))
    return np.concatenate(found) if found else np.empty(0)


def _padded(values: FloatArray, length: int) -> FloatArray:
    return values if len(values) == length else np.concatenate([values, np.full(length - len(values), np.nan)])


def _before_invalid(
    tokens: Sequence[RaggedTokens],
    place: np.typing.NDArray[np.int64],
    size: np.typing.NDArray[np.int64],
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
