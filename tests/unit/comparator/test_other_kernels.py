"""Arms that are known to compute with other kernels: what these may differ by, and what rounding does not explain."""

from __future__ import annotations

from dataclasses import replace

import pytest
from captures import texts
from worlds import FLAT, PEAKED, SURE, Shape
from worlds.engine import SOUND, Broken
from worlds.faults import NUMERICS, Fault
from worlds.seen_as import VIEWS
from worlds.trials import Faulty, Trial

from parity.comparator import Comparison, compare
from parity.records import Capture, Kind, Verdict
from parity.records.next_steps import Step
from parity.view import next_commands, of_captures

BIASED = Fault("bias on rare ids", "0.3 nats", "hunted", NUMERICS, broken=Broken(bias=0.3, first=400, biased=111))
"""Turns 27 of 1,000 choices, each by less than the tolerance."""


def _served(seed: int, shape: Shape, fault: Fault, blocks: int) -> Trial:
    """The candidate as a server of somebody's, without logprobs, scored by the baseline's engine."""
    return VIEWS["server, scored"](Faulty(seed, shape, first=16, logprobs=5).trial(fault, blocks))


def _compared(trial: Trial, **candidate: str) -> Comparison:
    def with_engine(arm: Capture, engine: dict[str, str]) -> Capture:
        return replace(arm, header=replace(arm.header, engine={**arm.header.engine, **engine}))

    usual = dict.fromkeys(candidate, "auto")
    arms = with_engine(trial.baseline, usual), with_engine(trial.candidate, candidate)
    return compare(*arms, trial.scores, trial.options)


def test_gaps_that_rounding_does_not_explain_are_no_pass_and_accuse_nobody() -> None:
    trial = _served(2110001, FLAT, BIASED, 3)
    result = _compared(trial)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert not result.corrupt
    assert [one.id for one in result.reasons] == ["conclude.numerics_beyond"]
    assert "the mean gap is 0.0041 nats, the baseline's 0.0002" in texts(result.reasons)[0]
    assert [one.step for one in result.next_steps] == [Step.SAME_PRECISION]
    sides = [trial.baseline, trial.candidate]
    (offered,) = next_commands(of_captures(sides, {trial.candidate.header.arm: result}))
    assert "in the precision that server/mtp-k2 has" in str(offered.what)


def test_where_the_precision_is_known_to_be_another_the_size_is_said() -> None:
    result = _compared(_served(2110001, FLAT, BIASED, 3), kv_cache_dtype="fp8")
    assert result.verdict is Verdict.PASS
    assert any("the mean gap is 0.0041 nats" in one for one in texts(result.reasons))


@pytest.mark.parametrize("shape", [FLAT, PEAKED, SURE], ids=["flat", "peaked", "sure"])
@pytest.mark.parametrize("units", [0.0, 1.0])
def test_kernels_that_round_by_a_bf16_unit_stay_a_pass(shape: Shape, units: float) -> None:
    """What there is of it is said, though only gaps could be tested."""
    noisy = Fault("noise", f"{units:g}", "hunted", NUMERICS, broken=Broken(noise=units) if units else SOUND)
    for seed in (2600101, 2600102):
        result = _compared(_served(seed, shape, noisy, 4))
        assert result.verdict is Verdict.PASS
        found = [one for one in result.findings if one.kind is Kind.NUMERICS]
        assert [one.id for one in result.reasons].count("conclude.numerics") == len(found)
