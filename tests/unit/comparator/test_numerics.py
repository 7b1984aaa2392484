"""Numerics of a whole arm: residuals, the tests of them, and the finding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from captures import texts
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from worlds import BASE, FLAT, PEAKED, SMALL, WIDE, Fault, Made, World, speculating
from worlds.engine import Arm
from worlds.faults import numerics as numeric_faults
from worlds.trials import differing
from worlds.world import PREFILL

from parity.comparator import Comparison, compare
from parity.comparator.inputs.settings import differences, other_kernels
from parity.comparator.population import detectable, residual_tests, spots
from parity.comparator.population.leaning import BOTH, MOST_NAMES, by_id, leaning_tokens, learn
from parity.comparator.population.numerics import SHOWN, Gaps, measure_numerics
from parity.comparator.population.stretches import Looked, in_one_pass
from parity.comparator.reference.floor import best_differences, logit_unit
from parity.comparator.reference.gaps import token_gaps
from parity.comparator.reference.residuals import PairedResiduals, Residuals, chosen_logprobs, paired_residuals
from parity.comparator.statistics import paired_mean, poisson_tail, student_tail, symmetric_sum
from parity.comparator.stats import Numerics, Stats
from parity.comparator.sums import Sums
from parity.records import (
    Capture,
    Completion,
    Finding,
    Header,
    Key,
    Kind,
    ScoreKey,
    Scores,
    Severity,
    TopLogprobs,
    Verdict,
)
from parity.records.evidence import NumericsEvidence
from parity.records.next_steps import Step

ALPHA = 0.001


def made(
    fault: Fault | None, arm: Arm, *, shape: Any = FLAT, rows: int = 64, **sampling: Any
) -> tuple[Capture, Capture, Scores]:
    world = World(5, shape)
    asked = world.requests(rows, seed=5)
    rules = {"max_tokens": 64, **sampling}
    base = world.run(asked, BASE, **rules)
    other: Made = world.run(asked, arm, fault=fault, **rules)
    return base.capture, other.capture, world.score(base.capture, other.capture)


def planted(name: str, size: str) -> Fault:
    return next(one for one in numeric_faults() if (one.name, one.size) == (name, size))


def judged(fault: Fault | None, arm: Arm, **how: Any) -> Comparison:
    return compare(*made(fault, arm, **how))


def of_numerics(result: Comparison) -> list[Finding]:
    return [one for one in result.findings if one.kind is Kind.NUMERICS]


def numbers(result: Comparison) -> Numerics:
    assert isinstance(result.stats.numerics, Numerics)
    return result.stats.numerics


# ------------------------------------------------------------------ planted, and clean


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("output weights scaled", "0.3%"),
        ("output weights scaled", "-1.0%"),
        ("bias on half of the ids", "0.2 nats"),
        ("weights quantised", "fp8"),
        ("position off by one", "1 step in 20"),
        ("noise on every logit", "2 bf16 units"),
    ],
)
@pytest.mark.parametrize("shape", [FLAT, PEAKED], ids=["flat", "peaked"])
def test_numbers_that_are_wrong_everywhere_are_found_in_12288_tokens(name: str, size: str, shape: Any) -> None:
    result = judged(planted(name, size), speculating(2), shape=shape, rows=192)
    assert result.verdict is Verdict.DIVERGED
    assert [one.severity for one in of_numerics(result)] == [Severity.CORRUPT]
    assert numbers(result).more_than_one_unit


def test_where_the_baseline_engine_is_off_everywhere_the_finding_says_what_it_rests_on() -> None:
    """It made the scores: by these the sound arm is the odd one, and nothing in the captures says otherwise."""
    fault = planted("bias on half of the ids", "0.2 nats")
    world = World(5, FLAT)
    asked = world.requests(64, seed=5)
    off = replace(BASE, broken=fault.broken)
    base = world.run(asked, off, max_tokens=64).capture
    sound = world.run(asked, speculating(2), max_tokens=64).capture
    result = compare(base, sound, world.score(base, sound, arm=replace(off, orders=PREFILL)))
    assert [one.severity for one in of_numerics(result)] == [Severity.CORRUPT]
    limit = next(one for one in result.reasons if one.id == "conclude.numerics_one_engine")
    assert [step.step for step in result.next_steps if step.settles == limit.id] == [Step.REFERENCE]


def test_an_arm_compared_with_itself_is_named_once() -> None:
    base, _, scores = made(None, speculating(2))
    silent = replace(base, completions={key: replace(one, logprobs=None) for key, one in base.completions.items()})
    said = [
        note
        for note in texts(compare(silent, silent, scores).notes)
        if "no logprobs of the chosen tokens to use" in note
    ]
    assert len(said) == 1
    assert said[0].count(base.header.arm) == 1


@pytest.mark.parametrize(
    ("name", "size"),
    [("KV cache quantised", "fp8"), ("weights quantised", "int8"), ("noise on every logit", "1 bf16 units")],
)
def test_what_a_bf16_unit_may_explain_is_no_pass(name: str, size: str) -> None:
    result = judged(planted(name, size), speculating(2), shape=PEAKED)
    assert result.verdict is not Verdict.PASS
    found = of_numerics(result)[0]
    assert isinstance(found.evidence, NumericsEvidence)
    assert found.evidence.scale_ratio is not None
    assert found.evidence.scale_ratio > residual_tests.LEAST_FACTOR
    if result.verdict is Verdict.INCONCLUSIVE:
        assert not found.evidence.more_than_one_unit
        assert "noise of one bf16 unit on every logit would explain that" in str(found.evidence.why)


@pytest.mark.parametrize("arm", [speculating(1), speculating(3), SMALL, WIDE], ids=lambda arm: str(arm.name))
@pytest.mark.parametrize(
    "sampling",
    [{}, {"repetition_penalty": 1.2}, {"temperature": 0.8}],
    ids=["greedy", "penalty", "sampled"],
)
def test_clean_arms_have_numerics_that_agree(arm: Arm, sampling: Mapping[str, Any]) -> None:
    result = judged(None, arm, **sampling)
    assert not of_numerics(result)
    found = numbers(result)
    assert (found.failed, found.source) == ((), "scores")
    assert found.tokens > 2_000
    assert found.unit == 1 / 16


def test_the_clean_verdict_says_the_figures() -> None:
    result = judged(None, speculating(2))
    found = numbers(result)
    assert result.verdict is Verdict.PASS
    assert any(f"over {found.tokens} tokens logprobs lie" in reason for reason in texts(result.reasons))
    assert found.detectable is not None
    assert found.detectable.scale_factor is not None


def test_a_baseline_that_is_noisier_accuses_nobody() -> None:
    base, other, scores = made(planted("KV cache quantised", "fp8"), speculating(2))
    assert not of_numerics(compare(other, base, scores))


def test_one_wild_row_is_no_matter_of_the_run() -> None:
    base, other, scores = made(None, speculating(2))
    key, one = next(iter(other.completions.items()))
    assert one.logprobs is not None
    wild = TopLogprobs(one.logprobs.ids, one.logprobs.values - 5.0)
    other = replace(other, completions={**other.completions, key: replace(one, logprobs=wild)})
    assert not of_numerics(compare(base, other, scores))


def test_several_wild_rows_are_no_matter_of_the_run() -> None:
    """Their tokens are as wrong as can be, and nobody finds a fault of their own."""
    base, other, scores = made(None, speculating(2))
    rows = {
        key: replace(one, logprobs=TopLogprobs(one.logprobs.ids, np.minimum(one.logprobs.values + 0.3, 0.0)))
        for key, one in list(other.completions.items())[:2]
        if one.logprobs is not None
    }
    assert not of_numerics(compare(base, replace(other, completions={**other.completions, **rows}), scores))


# ------------------------------------------------------------------ which kernels, which logprobs


def test_other_kernels_are_reported_with_their_size_and_accuse_nobody() -> None:
    base, other, scores = made(planted("weights quantised", "fp8"), speculating(2), rows=48)
    declared = replace(other, header=replace(other.header, engine={**other.header.engine, "dtype": "float16"}))
    base = replace(base, header=replace(base.header, engine={**base.header.engine, "dtype": "bfloat16"}))
    result = compare(base, declared, scores)
    found = of_numerics(result)[0]
    assert found.severity is Severity.BENIGN
    assert isinstance(found.evidence, NumericsEvidence)
    assert found.evidence.other_kernels == ("dtype",)
    assert any("the arms differ in dtype" in reason for reason in texts(result.reasons))


def test_servers_that_say_nothing_of_their_engines_may_run_other_kernels() -> None:
    base, other, scores = made(planted("output weights scaled", "0.3%"), speculating(2), rows=192)
    at = {"served": {"server": {"url": "http://a:8000"}}}

    def served(arm: Capture, extra: Mapping[str, Any]) -> Capture:
        return replace(arm, header=replace(arm.header, backend="server", engine={}, environment={}, extra=extra))

    unknown = compare(served(base, {}), served(other, {}), scores)
    assert unknown.verdict is Verdict.INCONCLUSIVE
    assert [one.severity for one in of_numerics(unknown)] == [Severity.BENIGN]
    assert any("do not say what the servers run" in reason for reason in texts(unknown.reasons))
    assert Step.REFERENCE in {step.step for step in unknown.next_steps}
    assert compare(served(base, at), served(other, at), scores).verdict is Verdict.DIVERGED  # asked one server twice


def test_batches_and_speculation_run_the_same_kernels() -> None:
    base, other, _ = made(None, speculating(2), rows=4)
    assert other_kernels(base.header, other.header, {"engine": {"max_num_seqs": (8, 16)}}) == ()
    assert other_kernels(base.header, replace(other.header, backend="npu"), {}) == ("backend",)
    one, two = (
        replace(arm.header, backend="server", extra={"served": {"server": {"url": f"http://{host}:8000"}}})
        for arm, host in ((base, "a"), (other, "b"))
    )
    assert other_kernels(one, two, {}) == ("server",)  # nothing says what they run on
    assert other_kernels(one, replace(two, extra=one.extra), {}) == ()
    found = other_kernels(
        base.header,
        other.header,
        {"versions": {"vllm": ("1", "2"), "numpy": ("1", "2")}, "engine": {"attention_backend": ("A", "B")}},
    )
    assert found == ("vllm", "attention_backend")


def test_kernels_of_attention_are_those_that_the_engines_came_to() -> None:
    """An arm that asked for the backend that the other one chose by itself runs its kernels."""
    base, other, _ = made(None, speculating(2), rows=4)

    def arm(of: Capture, *came_to: str, **asked: str) -> Header:
        known = {"attention_backends": list(came_to)} if came_to else {}
        return replace(of.header, engine={**of.header.engine, **known, "asked": asked})

    def names(here: Header, there: Header) -> tuple[str, ...]:
        return other_kernels(here, there, differences(here, there))

    triton = arm(other, "TRITON_MLA", attention_backend="TRITON_MLA")
    assert names(arm(base, "TRITON_MLA"), triton) == ()
    assert names(arm(base, "FLASH_ATTN_MLA"), triton) == ("attention_backends",)
    assert names(arm(base), triton) == ("attention_backend",)  # an older capture does not say
    assert names(arm(base), arm(other)) == ()


def test_logprobs_of_another_kind_are_not_compared() -> None:
    base, other, scores = made(None, speculating(2))
    arms = [
        replace(
            arm,
            completions={
                key: replace(one, logprobs=TopLogprobs(one.logprobs.ids, one.logprobs.values * 0.7))
                for key, one in arm.completions.items()
                if one.logprobs is not None
            },
        )
        for arm in (base, other)
    ]
    result = compare(arms[0], arms[1], scores)
    assert not of_numerics(result)
    assert any("of another kind than what they are compared with" in note for note in texts(result.notes))


def test_raw_logprobs_that_contradict_each_other_are_no_pass_without_scores() -> None:
    """Of which arm they are not those of its tokens nobody knows."""
    base, other, _ = made(None, speculating(2))

    def shifted(one: Completion) -> Completion:
        assert one.logprobs is not None
        values = np.roll(one.logprobs.values, 1, axis=0)
        return replace(one, logprobs=TopLogprobs(one.logprobs.ids, values))

    wrong = replace(other, completions={key: shifted(one) for key, one in other.completions.items()})

    def untold(arm: Capture) -> Capture:
        return replace(arm, header=replace(arm.header, engine={}))

    for arms in ((base, wrong), (wrong, base)):
        result = compare(*arms)
        assert of_numerics(result)
        assert result.verdict is Verdict.INCONCLUSIVE
        assert not of_numerics(compare(*map(untold, arms)))  # they may be of another kind


def test_raw_logprobs_that_contradict_each_other_are_no_pass_where_few_are_scored() -> None:
    """`--score differing`: of the others nothing is known but what both arms say of the same tokens."""
    base, other, scores = made(None, speculating(2))

    def shifted(one: Completion) -> Completion:
        assert one.logprobs is not None
        return replace(one, logprobs=TopLogprobs(one.logprobs.ids, np.roll(one.logprobs.values, 1, axis=0)))

    wrong = replace(other, completions={key: shifted(one) for key, one in other.completions.items()})
    apart = differing(base, wrong)
    few = {key: top for key, top in scores.items() if Key(*key[1:]) in apart}
    assert 0 < len(apart) < len(base.completions) // 2
    assert compare(base, other, few).verdict is Verdict.PASS
    result = compare(base, wrong, few)
    assert result.verdict is not Verdict.PASS
    assert of_numerics(result)


def test_without_scores_the_arms_are_compared_with_each_other() -> None:
    base, other, _ = made(planted("output weights scaled", "1.0%"), speculating(2))
    result = compare(base, other)
    assert numbers(result).source == "own"
    assert "shift" in numbers(result).failed
    clean = compare(*made(None, speculating(2))[:2])
    assert not numbers(clean).failed
    assert numbers(clean).tokens > 1_000


def test_without_logprobs_a_note_says_so() -> None:
    result = judged(None, speculating(2), rows=16, logprobs=None)
    assert any("no logprobs of the chosen tokens to use" in note for note in texts(result.notes))


def test_scores_of_the_differing_alone_are_enough() -> None:
    """Up to where a pair parts, the score of the one is the score of the other."""
    base, other, scores = made(None, speculating(2))
    differing = {key: one for key, one in scores.items() if key.arm == other.header.arm}
    found = numbers(compare(base, other, differing))
    assert found.source == "scores"
    assert found.baseline is not None
    assert found.baseline.sd == pytest.approx(numbers(compare(base, other, scores)).baseline.sd, rel=0.2)  # type: ignore[union-attr]


# ------------------------------------------------------------------ residuals


def test_a_residual_is_the_own_logprob_minus_the_score() -> None:
    base, other, scores = made(None, speculating(2), rows=8)
    sides = list(base), [other.completions[key] for key in base.completions]
    parts = [_parts(a.token_ids, b.token_ids) for a, b in zip(*sides, strict=True)]
    gaps = tuple(
        {one.key: token_gaps(scores[ScoreKey(arm.header.arm, *one.key)], one.token_ids) for one in arm}
        for arm in (base, other)
    )
    key = sides[0][0].key
    stretches = paired_residuals(sides, parts, (gaps[0], gaps[1]), {}, {key: 5}, None)
    assert stretches is not None
    assert stretches.count == 1
    found = stretches.at(0)
    assert int((found.row == 0).sum()) == 5
    one = sides[1][1]
    assert one.logprobs is not None
    expected = one.logprobs.values[:, 0] - gaps[1][one.key].chosen
    mine = found.candidate[found.row == 1]
    assert mine == pytest.approx(expected[: len(mine)])


def test_what_is_no_logprob_is_left_out() -> None:
    _, other, _ = made(None, speculating(2), rows=8)
    one = next(iter(other))
    assert one.logprobs is not None
    values = one.logprobs.values.copy()
    values[0], values[1], values[2] = np.nan, 0.5, -np.inf
    broken = replace(one, logprobs=TopLogprobs(one.logprobs.ids, values))
    own = chosen_logprobs([broken])
    assert np.isnan(own[:3]).all()
    assert np.isfinite(own[3:]).all()
    assert np.isnan(chosen_logprobs([replace(one, logprobs=None)])).all()
    short = replace(one, logprobs=TopLogprobs(one.logprobs.ids[:4], one.logprobs.values[:4]))
    assert np.isfinite(chosen_logprobs([short])).tolist() == [True] * 4 + [False] * (len(one.token_ids) - 4)


def _parts(one: Any, other: Any) -> int:
    same = min(len(one), len(other))
    differ = np.flatnonzero(one[:same] != other[:same])
    return int(differ[0]) if len(differ) else -1 if len(one) == len(other) else same


def test_the_unit_of_the_logits_is_read_from_the_lists() -> None:
    rng = np.random.default_rng(0)

    def lists(unit: float) -> TopLogprobs:
        logits = np.round(rng.uniform(8, 15, (500, 5)) / unit) * unit
        return TopLogprobs(np.tile(np.arange(5), (500, 1)), logits - 16.3)

    assert logit_unit(best_differences([lists(1 / 16)])) == 1 / 16
    assert logit_unit(best_differences([lists(1 / 4)])) == 1 / 4
    assert logit_unit(best_differences([lists(1e-6)])) is None


# ------------------------------------------------------------------ error rates


def null(rng: np.random.Generator, completions: int, tokens: int, freedom: float = 3.0) -> PairedResiduals:
    """Residuals of arms without a fault: heavy tails, and a part that all tokens of a completion share."""
    size = completions * tokens
    row, place = np.repeat(np.arange(completions), tokens), np.tile(np.arange(tokens), completions)
    open_ = rng.uniform(0.05, 1.0, size)
    sides = [
        0.008 * open_ * (rng.standard_t(freedom, size) + 0.3 * np.repeat(rng.standard_normal(completions), tokens))
        for _ in range(2)
    ]
    score = np.log1p(-open_ * 0.999)
    token = rng.integers(0, 500, size)
    context = place + np.repeat(rng.integers(4, 40, completions), tokens)
    return PairedResiduals(sides[0], sides[1], score, score, row, place, context, token, token, by_scores=True)


def measured(*stretches: PairedResiduals) -> Numerics | None:
    return measure_numerics(Looked(Residuals.of(*stretches), 1 / 16), Gaps(), 1 / 16, ALPHA)


@pytest.mark.parametrize("shape", [(64, 64), (8, 512)], ids=str)
def test_error_rates_hold_for_heavy_tails_and_dependent_tokens(
    shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 400 runs without a fault, and without the allowance for clean arms that differ: at most 5 % at 5 %."""
    monkeypatch.setattr(residual_tests, "LEAST_SHIFT", 0.0)
    monkeypatch.setattr(residual_tests, "SELECTION", 0.0)
    monkeypatch.setattr(residual_tests, "LEAST_FACTOR", 1.0)
    monkeypatch.setattr(residual_tests, "TAIL_FACTOR", 1.0)
    monkeypatch.setattr(residual_tests, "TAIL_RATE", 0.0)
    monkeypatch.setattr(spots, "LARGER", 0.0)
    monkeypatch.setattr(spots, "STANDS_OUT", 1.0)
    rng = np.random.default_rng(1)
    found = [measured(null(rng, *shape)) for _ in range(400)]
    for name in ("shift", "ids", "places", "spots", "scale", "tail"):
        rejected = np.mean([one is not None and one.p_values[name] < 0.05 for one in found])
        assert rejected <= 0.05 + 2 * (0.05 * 0.95 / 400) ** 0.5, name


