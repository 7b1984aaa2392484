"""The reproduction script on a real engine: it fails on the faulty one and passes on the clean one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import parity_faults
import pytest
from engine_plan import BaseArm
from plans import plan_of

from parity.capture import read_capture
from parity.messages import verbatim
from parity.pipeline.analyse import arm_result
from parity.records import Capture, Completion, Evidence, Finding, Header, Kind, Severity
from parity.report.repro import repro_script
from parity.store import ArmComparison, NewRun, Store
from parity.view import of_store

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def script(base_plan: dict[str, Any], base_arm: BaseArm, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`parity repro` of a finding in cpu/mtp: the baseline is real, the finding is that a chunk came twice."""
    folder = tmp_path_factory.mktemp("repro")
    captured = base_arm.capture
    baseline = read_capture(captured, partial=True)
    broken = {
        one.key: Completion(
            one.key,
            one.prompt_token_ids,
            np.concatenate([one.token_ids[:6], one.token_ids[3:-3]]),
            None,
            one.finish_reason,
            None,
        )
        for one in baseline
    }
    candidate = Capture(Header("cpu/mtp", "cpu", "mtp", baseline.header.model), broken, {}, {})
    first = next(iter(baseline)).key
    evidence = Evidence(why=verbatim("3 tokens are emitted again"))
    finding = Finding("cpu/mtp", "cpu/base", *first, Kind.DUPLICATION, Severity.CORRUPT, 6, 3, evidence)
    classes = {one.key: "corrupt" for one in baseline}
    comparison = ArmComparison("DIVERGED", [verbatim("4 are corrupt")], {"duplication": 1}, {}, classes, {}, [finding])
    with Store.open(folder / "parity.db") as store:
        store.create_run(NewRun("20261121-000000-aaaa", plan_of(base_plan), "parity run"))
        for capture, path in ((baseline, captured), (candidate, folder / "none.jsonl")):
            store.save_arm("20261121-000000-aaaa", capture.header.arm, capture, str(path), arm_result(capture))
        store.save_comparison("20261121-000000-aaaa", "cpu/mtp", comparison)
        view = of_store(store)
        assert view.chosen is not None
        text = repro_script(view, view.chosen)
    path = folder / "repro.py"
    path.write_text(text, encoding="utf-8")
    return path


def run(script: Path, interpreter: Path, model: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """The script as somebody runs who has vLLM and not parity."""
    command = [str(interpreter), str(script), "--model", model]
    env = {**os.environ, **variables}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=400, check=False)
    print(done.stdout, done.stderr[-3000:], file=sys.stderr)
    return done


def test_the_clean_engine_passes(script: Path, interpreter: Path, base_plan: dict[str, Any]) -> None:
    done = run(script, interpreter, base_plan["model"]["path"])
    assert done.returncode == 0
    assert "not seen in 1 round" in done.stdout


def test_the_faulty_engine_fails(script: Path, interpreter: Path, base_plan: dict[str, Any], tmp_path: Path) -> None:
    log = tmp_path / "planted.jsonl"
    planted = parity_faults.environment("chunk_twice", log=str(log)) | parity_faults.unpacked(tmp_path)
    done = run(script, interpreter, base_plan["model"]["path"], **planted)
    assert '"planted"' in log.read_text(), "the fault did not happen, so nothing was tested"
    assert done.returncode == 1
    assert "the fault showed in 1 of 1 round" in done.stdout


def test_a_checkpoint_that_is_not_there_is_no_verdict(script: Path, interpreter: Path, tmp_path: Path) -> None:
    done = run(script, interpreter, str(tmp_path / "nothing"))
    assert done.returncode == 2
    assert "the engine did not start" in done.stderr
