"""What a comparison keeps of the gaps it computed: the numbers that are shown, in little memory."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np

from parity.comparator.reference.gaps import TokenGaps, batches
from parity.comparator.reference.stored import changed
from parity.records import Capture, Key, TokenIds
from parity.records.gaps import KeptGaps


def keep_gaps(gaps: Mapping[Key, TokenGaps], compared: Capture, given: Capture) -> Mapping[Key, KeptGaps]:
    """`gaps` of the capture as it was compared, for the tokens of the capture as it was given.

    Normalising may have cut the EOS token off a stream: its gap is not known. A stream that was replaced by another of
    the same text has none.
    """
    if not isinstance(gaps, dict):
        if compared.tokens is given.tokens:  # one column
            others = set[Key]()
        else:
            others = {
                key
                for key in gaps
                if not _begins_with(given.completions[key].token_ids, compared.completions[key].token_ids)
            }
        return changed(
            gaps, lambda key, view: _kept(view, len(given.completions[key].token_ids)), lambda key: key not in others
        )
    shown = {
        key: given.completions[key].token_ids
        for key in gaps
        if _begins_with(given.completions[key].token_ids, compared.completions[key].token_ids)
    }
    if not shown:
        return {}
    # All tokens at once: three small arrays for each completion cost more than the rest of a comparison.
    views = [gaps[key] for key in shown]
    bounds = np.cumsum([0, *(len(view.gap) for view in views)]).tolist()
    gap, bounded, best_id = (np.empty(bounds[-1], dtype=kind) for kind in (np.float32, np.bool_, np.int32))
    for rows in batches([len(view.gap) for view in views]):
        some, part = views[rows], slice(bounds[rows.start], bounds[rows.stop])
        with np.errstate(over="ignore"):
            gap[part] = np.round(np.concatenate([view.gap for view in some]), 4)
        bounded[part] = np.concatenate([view.bounded for view in some])
        best_id[part] = ids = np.concatenate([view.best_id for view in some])
        best_id[part][best_id[part] != ids] = -1  # 32 bits, or no token
    parts = (slice(begin, end) for begin, end in pairwise(bounds))
    return {
        key: _padded(KeptGaps(gap[part], bounded[part], best_id[part]), len(tokens))
        for (key, tokens), part in zip(shown.items(), parts, strict=True)
    }


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
