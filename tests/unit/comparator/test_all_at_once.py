"""What is computed of all completions at once is what one token after another gives."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest

from parity.comparator.reference import gaps
from parity.comparator.reference.gaps import batched_token_gaps, batches, decided, gap_of_other
from parity.comparator.reference.rivals import Place, gaps_of_rivals
from parity.comparator.streams.pairing import first_differences
from parity.comparator.streams.repeats import find_loop, is_periodic
from parity.records import RaggedTokens, TokenIds, TopLogprobs


def lists(rng: np.random.Generator, length: int, width: int) -> tuple[TopLogprobs, TokenIds]:
    """Lists with tokens twice, tokens not listed, numbers that are no logprobs, and lists of nothing."""
    ids = rng.integers(0, 6, (length, width))
    values = np.round(-np.abs(rng.normal(0.5, 0.5, (length, width))), 1)
    values[rng.random((length, width)) < 0.1] = np.nan
    values[rng.random((length, width)) < 0.05] = 0.5
    values[rng.random((length, width)) < 0.05] = -np.inf
    values[rng.random(length) < 0.1] = np.nan
    tokens = np.where(rng.random(length) < 0.6, ids[:, 0], rng.integers(0, 6, length))
    return TopLogprobs(ids.astype(np.int64), values), tokens.astype(np.int64)


def as_engines_give(
    rng: np.random.Generator, length: int, width: int, *, column: int = 0, value: float | None = None
) -> tuple[TopLogprobs, TokenIds]:
    """Lists with the best token first, but for one column in which all have this value."""
    ids = np.argsort(rng.random((length, width + 2)), axis=1)[:, :width]
    values = -np.cumsum(rng.choice([0.0, 0.25, 1.0], (length, width)), axis=1)
    if value is not None:
        values[:, min(column, width - 1)] = value
    tokens = np.where(rng.random(length) < 0.9, ids[:, 0], rng.integers(0, width + 2, length))
    return TopLogprobs(ids.astype(np.int64), values), tokens.astype(np.int64)


def of_one_token(ids: list[int], values: list[float], token: int) -> tuple[float, bool, int, float, float]:
    """(gap, is it a bound, best token, its logprob, the chosen one's), as the words of TokenGaps have it."""
    usable = [value if value <= 1e-3 else -math.inf for value in values]
    best = max(usable)
    said = [value for one, value in zip(ids, values, strict=True) if one == token]
    if best == -math.inf or (said and not any(value <= 1e-3 for value in said)):
        return math.nan, False, -1, math.nan, -math.inf if token in ids else math.nan
    own = [value for one, value in zip(ids, usable, strict=True) if one == token]
    last = min((value for value in usable if value > -math.inf), default=math.inf)
    chosen = max(own, default=last)
    return best - chosen, not own, ids[usable.index(best)], best, chosen if own else math.nan


@pytest.mark.parametrize("width", [1, 2, 5])
def test_gaps_of_many_are_those_of_each_token(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gaps, "BATCH", 50)
    rng = np.random.default_rng(width)
    odd = [(-1, math.nan), (-1, 0.0), (1, 0.0), (1, math.nan), (0, 5.0), (0, math.nan)]
    made = [lists, as_engines_give, *(partial(as_engines_give, column=column, value=value) for column, value in odd)]
    scored = [make(rng, length, width) for make in made for length in (40, 1, 0, 13, 70, 5, 9, 9, 9, 9, 9)]
    for (top, tokens), found in zip(scored, batched_token_gaps(scored), strict=True):
        for at, token in enumerate(tokens.tolist()):
            gap, bounded, best_id, best, chosen = of_one_token(top.ids[at].tolist(), top.values[at].tolist(), token)
            said = [found.gap[at], found.bounded[at], found.best_id[at], found.best[at], found.chosen[at]]
            assert said == pytest.approx([gap, bounded, best_id, best, chosen], nan_ok=True), (at, top.values[at])
            assert found.most[at] == pytest.approx(math.inf if bounded else gap, nan_ok=True)


def test_what_a_tolerance_decides_is_the_same_for_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gaps, "BATCH", 30)
    rng = np.random.default_rng(1)
    views = batched_token_gaps([lists(rng, length, 3) for length in (20, 0, 25, 3, 60)])
    found = decided(views, 0.5)
    assert [one.rejected for one in found] == [np.flatnonzero(view.gap > 0.5).tolist() for view in views]
    assert [one.unknown for one in found] == [
        list(filter(lambda at, v=view: v.supports(at, 0.5) is None, range(len(view.gap)))) for view in views
    ]
    assert sum(len(one.rejected) for one in found) > 10
    assert sum(len(one.unknown) for one in found) > 10


