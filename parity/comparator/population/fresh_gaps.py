"""Gaps of tokens that stand after tokens of their own.

Where completions lead to the same text an engine makes the same choice at the same near-tie in each of them, and that
is one chance: ten completions of a clean arm that all end in one phrase had one token 1.2 nats below the best.
"""

from __future__ import annotations

from collections.abc import Container

import numpy as np
import numpy.typing as npt

from parity.comparator.population.first_contexts import FirstContexts
from parity.comparator.reference.gaps import FloatArray
from parity.records import Capture, Key, RaggedTokens

AT_ONCE = 1 << 12
"""Completions whose tokens are looked at together."""


class Fresh:
    """Which tokens of an arm's completions stand after tokens of their own."""

    def __init__(self, arm: Capture, keys: Container[Key]) -> None:
        """`keys`: of the completions that count, in the arm's order."""
        self._bits: dict[Key, npt.NDArray[np.uint8]] = {}
        rows = [one for one in arm if one.key in keys]
        seen = FirstContexts(sum(len(one.token_ids) for one in rows))
        for begin in range(0, len(rows), AT_ONCE):
            some = rows[begin : begin + AT_ONCE]
            tokens = RaggedTokens.of([one.token_ids for one in some])
            sizes = tokens.sizes
            row = np.repeat(np.arange(len(some)), sizes)
            place = np.arange(tokens.total) - np.repeat(tokens.offsets[:-1], sizes)
            new = seen.of(tokens.flat.astype(np.int64), row, place)
            for one, first, end in zip(some, tokens.offsets[:-1].tolist(), tokens.offsets[1:].tolist(), strict=True):
                self._bits[one.key] = np.packbits(new[first:end])

    def of(self, key: Key, gaps: FloatArray) -> FloatArray:
        """The gaps of a completion's tokens (nats, shape (T,)), NaN of those that stand where others have stood."""
        bits = self._bits.get(key)
        if bits is None:
            return gaps
        return np.where(np.unpackbits(bits, count=len(gaps)).astype(np.bool_), gaps, np.nan)
