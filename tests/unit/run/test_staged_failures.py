"""What engines on accelerators do at their worst, staged: each is named, nothing is left running, the run goes on.

The engine is a stand-in (`fake_arm.py`), its ranks are real processes that hear nothing but SIGKILL, and the memory of
its devices is a list of numbers that a stub of torch reads out.
"""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from backend import FaultyBackend
from plans import fake_plan

from parity.capture import check_capture, read_capture, read_scores
from parity.errors import BackendError
from parity.pipeline.capturing import Engines
from parity.pipeline.directory import RunDirectory
from parity.plan import Plan
from parity.plan.hosts import Host, read_host
from parity.run import ScoreItem, Timeouts, run_arm
from parity.run import link as link_module

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")

GIB = 1 << 30
APART = Host("fake", "fake", command=("setsid", "--wait", "env"), python="python3")
"""As behind ssh: killing what parity started does not reach the worker."""

TORCH = """
import json, os

class Device:
    def is_available(self): return True
    def device_count(self): return 8
    def mem_get_info(self, index):
        path = os.environ["FAKE_FREE"]
        rows = json.load(open(path))
        row = rows[0]
        if index == 1 and len(rows) > 1:
            json.dump(rows[1:], open(path, "w"))
            if len(rows) == 2 and os.path.exists(os.environ["FAKE_HELD"]):
                os.unlink(os.environ["FAKE_HELD"])
        return row[index] << 30, 64 << 30

cuda = Device()
"""
"""Each look takes a row of the file: GiB that are free on two of eight devices of 64. With the last one all is back."""


class AcceleratorBackend(FaultyBackend):
    memory_signs = ("Free memory on device",)

    def explain(self, log_tail: str) -> str | None:
        return "the remedy for memory" if "Free memory on device" in log_tail else super().explain(log_tail)


class Stage:
    """One arm in a folder, whose engine may go wrong."""

    def __init__(self, tmp_path: Path) -> None:
        self.path, self.said = tmp_path, list[str]()
        self.capture, self.scores = tmp_path / "a.jsonl", tmp_path / "s.jsonl"
        self.ranks_file, self.held, self.free = tmp_path / "ranks", tmp_path / "held", tmp_path / "free"
        self.backend = AcceleratorBackend()
        (tmp_path / "stub").mkdir()
        (tmp_path / "stub" / "torch.py").write_text(TORCH)
        self.env = {
            "FAKE_RANKS": str(self.ranks_file),
            "FAKE_HELD": str(self.held),
            "FAKE_FREE": str(self.free),
            "PYTHONPATH": str(tmp_path / "stub"),
        }

    def plan(self, mode: str) -> Plan:
        return fake_plan(mode, rounds=2, **self.env)

    def session(self, mode: str, **extra: Any) -> Any:
        return run_arm(
            self.plan(mode), "fake/base", self.capture, self.path / "a.log", backend=self.backend, resume=True,
            say=lambda line: self.said.append(str(line)), **{"timeouts": Timeouts(20, 20, 2), **extra},
        )  # fmt: skip

    def run(self, mode: str, **extra: Any) -> None:
        with self.session(mode, **extra) as session:
            session.generate()

    def ranks(self) -> list[int]:
        return [int(line) for line in self.ranks_file.read_text().split()]

    def nothing_runs(self) -> None:
        ranks = self.ranks()
        assert len(ranks) >= 2
        until = time.monotonic() + 10.0
        while any(alive(pid) for pid in ranks):
            assert time.monotonic() < until, "ranks stayed behind"
            time.sleep(0.02)

    def can_go_on(self) -> None:
        self.run("")
        assert len(read_capture(self.capture).completions) == 8
        assert check_capture(self.capture) == []

    def memory(self, *free: tuple[int, int]) -> None:
        """Somebody holds it, until the last of these looks."""
        self.held.touch()
        self.free.write_text(json.dumps(free))


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


# ------------------------------------------------------------------ ranks


@pytest.mark.parametrize("host", [None, APART], ids=["here", "apart"])
@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("late out of memory", "failed while starting the engine: RuntimeError: NPU out of memory"),
        ("rank dies", "failed while generating: RuntimeError: Worker proc VllmWorker-1 died unexpectedly"),
        ("error", "the prompt is too long"),
    ],
)
def test_deaf_ranks_end_with_their_leader(stage: Stage, mode: str, words: str, host: Host | None) -> None:
    with pytest.raises(BackendError) as caught:
        stage.run(mode, host=host)
    assert words in str(caught.value)
    stage.nothing_runs()
    stage.can_go_on()


