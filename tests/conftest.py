"""For every test."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

# Products here are small: on a busy machine threads of a BLAS would only wait for each other. Before numpy is imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import pytest
from hypothesis import settings

# The same examples every time: what lands is judged by what changed. `make fuzz` draws new ones.
settings.register_profile("repeatable", derandomize=True)
settings.register_profile("random", derandomize=False)
settings.load_profile("repeatable")

sys.path.insert(0, str(Path(__file__).parent / "support"))

# Started in the background of a shell, Python ignores Ctrl-C, and so would every process that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

STARTS_WORKERS = ("conformance", "engine", "unit/pipeline", "unit/ray", "unit/reduce", "unit/run", "unit/watch")
"""Folders whose tests start workers, which lead a process group of their own."""


def group(item: pytest.Item) -> str:
    """What one process runs (`make test` has two): every engine in turn, and each module in one place."""
    folders = [Path(__file__).parent / name for name in ("conformance", "engine")]
    if item.get_closest_marker("engine") or any(item.path.is_relative_to(folder) for folder in folders):
        return "engine"
    return item.path.stem


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        item.add_marker(pytest.mark.xdist_group(group(item)))
    if os.name == "posix":
        return
    folders = [Path(__file__).parent / folder for folder in STARTS_WORKERS]
    for item in items:
        if any(item.path.is_relative_to(folder) for folder in folders):
            item.add_marker(pytest.mark.skip(reason="workers lead a process group: POSIX only"))
