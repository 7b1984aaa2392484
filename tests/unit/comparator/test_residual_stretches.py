"""The residuals of a run in stretches: the numbers do not depend on where they end."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct, structs
from worlds import BASE, FLAT, World, speculating

from parity.comparator import Comparison, compare
from parity.comparator.population import first_contexts
from parity.comparator.population.first_contexts import CONTEXT, FirstContexts
from parity.comparator.population.numerics import Gaps, measure_numerics
from parity.comparator.population.stretches import Looked
from parity.comparator.reference import residuals
from parity.comparator.reference.residuals import PairedResiduals, Residuals
from parity.records import Key

ROWS, TOKENS = 120, 40
UNIT, ALPHA = 1 / 16, 0.001


def run_of(seed: int, *, by_scores: bool, alike: bool) -> PairedResiduals:
    """Noise with tails, larger in the candidate's later tokens and in some rows; phrases that repeat."""
    rng = np.random.default_rng(seed)
    size = ROWS * TOKENS
    row, place = np.repeat(np.arange(ROWS), TOKENS), np.tile(np.arange(TOKENS), ROWS)
    sides = [0.01 * rng.standard_t(3, size) for _ in range(2)]
    sides[1] = sides[1] * np.where(place >= 24, 1.8, 1.0) * np.where(row % 17 == 5, 4.0, 1.0) + 0.001
    ids = rng.integers(0, 12, size)
    other = np.where(rng.random(size) < (0.0 if alike else 0.1), rng.integers(0, 12, size), ids)
    score = -1.0 - rng.exponential(0.1, size)
    context = place + np.repeat(rng.integers(4, 60, ROWS), TOKENS)
    return PairedResiduals(sides[0], sides[1], score, score, row, place, context, ids, other, by_scores=by_scores)


def cut(run: PairedResiduals, rows: list[int]) -> list[PairedResiduals]:
    """At the beginnings of these rows."""
    ends = sorted({0, ROWS, *rows})
    parts = [slice(a * TOKENS, b * TOKENS) for a, b in pairwise(ends)]
    names = [name for name in run.__struct_fields__ if name != "by_scores"]
    return [structs.replace(run, **{name: getattr(run, name)[part] for name in names}) for part in parts]


def numbers(stretches: list[PairedResiduals]) -> dict[str, Any]:
    keys = [Key(f"r{one // 2}", one % 2, 0) for one in range(ROWS)]
    found = measure_numerics(Looked(Residuals.of(*stretches), UNIT), Gaps(), UNIT, ALPHA, keys)
    assert found is not None
    return flat(structs.asdict(found))


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """But for the rounding of sums."""
    assert one.keys() == other.keys()
    for name, value in one.items():
        if isinstance(value, float) and isinstance(other[name], float):
            assert value == pytest.approx(other[name], rel=1e-6, abs=1e-12, nan_ok=True), name
        else:
            assert value == other[name], name
    return True


def flat(value: Any, name: str = "") -> dict[str, Any]:
    if isinstance(value, Struct):
        value = structs.asdict(value)
    if isinstance(value, dict):
        return {k: v for key, one in value.items() for k, v in flat(one, f"{name}.{key}").items()}
    if isinstance(value, tuple | list):
        return {k: v for at, one in enumerate(value) for k, v in flat(one, f"{name}[{at}]").items()}
    return {name: value}


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 1_000),
    rows=st.lists(st.integers(1, ROWS - 1), min_size=1, max_size=6),
    by_scores=st.booleans(),
    alike=st.booleans(),
)
def test_the_numbers_of_a_run_are_those_of_its_stretches(
    seed: int, rows: list[int], by_scores: bool, alike: bool
) -> None:
    run = run_of(seed, by_scores=by_scores, alike=alike)
    whole, parts = numbers([run]), numbers(cut(run, rows))
    assert same(whole, parts)
    assert whole[".tokens"] == ROWS * TOKENS


def test_the_planted_noise_is_in_the_numbers() -> None:
    """Else the test above would compare little."""
    found = numbers([run_of(1, by_scores=True, alike=True)])
    assert {name for name in found if name.startswith(".noisy_part.")}
    assert {name for name in found if name.startswith(".odd_rows.")}
    assert found[".p_values.scale"] < 0.01
    assert found[".p_values.tail"] < 1.0


@pytest.mark.parametrize("held", [0, 1 << 19], ids=["none held", "all held"])
def test_what_is_not_held_is_computed_again(held: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def judged() -> Comparison:
        world = World(5, FLAT)
        asked = world.requests(48, seed=5)
        base, other = (world.run(asked, arm, max_tokens=48).capture for arm in (BASE, speculating(2)))
        return compare(base, other, world.score(base, other))

    whole = judged()
    monkeypatch.setattr(residuals, "BATCH", 256)
    monkeypatch.setattr(residuals, "STRETCH", 512)
    monkeypatch.setattr(residuals, "HELD", held)
    found = judged()
    assert found.verdict is whole.verdict
    assert same(flat(found.stats.to_json()), flat(whole.stats.to_json()))


# ------------------------------------------------------------------ contexts


def first_by_hand(tokens: np.ndarray, row: np.ndarray, place: np.ndarray, spot: np.ndarray | None) -> list[bool]:
    seen = set()
    found = []
    for at in range(len(tokens)):
        if place[at] < CONTEXT - 1 or at < CONTEXT - 1 or row[at - CONTEXT + 1] != row[at]:
            found.append(True)
            continue
        name = (*tokens[at - CONTEXT + 1 : at + 1].tolist(), -1 if spot is None else int(spot[at]))
        found.append(name not in seen)
        seen.add(name)
    return found


@pytest.mark.parametrize("by_spot", [True, False])
@pytest.mark.parametrize("near", [6, 20], ids=["few places", "many"])
def test_a_context_counts_once_whatever_the_stretches(
    by_spot: bool, near: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With so few places beside each other that most of them clash, too."""
    monkeypatch.setattr(first_contexts, "_AT_ONCE", 97)
    monkeypatch.setattr(first_contexts, "NEAR_BITS", near)
    rng = np.random.default_rng(3)
    tokens = rng.integers(0, 5, 4_000)
    row, place = np.repeat(np.arange(100), 40), np.tile(np.arange(40), 100)
    spot = place if by_spot else None
    asked = FirstContexts(1 << 22)  # so many slots that no two names share one
    parts = [slice(0, 400), slice(400, 2_000), slice(2_000, 4_000)]
    found = np.concatenate([asked.of(tokens[p], row[p], place[p], None if spot is None else spot[p]) for p in parts])
    assert found.tolist() == first_by_hand(tokens, row, place, spot)


def test_places_that_share_a_slot_are_lost_and_none_is_doubled() -> None:
    rng = np.random.default_rng(4)
    tokens = rng.integers(0, 50, 20_000)
    row, place = np.repeat(np.arange(50), 400), np.tile(np.arange(400), 50)
    found = FirstContexts(2_000).of(tokens, row, place)
    right = np.array(first_by_hand(tokens, row, place, None))
    assert not (found & ~right).any()
    assert 0.3 * right.sum() < found.sum() < right.sum()
