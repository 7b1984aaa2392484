"""What a run proves: speculation really ran, the same was asked, and which part is to blame."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from captures import TEXT, capture, completion, header, score, scores, texts

from parity.comparator import compare, triangulate
from parity.comparator.inputs.exercised import speculation_counts
from parity.records import Capture, Kind, SpecTrace, Verdict


def run_with(counters: dict[str, Any] | None, *, arm: str = "cpu/mtp", spec: SpecTrace | None = None) -> Any:
    candidate = replace(capture(arm, completion(TEXT, spec=spec)), counters=counters)
    return compare(capture("cpu/base", completion(TEXT)), candidate)


@pytest.mark.parametrize(
    ("counters", "verdict", "said"),
    [
        ({"num_draft_tokens": 20, "num_accepted_tokens": 15}, Verdict.PASS, None),
        ({"num_draft_tokens": 0, "num_accepted_tokens": 0}, Verdict.INCONCLUSIVE, "proposed no draft tokens"),
        ({"num_draft_tokens": 20, "num_accepted_tokens": 0}, Verdict.INCONCLUSIVE, "accepted no draft tokens"),
        ({"vllm:spec_decode_num_draft_tokens": 0}, Verdict.INCONCLUSIVE, "proposed no draft tokens"),
        ({"requests": 3}, Verdict.PASS, "not proven"),
        (None, Verdict.PASS, "not proven"),
    ],
)
def test_speculation_must_have_run(counters: dict[str, int] | None, verdict: Verdict, said: str | None) -> None:
    result = run_with(counters)
    assert result.verdict is verdict
    if said is not None:
        assert any(said in line for line in [*texts(result.reasons), *texts(result.notes)])


def test_an_arm_without_speculation_needs_no_proof() -> None:
    result = run_with({"num_draft_tokens": 0}, arm="gpu/base")
    assert result.verdict is Verdict.PASS
    assert not any("proven" in note for note in texts(result.notes))


def test_the_trace_counts_where_there_are_no_counters() -> None:
    trace = SpecTrace(np.array([0, 0]), np.array([2, 2]))
    assert run_with(None, spec=trace).verdict is Verdict.INCONCLUSIVE
    assert speculation_counts(replace(capture("cpu/mtp", completion(TEXT, spec=trace)), counters=None)) == (4, 0)


@pytest.mark.parametrize(
    "change",
    [
        {"vocab_size": 999},
        {"model": "hub/another"},
        {"eos_token_ids": (7,)},
        {"sampling": {"temperature": 0.0, "max_tokens": 61, "n": 1}},
    ],
)
def test_arms_that_were_asked_different_things_leave_nothing_to_conclude(change: dict[str, Any]) -> None:
    other = replace(capture("cpu/mtp", completion(TEXT)), header=replace(header("cpu/mtp"), **change))
    result = compare(capture("cpu/base", completion(TEXT)), other)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert [(one.kind, one.request) for one in result.findings] == [(Kind.INPUT_MISMATCH, "*")]


@pytest.mark.parametrize("silent", ["cpu/base", "cpu/mtp"])
def test_an_arm_that_names_no_eos_has_the_others(silent: str) -> None:
    def arm(name: str, tokens: list[int]) -> Capture:
        named = replace(header(name), eos_token_ids=() if name == silent else (0,))
        return replace(capture(name, completion(tokens, finish="stop")), header=named)

    ended = [*TEXT[:-1], 0]
    result = compare(arm("cpu/base", ended), arm("cpu/mtp", ended))
    assert result.verdict is Verdict.PASS
    assert not result.findings
    overrun = compare(arm("cpu/base", ended), arm("cpu/mtp", [*ended, 5]))
    assert Kind.OVERRUN in {one.kind for one in overrun.findings}


PASS, DIVERGED = Verdict.PASS, Verdict.DIVERGED


@pytest.mark.parametrize(
    ("verdicts", "suspect"),
    [
        ({"cpu/mtp": PASS, "npu/base": PASS, "npu/mtp": PASS}, None),
        ({"cpu/mtp": PASS, "npu/base": PASS, "npu/mtp": DIVERGED}, "speculation on npu"),
        ({"cpu/mtp": DIVERGED, "npu/base": PASS, "npu/mtp": DIVERGED}, "speculation everywhere"),
        ({"cpu/mtp": PASS, "npu/base": DIVERGED, "npu/mtp": DIVERGED}, "the engine on npu"),
        ({"cpu/mtp": DIVERGED}, "speculation on cpu"),
        ({"cpu/mtp-k3": DIVERGED, "cpu/eager": PASS}, "speculation on cpu"),
        ({"cpu/mtp": PASS, "cpu/eager": DIVERGED}, "the settings of cpu/eager"),
        ({"cpu/mtp": PASS, "cpu/mtp-k3": DIVERGED}, "the settings of cpu/mtp-k3"),
        ({"cpu/mtp": DIVERGED, "cpu/eager": DIVERGED}, None),
        ({"cpu/mtp": PASS, "npu/base": PASS, "npu/mtp": DIVERGED, "npu/eager": DIVERGED}, None),
        ({"cpu/mtp": DIVERGED, "npu/base": PASS, "npu/eager": DIVERGED}, "speculation on cpu"),
    ],
)
def test_the_suspect(verdicts: dict[str, Verdict], suspect: str | None) -> None:
    found = triangulate(verdicts, "cpu/base")
    assert (str(found.name) if found else None) == suspect


OPEN = Verdict.INCONCLUSIVE


@pytest.mark.parametrize(
    ("verdicts", "suspect"),
    [
        ({"cuda/mtp": DIVERGED, "cuda/base": OPEN, "cpu/mtp": PASS}, None),
        ({"cuda/mtp": DIVERGED, "cuda/base": OPEN}, None),
        ({"cuda/eager": DIVERGED, "cuda/base": OPEN}, None),
        ({"cuda/mtp": DIVERGED, "cuda/base": PASS, "cpu/mtp": OPEN}, "speculation on cuda"),
        ({"cuda/mtp": DIVERGED, "cuda/base": OPEN, "cpu/mtp": DIVERGED}, "speculation on cpu"),
        ({"cuda/mtp": DIVERGED, "cpu/eager": DIVERGED}, None),
    ],
)
def test_an_arm_that_is_inconclusive_neither_agrees_nor_diverges(
    verdicts: dict[str, Verdict], suspect: str | None
) -> None:
    found = triangulate(verdicts, "cpu/base")
    assert (str(found.name) if found else None) == suspect
    said = "" if found is None else str(found.why)
    assert "is clean" not in said
    assert "cuda agree" not in said or verdicts["cuda/base"] is PASS


def test_the_same_model_under_another_path_is_the_same_model() -> None:
    other = replace(capture("cpu/mtp", completion(TEXT)), header=replace(header("cpu/mtp"), model="/models/m/"))
    assert compare(capture("cpu/base", completion(TEXT)), other).verdict is Verdict.PASS


def header_with(**changes: Any) -> Capture:
    return replace(capture("cpu/mtp", completion(TEXT)), header=replace(header("cpu/mtp"), **changes))


WEIGHTS = {"config.json": "c", "tokenizer.json": "t", "weights": "w"}


@pytest.mark.parametrize(
    ("left", "right", "mismatch"),
    [
        (WEIGHTS, WEIGHTS, False),
        (WEIGHTS, {**WEIGHTS, "weights": "x"}, True),
        (WEIGHTS, {**WEIGHTS, "tokenizer.json": "x"}, True),
        (WEIGHTS, {**WEIGHTS, "config.json": "x"}, False),
        (WEIGHTS, {"weights": "w"}, False),
        ("a", "b", True),
    ],
)
def test_another_checkpoint_is_another_question(left: Any, right: Any, mismatch: bool) -> None:
    arms = [header_with(extra={"model_fingerprint": one}) for one in (left, right)]
    result = compare(*arms)
    assert result.verdict is (Verdict.INCONCLUSIVE if mismatch else Verdict.PASS)
    assert ("config.json" in " ".join(texts(result.notes))) == (left != right and not mismatch and len(right) == 3)


def test_one_fingerprint_for_two_names_is_one_model() -> None:
    arms = [header_with(extra={"model_fingerprint": WEIGHTS}, model=name) for name in ("a", "b")]
    assert compare(*arms).verdict is Verdict.PASS


def test_other_versions_and_precision_are_said() -> None:
    base = header_with(
        environment={"versions": {"vllm": "0.31.0", "torch": "2.13.0"}},
        engine={"dtype": "torch.bfloat16", "cudagraph_mode": "NONE"},
    )
    other = header_with(
        environment={"versions": {"vllm": "0.32.0", "torch": "2.13.0", "torch-npu": "2.9"}},
        engine={"dtype": "float16", "cudagraph_mode": "FULL", "quantization": "awq", "speculative_method": "mtp"},
    )
    result = compare(base, other)
    assert result.verdict is Verdict.PASS
    assert result.stats.to_json()["differences"] == {
        "versions": {"vllm": ["0.31.0", "0.32.0"]},
        "precision": {"dtype": ["bfloat16", "float16"], "quantization": [None, "awq"]},
        "engine": {"cudagraph_mode": ["NONE", "FULL"]},
    }
    assert any("vllm 0.31.0 and 0.32.0" in note for note in texts(result.notes))
    wrong = replace(other, completions={(one := completion([*TEXT[:-1], 2000])).key: one})
    reason = texts(compare(base, wrong).reasons)[1]
    assert "the arms also differ in vllm 0.31.0 and 0.32.0, dtype bfloat16 and float16" in reason


def test_equal_environments_are_not_talked_about() -> None:
    arm = header_with(environment={"versions": {"vllm": "0.32.0"}}, engine={"dtype": "bfloat16"})
    result = compare(arm, arm)
    assert result.stats.to_json()["differences"] == {}


def test_one_completion_parts_and_two_part() -> None:
    for count, said in ((1, "1 parts at a near-tie"), (2, "2 part at near-ties")):
        base = [completion(TEXT, f"p{number}") for number in range(3)]
        other = [completion([*TEXT[:59], 700], f"p{number}") for number in range(count)]
        known = {one.key.request: score(one.token_ids.tolist(), {59: 0.1}, TEXT) for one in other}
        arm = capture("cpu/mtp", *other, *base[count:])
        found = compare(capture("cpu/base", *base), arm, scores("cpu/mtp", **known))
        assert str(found.reasons[0]) == f"3 completions, {said}, none is corrupt"