def test_clean_runs_with_heavy_tails_are_not_accused() -> None:
    rng = np.random.default_rng(2)
    for _ in range(100):
        found = measured(null(rng, 64, 64))
        assert found is not None
        assert not found.failed
        assert not found.baseline_off


@pytest.mark.parametrize("seed", range(5))
def test_tokens_that_are_off_the_same_way_each_time_are_named(seed: int) -> None:
    arms = null(np.random.default_rng(seed), 200, 64)
    biased = arms.candidate_token % 50 == 7
    found = measured(structs.replace(arms, candidate=arms.candidate + np.where(biased, 0.05, 0.0)))
    assert found is not None
    assert "ids" in found.failed
    assert len(found.leaning_tokens) == SHOWN
    for one in found.leaning_tokens:
        assert one.token % 50 == 7
        assert one.nats == pytest.approx(0.05, abs=0.025)
        places = int((arms.candidate_token == one.token).sum())
        assert places / 2 <= one.places <= places  # those after the same tokens count once


def test_hardly_a_token_is_named_where_none_leans() -> None:
    named = []
    for seed in range(40):
        looked = Looked(Residuals.of(null(np.random.default_rng(seed), 100, 512)), 1 / 16)
        (learned,) = in_one_pass(looked, [partial(learn, by_id, BOTH)])
        named += leaning_tokens(learned, looked.baseline.capped.variance + looked.candidate.capped.variance)
    assert len(named) <= 1  # of 20,000


