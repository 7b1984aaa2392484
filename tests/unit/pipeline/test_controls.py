"""What the log of a control arm says was planted."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from parity_faults import prompt_key
from support.captures import TEXT, capture, completion

from parity.comparator import compare
from parity.comparator.types import run_finding
from parity.errors import ParityError
from parity.explain.located import MODULE, Located, Locating
from parity.pipeline.controls import Planted, judge, prompt_digest, read_planted
from parity.pipeline.execute import execute
from parity.pipeline.planning import PlanRequest, load_backends, make_plan
from parity.records import Kind
from parity.records.evidence import RunEvidence


def test_prompts_are_named_as_the_fault_lab_names_them() -> None:
    for ids in ([], [1], [3, 200, 151643]):
        assert prompt_digest(ids) == prompt_key(ids)


def test_a_log_that_is_not_there_planted_nothing(tmp_path: Path) -> None:
    planted = read_planted(tmp_path / "none.log")
    assert (planted.installed, dict(planted.prompts)) == (False, {})


def test_only_whole_lines_count(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(
        b"INFO something\n"
        b'(Worker pid=7) parity-fault {"record": "installed", "fault": "row_swap"}\n'
        b'parity-fault {"record": "planted", "prompt": "aa"}\n'
        b'parity-fault {"record": "planted", "prompt": "aa"}\n'
        b'parity-fault {"record": "planted", "prompt": "bbparity-fault {"record"\n'
        b"parity-fault [1]\nparity-fault \xff\n" + b"x" * (1 << 20) + b"\n"
    )
    planted = read_planted(log)
    assert planted.installed
    assert dict(planted.prompts) == {"aa": 2}
    assert sys.getsizeof(planted.prompts) < 10_000


def test_a_fault_that_shows_in_the_run_alone_is_caught() -> None:
    candidate = capture("cpu/mtp", completion(TEXT))
    found = compare(capture("cpu/base", completion(TEXT)), candidate)
    planted = Planted(True, {prompt_digest([1, 2, 3]): 1})
    assert not judge("cpu/mtp", "kv_fp8", planted, candidate, found).as_expected
    of_the_run = run_finding("cpu/mtp", "cpu/base", Kind.GARBLED, RunEvidence(why=Kind.GARBLED.row.title))
    caught = judge("cpu/mtp", "kv_fp8", planted, candidate, replace(found, findings=(of_the_run,)))
    assert caught.as_expected
    assert caught.sentence.id == "pipeline.control_caught_run"
    asked = run_finding("cpu/mtp", "cpu/base", Kind.INPUT_MISMATCH, RunEvidence(why=Kind.GARBLED.row.title))
    assert not judge("cpu/mtp", "kv_fp8", planted, candidate, replace(found, findings=(asked,))).as_expected


def test_a_fault_of_the_drafter_shows_in_its_sketches_alone() -> None:
    candidate = capture("cpu/mtp", completion(TEXT))
    found = compare(capture("cpu/base", completion(TEXT)), candidate)
    planted = Planted(True, {prompt_digest([1, 2, 3]): 1})

    def judged(fault: str, drafter: Locating | None) -> tuple[bool, str]:
        control = judge("cpu/mtp", fault, planted, candidate, found, drafter)
        return control.as_expected, control.sentence.id

    clean = Locating((), 5, 1, judged=True, unpaired={}, noise=())
    (key,) = candidate.completions
    here = Located(key, MODULE, 5, 3, 2, 0, "drafter.model.fc", "Linear", 0.5, 0.01, True, 1)
    wrong = replace(clean, located=(here,))
    assert judged("drafter_input_off:rate=0.3", wrong) == (True, "pipeline.control_caught")
    assert judged("drafter_input_off:rate=0.3", clean) == (False, "pipeline.control_not_caught")
    assert judged("drafter_input_off:rate=0.3", None) == (True, "pipeline.control")  # not sketched: no token is wrong
    assert judged("mlp_off:rate=0.3", wrong) == (False, "pipeline.control_not_caught")


def test_what_was_planted_in_other_prompts_is_not_counted() -> None:
    """As in the prefills that an engine with a drafter makes of its own completions."""
    candidate = capture("cpu/mtp", completion(TEXT))
    found = compare(capture("cpu/base", completion(TEXT)), candidate)
    planted = Planted(True, {prompt_digest([1, 2, 3]): 2, prompt_digest([1, 2, 3, *TEXT]): 1})
    said = str(judge("cpu/mtp", "attention_off", planted, candidate, found).sentence)
    assert "planted in 2 steps of 1 request and found in none" in said


def test_a_plan_of_controls_alone_is_refused_before_an_engine_starts(tmp_path: Path) -> None:
    backends = load_backends(["cpu"])
    request = PlanRequest(suite="smoke", variants=("base",), positive_controls=("kv_fp8",))
    plan = make_plan(request, backends)
    nothing: Any = None
    with pytest.raises(ParityError, match="positive controls only"):
        execute(plan, nothing, nothing, nothing, command="", versions={}, say=print)
