"""Every stand-in for an operator of the NPU, in an interpreter with torch: what it computes, and what it refuses.

`checks/` has the checks, each against sums written out or torch's own functions; this module runs a file of them in one
process of the CPU engine's environment, which has torch and no pytest.
"""

from __future__ import annotations

import ast
import functools
import json
import os
import subprocess
from pathlib import Path

import pytest

from parity.run import load_backend

HERE = Path(__file__).parent
BACKENDS = HERE.parents[1] / "backends"
MODULES = sorted((HERE / "checks").glob("*.py"))
SUBJECTS = sorted((BACKENDS / "parity_emulated_npu" / "operators").glob("*.py"))


def _functions(path: Path, *, decorated: bool = False) -> list[str]:
    found = [node for node in ast.parse(path.read_text("utf-8")).body if isinstance(node, ast.FunctionDef)]
    return [node.name for node in found if node.decorator_list or not decorated]


def _checks() -> list[tuple[Path, str]]:
    return [(path, name) for path in MODULES for name in _functions(path) if name.startswith("check_")]


@functools.cache
def _results(python: str, path: Path) -> dict[str, str | None]:
    env = {**os.environ, "PYTHONPATH": str(BACKENDS), "OMP_NUM_THREADS": "1", "PARITY_EMULATED_NPU": "0"}
    command = [python, str(HERE / "run_checks.py"), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=env)
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(json.loads(done.stdout))


@pytest.mark.engine
@pytest.mark.parametrize(("path", "name"), _checks(), ids=lambda value: getattr(value, "stem", value))
def test_operator(path: Path, name: str) -> None:
    python = load_backend("cpu").interpreter(print)
    assert _results(str(python), path)[name] is None, _results(str(python), path)[name]


NO_NUMBERS = {"get_npu_format", "npu_format_cast", "npu_prefetch"}
"""Layouts and a hint: no numbers change."""


def test_every_operator_has_a_check() -> None:
    operators = {name for path in SUBJECTS for name in _functions(path, decorated=True) if "npu" in name}
    written = "".join(path.read_text("utf-8") for path in MODULES)
    unchecked = {name for name in operators - NO_NUMBERS if name not in written}
    assert len(operators) > 20
    assert unchecked == set()
