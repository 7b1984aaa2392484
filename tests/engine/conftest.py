"""One engine environment for all tests here, and one engine start where a test can share it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from engine_plan import make_plan

from parity.run import ArmSession, Backend, load_backend, run_arm


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
def base_arm(
    interpreter: Path, base_plan: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[ArmSession, Path]]:
    """A `cpu/base` session that has generated, with its engine still up, and its directory."""
    directory = tmp_path_factory.mktemp("base")
    with run_arm(base_plan, "cpu/base", directory / "cpu-base.jsonl", directory / "base.log") as session:
        session.generate()
        yield session, directory
