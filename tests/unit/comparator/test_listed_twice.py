"""A token that stands in a list twice counts once, however long the list is."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from parity.comparator.inputs.numbers import _distinct
from parity.records import TopLogprobs

ids = st.integers(1, 5).flatmap(lambda k: st.lists(st.lists(st.integers(-1, 6), min_size=k, max_size=k), min_size=1))


@given(ids, st.integers(1, 3))
def test_the_first_one_stays(listed: list[list[int]], every: int) -> None:
    values = np.arange(len(listed) * len(listed[0]), dtype=np.float64).reshape(len(listed), -1)
    found = _distinct([TopLogprobs(np.array(listed), values)], every)
    for column, row, numbers in zip(found.T, listed[::every], values[::every], strict=True):
        is_first = [one >= 0 and one not in row[:at] for at, one in enumerate(row)]
        expected = np.where(is_first, numbers, np.nan)
        assert np.array_equal(column, expected, equal_nan=True)
