"""Whoever dies, and however: no process is left behind and the capture can be continued."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from backend import FaultyBackend
from plans import fake_plan

from parity.capture import read_capture
from parity.errors import BackendError
from parity.run import Timeouts, run_arm
from parity.run.process import BOOTSTRAP, WorkerProcess, living_members

PARITY = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from backend import FaultyBackend
from plans import fake_plan
from parity.run import Interrupted, run_arm
try:
    with run_arm(fake_plan("slow", requests=60), "fake/base", Path(sys.argv[2]), Path(sys.argv[3]),
                 backend=FaultyBackend(), resume=True) as session:
        session.generate()
except Interrupted as error:
    print(error)
    sys.exit(42)
"""


def start_parity(tmp_path: Path) -> tuple[subprocess.Popen[str], Path]:
    capture = tmp_path / "a.jsonl"
    here = str(Path(__file__).parents[2] / "support")
    command = [sys.executable, "-c", PARITY, here, str(capture), str(tmp_path / "a.log")]
    parity = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    wait_for(lambda: capture.exists() and capture.read_bytes().count(b"\n") > 4)
    return parity, capture


def wait_for(condition, seconds: float = 20.0) -> None:  # type: ignore[no-untyped-def]
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.02)


def children(pid: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if int(fields[1]) == pid and fields[0] != "Z":
                found.append(int(entry.name))
    return found


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


linux = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")


@linux
def test_ctrl_c_ends_the_worker_and_keeps_the_capture(tmp_path: Path, backend: FaultyBackend) -> None:
    parity, capture = start_parity(tmp_path)
    (worker,) = children(parity.pid)
    parity.send_signal(signal.SIGINT)
    said, _ = parity.communicate(timeout=30)
    assert parity.returncode == 42, said
    assert "which are kept" in said
    assert not alive(worker)
    partial = read_capture(capture, partial=True)
    assert 4 <= len(partial.completions) < 60


@linux
def test_kill_9_of_parity_leaves_no_orphan_and_resumes(tmp_path: Path, backend: FaultyBackend, quick: Timeouts) -> None:
    parity, capture = start_parity(tmp_path)
    (worker,) = children(parity.pid)
    parity.kill()
    parity.communicate(timeout=30)
    wait_for(lambda: not alive(worker))
    before = read_capture(capture, partial=True)
    plan = fake_plan("slow", requests=60)
    with run_arm(
        plan, "fake/base", capture, tmp_path / "b.log", backend=backend, resume=True, timeouts=quick
    ) as session:
        session.generate()
    after = read_capture(capture)
    assert len(after.completions) == 60
    assert list(after.completions)[: len(before.completions)] == list(before.completions)


@linux
def test_kill_9_of_the_worker_takes_its_children_along(tmp_path: Path, backend: FaultyBackend) -> None:
    seen: list[int] = []
    others = set(children(os.getpid()))  # of other tests: an engine that several share, a server

    def watch(event: object) -> None:
        if not seen:
            for worker in set(children(os.getpid())) - others:
                for child in children(worker):
                    seen.extend([worker, child])
                    os.kill(worker, signal.SIGKILL)

    child = b"import subprocess\n\nsubprocess.Popen(['sleep', '600'])\n\n\n"
    source = backend.worker_source().replace(b"class Arm:", child + b"class Arm:", 1)
    backend.worker_source = lambda: source  # type: ignore[method-assign]
    with (
        pytest.raises(BackendError, match="killed by SIGKILL"),
        run_arm(
            fake_plan("slow", requests=100), "fake/base", tmp_path / "a.jsonl", tmp_path / "a.log",
            backend=backend, on_event=watch,
        ) as session,
    ):  # fmt: skip
        session.generate()
    assert len(seen) == 2
    wait_for(lambda: not any(alive(pid) for pid in seen), 5.0)


LEADER = """
import subprocess, sys, time
from subprocess import DEVNULL
def supervised(stream):
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], stdout=DEVNULL, stderr=DEVNULL)
    print("{}", flush=True)
    time.sleep(600)
"""


@linux
def test_an_end_waits_for_what_was_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that was sent a signal still has its memory, and its device's, until it is gone."""
    source = LEADER.encode()
    command = [sys.executable, "-c", BOOTSTRAP.format(size=len(source))]
    worker = WorkerProcess(command, dict(os.environ), source, tmp_path / "worker.log")
    wait_for(lambda: not worker._lines.empty())
    (rank,) = living_members(worker.pid) - {worker.pid}
    late = threading.Timer(0.5, os.kill, (rank, signal.SIGKILL))

    def slow(group: int, number: int) -> None:
        os.kill(group, number)
        late.start()

    monkeypatch.setattr(os, "killpg", slow)
    worker.kill()
    assert living_members(worker.pid) == set()
    assert late.finished.is_set()
