"""Two ranks as one engine: what happens in them is seen, and nothing of them stays."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from plans import plan_of

from parity.capture import check_capture, read_capture
from parity.capture.steps import read_steps, steps_path
from parity.explain.violations import check
from parity.run import ArmEvent, Phase, run_arm
from parity.run.process import living_members

pytestmark = pytest.mark.engine

TWO = {"tensor_parallel_size": 2, "distributed_executor_backend": "mp"}


def test_rows_are_counted_in_a_rank(base_plan: dict[str, Any], tmp_path: Path) -> None:
    """A CPU's ranks, spawned as those of an NPU are. Parity's functions travel to them by value."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        pytest.skip("two ranks need two cores")
    first, last = cores[0], cores[-1]
    env = {"VLLM_CPU_OMP_THREADS_BIND": f"{first}|{last}", "VLLM_WORKER_MULTIPROC_METHOD": "spawn"}
    plan = plan_of(base_plan)
    arms = (replace(arm, engine={**arm.engine, **TWO}, env={**arm.env, **env}) for arm in plan.arms)
    path, groups = tmp_path / "a.jsonl", set[int]()

    def watch(event: ArmEvent) -> None:
        if event.phase is Phase.GENERATING:
            assert session.link._pool is not None
            groups.add(session.link._pool.workers[0].pid)

    with run_arm(
        replace(plan, arms=tuple(arms), record=True), "cpu/mtp", path, tmp_path / "a.log", on_event=watch
    ) as session:  # fmt: skip
        session.generate()
    assert check_capture(path) == []
    header, *_, footer = map(json.loads, path.read_text().splitlines())
    assert header["engine"]["model_runner"].endswith("ModelRunner")
    assert header["engine"]["tensor_parallel_size"] == 2
    counters = footer["counters"]
    assert {"rows_joined", "rows_left", "rows_moved"} <= counters.keys()
    assert max(map(int, counters["batch_sizes"])) == 4  # the four prompts, in one batch
    assert counters["draft_tokens"] > 0
    assert header["steps"] == {"schema": "parity.steps/1"}
    (steps,) = read_steps(steps_path(path))
    checked = check(steps)
    assert checked.violations == ()
    assert set(checked.unasked) == {"given", "end"}  # the scheduler is not where the model runner is
    assert {one.key for one in steps.requests.values()} == set(read_capture(path).completions)
    assert steps.lists("handed").counts.sum() >= counters["tokens"]  # a request may end within a step
    (group,) = groups
    assert living_members(group) == set()
