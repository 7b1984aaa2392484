"""One engine environment for all tests here, and one engine start where a test can share it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from engine_plan import BaseArm, make_plan
from plans import plan_of

from parity.capture import read_capture
from parity.run import Backend, ScoreItem, load_backend, run_arm


@pytest.fixture(scope="session")
def cpu() -> Backend:
    return load_backend("cpu")


@pytest.fixture(scope="session")
def interpreter(cpu: Backend) -> Path:
    """A Python with vLLM for CPU: the managed environment, built when missing, or $PARITY_CPU_PYTHON."""
    return cpu.interpreter(lambda line: print(line, file=sys.stderr, flush=True))


@pytest.fixture(scope="session")
def base_plan(cpu: Backend) -> dict[str, Any]:
    return json.loads(json.dumps(make_plan(cpu)))


@pytest.fixture(scope="session")
def base_arm(interpreter: Path, base_plan: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> BaseArm:
    """`cpu/base` has generated and scored what it gave, sketched; its engine is gone: the next has the machine."""
    directory = tmp_path_factory.mktemp("base")
    path = directory / "cpu-base.jsonl"
    said: list[str] = []
    plan = plan_of({**base_plan, "sketch": "parts"})
    with run_arm(plan, "cpu/base", path, directory / "base.log") as session:
        session.generate()
        asked = [
            ScoreItem("cpu/base", *c.key, c.prompt_token_ids.tolist(), c.token_ids.tolist())
            for c in read_capture(path, partial=True)
        ]
        asked.append(ScoreItem("cpu/other", "p0", 0, 0, asked[0].prompt_token_ids, asked[0].token_ids))
        asked.append(ScoreItem("cpu/other", "outside", 0, 0, [1, 2], [5000]))
        asked.append(ScoreItem("cpu/other", "long", 0, 0, [1, 2], [3] * 300))
        session.link.say = lambda line: said.append(str(line))
        session.score(asked, directory / "scores.jsonl", top=5)
    return BaseArm(directory, path, asked, said)
