"""For every test."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

# Products here are small: on a busy machine threads of a BLAS would only wait for each other. Before numpy is imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Where it is set, as in many containers, each process that a test starts would compile all of parity again.
os.environ["PYTHONDONTWRITEBYTECODE"] = ""

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

sys.dont_write_bytecode = False

# The same examples every time: what lands is judged by what changed. `make fuzz` draws new ones.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("random", derandomize=False, deadline=None)
settings.load_profile("repeatable")

sys.path.insert(0, str(Path(__file__).parent / "support"))

# Started in the background of a shell, Python ignores Ctrl-C, and so would every process that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

STARTS_WORKERS = ("conformance", "engine", "unit/pipeline", "unit/ray", "unit/reduce", "unit/run", "unit/watch")
"""Folders whose tests start workers, which lead a process group of their own."""

ASK_THE_PLANTED_SET = ("tests/unit/comparator/test_planted.py", "tests/unit/view/test_view_alignment.py")
"""Modules that look at the same comparisons, one for each planted fault: in one process these are made once."""


class Lanes(LoadScopeScheduling):
    """What one process runs (`make test` has three): every engine in turn, and each module in one place
    (or a few that share what they compute).

    pytest-xdist 3.8 has `--dist loadgroup` for this, which does nothing under pytest 9.2: it renames tests by an
    attribute that they no longer have.
    """

    def _split_scope(self, nodeid: str) -> str:
        module = nodeid.split("::", 1)[0]
        if module.startswith(("tests/conformance/", "tests/engine/")):
            return "engine"
        return "planted" if module in ASK_THE_PLANTED_SET else module


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Lanes:
    return Lanes(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "long" not in config.option.markexpr and not any("::" in name for name in config.args):
        left_out = [item for item in items if item.get_closest_marker("long")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
    if os.name == "posix":
        return
    folders = [Path(__file__).parent / folder for folder in STARTS_WORKERS]
    for item in items:
        if any(item.path.is_relative_to(folder) for folder in folders):
            item.add_marker(pytest.mark.skip(reason="workers lead a process group: POSIX only"))
