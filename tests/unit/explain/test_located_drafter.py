"""A drafter's modules from made-up sketches: named where they are wrong first, and never for what the target did."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from captures import written
from sketch_world import Change, World, with_drafter, write_sketches

from parity.capture.sketches import Sketches
from parity.comparator import compare
from parity.explain.aligned import align
from parity.explain.located import Locating, locate, locate_drafter
from parity.messages import Message
from parity.pipeline.beneath import look_beneath, why_drafter, with_sketches
from parity.records import Key
from parity.records.control import DRAFTER_WRONG
from parity.view.located import ArmLocated

ATTENTION = 2
"""`drafter.model.layers.0.self_attn`."""


def wrong_from(module: int, by: float = 1.0) -> Change:
    def change(name: str, at: int, one: int, vector: np.ndarray) -> np.ndarray:
        return vector * (1 + by) if (name, at) == ("p7", 20) and one >= module else vector

    return change


def judged(world: World, candidate: Sketches, prefill: Sketches) -> Locating:
    return locate_drafter(align(world.capture(), [candidate], [prefill], drafter=True))


def located(world: World, change: Change | None = None) -> Locating:
    healthy = World()
    candidate = with_drafter(world, world.candidate(), change=change)
    return judged(world, candidate, with_drafter(healthy, healthy.reference(), prefill=True))


def test_a_healthy_drafter_is_accused_of_nothing_and_judged_in_every_token() -> None:
    found = located(World())
    assert found.judged
    assert not found.located
    assert not found.unpaired
    assert found.tokens == 24 * 39
    assert {one.module.partition(".")[0] for one in found.noise} == {"drafter"}


@pytest.mark.parametrize(("module", "name"), [(0, "hidden_states"), (1, "model.fc"), (2, "model.layers.0.self_attn")])
def test_the_first_wrong_module_of_the_drafter_is_named_at_its_token(module: int, name: str) -> None:
    (one,) = located(World(), wrong_from(module)).located
    assert (one.key, one.module, one.position) == (Key("p7", 0, 0), "drafter." + name, 20)
    assert one.input_clean


def test_the_target_is_not_accused_of_its_drafters_modules() -> None:
    world = World()
    candidate = with_drafter(world, world.candidate(), change=wrong_from(1))
    prefill = with_drafter(world, world.reference())
    aligned = align(world.capture(), [candidate], [prefill])
    assert not [one for one in aligned.modules if one.drafter]
    assert not locate(aligned).located


@pytest.mark.parametrize("at", [12, 20])
def test_what_follows_a_fault_of_the_target_is_not_the_drafters(at: int) -> None:
    """It reads the target's hidden states, and keeps what it made of them."""

    def target(name: str, position: int, module: int, vector: np.ndarray) -> np.ndarray:
        return vector * 2 if (name, position) == ("p7", at) and module >= 6 else vector

    world = World(change=target)
    assert locate(align(world.capture(), [world.candidate()], [world.reference()])).located
    assert not located(world, wrong_from(ATTENTION)).located


def test_tokens_that_the_drafter_was_not_given_or_at_another_place_are_not_judged() -> None:
    world = World()
    prefill = with_drafter(world, world.reference(), prefill=True)
    candidate = with_drafter(world, world.candidate(), change=wrong_from(ATTENTION))
    at = (candidate.columns["request"] == 7) & (candidate.columns["position"] == 20)
    for name, by in (("drafted", 1), ("drafted_at", 1), ("drafter_entry", 1)):
        columns = {**candidate.columns, name: candidate.columns[name] + by * at}
        found = judged(world, replace(candidate, columns=columns), prefill)
        assert not found.located
        assert sum(found.unpaired.values()) == 1
        here = ArmLocated("cpu/mtp", False, replace(found, drafter=found))
        assert "the drafter: 1 completion is judged in part only" in str(here.said()[-1])
    # What its own prefill was not given ends the reference: at a chunk's end the next token may be another.
    at = (prefill.columns["request"] == 7) & (prefill.columns["position"] == 20)
    columns = {**prefill.columns, "drafted": prefill.columns["drafted"] + at}
    assert not judged(world, candidate, replace(prefill, columns=columns)).located


def test_it_is_said_beside_a_verdict_that_it_does_not_change(tmp_path: Path) -> None:
    world = World()
    written(tmp_path / "m.jsonl", world.capture("cpu/mtp"))
    starts = [
        with_drafter(world, world.candidate(), change=wrong_from(ATTENTION)),
        with_drafter(world, world.reference(), prefill=True),
    ]
    parts = [write_sketches(tmp_path / f"{number}.sketches", one) for number, one in enumerate(starts)]
    (tmp_path / "m.sketches").write_bytes(b"".join(one.read_bytes() for one in parts))
    write_sketches(tmp_path / "scores.sketches", world.reference())
    mtp = world.capture("cpu/mtp")
    alone = compare(world.capture("cpu/base"), mtp)
    found = look_beneath(mtp, tmp_path / "m.jsonl", tmp_path / "scores.jsonl")
    assert found is not None
    assert found.drafter is not None
    assert not found.located
    beside = with_sketches(alone, mtp, found)
    assert (beside.verdict, beside.findings) == (alone.verdict, alone.findings)
    (note,) = [one for one in beside.notes if isinstance(one, Message) and one.id == DRAFTER_WRONG]
    assert "drafter.model.layers.0.self_attn" in str(note)
    assert "costs acceptance, not tokens" in str(note)
    assert "costs acceptance, not tokens" in str(why_drafter(found.drafter.located[0]))
