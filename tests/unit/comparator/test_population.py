"""The run as a whole: rates, loops, small systematic errors, faults at one place of a decode step."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from captures import TEXT, capture, completion, score, texts
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import FLAT
from worlds.seen_as import VIEWS
from worlds.trials import Faulty, judge
from worlds.unseen import unseen

from parity.comparator import CompletionClass, compare
from parity.comparator.population import rates as population_rates
from parity.comparator.population.rates import drift, ends_in_loop, loop_period, position_in_step, rates
from parity.comparator.reference.gaps import token_gaps
from parity.comparator.reference.shaping import shaping_of
from parity.comparator.streams.steps import places_of
from parity.records import (
    Completion,
    Finding,
    Key,
    Kind,
    RaggedTokens,
    ScoreKey,
    Severity,
    SpecTrace,
    TopLogprobs,
    Verdict,
    evidence_from_json,
)


def test_a_clean_run_says_what_it_could_have_missed() -> None:
    run = [completion(TEXT, f"p{n}") for n in range(100)]
    result = compare(capture("cpu/base", *run), capture("cpu/mtp", *run))
    # The exact form of the rule of three: 1 - 0.05 ** (1 / 100).
    assert result.stats.to_json()["fault_rate_not_excluded"] == pytest.approx(0.02951, abs=1e-5)
    assert "2.95%" in texts(result.reasons)[1]


def test_rates_have_wilson_intervals() -> None:
    run = [completion(TEXT, f"p{n}") for n in range(50)]
    broken = [completion([*TEXT[:-1], 5000], f"p{n}") for n in range(5)]
    result = compare(capture("cpu/base", *run), capture("cpu/mtp", *broken, *run[5:]))
    rate = result.stats.to_json()["rates"]["invalid_token"]
    assert (rate["completions"], rate["rate"]) == (5, 0.1)
    assert rate["interval_95"] == pytest.approx([0.0435, 0.2136], abs=1e-4)  # R: binom.wilson(5, 50)
    assert result.stats.to_json()["fault_rate_not_excluded"] is None


def test_loops_of_one_stream() -> None:
    assert loop_period(np.array([1, 2, 3] * 20)) == 3
    assert loop_period(np.array(TEXT)) is None
    assert loop_period(np.array([7] * 10)) is None  # too short to call
    streams = RaggedTokens.of([np.array([1, 2, 3] * 20), np.array(TEXT), np.array([5] * 30)])
    assert ends_in_loop(streams, np.arange(3)).tolist() == [True, False, True]
    assert ends_in_loop(streams, np.array([2, 1])).tolist() == [True, False]
    ends = [np.resize(np.array(TEXT[:period]), size) for period in (1, 3, 8, 9, 16, 17) for size in (0, 23, 24, 40, 48)]
    found = ends_in_loop(RaggedTokens.of(ends), np.arange(len(ends)))
    assert found.tolist() == [loop_period(stream) is not None for stream in ends]
    assert 0 < found.sum() < len(ends)


def test_a_candidate_that_loops_more_than_the_baseline() -> None:
    """Each entry was a near-tie, but all of twelve flips lead into a loop: nothing says which arm is off."""
    base = [completion(TEXT, f"p{n}") for n in range(12)]
    stream = [*TEXT[:10], *[300, 301] * 25]
    candidate = [completion(stream, f"p{n}") for n in range(12)]
    known = {ScoreKey("cpu/mtp", f"p{n}", 0, 0): score(stream, {10: 0.1}, TEXT) for n in range(12)}
    result = compare(capture("cpu/base", *base), capture("cpu/mtp", *candidate), known)
    assert (result.corrupt, result.verdict) == ([], Verdict.INCONCLUSIVE)
    assert "conclude.loops_of_either" in [one.id for one in result.reasons]
    wrong = {ScoreKey("cpu/mtp", "p0", 0, 0): score(stream, {10: 9.0}, TEXT)}
    result = compare(capture("cpu/base", *base), capture("cpu/mtp", *candidate), known | wrong)
    assert [one.kind for one in result.corrupt if one.request == "*"] == [Kind.REPETITION]
    assert result.stats.to_json()["loops"]["p_candidate_loops_more"] == pytest.approx(0.5**12)


def noisy_scores(rng: np.random.Generator, arm: str, run: list[Completion], size: float) -> dict[ScoreKey, TopLogprobs]:
    """Scores whose gaps are exponential with mean `size` nats at one position in ten, at most 0.2."""
    known = {}
    for one in run:
        wrong = {
            int(at): float(min(0.2, rng.exponential(size)))
            for at in np.flatnonzero(rng.random(len(one.token_ids)) < 0.1)
        }
        known[ScoreKey(arm, *one.key)] = score(one.token_ids.tolist(), wrong)
    return known


@pytest.mark.parametrize(("size", "drifted"), [(0.01, False), (0.05, True)])
def test_a_small_systematic_error_is_found_and_rounding_noise_is_not(size: float, drifted: bool) -> None:
    """No token crosses the tolerance; only the mean gap is five times the baseline's."""
    rng = np.random.default_rng(4)
    spoken = rng.permuted(np.tile(np.arange(100, 990), (64, 1)), axis=1)[:, :110].tolist()  # a text for each
    base = [completion(text[:60], f"p{n}", prompt=(1, 2, n)) for n, text in enumerate(spoken)]
    candidate = [completion(text[:10] + text[60:], f"p{n}", prompt=(1, 2, n)) for n, text in enumerate(spoken)]
    known = noisy_scores(rng, "cpu/base", base, 0.01) | noisy_scores(rng, "cpu/mtp", candidate, size)
    for n in range(64):  # the token where they part is the best one
        known[ScoreKey("cpu/mtp", f"p{n}", 0, 0)].values[10] = [-0.1, -0.2]
        known[ScoreKey("cpu/mtp", f"p{n}", 0, 0)].ids[10] = [spoken[n][60], spoken[n][10]]
    result = compare(capture("cpu/base", *base), capture("cpu/mtp", *candidate), known)
    assert result.verdict is (Verdict.DIVERGED if drifted else Verdict.PASS)
    assert [finding.kind for finding in result.corrupt] == ([Kind.NUMERICS] if drifted else [])
    assert result.stats.to_json()["drift"]["drifted"] is drifted
    assert any("the mean gap is" in reason for reason in texts(result.reasons)) is drifted


