"""The tokens that an engine lists at each position, with their logprobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

_MOST_ROOM = 1 << 18
_MOST_PADDING = 8
"""Entries of the rectangle that lists of logprobs are put into: so many, and so many times those that are there."""


def check_shape(length: int, width: int, pairs: int) -> None:
    """Lists that are short but for one would take the longest one's room each. Raises ValueError."""
    if length * width > _MOST_ROOM + _MOST_PADDING * pairs:
        raise ValueError(f"{length} lists of up to {width} entries hold {pairs} entries alone")


@dataclass(frozen=True, slots=True)
class TopLogprobs:
    """Top tokens per output position, as two arrays of shape (T, K).

    `ids` is padded with -1, `values` (nats) with NaN. K is the widest entry. The chosen token is among
    the entries where the engine gave it.
    """

    ids: npt.NDArray[np.int64]
    values: npt.NDArray[np.float64]
    logsumexp: npt.NDArray[np.float64] | None = None
    """Shape (T,), nats: log(sum(exp(logits))) over the vocabulary, which makes a logprob a logit again; NaN where
    unknown. None: not recorded."""

    @property
    def of_chosen_alone(self) -> bool:
        """No position lists more than one token (`logprobs=0`): what else could have been said, it does not say."""
        return int(self.ids.shape[1]) <= 1

    def __len__(self) -> int:
        return int(self.ids.shape[0])

    def part(self, start: int = 0, stop: int | None = None) -> TopLogprobs:
        """The lists of positions from `start` to before `stop`."""
        rest = None if self.logsumexp is None else self.logsumexp[start:stop]
        return TopLogprobs(self.ids[start:stop], self.values[start:stop], rest)

    def without_infinities(self) -> TopLogprobs:
        """NaN, no opinion, in their place."""
        return TopLogprobs(self.ids, np.where(np.isinf(self.values), np.nan, self.values), self.logsumexp)

    @staticmethod
    def from_json(entries: Sequence[Sequence[Sequence[Any]]]) -> TopLogprobs:
        """From `[[[token_id, logprob], …] per position]`; a null logprob becomes NaN.

        Raises ValueError or TypeError when the nesting is not that.
        """
        length = len(entries)
        widths = np.fromiter(map(len, entries), dtype=np.int64, count=length)
        width = int(widths.max(initial=0))
        pairs = list(chain.from_iterable(entries))
        if set(map(type, pairs)) - {list, tuple} or set(map(len, pairs)) - {2}:
            raise ValueError("an entry is not a list of [token_id, logprob] pairs")
        try:
            # All numbers in a row: five times as fast as numpy's own way through nested lists.
            numbers = np.fromiter(chain.from_iterable(pairs), np.float64, 2 * len(pairs))
        except TypeError:
            check_shape(length, width, len(pairs))
            return TopLogprobs._with_nulls(entries, width)
        return TopLogprobs.from_numbers(numbers, widths)

    @staticmethod
    def from_numbers(numbers: npt.NDArray[np.float64], widths: npt.NDArray[np.int64]) -> TopLogprobs:
        """From token ids and logprobs in turn, of lists with so many entries each. Raises ValueError."""
        length, width = len(widths), int(widths.max(initial=0))
        if not (np.abs(numbers[::2]) < 2**63).all():
            raise ValueError("a token id is null or not a number")
        check_shape(length, width, len(numbers) // 2)
        shape = (length, width)
        if (widths == width).all():
            return TopLogprobs(numbers[::2].astype(np.int64).reshape(shape), numbers[1::2].copy().reshape(shape))
        given = np.arange(width) < widths[:, None]
        ids, values = np.full(shape, -1, dtype=np.int64), np.full(shape, np.nan)
        ids[given], values[given] = numbers[::2].astype(np.int64), numbers[1::2]
        return TopLogprobs(ids, values)

    @staticmethod
    def _with_nulls(entries: Sequence[Sequence[Sequence[Any]]], width: int) -> TopLogprobs:
        length = len(entries)
        ids = np.full((length, width), -1, dtype=np.int64)
        values = np.full((length, width), np.nan)
        for position, entry in enumerate(entries):
            for column, (token_id, logprob) in enumerate(entry):
                ids[position, column] = token_id
                values[position, column] = np.nan if logprob is None else logprob
        return TopLogprobs(ids, values)
