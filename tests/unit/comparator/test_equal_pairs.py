"""Equal pairs are nearly all there are, and cost next to nothing: counted in calls, which no clock disturbs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parity.comparator import compare
from parity.comparator.streams import sets
from parity.records import Capture, Completion, Header, Key, RaggedTokens, TopLogprobs, ragged

FEW, MANY = 300, 500
"""Both more than the checks of habits look at (256)."""


def captures(pairs: int, *, logprobs: bool) -> tuple[Capture, Capture]:
    rng = np.random.default_rng(pairs)
    rows = [(Key(f"p{number}", 0, 0), rng.integers(3, 999, 8), rng.integers(3, 999, 16)) for number in range(pairs)]
    sides = []
    for arm in ("cpu/base", "cpu/mtp"):
        made = {}
        for key, prompt, tokens in rows:
            own = TopLogprobs(tokens[:, None].copy(), np.full((16, 1), -0.5)) if logprobs else None
            made[key] = Completion(key, prompt, tokens.copy(), None, "length", None, own)
        header = Header(arm, "cpu", arm.removeprefix("cpu/"), "model", 999, (0,), {}, {"max_tokens": 16})
        sides.append(Capture(header, made, {}, {"num_draft_tokens": 9, "num_accepted_tokens": 8}))
    return sides[0], sides[1]


def calls(work: Callable[[], object]) -> int:
    """Python functions that were called, generators going on included."""
    count = 0

    def seen(frame: Any, event: str, arg: Any) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(seen)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize(("logprobs", "most"), [(False, 10.0), (True, 18.0)])
def test_an_equal_pair_takes_few_calls(logprobs: bool, most: float) -> None:
    few, many = captures(FEW, logprobs=logprobs), captures(MANY, logprobs=logprobs)
    compare(*few)  # what is computed once for a process
    per_pair = (calls(lambda: compare(*many)) - calls(lambda: compare(*few))) / (MANY - FEW)
    assert per_pair <= most


NUMBERS = st.lists(st.integers(-5, 5), max_size=12).map(lambda values: np.array(values, dtype=np.int64))


@given(NUMBERS, NUMBERS)
def test_sets_are_those_of_numpy(values: np.ndarray, others: np.ndarray) -> None:
    assert sets.distinct(values).tolist() == np.unique(values).tolist()
    assert [one.tolist() for one in sets.counted(values)] == [
        one.tolist() for one in np.unique(values, return_counts=True)
    ]
    assert sets.is_in(values, others).tolist() == np.isin(values, others).tolist()
    assert sets.stood_before(values).tolist() == [value in values[:at] for at, value in enumerate(values)]


@given(st.lists(st.lists(st.integers(0, 3), max_size=4), max_size=6), st.sets(st.integers(0, 3)), st.integers(1, 30))
def test_columns_know_where_tokens_stand(streams: list[list[int]], wanted: set[int], at_once: int) -> None:
    column = RaggedTokens.of([np.array(stream, dtype=np.int64) for stream in streams])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ragged, "_LOOKED_AT", at_once)
        places = column.places_of(wanted)
        assert column.beyond(2) == [row for row, stream in enumerate(streams) if 2 in stream or 3 in stream]
        assert column.same_as(RaggedTokens.of([np.array(stream, dtype=np.int64) for stream in streams]))
        other = [[*stream[:-1], stream[-1] + 1] if stream else stream for stream in streams]
        assert column.same_as(RaggedTokens.of([np.array(stream, dtype=np.int64) for stream in other])) == (
            not any(streams)
        )
    assert sorted(places.tolist()) == [at for at, token in enumerate(column.flat) if token in wanted]
    assert column.rows_at(places) == [row for row, stream in enumerate(streams) if wanted & set(stream)]
    assert column.largest == max((token for stream in streams for token in stream), default=0)


STREAMS = st.lists(NUMBERS, max_size=5)


@given(STREAMS, STREAMS, st.integers(1, 3))
def test_a_column_knows_its_own_streams(mine: list[np.ndarray], others: list[np.ndarray], at_once: int) -> None:
    column = RaggedTokens.of(mine)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ragged, "_AT_ONCE", at_once)
        assert column.holds([one.copy() for one in mine])
        assert column.holds(others) == ([one.tolist() for one in mine] == [one.tolist() for one in others])


def test_equal_arms_keep_one_column() -> None:
    baseline, candidate = captures(3, logprobs=False)
    candidate.share_columns(baseline)
    assert candidate.tokens is baseline.tokens
    assert candidate.prompts is baseline.prompts
    key, first = next(iter(candidate.completions.items()))
    other = replace(
        candidate, completions={**candidate.completions, key: replace(first, token_ids=first.token_ids[1:])}
    )
    other.share_columns(baseline)
    assert other.tokens.flat.tolist() == np.concatenate([one.token_ids for one in other]).tolist()
    assert other.prompts is baseline.prompts


def test_a_capture_without_changes_keeps_its_columns() -> None:
    _, candidate = captures(3, logprobs=False)
    assert candidate.but({}) is candidate