def test_drift_needs_enough_completions() -> None:
    few = {Key(f"p{n}", 0, 0): np.array([0.1]) for n in range(7)}
    assert drift(few, few, list(few)) is None


def test_tokens_find_their_place_in_a_step() -> None:
    """Prefill gives one token; then steps of 2 drafts: both accepted, one accepted, none accepted."""
    one = completion(TEXT[:7], spec=SpecTrace(np.array([2, 1, 0]), np.array([2, 2, 2])))
    steps = places_of(one)
    assert steps is not None
    places, after_rejection = steps
    assert places.tolist() == [0, 0, 1, 2, 0, 1, 0]
    # The token that takes a rejected draft's place, and all tokens of the step after it.
    assert after_rejection.tolist() == [False, False, False, False, False, True, True]


def test_a_trace_that_does_not_fit_the_tokens_says_nothing() -> None:
    trace = SpecTrace(np.array([2, 1, 0]), np.array([2, 2, 2]))
    assert places_of(completion(TEXT[:9], spec=trace)) is None
    assert places_of(completion(TEXT[:9])) is None


def test_a_fault_that_only_hits_tokens_after_a_rejection() -> None:
    rng = np.random.default_rng(0)
    completions, gaps = {}, {}
    for n in range(20):
        accepted = rng.integers(0, 3, 40)
        length = 1 + int((accepted + 1).sum())
        tokens = list(range(100, 100 + length))
        one = completion(tokens, f"p{n}", spec=SpecTrace(accepted, np.full(40, 2)))
        steps = places_of(one)
        assert steps is not None
        hit = np.flatnonzero(steps[1] & (rng.random(length) < 0.05))
        completions[one.key] = one
        gaps[one.key] = token_gaps(score(tokens, dict.fromkeys(hit.tolist(), 5.0)), one.token_ids)
    result = position_in_step(completions, gaps, 0.25)
    assert result is not None
    assert result.elsewhere.unsupported == 0
    assert result.after_rejection.unsupported > 10
    assert result.p_more_after_rejection < 1e-4
    blank = {key: replace(one, spec=None) for key, one in completions.items()}
    assert position_in_step(blank, gaps, 0.25) is None


