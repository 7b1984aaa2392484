"""Lists of the best tokens, shape (T, K): are they in order, some rows of them, and what they leave open."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from parity.records import TokenIds

Ids = npt.NDArray[np.int64]


def descend(values: npt.NDArray[np.float64]) -> bool:
    """Is no value of a row, shape (T, K), above its first one? Lists come so, but for the chosen token, which may
    stand last. False also where others than the last are NaN."""
    if values.shape[1] > 1 and (values[:, -1] > values[:, 0]).any():
        return False
    flat = np.ravel(values)
    falls = flat[:-1] >= flat[1:]
    for last in (values.shape[1] - 1, values.shape[1] - 2):  # before the next row, and before the last value of one
        falls[max(0, last) :: values.shape[1]] = True
    return bool(falls.all())


def rows_of(parts: Sequence[Ids], rows: npt.NDArray[np.int64]) -> Ids:
    """Some rows, ascending, of arrays of shape (T, K) that lie end to end."""
    if len(parts) == 1 or len(rows) > 16 * len(parts):
        return np.asarray(np.concatenate(parts)[rows])
    ends = list(accumulate(map(len, parts)))
    found, begins = [], [0, *ends]
    for row in rows.tolist():
        part = bisect_right(ends, row)
        found.append(parts[part][row - begins[part]])
    return np.concatenate(found).reshape(len(rows), -1)


def untold(ids: npt.NDArray[np.int64], usable: npt.NDArray[np.bool_], tokens: TokenIds) -> npt.NDArray[np.bool_]:
    """Where the chosen token stands in the list and what stands beside it is no logprob: that says nothing of it, not
    that it is unlikely. Shapes (T, K), (T, K) and (T,)."""
    is_chosen = (ids == tokens[:, None]) & (tokens >= 0)[:, None]  # -1 stands where a list is shorter than others
    return np.asarray(is_chosen.any(axis=1) & ~(is_chosen & usable).any(axis=1))
