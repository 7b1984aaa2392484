"""A run of another process, watched: `parity run` with an engine that is a script, the interface on its database."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import sys
import time
from pathlib import Path

import pytest
import real_run
from driving import Person, drive
from msgspec.structs import replace

from parity.language import render
from parity.messages import verbatim
from parity.pipeline.directory import RunDirectory
from parity.store import RunStatus, Store
from parity.store.browse import Browser
from parity.view.progress import Progress

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
        await person.sees("interrupted", "finish it with: parity run --resume", "nothing was compared")
        await person.press("w")
        screen = await person.sees("interrupted", "nothing was compared", "log of fake/")
        assert "so far" not in screen, "nothing goes on"
        assert "to go" not in screen

    try:
        drive(parity.home / "parity.db", task)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate(timeout=60)
    with Store.open(parity.home / "parity.db") as store:
        assert store.count_runs() == 1


def test_scores_are_counted_and_the_arm_at_work_is_known(tmp_path: Path) -> None:
    database = real_run.store_run(tmp_path, "bbbb", real_run.NEEDLE)
    with Browser.open(database) as store:
        run, arms, requests = store.run("bbbb"), store.arms("bbbb"), store.count_requests("bbbb")
    directory = RunDirectory(tmp_path / "runs" / "bbbb")
    count = directory.scores.read_text(encoding="utf-8").count('"record":"score"')
    with directory.scores.open("a", encoding="utf-8") as file:
        file.write('{"record":"footer"}\n')
    last = Progress().look(run, arms, requests)[-1]
    assert (last.arm, render(last.words or verbatim(""))) == ("scores", f"{count:,}"), "a footer is none"

    directory.scores.unlink()
    for arm in arms:
        directory.capture(arm.name).unlink()
    directory.log("cpu/mtp").parent.mkdir(exist_ok=True)
    directory.log("cpu/mtp").write_text("loading\n", encoding="utf-8")
    pending = [replace(arm, status="pending") for arm in arms]
    found = Progress().look(replace(run, status=RunStatus.RUNNING), pending, requests)
    assert [one.arm for one in found if one.at_work] == ["cpu/mtp"], "its engine starts"


def test_a_run_that_has_ended_says_nothing_of_now(database: Path) -> None:
    async def task(person: Person) -> None:
        await person.press("w")
        screen = await person.sees("log of cpu/base", "There is no log of it")
        assert "so far" not in screen
        assert "yet" not in screen

    drive(database, task)


def test_nothing_is_counted_of_a_run_of_which_nothing_was_compared(database: Path) -> None:
    with sqlite3.connect(database) as raw:
        raw.execute("UPDATE arms SET status = 'pending', verdict = NULL, counts = '{}'")
        raw.execute("DELETE FROM findings")
        raw.execute("UPDATE runs SET verdict = NULL, status = 'failed'")
    raw.close()

    async def task(person: Person) -> None:
        screen = await person.sees("failed", "nothing was compared")
        assert "no findings" not in screen
        assert person.row.split()[4:6] == ["-", "-"], "found, new"

    drive(database, task)