def test_the_noise_floor_is_how_often_the_baseline_differs_from_itself() -> None:
    def asked(changed: int) -> list[Completion]:
        again = [*TEXT[:-1], 700]
        first = [completion(TEXT, f"p{n}") for n in range(20)]
        return [*first, *(completion(again if n < changed else TEXT, f"p{n}", round=1) for n in range(20))]

    result = compare(capture("cpu/base", *asked(2)), capture("cpu/mtp", *asked(5)))
    floor = result.stats.to_json()["noise_floor"]
    assert (floor["baseline_from_itself"]["differing"], floor["baseline_from_itself"]["completions"]) == (2, 20)
    assert (floor["candidate_from_baseline"]["differing"], floor["candidate_from_baseline"]["completions"]) == (3, 40)
    # Later rounds against the baseline's first: five requests differ, two of them in the baseline as well.
    assert floor["p_candidate_differs_more"] == pytest.approx(1 / 8, abs=1e-9)
    assert "differs from itself in 2 of 20 completions" in " ".join(texts(result.notes))


def test_rounds_that_are_copies_of_each_other_are_no_more_proof_than_one() -> None:
    """A deterministic engine that flips one request flips it in every round."""
    again = [*TEXT[:-1], 700]
    base = [completion(TEXT, f"p{n}", round=r) for n in range(4) for r in range(10)]
    other = [completion(again if n == 0 else TEXT, f"p{n}", round=r) for n in range(4) for r in range(10)]
    floor = compare(capture("cpu/base", *base), capture("cpu/mtp", *other)).stats.noise_floor
    assert floor
    assert floor.candidate_from_baseline.differing == 10
    assert floor.p_candidate_differs_more == pytest.approx(0.5)


def test_without_rounds_there_is_no_such_floor() -> None:
    arm = capture("cpu/base", completion(TEXT))
    assert compare(arm, arm).stats.noise_floor is None


def test_what_is_said_of_the_whole_run_is_no_completion_more() -> None:
    """Found by fuzzing: requests for other sampling, said of the run and of each completion, made a rate of 5 in 4."""
    classes: dict[Key, CompletionClass] = {Key(f"p{number}", 0, 0): "corrupt" for number in range(4)}
    evidence = evidence_from_json(Kind.INPUT_MISMATCH, "*", {"why": "x"})
    found = [
        Finding("b", "a", request, 0, 0, Kind.INPUT_MISMATCH, Severity.CORRUPT, None, 1, evidence)
        for request in ("*", *(key.request for key in classes))
    ]
    (rate,) = rates(classes, found).rates.values()
    assert (rate.completions, rate.rate) == (4, 1.0)
    alone = rates(classes, found[:1])
    assert (alone.rates, alone.of_run) == ({}, {"input_mismatch": 1})


@pytest.mark.parametrize(("name", "value"), [("logit_bias", 5), ("presence_penalty", {"7": 1.0})])
def test_values_of_another_shape_are_not_computed(name: str, value: Any) -> None:
    """Found by fuzzing: a capture whose logit_bias was a number ended the comparison."""
    assert shaping_of({name: value}).unknown == (name,)


@settings(max_examples=60, deadline=None)
@given(sizes=st.lists(st.integers(0, 40), max_size=60), most=st.integers(2, 50), seed=st.integers(0, 99))
def test_very_many_values_are_thinned_evenly(sizes: list[int], most: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    parts = [rng.random(size) for size in sizes]
    thinned = population_rates._Thinned()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(population_rates, "QUANTILES_OF", most)
        for one in parts:
            thinned.add(one)
    everything = np.concatenate([np.empty(0), *parts])
    assert len(thinned.kept) < 2 * most
    assert thinned.kept.tolist() in [everything[:: 2**power].tolist() for power in range(12)]
    assert len(thinned.kept) == len(everything) or len(thinned.kept) >= most // 2
    assert thinned.largest == everything.max(initial=-np.inf)


def test_very_many_completions_take_no_memory_where_values_are_thinned() -> None:
    one = np.zeros(2)
    tracemalloc.start()
    thinned = population_rates._Thinned()
    for _ in range(800_000):
        thinned.add(one)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(thinned.kept) >= population_rates.QUANTILES_OF
    assert peak < 16e6


def test_loops_that_the_baseline_s_own_fault_has_broken_accuse_nobody() -> None:
    """The baseline takes the second best token at the end of each completion: where the candidate goes on in a loop,
    it does not."""
    fault = next(one for one in unseen() if (one.name, one.size) == ("second best token", "the last of 128"))
    trial = Faulty(2500010, FLAT, first=16, logprobs=5).trial(replace(fault, family="hunted"), 3)
    result = judge(VIEWS["baseline at fault"](trial)).result
    assert not result.corrupt
    assert result.verdict is Verdict.INCONCLUSIVE
