"""Many score records looked at together say what each says alone."""

from __future__ import annotations

import numpy as np
import pytest
from captures import completion

from parity.comparator.reference.many_records import LISTS, hold_no_logprobs, unnamed
from parity.records import Completion, TopLogprobs


def record(rng: np.random.Generator, length: int, width: int) -> tuple[Completion, TopLogprobs]:
    """Logprobs, or the same in bits; of which some lists lack their token, say nothing, or have it twice."""
    tokens = rng.integers(0, 90, length)
    ids = np.column_stack([tokens, *(rng.integers(100, 999, length) for _ in range(width - 1))])
    values = np.log(rng.dirichlet(np.ones(width + 1), length)[:, :width])
    if rng.random() < 0.4:
        values /= np.log(2) * rng.choice([1, -1])
    ids[rng.random(length) < 0.1, 0] = 99
    ids[rng.random(length) < 0.1] = -1
    values[rng.random(length) < 0.1] = np.nan
    if width > 1 and rng.random() < 0.5:
        ids[:, 1], values[:, 1] = ids[:, 0], values[:, 0]
    return completion(tokens, "p0"), TopLogprobs(ids, values)


@pytest.mark.parametrize("seed", range(8))
def test_together_as_alone(seed: int) -> None:
    rng = np.random.default_rng(seed)
    some = [record(rng, int(length), int(width)) for length, width in rng.integers([0, 1], [400, 8], (40, 2))]
    completions, tops = zip(*some, strict=True)
    odd = [bool(hold_no_logprobs([top])[0]) for top in tops]
    assert hold_no_logprobs(tops).tolist() == odd
    assert {True, False} == set(odd)
    lacking = [lacking_in(one, top) for one, top in some]
    assert unnamed(completions, tops).tolist() == lacking


def lacking_in(one: Completion, top: TopLogprobs) -> int:
    lists = zip(one.token_ids.tolist(), top.ids.tolist(), strict=True)
    return sum(max(listed) >= 0 and token not in listed for token, listed in lists)


def test_none_at_all() -> None:
    assert hold_no_logprobs([]).tolist() == unnamed([], []).tolist() == []


@pytest.mark.parametrize(("share", "odd"), [(0.05, False), (0.2, True)])
def test_a_share_of_lists_that_add_up_to_more_is_enough(share: float, odd: bool) -> None:
    """Of a long record lists spread over it are looked at."""
    length = 10 * LISTS
    values = np.tile(np.log([0.6, 0.3]), (length, 1))
    values[np.random.default_rng(0).random(length) < share] = np.log([0.9, 0.3])
    top = TopLogprobs(np.tile([1, 2], (length, 1)), values)
    assert hold_no_logprobs([top]).tolist() == [odd]
