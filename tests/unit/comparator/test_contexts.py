"""Rounds and copies of a request: what they repeat is one measurement."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import BASE, FLAT, World, speculating

from parity.comparator import compare
from parity.comparator.stats import Drift, Numerics
from parity.comparator.streams.contexts import repeated_until
from parity.comparator.streams.pairing import pair_up
from parity.records import Capture, Completion, Header, Key, ScoreKey, Scores

STREAM = st.lists(st.integers(0, 2), max_size=6)


def capture(arm: str, streams: list[tuple[int, list[int]]]) -> Capture:
    made = {}
    for number, (prompt, tokens) in enumerate(streams):
        key = Key(f"r#{number}", 0, 0)
        made[key] = Completion(key, np.array([prompt]), np.array(tokens, dtype=np.int64), None, "length", None)
    return Capture(Header(arm, "cpu", arm, "model"), made, {}, {})


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1), STREAM, STREAM), min_size=1, max_size=6))
def test_each_context_counts_once(pairs: list[tuple[int, list[int], list[int]]]) -> None:
    """Of the beginnings of all pairs, each is left over exactly once."""
    both = pair_up(
        capture("base", [(prompt, a) for prompt, a, _ in pairs]),
        capture("mtp", [(prompt, b) for prompt, _, b in pairs]),
    )
    shared = repeated_until(both)
    left: list[tuple[object, ...]] = []
    beginnings = set()
    for key, (prompt, a, b) in zip(both.keys, pairs, strict=True):
        for end in range(1, min(len(a), len(b)) + 1):
            context = (prompt, tuple(a[:end]), tuple(b[:end]))
            beginnings.add(context)
            if end > shared.get(key, 0):
                left.append(context)
    assert sorted(left) == sorted(beginnings)


def again(arm: Capture, rounds: int) -> Capture:
    made = {
        Key(key.request, number, key.sample): replace(one, key=Key(key.request, number, key.sample))
        for number in range(rounds)
        for key, one in arm.completions.items()
    }
    return replace(arm, completions=made)


def test_rounds_of_a_deterministic_engine_add_no_evidence() -> None:
    world = World(11, FLAT)
    asked = world.requests(16, seed=11)
    base, other = world.run(asked, BASE, max_tokens=48), world.run(asked, speculating(2), max_tokens=48)
    scores: Scores = world.score(base.capture, other.capture)
    once = compare(base.capture, other.capture, scores).stats
    often = {
        ScoreKey(key.arm, key.request, number, key.sample): top for key, top in scores.items() for number in range(20)
    }
    repeated = compare(again(base.capture, 20), again(other.capture, 20), often).stats
    assert isinstance(once.numerics, Numerics)
    assert isinstance(repeated.numerics, Numerics)
    assert repeated.numerics == once.numerics
    assert isinstance(once.drift, Drift)
    assert isinstance(repeated.drift, Drift)
    assert repeated.drift.p_value == once.drift.p_value
    assert repeated.completions == 20 * once.completions