@pytest.mark.parametrize("host", [None, APART], ids=["here", "apart"])
def test_ranks_end_with_a_run_that_went_well(stage: Stage, host: Host | None) -> None:
    stage.run("", host=host)
    stage.nothing_runs()


def test_a_hung_collective_is_given_up_as_soon_as_its_host_says(stage: Stage) -> None:
    host = read_host("fake", {"stall_timeout": 1}, "parity.toml")
    with pytest.raises(BackendError, match="nothing from the worker for too long while generating"):
        stage.run("hang", host=host)
    stage.nothing_runs()
    stage.can_go_on()


def test_a_backend_may_need_longer_to_say_what_hangs(stage: Stage) -> None:
    stage.backend.stall_seconds = 1.0  # type: ignore[attr-defined]
    with stage.session("", timeouts=Timeouts(20, 0.2, 2)) as session:
        assert session.link.stall == 1.0
    with pytest.raises(BackendError, match="too long while generating"):
        stage.run("hang", timeouts=Timeouts(20, 0.2, 2))
    host = read_host("fake", {"stall_timeout": 7}, "parity.toml")  # what the user says of a host goes over both
    with stage.session("", timeouts=Timeouts(20, 0.2, 2), host=host) as session:
        assert session.link.stall == 7


# ------------------------------------------------------------------ memory


def test_memory_that_comes_back_late_is_waited_for(stage: Stage) -> None:
    """Enough is not enough: an engine that starts while memory comes back fails as well."""
    stage.memory((7, 50), (7, 60), (55, 60), (60, 60), (60, 60), (60, 60))
    stage.run("")
    assert stage.backend.starts == 2
    assert len(json.loads(stage.free.read_text())) == 1  # looked until nothing more came back
    (line,) = stage.said
    assert "the memory of its devices was not free" in line
    assert "7.4/60.9 GiB" in line  # from far above the end of the log
    stage.nothing_runs()


def test_memory_that_never_comes_back_is_given_up(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "SETTLE_SECONDS", 0.2)
    stage.memory((7, 7))
    with pytest.raises(BackendError, match="WorkerProc initialization failed") as caught:
        stage.run("")
    assert str(caught.value.hint) == "the remedy for memory"
    assert stage.backend.starts == 2
    stage.nothing_runs()
    stage.held.unlink()
    stage.can_go_on()


def test_nothing_is_tried_twice_for_another_reason(stage: Stage) -> None:
    with pytest.raises(BackendError):
        stage.run("late out of memory")
    assert stage.backend.starts == 1


def test_after_another_arm_the_memory_is_looked_at_first(stage: Stage) -> None:
    stage.memory((7, 50), (60, 60), (60, 60))
    stage.run("", after_another=True)
    assert stage.backend.starts == 1
    assert stage.said == []


def test_an_interpreter_without_torch_waits_for_nothing(stage: Stage) -> None:
    (stage.path / "stub" / "torch.py").write_text("raise ImportError('no torch')\n")
    stage.run("", after_another=True)
    assert len(read_capture(stage.capture).completions) == 8


def test_arms_that_share_devices_come_after_one_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[tuple[str, bool]] = []
    monkeypatch.setattr(
        "parity.pipeline.capturing.arm_session",
        lambda plan, name, *_, after_another, **__: opened.append((name, after_another)),
    )
    hosts = {"gpu": Host("gpu", "fake", place="a"), "npu": Host("npu", "fake", place="b")}
    plan = fake_plan()
    arms = [plan.arms[0].__class__(name, "fake", "base", {}, {}) for name in ("gpu/a", "npu/a", "gpu/b", "npu/b")]
    engines = Engines(lambda event: None, lambda line: None, hosts)
    for arm in arms:
        engines.open(plan, arm, RunDirectory(tmp_path), threading.Event())
    assert opened == [("gpu/a", False), ("npu/a", False), ("gpu/b", True), ("npu/b", True)]


# ------------------------------------------------------------------ scoring


def items(count: int, longest: int) -> list[ScoreItem]:
    return [ScoreItem("fake/mtp", f"p{i}", 0, 0, (1, 2, i), (7,) * (9 if i == longest else 3)) for i in range(count)]


def test_a_lack_of_memory_to_score_shows_with_the_first_sequences(stage: Stage) -> None:
    with stage.session("no memory to score") as session, pytest.raises(BackendError) as caught:
        session.score(items(600, longest=599), stage.scores)
    assert "failed while scoring: RuntimeError: CUDA out of memory" in str(caught.value)
    assert len(stage.scores.read_text().splitlines()) == 1  # the header: nothing was scored in vain
    stage.nothing_runs()
    with stage.session("") as session:
        session.score(items(600, longest=599), stage.scores)
    assert len(read_scores(stage.scores)) == 600
