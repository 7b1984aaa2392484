"""A run of another process, watched: `parity run` with an engine that is a script, the interface on its database."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from pathlib import Path

import pytest
from driving import Person, drive

from parity.store import Store

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "unit" / "pipeline"))

from cli_process import Parity

RUN = ("run", "--backends", "fake", "--suite", "smoke", "--max-tokens", "16")


@pytest.fixture
def parity(tmp_path: Path) -> Parity:
    metadata = tmp_path / "site" / "fake_backend-0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: fake-backend\nVersion: 0\n")
    (metadata / "entry_points.txt").write_text("[parity.backends]\nfake = backend:FakeBackend\n")
    return Parity(tmp_path / "home", tmp_path / "site", tmp_path / "starts.txt")


def begun(parity: Parity) -> None:
    deadline = time.monotonic() + 60
    while not list((parity.home / "runs").glob("*/fake-*.jsonl")):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_its_progress_is_seen_and_its_end(parity: Parity) -> None:
    process = parity.start(*RUN, FAKE_STEP="0.8")
    begun(parity)

    async def task(person: Person) -> None:
        await person.sees("running", "fake/base", "fake/mtp")
        await person.press("w")
        await person.sees("log of fake/", "so far")
        seen: set[str] = set()
        words = {"tokens/s", "Nothing was found yet", "50% accepted"}

        def counts() -> int:
            seen.update(re.findall(r"(\d+ of 4)", person.screen))
            words.difference_update({one for one in words if one in person.screen})
            return len(seen)

        await person.until(lambda: counts() >= 3, "the number of completions to rise")
        await person.until(lambda: counts() and not words, f"{words} to be seen while it is at work")
        assert "█" in person.screen
        await person.press("tab")
        await person.sees("log of fake/base")
        await person.press("q")
        await person.until(lambda: process.poll() is not None, "the end of the run", patience=120)
        await person.no_longer_sees("running")
        assert "PASS" in person.row or "INCONCLUSIVE" in person.row

    try:
        drive(parity.home / "parity.db", task)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=60)


def test_a_run_that_is_killed_is_seen_as_interrupted(parity: Parity) -> None:
    process = parity.start(*RUN, FAKE_STEP="0.8")
    begun(parity)

    async def task(person: Person) -> None:
        await person.sees("running")
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=60)
        await person.sees("interrupted", "finish it with: parity run --resume")

    try:
        drive(parity.home / "parity.db", task)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate(timeout=60)
    with Store.open(parity.home / "parity.db") as store:
        assert store.count_runs() == 1
