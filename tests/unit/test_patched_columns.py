"""A column that holds only what another one does not."""

from __future__ import annotations

from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from parity.comparator.streams.pairing import first_differences
from parity.records import RaggedTokens
from parity.records.ragged import PatchedTokens

STREAM = st.lists(st.integers(-1, 3), max_size=4)


def column(streams: list[list[int]]) -> RaggedTokens:
    return RaggedTokens.of([np.array(stream, dtype=np.int64) for stream in streams])


@st.composite
def patched(draw: st.DrawFn) -> tuple[RaggedTokens, PatchedTokens, RaggedTokens]:
    """A column, one with patches on its beginning, and that one with all of its streams."""
    theirs = draw(st.lists(STREAM, max_size=7))
    count = draw(st.integers(0, len(theirs)))
    rows = sorted(draw(st.sets(st.integers(0, count - 1)))) if count else []
    own = [draw(STREAM) for _ in rows]
    mine = theirs[:count]
    for row, stream in zip(rows, own, strict=True):
        mine[row] = stream
    like = column(theirs)
    return like, PatchedTokens(like, np.array(rows, dtype=np.int64), column(own), count), column(mine)


@given(patched(), st.integers(0, 30), st.sets(st.integers(-1, 3)), st.integers(-1, 4))
def test_it_is_the_whole_column(
    made: tuple[RaggedTokens, PatchedTokens, RaggedTokens], size: int, wanted: set[int], limit: int
) -> None:
    _, found, whole = made
    assert found.flat.tolist() == whole.flat.tolist()
    assert found.flat.dtype == whole.flat.dtype
    assert found.offsets.tolist() == whole.offsets.tolist()
    assert found.sizes.tolist() == whole.sizes.tolist()
    assert found.total == whole.total
    assert found.largest == whole.largest
    assert found.head(size).tolist() == whole.head(size).tolist()
    assert found.all_below(limit) == whole.all_below(limit)
    for token in wanted:
        assert found.places(token).tolist() == whole.places(token).tolist()
    assert found.rows_at(found.places_of(wanted)) == whole.rows_at(whole.places_of(wanted))
    assert found.same_as(whole)
    assert found.same_as(made[0]) == whole.same_as(made[0])


@given(patched(), st.randoms(use_true_random=False))
def test_tokens_of_some_rows_are_those_of_the_whole_column(
    made: tuple[RaggedTokens, PatchedTokens, RaggedTokens], random: Random
) -> None:
    _, found, whole = made
    sizes = whole.sizes.tolist()
    rows = np.array([row for row, size in enumerate(sizes) if size and random.random() < 0.7], dtype=np.int64)
    at = np.array([random.randrange(sizes[row]) for row in rows.tolist()], dtype=np.int64)
    wanted = [int(whole.row(row)[place]) for row, place in zip(rows.tolist(), at.tolist(), strict=True)]
    assert found.each(rows, at).tolist() == whole.each(rows, at).tolist() == wanted
    size = min((sizes[row] for row in rows.tolist()), default=0)
    ends = [whole.row(row)[len(whole.row(row)) - size :].tolist() for row in rows.tolist()]
    assert found.ends(rows, size).tolist() == whole.ends(rows, size).tolist() == ends


@given(patched())
def test_it_parts_from_the_other_where_the_whole_column_does(
    made: tuple[RaggedTokens, PatchedTokens, RaggedTokens],
) -> None:
    like, found, whole = made
    if len(whole.sizes) == len(like.sizes):
        other = column_of(like)
        expected = first_differences(whole, other).tolist()
        assert first_differences(found, like).tolist() == first_differences(found, other).tolist() == expected


def test_it_is_put_together_once() -> None:
    """Whoever walks along it row by row would copy it for each."""
    found = PatchedTokens(column([[1, 2], [3]]), np.array([0]), column([[4]]), 2)
    assert "flat" not in vars(found)
    assert found.flat is found.flat


def column_of(like: RaggedTokens) -> RaggedTokens:
    """The same under no name that a patched column knows."""
    return RaggedTokens(like.flat, like.offsets)
