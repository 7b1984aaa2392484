"""An engine's code loaded before its turn: only where that is wanted, and never the start of the engine itself."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from backend import FaultyBackend
from plans import fake_plan

from parity.capture import read_capture
from parity.errors import BackendError
from parity.plan.hosts import read_host
from parity.run import ArmSession, Timeouts, arm_session, room_to_load, running
from parity.run.ahead import ROOM_BYTES


class Ahead(FaultyBackend):
    loads_ahead = True


class Noted:
    """The file in which the fake engine says what it does."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def lines(self) -> list[list[str]]:
        return [line.split() for line in self.path.read_text().splitlines()] if self.path.exists() else []

    def wait(self) -> int:
        """The process that has loaded; fails after twenty seconds."""
        until = time.monotonic() + 20
        while not self.lines():
            assert time.monotonic() < until
            time.sleep(0.01)
        return int(self.lines()[0][1])


@pytest.fixture
def noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Noted:
    monkeypatch.setenv("FAKE_LOADED", str(tmp_path / "loaded"))
    return Noted(tmp_path / "loaded")


def session(tmp_path: Path, backend: FaultyBackend, quick: Timeouts, mode: str = "", **host: object) -> ArmSession:
    plan = fake_plan(mode)
    where = read_host("fake", {"load_ahead": True, **host}, "parity.toml")
    return arm_session(
        plan, "fake/base", tmp_path / "a.jsonl", tmp_path / "a.log", backend=backend, timeouts=quick, host=where
    )


def test_one_process_loads_and_starts_when_it_is_told(tmp_path: Path, quick: Timeouts, noted: Noted) -> None:
    with running(session(tmp_path, Ahead(), quick)) as arm:
        arm.load()
        process = noted.wait()
        assert arm.header is None
        arm.generate()
    assert noted.lines() == [["load", str(process)], ["start", str(process)]]
    assert len(list(read_capture(tmp_path / "a.jsonl"))) == 4


def test_without_a_turn_it_is_gone_and_nothing_was_started(tmp_path: Path, quick: Timeouts, noted: Noted) -> None:
    arm = session(tmp_path, Ahead(), quick)
    arm.load()
    process = noted.wait()
    arm.kill()
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
    assert [what for what, _ in noted.lines()] == ["load"]
    assert not (tmp_path / "a.jsonl").exists()


def test_it_ends_in_order_while_it_waits(tmp_path: Path, quick: Timeouts, noted: Noted) -> None:
    with running(session(tmp_path, Ahead(), quick)) as arm:
        arm.load()
        process = noted.wait()
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
    assert [what for what, _ in noted.lines()] == ["load"]


@pytest.mark.parametrize("backend", [FaultyBackend(), Ahead()], ids=["backend", "host"])
def test_nothing_is_loaded_unless_backend_and_host_want_it(
    tmp_path: Path, quick: Timeouts, noted: Noted, backend: FaultyBackend
) -> None:
    with running(session(tmp_path, backend, quick, load_ahead=not isinstance(backend, Ahead))) as arm:
        arm.load()
        assert backend.starts == 0
        arm.generate()
    assert [what for what, _ in noted.lines()] == ["start"]


def test_what_dies_while_it_loads_fails_in_its_turn(tmp_path: Path, quick: Timeouts) -> None:
    with running(session(tmp_path, Ahead(), quick, "die while loading")) as arm:
        arm.load()
        with pytest.raises(BackendError, match=r"(?s)ended while starting.*killed by SIGKILL.*the last words") as told:
            arm.generate()
    assert str(told.value.hint) == "the remedy"


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="Linux alone says which cores a process has")
def test_room_is_what_is_free_of_machine_and_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    meminfo, group = tmp_path / "meminfo", tmp_path / "group"
    group.mkdir()
    assert not room_to_load(meminfo, group)
    meminfo.write_text(f"MemTotal: 99999999 kB\nMemAvailable: {ROOM_BYTES >> 10} kB\n")
    assert room_to_load(meminfo, group)
    (group / "memory.current").write_text("1000\n")
    (group / "memory.max").write_text("max\n")
    assert room_to_load(meminfo, group)
    (group / "memory.max").write_text(f"{ROOM_BYTES}\n")
    assert not room_to_load(meminfo, group)
    (group / "memory.max").write_text(f"{ROOM_BYTES + 1000}\n")
    assert room_to_load(meminfo, group)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    assert not room_to_load(meminfo, group)
