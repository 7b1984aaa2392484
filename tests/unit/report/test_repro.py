"""The reproduction script: that it stands alone, and what it says of an engine that is played by `fake_vllm`."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from captures import capture, completion, written
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from report_data import BASE, MTP, arm_case, finding_case, make_case, run_of

from parity.errors import ParityError
from parity.records import ScoreKey, TopLogprobs
from parity.report.repro import near_ties, repro_of, repro_script

FAKE = Path(__file__).parent / "fake_vllm"
NAMES = {"p0": "1", "p1": "4"}
UNDAMAGED = finding_case(
    kind="violation", evidence={}, candidate=replace(finding_case().baseline, first_divergence=None)
)
"""Something in a step, and the tokens are the baseline's."""
"""Requests and the first token of their prompts, by which the fake engine knows them."""
CLEAN = {"1": [[[5, 6, 7, 8, 9, 10], "length"]], "4": [[[5, 6, 7, 8, 9, 10], "length"]]}


def baseline(tmp_path: Path) -> Path:
    """The baseline's capture: both requests say 5 6 7 8 9 10; at token 3, 8 and 88 are a near-tie."""
    tokens = np.array([5, 6, 7, 8, 9, 10], dtype=np.int64)
    ids = np.array([[int(token), 88 if token == 8 else 77] for token in tokens])
    values = np.array([[-0.5, -0.6 if token == 8 else -5.0] for token in tokens])
    scores = {ScoreKey(BASE, name, 0, 0): TopLogprobs(ids, values) for name in NAMES}
    made = capture(BASE, *(completion(tokens, name) for name in NAMES), scores=scores, model="tiny")
    return written(tmp_path / "cpu-base.jsonl", made)


def script(tmp_path: Path, **finding: Any) -> Path:
    arms = [arm_case(BASE, capture=str(baseline(tmp_path))), arm_case(MTP)]
    case = make_case(arms=arms, finding=finding_case(**finding))
    path = tmp_path / "repro.py"
    path.write_text(repro_script(case, case.findings[0], model="tiny"), encoding="utf-8")
    return path


def play(path: Path, *arguments: str, environment: dict[str, str] | None = None, **acts: Any) -> tuple[int, str]:
    """Exit code and output of the script beside a fake vLLM, without parity in reach."""
    env = {**os.environ, "PYTHONPATH": str(FAKE), "FAKE_VLLM": json.dumps(acts), **(environment or {})}
    # -S: no site packages, so nothing that is installed here can help the script.
    done = subprocess.run(
        [sys.executable, "-S", str(path), *arguments], env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout + done.stderr


def with_first(tokens: list[int], reason: str = "length") -> dict[str, Any]:
    return {**CLEAN, "1": [[tokens, reason]]}


def test_the_script_needs_python_3_9_and_vllm_alone(tmp_path: Path) -> None:
    text = script(tmp_path).read_text()
    tree = ast.parse(text, feature_version=(3, 9))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in imported} <= {*sys.stdlib_module_names, "vllm"}
    assert text.isascii()
    assert "disable_log_stats" not in text
    assert "PARITY_FAULT'" not in text.split("SAMPLING")[0]


def test_expected_tokens_are_no_fault(tmp_path: Path) -> None:
    code, said = play(script(tmp_path), outputs=[CLEAN])
    assert (code, "not seen in 1 round of 2 requests" in said) == (0, True), said


def test_a_token_the_reference_does_not_hold_for_likely_is_the_fault(tmp_path: Path) -> None:
    code, said = play(script(tmp_path), outputs=[with_first([5, 6, 99, 98, 9, 10])])
    assert (code, "request p0, sample 0: unsupported token: token 2 is 99, expected 7" in said) == (1, True), said


def test_a_near_tie_is_teacher_forced_and_then_no_fault(tmp_path: Path) -> None:
    code, said = play(script(tmp_path), outputs=[with_first([5, 6, 7, 88, 11, 12])])
    assert code == 0, said


def test_what_stands_behind_a_near_tie_is_judged_too(tmp_path: Path) -> None:
    code, said = play(script(tmp_path), outputs=[with_first([5, 6, 7, 88, 11, 12])], reference={"12": 3.0})
    assert (code, "token 5 is 12, 3.00 nats below the best" in said) == (1, True), said


def test_a_planted_fault_does_not_reach_the_reference(tmp_path: Path) -> None:
    outputs = [with_first([5, 6, 7, 88, 11, 12])]
    code, said = play(script(tmp_path), outputs=outputs, environment={"PARITY_FAULT": "loop:rate=1"})
    assert code == 0, said


