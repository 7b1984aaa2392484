"""How likely a span of tokens is by chance, from the tokens of the run itself."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from parity.comparator.statistics import FloatArray
from parity.comparator.streams.sets import counted
from parity.records import TokenIds


class Language:
    """Smoothed bigram counts of a token stream, with other streams left out on demand."""

    def __init__(self, corpus: TokenIds) -> None:
        self._total = len(corpus)
        self._single = Counts(corpus)
        self._pair = Counts(pairs_of(corpus))

    def probability(self, span: TokenIds, weights: FloatArray | None, left_out: list[tuple[Counts, Counts]]) -> float:
        """Chance that text of this run says `span` at one place; each token counts by its weight (1 and all without).

        left_out: counts of tokens and of pairs, of streams that are not to be counted.
        """
        heard = np.arange(len(span)) if weights is None else np.flatnonzero(weights)
        if not len(heard):
            return 1.0
        singles, pairs = [single for single, _ in left_out], [pair for _, pair in left_out]
        total = self._total - sum(single.total for single in singles)
        here, before = span[heard], span[heard - 1]

        def count(counts: Counts, without: list[Counts], wanted: npt.NDArray[np.int64]) -> FloatArray:
            result = counts.of(wanted)
            for other in without:
                result = result - other.of(wanted)
            return np.maximum(result, 0.0)

        alone = (count(self._single, singles, here) + 0.5) / (total + 0.5 * len(self._single) + 1)
        after = (count(self._pair, pairs, _pair(before, here)) + 2 * alone) / (count(self._single, singles, before) + 2)
        chances = np.where(heard == 0, alone, after)
        every = np.ones(len(span))
        every[heard] = chances if weights is None else chances ** weights[heard]
        return float(np.prod(every))


class Counts:
    """How often each value stands in an array."""

    def __init__(self, values: npt.NDArray[np.int64]) -> None:
        self._values, self._counts = counted(values)
        self.total = len(values)

    def __len__(self) -> int:
        return len(self._values)

    def of(self, wanted: npt.NDArray[np.int64]) -> FloatArray:
        if not len(self._values):
            return np.zeros(len(wanted))
        place = np.minimum(np.searchsorted(self._values, wanted), len(self._values) - 1)
        return np.where(self._values[place] == wanted, self._counts[place], 0).astype(np.float64)


def pairs_of(tokens: TokenIds) -> npt.NDArray[np.int64]:
    """Each two adjacent tokens as one number, shape (max(0, T - 1),)."""
    return _pair(tokens[:-1], tokens[1:])


def _pair(left: TokenIds, right: TokenIds) -> npt.NDArray[np.int64]:
    with np.errstate(over="ignore"):
        return left * np.int64(1_000_003 * 4099) + right