def test_batches_hold_all_rows_once() -> None:
    sizes = [5, gaps.BATCH, 0, gaps.BATCH + 1, 1, 2, 3]
    assert [row for rows in batches(sizes) for row in range(rows.start, rows.stop)] == list(range(len(sizes)))
    assert all(rows.stop - rows.start == 1 or sum(sizes[rows]) <= gaps.BATCH for rows in batches(sizes))
    assert list(batches([])) == []


def test_gap_of_another_token_is_by_the_list() -> None:
    rng = np.random.default_rng(2)
    top, _ = lists(rng, 200, 4)
    for at in range(200):
        for token, own in ((1, None), (2, 3), (9, 0)):
            pairs = [
                (i, v)
                for i, v in zip(top.ids[at].tolist(), top.values[at].tolist(), strict=True)
                if -math.inf < v <= 1e-3
            ]
            here = [v for i, v in pairs if i == token]
            best = max((v for _, v in pairs), default=math.nan)
            others = [v for i, v in pairs if i != own]
            said = [v for i, v in zip(top.ids[at].tolist(), top.values[at].tolist(), strict=True) if i == token]
            untold = bool(said) and not any(v <= 1e-3 for v in said)
            wanted = (
                None
                if untold or not pairs
                else (best - max(here), True)
                if here
                else (best - min(others, default=best), False)
            )
            assert gap_of_other(top, at, token, own=own) == wanted


def test_gaps_of_many_other_tokens_are_those_of_each() -> None:
    rng = np.random.default_rng(5)
    scored = [lists(rng, 60, width) for width in (1, 4, 4, 6)]
    asked = [(top, at, token, int(chosen[at])) for top, chosen in scored for at in range(60) for token in (1, 9)]
    places = [Place(n, top.ids[at], top.values[at], token, own) for n, (top, at, token, own) in enumerate(asked)]
    gaps, exact = gaps_of_rivals(places)
    each = [gap_of_other(top, at, token, own=own) for top, at, token, own in asked]
    found = zip(gaps.tolist(), exact.tolist(), strict=True)
    assert [None if gap != gap else (gap, is_exact) for gap, is_exact in found] == each
    assert None in each
    assert {one[1] for one in each if one} == {True, False}


def test_streams_part_where_each_pair_does(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    sizes = [0, 7, 40_000, 3, 3, 0, 90, 5]
    left = [rng.integers(0, 2, size) for size in sizes]
    right = [stream.copy() for stream in left]
    right[2][39_000] ^= 1
    right[3] = right[3][:2]
    right[6][0] ^= 1
    right[7] = np.append(right[7], 1)
    found = first_differences(RaggedTokens.of(left), RaggedTokens.of(right))
    assert found.tolist() == [-1, -1, 39_000, 2, -1, -1, 0, 5]


def test_a_period_is_the_first_lag_at_which_all_agrees() -> None:
    rng = np.random.default_rng(6)
    streams = [rng.integers(0, 2, size) for size in range(14) for _ in range(20)]
    streams += [np.resize(rng.integers(0, 3, period), 40) for period in range(1, 25)]
    for stream in streams:
        lags = range(1, min(9, len(stream) // 2) + 1)
        plain = next((lag for lag in lags if np.array_equal(stream[lag:], stream[:-lag])), None)
        assert is_periodic(stream, longest=9) == plain
    assert {is_periodic(stream, longest=9) for stream in streams} >= {None, 1, 2, 3}


def test_a_loop_is_found_whatever_stands_before_it() -> None:
    rng = np.random.default_rng(4)
    for period in (1, 2, 5, 20):
        chunk = np.arange(period) + 100
        stream = np.concatenate([rng.integers(0, 50, 30), np.tile(chunk, 100 // period)])
        loop = find_loop(stream, 30, 0)
        assert loop is not None
        assert (loop.start, loop.end, loop.lag) == (30, len(stream), period)
    assert find_loop(rng.integers(0, 10_000, 200), 20, 0) is None
