"""The gap of each token, as a comparison computed it: kept with it and in the store, shown everywhere."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from msgspec import Struct


class KeptGaps(Struct, frozen=True, eq=False):
    """The gap of each token of one scored completion: arrays of shape (T,), T its output tokens.

    The only place that computes a gap is `parity.comparator.reference.gaps`, with the request's own penalties and bans
    applied; all else shows these.
    """

    gap: npt.NDArray[np.float32]
    """Nats from the best token to the chosen one, to 4 decimals; 0 where the chosen one is the best, NaN where
    unknown."""
    bounded: npt.NDArray[np.bool_]
    """The chosen token is not among those listed: its gap is a lower bound."""
    best_id: npt.NDArray[np.int32]
    """The best token, -1 where unknown."""

    def __len__(self) -> int:
        return len(self.gap)

    def at(self, position: int) -> float | None:
        """The gap of one token (nats), None where unknown. The same number as in a finding's evidence."""
        gap = float(self.gap[position]) if 0 <= position < len(self.gap) else math.nan
        return round(gap, 4) if math.isfinite(gap) else None
