"""Faults that are the baseline's, and habits of one side alone, are not blamed on the candidate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from worlds import BASE, FLAT, PEAKED, Broken, Fault, World, speculating
from worlds.faults import numerics
from worlds.seen_as import AT_FAULT, VIEWS
from worlds.trials import Faulty, judge

from parity.comparator import Comparison, compare
from parity.records import Capture, Scores, Severity, Verdict
from parity.records.next_steps import Step

QUANTISED = Fault("weights quantised", "fp8", "", (), broken=Broken(weights="fp8"))


@pytest.fixture(scope="module")
def arms() -> tuple[Capture, Capture, Scores]:
    world = World(91_001, FLAT)
    asked = world.requests(96)
    base, other = (world.run(asked, arm, max_tokens=96).capture for arm in (BASE, speculating(2)))
    return base, other, world.score(base, other)


def ids(result: Comparison) -> set[str]:
    return {one.id for one in result.reasons}


def test_a_baseline_that_lies_off_sound_scores_is_named() -> None:
    world = World(91_001, FLAT)
    asked = world.requests(96)
    for faulty, verdict in ((BASE, Verdict.INCONCLUSIVE), (speculating(2), Verdict.DIVERGED)):
        base, other = (
            world.run(asked, arm, fault=QUANTISED if arm == faulty else None, max_tokens=96).capture
            for arm in (BASE, speculating(2))
        )
        result = compare(base, other, world.score(base, other))
        assert result.verdict is verdict
        assert ("conclude.baseline_off" in ids(result)) == (faulty == BASE)


def bf16(values: np.ndarray) -> np.ndarray:
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32) & np.uint32(0xFFFF0000)
    return bits.view(np.float32).astype(np.float64)


@pytest.mark.parametrize("rounded", [bf16, lambda values: values.round(2)], ids=["bf16", "two decimals"])
def test_logprobs_that_one_side_rounds_are_no_noise_of_its_logits(
    arms: tuple[Capture, Capture, Scores], rounded: Callable[[np.ndarray], np.ndarray]
) -> None:
    base, other, scores = arms
    made = {
        key: replace(one, logprobs=one.logprobs and replace(one.logprobs, values=rounded(one.logprobs.values)))
        for key, one in other.completions.items()
    }
    result = compare(base, replace(other, completions=made), scores)
    assert result.verdict is Verdict.PASS
    assert "conclude.numerics_untested" in {one.id for one in result.notes}


def test_scores_that_reject_the_baseline_alone_accuse_nobody() -> None:
    """One step in ten of the baseline goes on from an older state; its prefill, which scores, is sound."""
    fault = Fault("stale state", "1 step in 10", "", (), broken=Broken(stale=0.1))
    world = World(95_001, FLAT)
    asked = world.requests(48)
    for faulty, verdict in ((BASE, Verdict.INCONCLUSIVE), (speculating(2), Verdict.DIVERGED)):
        base, other = (
            world.run(asked, arm, fault=fault if arm == faulty else None, max_tokens=96).capture
            for arm in (BASE, speculating(2))
        )
        result = compare(base, other, world.score(base, other))
        assert result.verdict is verdict
        assert ("scores.reject_baseline" in ids(result)) == (faulty == BASE)
        if faulty == BASE:
            assert Step.SWAP in {one.step for one in result.next_steps}
            assert not result.findings or {one.severity for one in result.findings} == {Severity.BENIGN}


@pytest.mark.parametrize("name", ["stop", "length"])
@pytest.mark.parametrize("side", [0, 1], ids=["baseline", "candidate"])
def test_one_name_for_every_end_is_a_habit_of_who_wrote_the_capture(
    arms: tuple[Capture, Capture, Scores], side: int, name: str
) -> None:
    *pair, scores = arms
    named = {key: replace(one, finish_reason=name) for key, one in pair[side].completions.items()}
    pair[side] = replace(pair[side], completions=named)
    result = compare(*pair, scores)
    assert result.verdict is Verdict.PASS
    assert {one.id for one in result.notes} & {"inputs.never_length", "inputs.never_stop"}
    # An engine that parity itself ran says what it means.
    pair[side] = replace(pair[side], header=replace(pair[side].header, engine={"asked": {}}))
    assert compare(*pair, scores).verdict is not Verdict.PASS


@pytest.mark.parametrize("broken", [Broken(cache="fp8"), Broken(position_every=5)])
def test_a_noisier_baseline_is_named(broken: Broken) -> None:
    world = World(91_002, PEAKED)
    asked = world.requests(96)
    base = world.run(asked, BASE, fault=Fault("", "", "", (), broken=broken), max_tokens=128).capture
    other = world.run(asked, speculating(2), max_tokens=128).capture
    result = compare(base, other, world.score(base, other))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert not result.corrupt
    assert "conclude.baseline_off" in ids(result)


def test_a_baseline_with_other_settings_may_be_noisier() -> None:
    world = World(91_002, PEAKED)
    asked = world.requests(96)
    quantised = Fault("", "", "", (), broken=Broken(cache="fp8"))
    base = world.run(asked, BASE, fault=quantised, max_tokens=128).capture
    other = world.run(asked, speculating(2), max_tokens=128).capture
    declared = [
        replace(one, header=replace(one.header, engine={**one.header.engine, "kv_cache_dtype": dtype}))
        for one, dtype in ((base, "fp8"), (other, "auto"))
    ]
    result = compare(*declared, world.score(*declared))
    assert "conclude.baseline_noisier" in ids(result)
    assert result.verdict is Verdict.PASS


def test_logprobs_accuse_nobody_beside_a_baseline_that_the_scores_reject() -> None:
    """Without these scores the arms' own logprobs of equal tokens are left, and they do not say whose are off."""
    stale = next(one for one in numerics() if one.broken.stale == 0.01)
    result = judge(VIEWS[AT_FAULT](Faulty(12, PEAKED, first=16).trial(stale, 3))).result
    assert "scores.reject_partings" in ids(result)
    assert not result.corrupt
