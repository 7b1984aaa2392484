"""Where there is room, the next arm's engine loads its code while an arm runs; it starts in its turn all the same."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from cli_process import Parity

from parity.run import room_to_load

RUN = ("run", "--backends", "early", "--max-tokens", "24", "--suite", "smoke")

pytestmark = pytest.mark.skipif(not hasattr(os, "sched_getaffinity") or not room_to_load(), reason="no room here")


def loaded(file: Path) -> list[list[str]]:
    return [line.split() for line in file.read_text().splitlines()] if file.exists() else []


def test_the_baseline_loads_while_the_candidate_runs(parity: Parity, tmp_path: Path) -> None:
    file = tmp_path / "loaded"
    done = parity(*RUN, FAKE_LOADED=str(file))
    assert done.returncode == 0, done.stderr
    assert [arm for arm, _ in loaded(file)] == ["early/base"]
    assert parity.starts == ["early/mtp", "early/base"]
    again = parity(*RUN, "--json", FAKE_LOADED=str(file), FAKE_ARM="early/mtp")
    assert again.returncode == 3  # nothing is left to compare: the baseline's turn never comes
    assert parity.starts == ["early/mtp", "early/base", "early/mtp"]
    for _, process in loaded(file):
        with pytest.raises(ProcessLookupError):
            os.kill(int(process), 0)


def test_a_killed_run_leaves_none_that_waits(parity: Parity, tmp_path: Path) -> None:
    file = tmp_path / "loaded"
    run = parity.start(*RUN, FAKE_LOADED=str(file), FAKE_STEP="5")
    until = time.monotonic() + 60
    while not loaded(file):
        assert time.monotonic() < until
        time.sleep(0.05)
    process = int(loaded(file)[0][1])
    run.send_signal(signal.SIGKILL)
    run.communicate()
    until = time.monotonic() + 20
    while Path(f"/proc/{process}").exists():
        assert time.monotonic() < until
        time.sleep(0.05)
