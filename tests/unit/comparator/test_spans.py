"""Where spans of tokens stand in a run, against a search that tries every place."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parity.comparator.streams import spans as spans_module
from parity.comparator.streams.spans import MOST_HITS, SEED, Hits, LaidOut
from parity.records import RaggedTokens, TokenIds


def array(tokens: list[int]) -> TokenIds:
    return np.array(tokens, dtype=np.int64)


# Few values, so that spans stand in many places; some streams longer than what is compared at once.
stream = st.lists(st.integers(0, 2), max_size=12).map(array) | st.lists(st.integers(0, 1), max_size=4).map(
    lambda pattern: np.resize(array([5, *pattern]), 150)
)
columns = st.lists(st.lists(stream, max_size=3), min_size=1, max_size=3)


def laid_out(streams: list[list[TokenIds]]) -> LaidOut:
    return LaidOut([RaggedTokens.of(column) for column in streams])


@pytest.mark.parametrize("stride", [1, 4, spans_module._STRIDE])
@settings(max_examples=40)
@given(st.data())
def test_every_place_of_a_span(stride: int, data: st.DataObject) -> None:
    streams, spans = data.draw(columns), data.draw(st.lists(stream, max_size=3))
    if data.draw(st.booleans()):  # columns of 64 bits
        streams = [[*column, array([1 << 40])] for column in streams]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spans_module, "_STRIDE", stride)
        _is_every_place(streams, spans)


def _is_every_place(streams: list[list[TokenIds]], spans: list[TokenIds]) -> None:
    run, flat = laid_out(streams), [one for column in streams for one in column]
    hits = run.hits(spans)
    found = list(zip(*(column.tolist() for column in (hits.span, hits.offset, hits.place, hits.stream)), strict=True))
    for number, span in enumerate(spans):
        for offset in range(len(span) - SEED + 1):
            wanted = span[offset : offset + SEED].tolist()
            everywhere = [
                (number, offset, int(run.bounds_of(array([index]))[0][0]) + at, index)
                for index, one in enumerate(flat)
                for at in range(len(one) - SEED + 1)
                if one[at : at + SEED].tolist() == wanted
            ]
            # Spans over the end of one stream into the next stand nowhere, but cost one of the places looked at.
            mine = [hit for hit in found if hit[:2] == (number, offset)]
            inside = [hit for hit in mine if hit in everywhere]
            assert len(mine) <= MOST_HITS
            assert inside == everywhere[: len(inside)]
            assert len(inside) == len(everywhere) or len(mine) == MOST_HITS


@settings(max_examples=40)
@given(columns, stream, st.data())
def test_matches_are_stretched_to_the_last_equal_token(
    streams: list[list[TokenIds]], tokens: TokenIds, data: st.DataObject
) -> None:
    flat = [one for column in streams for one in column]
    places = [(index, at) for index, one in enumerate(flat) for at in range(len(one)) if len(tokens)]
    if not places:
        return
    run = laid_out(streams)
    asked = data.draw(st.lists(st.tuples(st.sampled_from(places), st.integers(0, len(tokens) - 1)), max_size=8))
    earliest = data.draw(st.integers(0, min([position for _, position in asked], default=0)))
    position = array([one for _, one in asked])
    index = array([one for (one, _), _ in asked])
    place = array([int(run.bounds_of(array([one]))[0][0]) + at for (one, at), _ in asked])
    starts, ends = run.stretched(tokens, earliest, position, Hits(index, position, place, index))
    for ((number, at), here), start, end in zip(asked, starts.tolist(), ends.tolist(), strict=True):
        donor, first, last = flat[number], here, here
        while first > earliest and at - (here - first) > 0 and tokens[first - 1] == donor[at - (here - first) - 1]:
            first -= 1
        while last < len(tokens) and at + last - here < len(donor) and tokens[last] == donor[at + last - here]:
            last += 1
        assert (start, end) == (first, last)


@given(st.lists(st.integers(-2, 2**31 - 1), min_size=2, max_size=40).map(array))
def test_the_number_of_a_pair_is_the_same_of_32_and_of_64_bits(tokens: TokenIds) -> None:
    narrow = tokens.astype(np.int32)
    wide = spans_module._pair_index(tokens[:-1:3], tokens[1::3])
    assert spans_module._pair_index(narrow[:-1:3], narrow[1::3]).tolist() == wide.tolist()
    assert spans_module._pair_index(narrow[:-1:3], tokens[1::3]).tolist() == wide.tolist()
    held = np.empty(len(wide), dtype=np.int64)
    assert spans_module._pair_index(narrow[:-1:3], narrow[1::3], held).tolist() == held.tolist() == wide.tolist()
