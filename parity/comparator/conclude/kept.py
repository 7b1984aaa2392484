"""What a comparison shows of the gaps it computed; made where they are looked at, for a verdict needs none."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from parity.comparator.reference.gaps import TokenGaps
from parity.comparator.reference.stored import Changed
from parity.records import Capture, Key, TokenIds
from parity.records.gaps import KeptGaps


def keep_gaps(gaps: Mapping[Key, TokenGaps], compared: Capture, given: Capture) -> Mapping[Key, KeptGaps]:
    """`gaps` of the capture as it was compared, for the tokens of the capture as it was given.

    Normalising may have cut the EOS token off a stream: its gap is not known. A stream that was replaced by another of
    the same text has none.
    """
    others = set[Key]()
    if compared.tokens is not given.tokens:  # not one column
        others.update(
            key
            for key in gaps
            if not _begins_with(given.completions[key].token_ids, compared.completions[key].token_ids)
        )
    return Changed(
        gaps, lambda key, view: _kept(view, len(given.completions[key].token_ids)), lambda key: key not in others
    )


def _kept(view: TokenGaps, length: int) -> KeptGaps:
    """Of one completion that has `length` tokens."""
    with np.errstate(over="ignore"):
        gap = np.round(view.gap, 4).astype(np.float32)
    best_id = view.best_id.astype(np.int32)
    best_id[best_id != view.best_id] = -1  # 32 bits, or no token
    return _padded(KeptGaps(gap, view.bounded, best_id), length)


def _begins_with(tokens: TokenIds, beginning: TokenIds) -> bool:
    return tokens is beginning or np.array_equal(tokens[: len(beginning)], beginning)


def _padded(kept: KeptGaps, length: int) -> KeptGaps:
    missing = (0, length - len(kept.gap))
    if not missing[1]:
        return kept
    return KeptGaps(
        np.pad(kept.gap, missing, constant_values=np.nan),
        np.pad(kept.bounded, missing),
        np.pad(kept.best_id, missing, constant_values=-1),
    )
