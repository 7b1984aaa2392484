"""A fault planted in a real engine, reduced while its engine stays up, and the setting that it needs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from parity.pipeline.planning import PlanRequest, make_plan
from parity.plan import Sampling
from parity.reduce.case import Case, Setup, reference_of
from parity.reduce.engines import Engines
from parity.reduce.notebook import Notebook
from parity.reduce.oracle import Oracle
from parity.reduce.result import confirm
from parity.reduce.search import Goal, Search
from parity.reduce.settings import SettingsSearch
from parity.run import Backend
from parity.run.live import live_arm

pytestmark = pytest.mark.engine

FAULT = "chunk_twice:rate=0.2:independent=1:seed=3"
"""Four shots in five of a request with sixteen tokens: seldom enough to be no certainty, often enough that no
decision hangs on how many drafts this machine's rounding accepts."""


@pytest.mark.long
def test_a_flaky_fault_is_reduced_to_one_request_and_needs_speculation(
    cpu: Backend, interpreter: Path, tmp_path: Path
) -> None:
    plan = make_plan(PlanRequest(suite="mixed", sampling=Sampling(max_tokens=16), rounds=4), {"cpu": cpu})
    plan = replace(plan, requests=plan.requests[:8])
    base, mtp = plan.arm("cpu/base"), plan.arm("cpu/mtp")
    fault = cpu.plant(FAULT)
    failing = replace(mtp, env={**mtp.env, **fault})
    passing = replace(base, env={**base.env, **fault})
    case, setup = Case(plan.requests, plan.sampling), Setup(failing, reference_of(base))
    goal = Goal(tokens=case.tokens)
    with (
        Notebook(tmp_path / "shots.jsonl") as notebook,
        Engines(plan, tmp_path / "logs", live_arm, tolerance=0.25, started=notebook.started) as engines,
    ):
        oracle = Oracle(engines, notebook)
        found = Search(oracle, case, setup, goal=goal, first=[plan.requests[4].id]).run()
        assert found.case is not None
        assert [request.id for request in found.case.requests] == [plan.requests[4].id]
        assert not found.deterministic
        assert "duplication" in found.kinds
        confirmation = confirm(oracle, found, setup, goal)
        assert goal.question(found.case).p0 < confirmation.rate
        assert confirmation.passed_over == 0  # the engine that chose the case has stayed up
        assert notebook.starts == 2  # one candidate and one reference served all shots

        flip = SettingsSearch(oracle, found.case, setup.reference, goal.question(found.case)).run(failing, passing)
        assert flip.settings is not None
        assert [one.name for one in flip.settings] == ["speculation"]
    planted = [line for log in (tmp_path / "logs").glob("*-candidate-*.log") for line in log.read_text().splitlines()]
    assert any('"record": "planted"' in line and "parity-fault" in line for line in planted)
