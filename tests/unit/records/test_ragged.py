"""Token streams as columns: of 32 bits where that holds every id."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parity.records import RaggedTokens

NARROW, WIDE = np.iinfo(np.int32), np.iinfo(np.int64)
token = st.integers(-2, 5) | st.sampled_from([NARROW.min - 1, NARROW.min, NARROW.max, NARROW.max + 1, WIDE.max])


@given(st.lists(st.lists(token, max_size=4), max_size=600))
def test_streams_come_back_as_they_were(streams: list[list[int]]) -> None:
    found = RaggedTokens.of([np.array(one, dtype=np.int64) for one in streams])
    assert [one.tolist() for one in found.streams(0, len(streams))] == streams
    assert [found.row(row).tolist() for row in range(len(streams))] == streams
    assert all(one.dtype == np.int64 for one in found.streams(0, len(streams)))
    every = [one for stream in streams for one in stream]
    assert (found.flat.dtype == np.int32) == all(NARROW.min <= one <= NARROW.max for one in every)


@pytest.mark.parametrize("at", [0, 255, 256, 700])
def test_a_wide_id_anywhere_makes_the_whole_column_wide(at: int) -> None:
    streams = [np.array([row, 1], dtype=np.int64) for row in range(701)]
    assert RaggedTokens.of(streams).flat.dtype == np.int32
    streams[at] = np.array([NARROW.max + 1], dtype=np.int64)
    found = RaggedTokens.of(streams)
    assert found.flat.dtype == np.int64
    assert found.row(at).tolist() == [NARROW.max + 1]
    assert found.row(5 if at else 6).tolist() == [5 if at else 6, 1]