def test_ids_that_are_none_are_not_named() -> None:
    arms = null(np.random.default_rng(0), 200, 64)
    token = np.where(arms.candidate_token == 7, MOST_NAMES + 3, arms.candidate_token)
    off = np.where(token == MOST_NAMES + 3, 0.3, 0.0)
    looked = Looked(
        Residuals.of(
            structs.replace(arms, baseline_token=token, candidate_token=token, candidate=arms.candidate + off)
        ),
        1 / 16,
    )
    (learned,) = in_one_pass(looked, [partial(learn, by_id, BOTH)])
    assert leaning_tokens(learned, 1e-4) == ()


@pytest.mark.parametrize("by_context", [True, False])
def test_noise_at_certain_spots_is_found_where_the_mean_hardly_moves(by_context: bool) -> None:
    rng = np.random.default_rng(5)
    arms = null(rng, 200, 64)
    here = (arms.context if by_context else arms.place) == 40
    other = np.where(here, arms.candidate * 4, arms.candidate)
    found = measured(structs.replace(arms, candidate=other))
    assert found is not None
    assert found.failed == ("spots",)
    assert found.spots is not None
    assert found.spots.found[0] == 40
    assert found.spots.by_context is by_context


def test_noise_that_is_larger_everywhere_is_at_no_spot() -> None:
    arms = null(np.random.default_rng(6), 200, 64)
    found = measured(structs.replace(arms, candidate=2.5 * arms.candidate))
    assert found is not None
    assert "scale" in found.failed
    assert "spots" not in found.failed


