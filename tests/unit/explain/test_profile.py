"""Arms beside each other: what stands out is what one adds, and nothing else."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from sketch_world import MODULES, World

from parity.capture.sketches import Sketches
from parity.explain.aligned import Aligned, align
from parity.explain.profile import DECODED, PROMPTS, ROUNDING, Profile, profile

ATTENTION = 6
"""`model.layers.1.attn`."""


def paired(world: World, reference: Sketches | None = None) -> Aligned:
    return align(world.capture(), [world.candidate()], [reference or world.reference()], prefixes=True)


@cache
def healthy() -> Aligned:
    return paired(World())


def beside(other: World, *, own: bool = False) -> Profile:
    return profile([("a", healthy()), ("b", paired(other))], own_reference=own)


def noisier(by: float, module: int, *, positions: range = range(1000), **world: int) -> World:
    """From this module on everything is farther from the truth: what a module adds stays in what comes after it."""

    def change(name: str, at: int, one: int, vector: np.ndarray) -> np.ndarray:
        rng = np.random.default_rng((int(name[1:]), at, one))
        return vector + (by * rng.standard_normal(len(vector)) if one >= module and at in positions else 0)

    return World(seed=2, change=change, **world)


def test_the_module_that_adds_more_stands_out_and_what_comes_after_it_does_not() -> None:
    found = beside(noisier(0.02, ATTENTION))
    (one,) = found.standing_out(1)
    of = one.of_arms[1]
    assert (one.name, one.layer) == ("model.layers.1.attn", 1)
    assert of is not None
    assert of.times == pytest.approx(0.0212 / 0.0071, rel=0.3)  # beside the noise of two engines, 0.005 each
    assert found.arms == ("a", "b")
    assert not found.standing_out(0)


@pytest.mark.parametrize(("positions", "part"), [(range(10), PROMPTS), (range(10, 1000), DECODED)])
@pytest.mark.parametrize("length", [14, 40])
def test_a_module_that_adds_more_in_few_of_the_tokens(positions: range, part: str, length: int) -> None:
    """Prompts of ten tokens: a quarter of all, or most."""
    clean = paired(World(length=length))
    found = profile(
        [("a", clean), ("b", paired(noisier(0.02, ATTENTION, positions=positions, length=length)))], own_reference=False
    )
    (one,) = found.standing_out(1)
    of = one.of_arms[1]
    assert of is not None
    assert (one.name, of.part) == ("model.layers.1.attn", part)
    assert of.times == pytest.approx(0.0212 / 0.0071, rel=0.4)


@pytest.mark.parametrize("seed", range(3, 8))
def test_equal_engines_have_nothing_that_stands_out(seed: int) -> None:
    assert not beside(World(seed=seed)).standing_out(1)


def test_an_engine_that_is_farther_off_everywhere_is_so_from_the_first_module_on() -> None:
    out = beside(World(seed=2, noise=0.015)).standing_out(1)
    assert [one.name for one in out] == [MODULES[0].name]


def test_beside_the_first_engines_own_prefill_nothing_is_judged() -> None:
    """That shares its rounding with the first engine, and with no other."""
    found = beside(noisier(0.02, ATTENTION), own=True)
    assert not found.standing_out(1)
    of = found.modules[ATTENTION].of_arms[1]
    assert of is not None
    assert of.times > 2


def test_few_completions_have_distances_and_nothing_that_stands_out() -> None:
    few = World(completions=4)
    found = profile([("a", paired(few)), ("b", paired(few))], own_reference=False)
    assert not found.standing_out(1)
    assert found.modules[0].of_arms[1] is not None


def test_a_completion_that_parts_is_paired_up_to_there() -> None:
    """The reference computed another engine's completion of the same prompt."""
    world, other = World(), World()
    other.tokens["p3"] = (*other.tokens["p3"][:20], *range(2000, 2020))
    pair = paired(other, world.reference())
    assert {str(key.request): why for key, why in pair.unpaired.items()} == {"p3": "no reference"}
    rows = pair.completion == [key.request for key in pair.keys].index("p3")
    assert pair.position[rows].tolist() == list(range(20))
    exact = align(other.capture(), [other.candidate()], [world.reference()])
    assert "p3" not in {key.request for key in exact.keys}


@pytest.mark.parametrize(("dtype", "bits"), [("bfloat16", 8), ("float16", 11), ("float32", 24)])
def test_one_rounding_is_what_rounding_does(dtype: str, bits: int) -> None:
    vector = np.random.default_rng(0).standard_normal(200_000)
    mantissa, exponent = np.frexp(vector)
    rounded = np.ldexp(np.round(np.ldexp(mantissa, bits)), exponent - bits)
    assert np.linalg.norm(rounded - vector) / np.linalg.norm(vector) == pytest.approx(ROUNDING[dtype], rel=0.02)
