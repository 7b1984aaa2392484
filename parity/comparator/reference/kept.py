"""What a comparison keeps of the gaps it computed: the numbers that are shown, in little memory."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from parity.comparator.reference.gaps import TokenGaps
from parity.records import Capture, Key
from parity.records.gaps import KeptGaps


def keep_gaps(gaps: Mapping[Key, TokenGaps], compared: Capture, given: Capture) -> dict[Key, KeptGaps]:
    """`gaps` of the capture as it was compared, for the tokens of the capture as it was given.

    Normalising may have cut the EOS token off a stream: its gap is not known. A stream that was replaced by another of
    the same text has none.
    """
    kept: dict[Key, KeptGaps] = {}
    for key, one in gaps.items():
        tokens, shown = compared.completions[key].token_ids, given.completions[key].token_ids
        if tokens is not shown and not np.array_equal(tokens, shown[: len(tokens)]):
            continue
        missing = (0, len(shown) - len(tokens))
        with np.errstate(over="ignore"):
            gap = np.round(one.gap, 4).astype(np.float32)
        best_id = one.best_id.astype(np.int32)
        best_id[best_id != one.best_id] = -1  # a token id beyond 32 bits is none
        kept[key] = KeptGaps(
            np.pad(gap, missing, constant_values=np.nan),
            np.pad(one.bounded, missing),
            np.pad(best_id, missing, constant_values=-1),
        )
    return kept