def test_noise_added_everywhere_is_at_no_spot_where_the_baseline_has_none() -> None:
    """The first token comes from a prefill, as the score does: seen on the CPU engine with noise on every logit."""
    rng = np.random.default_rng(8)
    arms = null(rng, 200, 64)
    first = arms.place == 0
    exact = structs.replace(
        arms, baseline=np.where(first, 0.0, arms.baseline), candidate=np.where(first, 0.0, arms.candidate)
    )
    added = 0.025 * (1 - np.exp(arms.candidate_score)) * rng.standard_normal(len(first))
    found = measured(structs.replace(exact, candidate=exact.candidate + added))
    assert found is not None
    assert "scale" in found.failed
    assert "spots" not in found.failed


def test_a_few_completions_that_repeat_one_residual_hide_no_shift() -> None:
    arms = null(np.random.default_rng(7), 200, 64)
    loops = arms.row < 4
    other = np.where(loops, arms.candidate + 0.12 * (1 - arms.row % 2 * 2), arms.candidate + 0.0016)
    found = measured(structs.replace(arms, candidate=other))
    assert found is not None
    assert found.adjusted["shift"] < ALPHA


def test_other_kernels_for_the_last_rows_of_a_batch_are_no_spot() -> None:
    """2,000 requests of four tokens, unscored: the arms compute alike to the last bit but for the longest contexts."""
    rng = np.random.default_rng(3)
    arms = null(rng, 2_000, 4)
    context = arms.place + np.repeat(rng.integers(4, 24, 2_000), 4)
    zero = np.zeros(len(context))

    def found(units: float) -> Numerics:
        other = np.where(context >= 24, units / 16 * (1 - np.exp(arms.candidate_score)), 0.0)
        sides = {"baseline": zero, "candidate": other * rng.choice([-1.0, 1.0], len(other))}
        numbers = measured(structs.replace(arms, context=context, by_scores=False, **sides))
        assert numbers is not None
        return numbers

    assert "spots" not in found(0.25).failed
    assert "spots" in found(1.0).failed


