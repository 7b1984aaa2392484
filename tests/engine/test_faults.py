"""Faults planted in a real engine: what was planted is what is found, and nothing else is."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import parity_faults
import pytest
from fault_lab import (
    ENGINE,
    OF_STATE,
    RATES,
    Case,
    Outcome,
    compared,
    planted,
    run_engine,
    run_until_damaged,
)
from parity_backends.vllm.cpu import CpuBackend

from parity.capture import read_capture
from parity.capture.steps import read_steps
from parity.explain.ledger import Ledger
from parity.explain.predicates import asked_of
from parity.explain.violations import check

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1800)]

CONTROLS = ("none", "logits_noise")
CONDITIONAL = {
    Case("early_eos", when="moved"): ("moved",),
    Case("unverified_drafts", when="boundary"): ("position % 16 == 0",),
    Case("garbled_row", when="mixed"): ("mixed",),
    Case("row_leak", when="accepted"): ("all accepted",),
    Case("accepted_counts", when="moved+mixed"): ("moved", "mixed"),
    Case("stale_chunk", when="accepted+boundary"): ("all accepted", "position % 16 == 0"),
}
"""Faults that strike under conditions, and the predicates of parity/explain that these are."""


@pytest.fixture(scope="module")
def interpreter() -> Path:
    return CpuBackend().interpreter(print)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lab")


@pytest.fixture(scope="module")
def lab(folder: Path, interpreter: Path) -> dict[str, Outcome]:
    """Every fault and control, from two engine starts; more where no planted row came out damaged."""
    cases = [*(Case(name) for name in (*RATES, *CONTROLS)), *CONDITIONAL]
    outcomes = run_until_damaged(interpreter, folder, cases)
    return {outcome.case.name: outcome for outcome in outcomes}


@pytest.mark.parametrize("name", RATES)
def test_every_damaged_row_is_found_and_no_other(lab: dict[str, Outcome], name: str) -> None:
    outcome = lab[name]
    assert all(one.truths for one in outcome.judgements), "nothing was planted"
    assert outcome.damaged, "no planted row came out damaged"
    for result in outcome.judgements:
        assert result.verdict == ("DIVERGED" if result.damaged else "PASS")
        assert [truth.request for truth in result.caught] == [truth.request for truth in result.damaged]
        assert result.accused == []


def test_kind_and_first_token_are_right(lab: dict[str, Outcome]) -> None:
    """Of faults that put wrong tokens into a row; what a wrong state leads to is the model's own."""
    results = [one for name in RATES if name not in OF_STATE for one in lab[name].judgements]
    caught = sum(len(result.caught) for result in results)
    # 93 % and 99 % in the table of docs/fault-lab.md; the limits lie well below, since which rows are hit varies.
    assert sum(len(result.right_kind) for result in results) >= 0.75 * caught
    assert sum(len(result.right_token) for result in results) >= 0.9 * caught


@pytest.mark.parametrize("name", CONTROLS)
def test_noise_of_the_size_of_rounding_is_not_reported(lab: dict[str, Outcome], folder: Path, name: str) -> None:
    [trial] = lab[name].trials
    result = compared(folder, trial)
    assert result.corrupt == []
    assert result.verdict == "PASS"


def test_the_noise_moves_logprobs(lab: dict[str, Outcome], folder: Path) -> None:
    """Whether it changes a token is the machine's luck; without any effect the control would show nothing."""
    clean, noisy = (read_capture(folder / lab[name].trials[0].name / "mtp.jsonl") for name in CONTROLS)
    assert len(planted(folder / lab["logits_noise"].trials[0].name)) > 100
    for key, completion in noisy.completions.items():
        first, moved = clean.completions[key].logprobs, completion.logprobs
        assert first is not None
        assert moved is not None
        assert not np.array_equal(first.values[0], moved.values[0])


MULTIPROCESS = """
import json, os, sys
from parity_faults import prompt_key
from vllm import LLM, SamplingParams
if __name__ == "__main__":
    assert "parity" not in sys.modules
    llm = LLM(sys.argv[1], **json.loads(sys.argv[2]))
    outputs = llm.generate(["In the beginning God", "Once upon a time"], SamplingParams(temperature=0, max_tokens=12))
    found = {prompt_key(output.prompt_token_ids): [output.outputs[0].finish_reason, len(output.outputs[0].token_ids)]
             for output in outputs}
    with open(sys.argv[3], "w") as file:
        json.dump({"pid": os.getpid(), "found": found}, file)
    os._exit(0)
"""


def test_the_plugin_reaches_an_engine_core_in_another_process(tmp_path: Path, interpreter: Path) -> None:
    """As on a far host: a zip file on PYTHONPATH, the environment, nothing of parity, a core of its own."""
    log, script = tmp_path / "planted.jsonl", tmp_path / "run.py"
    script.write_text(MULTIPROCESS, encoding="utf-8")
    model = CpuBackend().default_model()
    variables = parity_faults.environment("early_eos", rate=1.0, log=str(log), max=1)
    variables |= parity_faults.unpacked(tmp_path) | {"VLLM_ENABLE_V1_MULTIPROCESSING": "1"}
    answer = tmp_path / "answer.json"
    command = [str(script), str(model), json.dumps(ENGINE), str(answer)]
    run_engine(interpreter, command, tmp_path / "engine.log", **variables)
    answered = json.loads(answer.read_text(encoding="utf-8"))
    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    [stopped] = [line for line in lines if line["record"] == "planted"]
    installed = {line["pid"] for line in lines if line["record"] == "installed"}
    assert installed - {answered["pid"]}, "no other process had it"
    assert answered["found"][stopped["prompt"]] == ["stop", stopped["position"] + 1]


@pytest.mark.parametrize("case", CONDITIONAL, ids=lambda case: case.name)
def test_conditional_faults_strike_where_the_steps_say_that_the_condition_holds(
    lab: dict[str, Outcome], folder: Path, case: Case
) -> None:
    """The plugin asks the engine, the predicates read the steps file: two ways to the same rows."""
    (trial,) = lab[case.name].trials
    (steps,) = read_steps(folder / trial.name / "mtp.steps")
    ledger = Ledger(steps)
    masks = asked_of(ledger)
    places = {(int(steps.step[at]), ledger.request_of(at).engine_id): at for at in range(len(steps))}
    first: dict[str, int] = {}
    for one in planted(folder / trial.name):
        first.setdefault(one["request"], places[one["step"], one["request"]])
    assert first, "nothing was planted"
    # A fault that goes on for several steps strikes under its condition and then goes on.
    assert all(masks[name][at] for at in first.values() for name in CONDITIONAL[case])
    assert {one.request.engine_id for one in check(steps).violations} == first.keys()


@pytest.mark.parametrize("name", [*RATES, "none"])
def test_every_planted_row_step_is_located(lab: dict[str, Outcome], folder: Path, name: str) -> None:
    """Damaged or not: the exact step and row, and nothing else is accused."""
    for trial in lab[name].trials:
        (steps,) = read_steps(folder / trial.name / "mtp.steps")
        checked = check(steps)
        assert not checked.unasked
        found = {(one.step, one.request.engine_id): one.row for one in checked.violations}
        due = {(one["step"], one["request"]): one["row"] for one in planted(folder / trial.name)}
        assert found.keys() == due.keys()
        # What is planted on the way to the caller has no row of its own.
        assert all(row in (-1, found[place]) for place, row in due.items())
