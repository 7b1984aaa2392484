"""Two captures side by side as flat arrays, so that what is equal costs no Python per token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from parity.records import Capture, Completion, Key, TokenIds


@dataclass(frozen=True, slots=True)
class Pairs:
    """The completions both captures hold, in the candidate's order; P pairs."""

    keys: list[Key]
    baseline: list[Completion]
    candidate: list[Completion]
    identical: npt.NDArray[np.bool_]
    """Shape (P,): the token streams are equal."""
    same_prompt: npt.NDArray[np.bool_]
    """Shape (P,): the prompt token ids are equal."""
    candidate_tokens: TokenIds
    """All candidate tokens in a row."""
    offsets: npt.NDArray[np.int64]
    """Shape (P + 1,): where each completion begins in `candidate_tokens`."""

    def rows_with(self, hits: npt.NDArray[np.bool_]) -> list[int]:
        """Rows that hold at least one token for which `hits` (shape of candidate_tokens) is true."""
        places = np.flatnonzero(hits)
        if not len(places):
            return []
        return [int(row) for row in np.unique(np.searchsorted(self.offsets, places, side="right") - 1)]


def pair_up(baseline: Capture, candidate: Capture) -> Pairs:
    """Pair completions by key."""
    keys = [key for key in candidate.completions if key in baseline.completions]
    left = [baseline.completions[key] for key in keys]
    right = [candidate.completions[key] for key in keys]
    tokens, offsets = _flat([completion.token_ids for completion in right])
    other, other_offsets = _flat([completion.token_ids for completion in left])
    return Pairs(
        keys,
        left,
        right,
        _equal(tokens, offsets, other, other_offsets),
        _equal(
            *_flat([completion.prompt_token_ids for completion in right]),
            *_flat([completion.prompt_token_ids for completion in left]),
        ),
        tokens,
        offsets,
    )


def _flat(streams: Sequence[TokenIds]) -> tuple[TokenIds, npt.NDArray[np.int64]]:
    offsets = np.zeros(len(streams) + 1, dtype=np.int64)
    np.cumsum(np.fromiter((len(stream) for stream in streams), dtype=np.int64, count=len(streams)), out=offsets[1:])
    return (np.concatenate(streams) if len(streams) else np.empty(0, dtype=np.int64)), offsets


def _equal(
    a: TokenIds, a_offsets: npt.NDArray[np.int64], b: TokenIds, b_offsets: npt.NDArray[np.int64]
) -> npt.NDArray[np.bool_]:
    """Row by row: are the streams equal? Shape (P,)."""
    lengths = np.diff(a_offsets)
    equal = lengths == np.diff(b_offsets)
    if equal.all():
        different = np.flatnonzero(a != b)
    else:
        # Compare position by position only the rows of equal length.
        different_rows = [
            row
            for row in np.flatnonzero(equal).tolist()
            if not np.array_equal(a[a_offsets[row] : a_offsets[row + 1]], b[b_offsets[row] : b_offsets[row + 1]])
        ]
        equal[different_rows] = False
        return np.asarray(equal)
    equal[np.searchsorted(a_offsets, different, side="right") - 1] = False
    return np.asarray(equal)