def test_completions_that_lead_to_one_text_count_once_in_a_shift() -> None:
    """All say the same token: after a few of them each has the residual that the others have."""
    arms = null(np.random.default_rng(7), 64, 64)
    late = arms.place >= 4
    same = {name: np.zeros_like(arms.baseline_token) for name in ("baseline_token", "candidate_token")}
    other = np.where(late, arms.candidate + 0.004, arms.candidate)
    apart, alike = (measured(structs.replace(arms, candidate=other, **tokens)) for tokens in ({}, same))
    assert apart is not None
    assert alike is not None
    assert "shift" in apart.failed
    assert not alike.failed


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-5, 5).filter(lambda value: abs(value) > 1e-6), min_size=1, max_size=12))
def test_the_bound_is_above_the_exact_chance(values: list[float]) -> None:
    """Of all signs that the values may have, how many sums are as large?"""
    array = np.array(values)
    signs = np.array(np.meshgrid(*[[-1, 1]] * len(values))).reshape(len(values), -1).T
    exact = float((signs @ np.abs(array) >= array.sum() - 1e-9).mean())
    assert symmetric_sum(Sums.of(array)) >= exact - 1e-9


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000))
def test_exchanging_the_arms_exchanges_the_tails(seed: int) -> None:
    one = null(np.random.default_rng(seed), 48, 16)
    other = structs.replace(
        one,
        baseline=one.candidate, candidate=one.baseline,
        baseline_score=one.candidate_score, candidate_score=one.baseline_score,
        baseline_token=one.candidate_token, candidate_token=one.baseline_token,
    )  # fmt: skip
    first, second = (measured(each) for each in (one, other))
    assert first is not None
    assert second is not None
    assert first.mean_shift == pytest.approx(-(second.mean_shift or 0.0))
    assert min(first.p_values["scale"], second.p_values["scale"]) <= 1.0
    assert max(first.p_values["scale"], second.p_values["scale"]) == 1.0


