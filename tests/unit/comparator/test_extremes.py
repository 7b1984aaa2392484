"""Clean arms under extreme requests: nobody is accused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from worlds import BASE, FLAT, PEAKED, Shape, Truth, World, speculating
from worlds.seen_as import VIEWS
from worlds.trials import Trial, judge
from worlds.world import WORDS

from parity.comparator import CompareOptions
from parity.comparator.reference.temperature import listed_width
from parity.records import TopLogprobs, Verdict

FORCED: tuple[Mapping[str, Any], ...] = (
    {"temperature": 1.0, "logit_bias": {"7": 100.0}},
    {"temperature": 1.0, "allowed_token_ids": [4]},
    {"temperature": 2.0},
    {},
)
"""Requests of which some leave no choice, so that all their samples are the same."""


@pytest.mark.parametrize("view", ["scored", "lists, unscored", "no own logprobs"])
@pytest.mark.parametrize(
    ("shape", "seed", "asked", "own"),
    [
        (PEAKED, 2, {"temperature": 1e-5}, ()),
        (PEAKED, 1, {"temperature": 0.01}, ()),
        (PEAKED, 1, {"temperature": 3.0}, ()),
        (FLAT, 3, {"temperature": 5.0}, ()),
        (FLAT, 10, {"n": 3}, FORCED),
    ],
)
def test_nobody_is_accused(
    shape: Shape, seed: int, asked: Mapping[str, Any], own: tuple[Mapping[str, Any], ...], view: str
) -> None:
    world = World(seed, shape)
    requests = world.requests(48, own=own)
    arms = [world.run(requests, arm, max_tokens=64, logprobs=5, **asked).capture for arm in (BASE, speculating(2))]
    options = CompareOptions(detokenize=WORDS)
    trial = Trial("", seed, arms[0], arms[1], world.score(*arms), Truth(), options)
    for one in (trial, replace(trial, baseline=arms[1], candidate=arms[0])):
        result = judge(VIEWS[view](one)).result
        assert not result.corrupt
        assert result.verdict is not Verdict.DIVERGED


def test_lists_of_no_token_are_no_lists() -> None:
    assert listed_width([TopLogprobs(np.empty((0, 5), dtype=np.int64), np.empty((0, 5)))]) == 0