@pytest.mark.parametrize(
    ("tokens", "reason", "kind"),
    [
        ([5, 6, 7], "stop", "early_stop"),
        ([5, 6, 7, 8, 9, 10, 11], "length", "overrun"),
        ([5, 6, 7, 8, 9, 10], "abort", "early_stop"),
        ([5, 6, 7, 88, 11], "length", "early_stop"),
    ],
)
def test_ends_that_should_not_be(tmp_path: Path, tokens: list[int], reason: str, kind: str) -> None:
    code, said = play(script(tmp_path), outputs=[with_first(tokens, reason)])
    assert (code, f"{kind}:" in said) == (1, True), said


def test_a_missing_sample_is_a_fault(tmp_path: Path) -> None:
    code, said = play(script(tmp_path), outputs=[{**CLEAN, "4": []}])
    assert (code, "missing_completion" in said) == (1, True), said


def test_a_rare_fault_is_found_in_its_round_and_counted(tmp_path: Path) -> None:
    bad = with_first([5, 6, 99, 98, 9, 10])
    outputs = [CLEAN, CLEAN, bad, CLEAN, bad, CLEAN]
    path = script(tmp_path)
    assert play(path, outputs=outputs)[0] == 0
    code, said = play(path, "--rounds", "6", outputs=outputs)
    assert (code, "showed in 1 of 3 rounds" in said) == (1, True), said
    code, said = play(path, "--rounds", "6", "--count", outputs=outputs)
    assert (code, "showed in 2 of 6 rounds" in said) == (1, True), said


def test_setup_problems_are_no_verdict(tmp_path: Path) -> None:
    path = script(tmp_path)
    code, said = play(path, outputs=[], fails=True)
    assert (code, "the engine did not start: RuntimeError: no such device" in said) == (2, True), said
    code, said = play(path, outputs=[], environment={"PYTHONPATH": ""})
    assert (code, "vLLM cannot be imported" in said) == (2, True), said
    assert play(path, "--rounds", "0", outputs=[CLEAN])[0] == 2
    assert play(path, "--model", "", outputs=[CLEAN])[0] == 2


def test_wrong_text_is_found_where_that_is_the_finding(tmp_path: Path) -> None:
    """The fake detokenises to the ids, so a clean engine passes."""
    path = script(tmp_path, kind="text_mismatch")
    assert play(path, outputs=[CLEAN])[0] == 0


def test_without_the_baselines_capture_the_one_request_is_known() -> None:
    text, why = repro_of(make_case())
    assert text is not None
    assert why is None
    assert "'tokens': [5, 6, 7, 8, 9, 10]" in text


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"finding": finding_case(request="*", position=None)}, "about the run as a whole"),
        ({"finding": None}, "nothing corrupt"),
        ({"finding": UNDAMAGED}, "left no trace in the tokens"),
        ({"finding": finding_case(severity="benign", kind="near_tie")}, "nothing corrupt"),
    ],
)
def test_what_no_script_can_show(changes: dict[str, Any], why: str) -> None:
    text, said = repro_of(make_case(**changes))
    assert text is None
    assert why in str(said)


def test_random_sampling_has_no_tokens_to_expect() -> None:
    case = make_case(run=run_of(sampling={"temperature": 0.8}))
    with pytest.raises(ParityError, match=r"temperature 0\.8"):
        repro_script(case, case.findings[0])


@pytest.mark.parametrize(("arm", "run"), [("server/vllm", {}), (MTP, {"churn": {"shuffle": True}})])
def test_what_is_no_batch_in_an_engine_has_no_script(arm: str, run: dict[str, Any]) -> None:
    case = make_case(arms=[arm_case(BASE), arm_case(arm)], finding=finding_case(arm=arm), run=run_of(**run))
    script, why = repro_of(case)
    assert script is None
    assert "engine that a script can start" in str(why) or "--churn" in str(why)


@settings(deadline=None)
@given(st.text())
def test_any_text_leaves_a_script_that_means_the_same(text: str) -> None:
    script, _ = repro_of(make_case(text))
    assert script is not None
    assert script.isascii()
    tree = ast.parse(script)
    names = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    assert ast.literal_eval(names["TOLERANCE"]) == 0.25
    assert [request["prompt_token_ids"] for request in ast.literal_eval(names["REQUESTS"])] == [[1, 2, 3], [4, 5]]
    plain, _ = repro_of(make_case())
    assert len(tree.body) == len(ast.parse(plain or "").body), "a statement came in with the text"


def test_near_ties_are_the_tokens_within_the_tolerance() -> None:
    scored = TopLogprobs(
        np.array([[1, 2, 3], [4, 5, -1], [6, 7, 8]]),
        np.array([[-1.0, -1.2, -3.0], [-0.1, -2.0, np.nan], [-1.0, -1.0, -1.1]]),
    )
    assert near_ties([1, 4, 6, 9], scored, 0.25) == {"0": [1, 2], "2": None, "3": None}
