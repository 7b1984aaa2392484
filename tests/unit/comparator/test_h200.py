"""What vLLM 0.23.0 said on an NVIDIA H200, with MTP (two drafts) and without, under asynchronous scheduling.

64 prompts × 4 copies × 48 tokens of the embedded checkpoint, eager, scored on the same card by the engine without
drafts. 53 of 256 completions part. The other run on that card is `reports/h200-near-ties`.
"""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from worlds import Truth
from worlds.seen_as import VIEWS
from worlds.trials import Trial, judge

from parity.capture import read_capture, read_scores
from parity.comparator import CompareOptions, Comparison, compare
from parity.records import Capture, Key, Kind, ScoreKey, TopLogprobs, Verdict

DATA = Path(__file__).resolve().parents[2] / "data" / "h200"


@pytest.fixture(scope="module")
def trial() -> Trial:
    arms = read_capture(DATA / "cuda-base.jsonl.gz"), read_capture(DATA / "cuda-mtp.jsonl.gz")
    return Trial("h200", 0, *arms, read_scores(DATA / "scores.jsonl.gz"), Truth(), CompareOptions())


@pytest.mark.parametrize("view", VIEWS)
def test_nobody_is_accused(trial: Trial, view: str) -> None:
    seen = VIEWS[view](trial)
    for one in (seen, replace(seen, baseline=seen.candidate, candidate=seen.baseline)):
        assert not judge(one).result.corrupt


def test_each_arm_is_sound_in_the_light_of_the_other(trial: Trial) -> None:
    assert judge(trial).result.verdict is Verdict.PASS
    assert judge(replace(trial, baseline=trial.candidate, candidate=trial.baseline)).result.verdict is Verdict.PASS


def shifted(arm: Capture, nats: float) -> Capture:
    completions = {
        key: replace(one, logprobs=one.logprobs and TopLogprobs(one.logprobs.ids, one.logprobs.values - nats))
        for key, one in arm.completions.items()
    }
    return replace(arm, completions=completions)


def test_numerics_show_from_the_shift_that_the_run_names(trial: Trial) -> None:
    """The PASS says that a mean shift of 0.0027 nats would show: twice as much does."""
    assert any("a mean shift of 0.0027 nats" in str(reason) for reason in judge(trial).result.reasons)
    found = compare(trial.baseline, shifted(trial.candidate, 0.0054), trial.scores)
    assert found.verdict is Verdict.DIVERGED
    assert {one.kind for one in found.corrupt} == {Kind.NUMERICS}


# ------------------------------------------------------------------ an 8-bit KV cache: benchmarks/few_tokens.py


@pytest.mark.parametrize(
    ("arm", "found"), [("cuda-fp8kv", True), ("cuda-mtp-control-kv_fp8", True), ("cuda-mtp", False)]
)
def test_an_8_bit_cache_of_a_gpu_shows_within_4000_tokens(arm: str, found: bool) -> None:
    """By logprobs alone, declared or not; speculation does not look like it."""
    base, candidate = read_capture(DATA / "fp8" / "cuda-base.jsonl.gz"), read_capture(DATA / "fp8" / f"{arm}.jsonl.gz")
    scores = read_scores(DATA / "fp8" / "scores.jsonl.gz")
    for seed in range(4):
        keys: list[Key] = []
        order = sorted(candidate.completions)
        random.Random(seed).shuffle(order)
        while sum(len(candidate.completions[key].token_ids) for key in keys) < 4000:
            keys.append(order[len(keys)])
        few = (replace(one, completions={key: one.completions[key] for key in keys}) for one in (base, candidate))
        result = compare(*few, scores)
        assert any(one.kind is Kind.NUMERICS for one in result.findings) is found
        assert found or result.verdict is Verdict.PASS


def declared(*edits: tuple[Key, int]) -> Comparison:
    """The arm with a declared FP8 cache; of each completion named, one token replaced by one that the
    scores hold for impossible."""
    base = read_capture(DATA / "fp8" / "cuda-base.jsonl.gz")
    candidate, scores = (
        read_capture(DATA / "fp8" / "cuda-fp8kv.jsonl.gz"),
        read_scores(DATA / "fp8" / "scores.jsonl.gz"),
    )
    changed = dict(candidate.completions)
    for key, at in edits:
        ids, name = changed[key].token_ids.copy(), ScoreKey(candidate.header.arm, *key)
        ids[at] = (candidate.header.vocab_size or 0) - 1
        listed, values = scores[name].ids.copy(), scores[name].values.copy()
        column = int(np.flatnonzero(listed[at] == changed[key].token_ids[at])[0])
        listed[at, column], values[at, column] = ids[at], values[at].min() - 3.0
        changed[key] = replace(changed[key], token_ids=ids, logprobs=None)
        scores = {**scores, name: TopLogprobs(listed, values)}
    return compare(base, candidate.but(changed), scores)


def test_a_declared_cache_of_8_bits_is_other_precision_and_no_corruption() -> None:
    """A text of it has two tokens 0.31 and 0.53 nats below the best. They were called `omission`, for what it says
    there stands in the baseline a little later: it had said so before itself."""
    found = declared()
    assert found.verdict is Verdict.PASS
    assert any(one.kind is Kind.NUMERICS for one in found.findings)
    assert {one.evidence.would_be for one in found.findings if one.evidence.gap and one.evidence.gap > 0.5} == {
        "unjustified"
    }
    assert any("taken for the rounding of the other precision" in str(note) for note in found.notes)
    assert any("a token more than 0.75 nats below the best" in str(reason) for reason in found.reasons)


def test_a_fault_beside_other_precision_is_found() -> None:
    found = declared((Key("code-c#1", 0, 0), 30))
    assert found.verdict is Verdict.DIVERGED
    assert {one.request for one in found.corrupt} == {"code-c#1"}
