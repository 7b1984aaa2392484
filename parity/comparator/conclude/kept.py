"""What a comparison keeps of the gaps it computed: the numbers that are shown, in little memory."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np

from parity.comparator.reference.gaps import TokenGaps
from parity.records import Capture, Key, RaggedTokens, TokenIds
from parity.records.gaps import KeptGaps


def keep_gaps(gaps: Mapping[Key, TokenGaps], compared: Capture, given: Capture) -> dict[Key, KeptGaps]:
    """`gaps` of the capture as it was compared, for the tokens of the capture as it was given.

    Normalising may have cut the EOS token off a stream: its gap is not known. A stream that was replaced by another of
    the same text has none.
    """
    shown = {
        key: given.completions[key].token_ids
        for key in gaps
        if _begins_with(given.completions[key].token_ids, compared.completions[key].token_ids)
    }
    if not shown:
        return {}
    # All tokens at once: three small arrays for each completion cost more than the rest of a comparison.
    flat = RaggedTokens.of([gaps[key].best_id for key in shown])
    with np.errstate(over="ignore"):
        gap = np.round(np.concatenate([gaps[key].gap for key in shown]), 4).astype(np.float32)
    bounded = np.concatenate([gaps[key].bounded for key in shown])
    best_id = np.where(flat.flat.astype(np.int32) == flat.flat, flat.flat, -1).astype(np.int32)  # 32 bits, or no token
    parts = (slice(begin, end) for begin, end in pairwise(flat.offsets.tolist()))
    return {
        key: _padded(KeptGaps(gap[part], bounded[part], best_id[part]), len(tokens))
        for (key, tokens), part in zip(shown.items(), parts, strict=True)
    }


def _begins_with(tokens: TokenIds, beginning: TokenIds) -> bool:
    return tokens is beginning or np.array_equal(tokens[: len(beginning)], beginning)


def _padded(kept: KeptGaps, length: int) -> KeptGaps:
    missing = (0, length - len(kept))
    if not missing[1]:
        return kept
    return KeptGaps(
        np.pad(kept.gap, missing, constant_values=np.nan),
        np.pad(kept.bounded, missing),
        np.pad(kept.best_id, missing, constant_values=-1),
    )
