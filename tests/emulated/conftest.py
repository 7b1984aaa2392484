"""The emulated NPU's environment, for all tests here that need it."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

from parity.run import load_backend

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="session")
def python() -> Path:
    """A Python with the emulated NPU: $PARITY_ASCEND_EMULATED_PYTHON, or the managed environment, built if missing."""
    if not sys.platform.startswith("linux"):
        pytest.skip("vllm-ascend's wheels are for Linux")
    return load_backend("ascend-emulated").interpreter(lambda line: print(line, file=sys.stderr, flush=True))


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """`benchmarks/emulated_faults.py`."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("emulated_faults")
