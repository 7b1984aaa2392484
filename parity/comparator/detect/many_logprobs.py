"""Own logprobs of many completions looked at together: which ones are to be looked at by themselves?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from parity.comparator.detect.off_logprobs import LOGPROB_TOLERANCE, MANY
from parity.comparator.reference.gaps import BATCH, batches
from parity.comparator.streams.pairing import Pairs
from parity.comparator.streams.sides import Ints, Side, batches_of, side_of
from parity.records import Completion, RaggedTokens

AT_ONCE = 256
"""Completions of which lists are looked at together."""


def listing_rows(pairs: Pairs) -> Ints:
    """The pairs whose candidate's own logprobs list other tokens as well."""
    side = side_of(pairs.candidate)
    rows = np.flatnonzero(side.has_logprobs & ~side.has_own)
    lists = (pairs.candidate[row].lists is not None for row in rows.tolist())
    return rows[np.fromiter(lists, dtype=np.bool_, count=len(rows))]


def doubtful_rows(pairs: Pairs, rows: Ints) -> set[int]:
    """Of these pairs with equal tokens, those to be looked at: where the candidate's own logprobs are of the chosen
    tokens alone and are not one for each of them, are no logprobs, or are not about the baseline's.

    Over all of them at once: each run records these, and looking at each pair would cost more than the comparison.
    """
    sides = side_of(pairs.baseline), side_of(pairs.candidate)
    in_columns = sides[0].has_own[rows] & sides[1].has_own[rows]
    doubtful = set(_doubtful_in_columns(sides, rows[in_columns]))
    whole: list[int] = []
    for row in rows[~in_columns & sides[1].has_logprobs[rows]].tolist():
        a, b = pairs.baseline[row], pairs.candidate[row]
        if b.logprobs is None or b.lists is not None:
            continue
        if len(b.logprobs) != len(b.token_ids) or not b.logprobs.ids.shape[1]:
            if len(b.token_ids) or len(b.logprobs):
                doubtful.add(row)
            continue
        if a.lists is not None:
            doubtful.add(row)
            continue
        whole.append(row)
    for batch in batches([len(pairs.candidate[row].token_ids) for row in whole]):
        doubtful.update(_doubtful_of(pairs, whole[batch]))
    return doubtful


def _doubtful_in_columns(sides: tuple[Side, Side], rows: Ints) -> Iterator[int]:
    """`_doubtful_of` where both sides have columns."""
    for at in batches_of(sides[1].sizes[rows], BATCH):
        some = rows[at]
        theirs, values = (side.own(some) for side in sides)
        usable = (values <= 1e-3) & (values > -np.inf)  # NaN fails the test
        with np.errstate(invalid="ignore"):
            hits = np.flatnonzero((np.abs(values - theirs) > LOGPROB_TOLERANCE / 2) | ~usable)
        if len(hits):
            ends = np.cumsum(sides[1].sizes[some])
            yield from some[np.unique(np.searchsorted(ends, hits, side="right"))].tolist()


def _doubtful_of(pairs: Pairs, rows: Sequence[int]) -> Iterator[int]:
    """Of pairs whose candidate has a logprob for each token: those where some are none, of other tokens, or not about
    the baseline's."""
    own, theirs = [], []
    for row in rows:
        a, b = pairs.baseline[row].logprobs, pairs.candidate[row].logprobs
        assert b is not None
        own.append(b)
        theirs.append(a.values[:, 0] if a is not None and a.ids.shape == b.ids.shape else b.values[:, 0])
    tokens = RaggedTokens.of([pairs.candidate[row].token_ids for row in rows])
    values = np.concatenate([one.values[:, 0] for one in own])
    usable = (values <= 1e-3) & (values > -np.inf)  # NaN fails the test
    usable &= np.concatenate([one.ids[:, 0] for one in own]) == tokens.flat
    with np.errstate(invalid="ignore"):
        far = np.abs(values - np.concatenate(theirs)) > LOGPROB_TOLERANCE / 2
    return (rows[index] for index in tokens.rows_with(far | ~usable))


def lacking(some: Sequence[Completion]) -> Iterator[Completion]:
    """Those whose own lists lack the chosen token at more than MANY positions."""
    by_width: dict[int, list[Completion]] = {}
    for one in some:
        own = one.logprobs
        if own is not None and own.ids.shape[0] == one.token_ids.shape[0]:
            by_width.setdefault(own.ids.shape[1], []).append(one)
    for same in by_width.values():
        ids = np.concatenate([one.logprobs.ids for one in same if one.logprobs is not None])
        tokens = np.concatenate([one.token_ids for one in same])
        lacks = ~(ids == tokens[:, None]).any(axis=1)
        row = np.repeat(np.arange(len(same)), [one.token_ids.shape[0] for one in same])
        yield from (same[at] for at in np.flatnonzero(np.bincount(row[lacks], minlength=len(same)) > MANY).tolist())
