"""The law of largest jumps, fitted to completions of which some are wrong: its level is the true one's, and near it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from sketch_world import World

from parity.explain.aligned import Aligned, align
from parity.explain.noise import ERROR_RATE, levels
from parity.records import Key

PLACE, WIDTH = 2.4, 0.45


def one_token_each(keys: int) -> Aligned:
    """Completions of one token and one module."""
    world = World()
    whole = align(world.capture(), [world.candidate()], [world.reference()])
    return replace(
        whole,
        keys=tuple(Key(whole.keys[0].request, 0, number) for number in range(keys)),
        completion=np.arange(keys),
        position=whole.position[:1].repeat(keys),
    )


@pytest.mark.parametrize(("share", "most"), [(0.0, 1.4), (0.2, 1.55), (0.4, 2.3)])
def test_the_level_is_that_of_the_law_also_beside_faults(share: float, most: float) -> None:
    """Of 49 completions, 200 draws: seldom below the true level, and not far above it."""
    keys = 49
    aligned = one_token_each(keys)
    true = PLACE - WIDTH * math.log(-math.log1p(-ERROR_RATE / keys))
    found = []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        jumps = PLACE + WIDTH * rng.gumbel(size=keys)
        wrong = int(share * keys)
        jumps[:wrong] += rng.uniform(2, 12, size=wrong)
        found.append(levels(aligned, jumps[:, None], np.ones(keys, dtype=bool))[0][0] / true)
    low, middle, high = np.quantile(found, (0.05, 0.5, 0.95))
    assert low > 0.93
    assert 1.05 < middle < 1.5
    assert high < most


def test_where_nearly_everything_is_infinitely_far_nobody_is_accused() -> None:
    aligned = one_token_each(20)
    with np.errstate(over="ignore", invalid="ignore"):
        level, trace = levels(aligned, np.full((20, 1), np.inf), np.ones(20, dtype=bool))
    assert not (np.full(20, np.inf) > level).any() or not np.isfinite(level).any()
    assert math.isinf(trace) or math.isnan(trace)