def test_tails_of_student_and_poisson() -> None:
    # scipy.stats.t.sf, scipy.stats.poisson.sf
    assert student_tail(2.0, 7) == pytest.approx(0.04280966, rel=1e-6)
    assert student_tail(12.0, 7) == pytest.approx(3.19e-6, rel=0.01)
    assert student_tail(-1.0, 5) == pytest.approx(1 - student_tail(1.0, 5))
    assert student_tail(0.0, 5) == pytest.approx(0.5)
    assert poisson_tail(10, 3.0) == pytest.approx(0.00110249, rel=1e-5)
    assert poisson_tail(60, 10.0) == pytest.approx(7.57e-27, rel=0.05)
    assert (poisson_tail(0, 3.0), poisson_tail(3, 0.0)) == (1.0, 0.0)
    assert paired_mean(Sums.of(np.ones(3))) == symmetric_sum(Sums.of(np.ones(3)))


# ------------------------------------------------------------------ what would have been seen


def test_the_smallest_shift_that_is_named_is_seen() -> None:
    rng = np.random.default_rng(3)
    seen = 0
    for _ in range(40):
        run = null(rng, 128, 64)
        clean = measured(run)
        assert clean is not None
        assert clean.detectable is not None
        assert clean.detectable.mean_shift is not None
        shifted = measured(structs.replace(run, candidate=run.candidate - clean.detectable.mean_shift))
        assert shifted is not None
        seen += "shift" in shifted.failed
    assert seen >= 34


