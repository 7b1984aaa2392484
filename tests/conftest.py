"""For every test."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "support"))

# Started in the background of a shell, Python ignores Ctrl-C, and so would every process that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

STARTS_WORKERS = ("conformance", "engine", "unit/pipeline", "unit/ray", "unit/reduce", "unit/run", "unit/watch")
"""Folders whose tests start workers, which lead a process group of their own."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.name == "posix":
        return
    folders = [Path(__file__).parent / folder for folder in STARTS_WORKERS]
    for item in items:
        if any(item.path.is_relative_to(folder) for folder in folders):
            item.add_marker(pytest.mark.skip(reason="workers lead a process group: POSIX only"))
