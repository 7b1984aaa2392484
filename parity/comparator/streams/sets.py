"""Arrays of whole numbers as sets.

As numpy.unique, numpy.isin and numpy.union1d have it: those take five times as long for arrays as short as completions
are, and load numpy.ma the first time, which takes as long as comparing 500 completions.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]


def first_of_equals(ordered: Numbers) -> npt.NDArray[np.bool_]:
    """Shape of `ordered`, which is ascending: is it the first of its equals?"""
    first = np.ones(len(ordered), dtype=np.bool_)
    first[1:] = ordered[1:] != ordered[:-1]
    return first


def distinct(values: Numbers) -> Numbers:
    """Each value once, ascending."""
    ordered = np.sort(values)
    return ordered[first_of_equals(ordered)]


def counted(values: Numbers) -> tuple[Numbers, Numbers]:
    """(each value once, ascending; how often it stands there)."""
    ordered = np.sort(values)
    first = np.flatnonzero(first_of_equals(ordered))
    return ordered[first], np.diff(first, append=len(ordered))


def is_in(values: Numbers, others: Numbers) -> npt.NDArray[np.bool_]:
    """Shape of `values`: is each one of the others?"""
    if not len(others):
        return np.zeros(len(values), dtype=np.bool_)
    ordered = np.sort(others)
    return np.asarray(ordered[np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)] == values)


def stood_before(values: Numbers) -> npt.NDArray[np.bool_]:
    """Shape of `values`: is an earlier one equal to it?"""
    order = np.argsort(values, kind="stable")
    found = np.zeros(len(values), dtype=np.bool_)
    found[order[1:]] = values[order[1:]] == values[order[:-1]]
    return found