def test_more_tokens_show_smaller_effects() -> None:
    shifts = [detectable.detectable_shift(0.018, tokens, tokens // 64, ALPHA) for tokens in (4_096, 32_768, 102_400)]
    assert None not in shifts
    assert shifts == sorted(shifts, reverse=True)  # type: ignore[type-var]
    assert shifts[-1] < 0.001  # type: ignore[operator]
    rates = [detectable.detectable_rate(4e-4, tokens, ALPHA) for tokens in (4_096, 32_768, 1_000_000)]
    assert None not in rates
    assert rates == sorted(rates, reverse=True)  # type: ignore[type-var]
    assert detectable.detectable_shift(0.018, 512, 8, ALPHA) is None
    assert detectable.detectable_factor(4.0, 102_400, ALPHA) < 1.5  # type: ignore[operator]


# ------------------------------------------------------------------ kept


def test_the_finding_and_the_numbers_survive_their_files() -> None:
    result = judged(planted("weights quantised", "fp8"), speculating(2), rows=32)
    found = of_numerics(result)[0]
    assert Finding.from_json(found.to_json()).to_json() == found.to_json()
    assert isinstance(Finding.from_json(found.to_json()).evidence, NumericsEvidence)
    assert Stats.from_json(result.stats.to_json()).numerics == result.stats.numerics


def test_scores_that_stand_in_for_logprobs_are_no_noise_of_zero() -> None:
    base, other, scores = made(None, speculating(2))
    golden = replace(
        base,
        completions={
            key: replace(one, logprobs=scores[ScoreKey(base.header.arm, *key)]) for key, one in base.completions.items()
        },
    )
    result = compare(golden, other, scores)
    assert not of_numerics(result)
    assert any("cuda/base: its own logprobs are its scores to the last digit" in note for note in texts(result.notes))


def test_completions_that_end_in_one_loop_are_one_measurement_of_a_spot() -> None:
    """At the same place of the same loop an engine rounds the same way in each completion. Seen on the small engine,
    512 tokens of a model that is sure: four clean arms were accused."""
    rng = np.random.default_rng(9)
    arms = null(rng, 200, 128)
    loop = arms.place >= 64
    tokens = np.where(loop, arms.place % 7, arms.baseline_token)
    context = arms.place + 10
    sides = []
    for side in (arms.baseline, arms.candidate):
        shared = 0.008 * rng.standard_t(3.0, 128) * (arms.place[:128] % 7 + 1) / 4
        sides.append(np.where(arms.place >= 68, shared[arms.place], side))
    looping = structs.replace(
        arms, baseline=sides[0], candidate=sides[1], context=context, baseline_token=tokens, candidate_token=tokens
    )
    found = measured(looping)
    assert found is not None
    assert not found.failed


@pytest.mark.parametrize("side", ["baseline", "candidate"])
def test_loops_that_round_more_in_one_arm_do_not_make_it_noisier(side: str) -> None:
    arms = null(np.random.default_rng(11), 200, 128)
    loop = arms.place >= 16
    tokens = np.where(loop, arms.place % 7, arms.baseline_token)
    more = {side: getattr(arms, side) * np.where(arms.place >= 32, 2.0, 1.0)}
    looping = structs.replace(arms, baseline_token=tokens, candidate_token=tokens, context=arms.place + 10, **more)
    found = measured(looping)
    assert found is not None
    assert "scale" not in (*found.failed, *found.baseline_off)
    alone = structs.replace(looping, baseline_token=arms.baseline_token, candidate_token=arms.candidate_token)
    found = measured(alone)
    assert found is not None
    assert "scale" in (found.failed if side == "candidate" else found.baseline_off)


def test_noise_that_grows_with_the_context_is_at_no_spot() -> None:
    """Kernels split long contexts, and round otherwise there than the baseline's do."""
    arms = null(np.random.default_rng(10), 200, 128)
    grows = 1 + 1.5 * (arms.place >= 64) * (arms.place - 64) / 64
    found = measured(structs.replace(arms, candidate=arms.candidate * grows))
    assert found is not None
    assert "spots" not in found.failed
