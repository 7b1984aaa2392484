"""Sums over parts of a run that add up to those of the whole, so that no more than one part need be in memory.

`of_part(a) + of_part(b)` is what both together give, in whatever groups they are added.
"""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from msgspec import Struct

FloatArray = npt.NDArray[np.float64]


def sums_of_rows(values: FloatArray) -> FloatArray:
    """Shape (N,) of (N, K), for K of a few dozen: ndarray.sum takes three times as long over rows so short."""
    return np.asarray(np.einsum("nk->n", values))


def most_together(places: npt.NDArray[np.int64], values: FloatArray, within: int) -> float:
    """The largest sum of `values` that stand at `places`, in order, within so many places; 0 of none. Shapes (N,)."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    return float((sums[np.searchsorted(places, places + within)] - sums[:-1]).max(initial=0.0))


class Added(Struct, frozen=True):
    """Numbers of a part; those of two parts are added field by field."""

    def __add__(self, other: Self) -> Self:
        names = self.__struct_fields__
        return type(self)(*(getattr(self, name) + getattr(other, name) for name in names))


class Sums(Added, frozen=True):
    """Of many values: how many they are, their sum, and that of their squares."""

    count: int = 0
    total: float = 0.0
    squares: float = 0.0

    @staticmethod
    def of(values: npt.NDArray[Any]) -> Sums:
        return Sums(len(values), float(values.sum()), float((values * values).sum()))

    @property
    def mean(self) -> float:
        """0 of none."""
        return self.total / self.count if self.count else 0.0

    @property
    def variance(self) -> float:
        """Mean squared distance from the mean; 0 where that is no more than the rounding of these sums."""
        if not self.count:
            return 0.0
        found = self.squares / self.count - self.mean**2
        return found if found > ROUNDING * self.squares / self.count else 0.0

    @property
    def deviation(self) -> float:
        """Of the values as a sample (n - 1)."""
        return math.sqrt(self.variance * self.count / (self.count - 1)) if self.count > 1 else 0.0


ROUNDING = 1e-14
"""Share of a sum of squares, below which a difference of two is nothing."""


class Products(Added, frozen=True):
    """Of K numbers each of many units: how many units, the sums, shape (K,), and the sums of products, shape (K, K)."""

    count: int
    totals: FloatArray
    products: FloatArray

    @staticmethod
    def of(values: FloatArray) -> Products:
        """values: shape (K, units)."""
        return Products(values.shape[1], values.sum(axis=1), values @ values.T)

    def combined(self, weights: FloatArray) -> Sums:
        """Of the sum of each unit's numbers times `weights`, shape (K,)."""
        squares = float(weights @ self.products @ weights)
        return Sums(self.count, float(weights @ self.totals), max(0.0, squares))


class Joined(Struct, frozen=True):
    """Values of which each belongs to one unit, those of later parts after those of earlier ones."""

    parts: tuple[npt.NDArray[Any], ...]

    @staticmethod
    def of(values: npt.NDArray[Any]) -> Joined:
        return Joined((values,))

    @property
    def values(self) -> npt.NDArray[Any]:
        """All of them; joined at each look, so that they are not held twice."""
        return self.parts[0] if len(self.parts) == 1 else np.concatenate(self.parts)

    def __add__(self, other: Joined) -> Joined:
        return Joined(self.parts + other.parts)


class Padded(Struct, frozen=True):
    """Sums by number, from 0 on along the last axis; a part knows none beyond its own largest."""

    values: npt.NDArray[Any]

    def __add__(self, other: Padded) -> Padded:
        few, many = sorted((self.values, other.values), key=lambda one: one.shape[-1])
        found = many.copy()
        found[..., : few.shape[-1]] += few
        return Padded(found)


class Largest(Struct, frozen=True):
    value: float

    def __add__(self, other: Largest) -> Largest:
        return Largest(max(self.value, other.value))
