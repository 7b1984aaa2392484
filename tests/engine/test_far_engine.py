"""The real engine on a far host: over a real sshd, behind a container-like prefix, and by hand without this project.

Each must give what the same arm gives here (`base_arm`), token by token and logprob by logprob.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from engine_plan import BaseArm
from plans import plan_of

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sshd import NoSshd, Sshd, find_sshd

import parity
from parity.capture import check_capture, read_capture
from parity.errors import BackendError
from parity.plan.hosts import Host
from parity.run import Backend, run_arm

pytestmark = pytest.mark.engine

ROOT = Path(parity.__file__).parents[1]


@pytest.fixture
def checkpoint(cpu: Backend, tmp_path: Path) -> Path:
    """The checkpoint on the far host: in another place, for weights are never copied by parity."""
    model = cpu.default_model()
    assert model is not None
    there = tmp_path / "data" / "a-model"
    shutil.copytree(model, there)
    return there


@pytest.fixture
def sshd(tmp_path: Path, request: pytest.FixtureRequest, interpreter: Path) -> Iterator[Sshd]:
    """A far host that sees nothing of this project, where the one who runs the tests may hide it."""
    hide = [ROOT] if os.geteuid() == 0 and not interpreter.is_relative_to(ROOT) else []
    cache = request.config.cache.mkdir("sshd")
    unpacked = tmp_path / "sshd-program"
    try:
        find_sshd(Path(cache))
        shutil.copytree(cache, unpacked)  # out of what is hidden
        running = Sshd(find_sshd(unpacked), tmp_path / "sshd", hide=hide).start()
    except NoSshd as why:
        pytest.skip(f"no sshd on this machine: {why}")
    if hide:
        seen = subprocess.run([*running.command, "ls", str(ROOT)], capture_output=True, check=True, timeout=60)
        assert seen.stdout == b""
    yield running
    running.stop()


def tokens_and_logprobs(path: Path) -> list[Any]:
    return [
        (record["request"], record["round"], record["token_ids"], record["text"], record["logprobs"])
        for record in map(json.loads, path.read_text().splitlines())
        if record["record"] == "completion"
    ]


def with_fingerprint(plan: dict[str, Any], cpu: Backend) -> dict[str, Any]:
    from parity.plan import read_checkpoint

    model = cpu.default_model()
    assert model is not None
    found = read_checkpoint(model).model
    return {**plan, "model": {**plan["model"], "fingerprint": dict(found.fingerprint)}}


def test_parity_run_over_ssh(
    base_arm: BaseArm, base_plan: dict[str, Any], cpu: Backend, interpreter: Path, sshd: Sshd,
    checkpoint: Path, tmp_path: Path,
) -> None:  # fmt: skip
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({**with_fingerprint(base_plan, cpu), "baseline": "cpu/base"}))
    out = tmp_path / "out"
    command = [
        sys.executable, "-m", "parity", "run", "--plan", str(plan), "--out", str(out),
        "--host", f"cpu={' '.join(sshd.command)}", "--python", f"cpu={interpreter}",
        "--model-path", f"cpu={checkpoint}",
    ]  # fmt: skip
    env = {**os.environ, "PARITY_HOME": str(tmp_path / "home")}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    here = base_arm.capture
    assert tokens_and_logprobs(out / "cpu-base.jsonl") == tokens_and_logprobs(here)
    assert check_capture(out / "scores.jsonl") == []
    header = read_capture(out / "cpu-base.jsonl").header
    assert header.extra["model_fingerprint"] == with_fingerprint(base_plan, cpu)["model"]["fingerprint"]
    assert header.environment["versions"] == read_capture(here).header.environment["versions"]
    said = header.environment["variables"].get("LD_PRELOAD", "")
    assert "libiomp5" in said or not (interpreter.parent.parent / "lib" / "libiomp5.so").exists()


def test_in_a_container_like_place(
    base_arm: BaseArm, base_plan: dict[str, Any], interpreter: Path, checkpoint: Path, tmp_path: Path
) -> None:
    """As behind `docker exec -i`: another directory, an environment of its own, a checkpoint in another place."""
    script = tmp_path / "docker"
    script.write_text('#!/bin/sh\nshift 3\ncd / && exec env -i PATH=/usr/bin:/bin HOME="$HOME" "$@"\n')
    script.chmod(0o755)
    host = Host(
        "cpu", "cpu", command=(str(script), "exec", "-i", "vllm"), python=str(interpreter), model=str(checkpoint)
    )
    with run_arm(plan_of(base_plan), "cpu/base", tmp_path / "a.jsonl", tmp_path / "a.log", host=host) as session:
        session.generate()
    assert tokens_and_logprobs(tmp_path / "a.jsonl") == tokens_and_logprobs(base_arm.capture)


def test_another_checkpoint_is_refused(
    base_plan: dict[str, Any], cpu: Backend, interpreter: Path, checkpoint: Path, tmp_path: Path
) -> None:
    config = checkpoint / "config.json"
    config.write_text(config.read_text() + "\n")
    host = Host("cpu", "cpu", command=("env",), python=str(interpreter), model=str(checkpoint))
    with (
        pytest.raises(BackendError, match=r"checkpoint is not the plan's .*config.json differ"),
        run_arm(
            plan_of(with_fingerprint(base_plan, cpu)), "cpu/base", tmp_path / "a.jsonl", tmp_path / "a.log", host=host
        ) as session,
    ):
        session.generate()
    assert not (tmp_path / "a.jsonl").exists()


def test_by_hand_without_this_project(
    base_arm: BaseArm, base_plan: dict[str, Any], cpu: Backend, interpreter: Path, checkpoint: Path,
    tmp_path: Path,
) -> None:  # fmt: skip
    """Plan and worker carried to a directory, run by the engine's own Python, the capture carried back."""
    island = tmp_path / "island"
    island.mkdir()
    plan = {**base_plan, "model": {**base_plan["model"], "path": "/nowhere"}}
    (island / "plan.json").write_text(json.dumps(plan))
    (island / "worker.py").write_bytes(cpu.worker_source())
    bare = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    missing = subprocess.run(
        [str(interpreter), "-c", "import parity"], cwd=island, env=bare, capture_output=True, text=True, check=False
    )
    assert "No module named 'parity'" in missing.stderr
    with (island / "base.jsonl").open("wb") as capture:
        done = subprocess.run(
            [str(interpreter), "worker.py", "plan.json", "--arm", "cpu/base", "--model", str(checkpoint)],
            cwd=island, env=bare, stdout=capture, stderr=subprocess.PIPE, timeout=240, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    assert check_capture(island / "base.jsonl") == []
    assert tokens_and_logprobs(island / "base.jsonl") == tokens_and_logprobs(base_arm.capture)


# --------------------------------------------------------------------------- deaths


def processes_below(pid: int) -> list[int]:
    """Its children, their children and so on; what is dead and only not yet waited for is not among them."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, parent = (entry / "stat").read_text().rsplit(")", 1)[1].split()[:2]
            except OSError:
                continue
            if state != "Z":
                children.setdefault(int(parent), []).append(int(entry.name))
    found = children.get(pid, [])
    return found + [deeper for child in found for deeper in processes_below(child)]


def is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def is_python(pid: int) -> bool:
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe")).startswith("python")
    except OSError:
        return False


def wait_for(condition: Callable[[], bool], seconds: float) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.02)


@pytest.mark.long
@pytest.mark.timeout(420)
def test_kill_9_of_the_far_engine_and_of_parity(
    base_plan: dict[str, Any], cpu: Backend, interpreter: Path, sshd: Sshd, checkpoint: Path, tmp_path: Path
) -> None:
    """Two arms that ask the same: one dies twice over, the other is never interrupted. They end up equal."""
    rounds = 48  # many: six, and sixteen, were over before the kill came
    arm = base_plan["arms"][0]
    plan = {
        **with_fingerprint(base_plan, cpu),
        "rounds": rounds,
        "sampling": {**base_plan["sampling"], "max_tokens": 48, "logprobs": 1},
        # of several lengths, so that death comes inside a round
        "requests": [{**request, "max_tokens": 12 * (i + 1)} for i, request in enumerate(base_plan["requests"])],
        "arms": [arm, {**arm, "name": "cpu/twin"}],
        "baseline": "cpu/base",
    }
    expected = rounds * len(plan["requests"])
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    out = tmp_path / "out"
    twin, base = out / "cpu-twin.jsonl", out / "cpu-base.jsonl"

    def parity_run(*args: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "parity", "run", *args],
            env={**os.environ, "PARITY_HOME": str(tmp_path / "home")},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def lines(path: Path) -> int:
        return path.read_bytes().count(b"\n") if path.exists() else 0

    assert sshd.process is not None
    running = parity_run(
        "--plan", str(tmp_path / "plan.json"), "--out", str(out), "--host", f"cpu={' '.join(sshd.command)}",
        "--python", f"cpu={interpreter}", "--model-path", f"cpu={checkpoint}",
    )  # fmt: skip
    wait_for(lambda: lines(twin) > 6 or running.poll() is not None, 200)
    there, here = processes_below(sshd.process.pid), [running.pid, *processes_below(running.pid)]
    engines = [pid for pid in there if is_python(pid)]
    for pid in engines:
        os.kill(pid, signal.SIGKILL)
    _, errors = running.communicate(timeout=60)
    assert engines, errors
    assert running.returncode == 3, errors
    assert f"of {expected}, which are kept" in errors
    wait_for(lambda: not any(map(is_there, there + here)), 30)
    kept = read_capture(twin, partial=True)
    assert 5 <= len(kept.completions) < expected

    running = parity_run("--resume", str(out))
    log = out / "logs" / "cpu-base.log"  # the other arm's engine is starting
    wait_for(lambda: (log.exists() and "INFO" in log.read_text("utf-8", "replace")) or running.poll() is not None, 200)
    there, here = processes_below(sshd.process.pid), processes_below(running.pid)
    engines = [pid for pid in there if is_python(pid)]
    running.kill()
    _, errors = running.communicate(timeout=60)
    assert engines, errors
    assert here, "no ssh was running"
    assert not base.exists()
    wait_for(lambda: not any(map(is_there, there + here)), 30)
    interrupted = read_capture(twin)
    assert interrupted.counters is not None
    assert interrupted.counters["resumed_completions"] == len(kept.completions)
    assert interrupted.counters["replay_differences"] == 0

    running = parity_run("--resume", str(out), "--json")
    shown, errors = running.communicate(timeout=240)
    assert running.returncode == 0, errors
    assert json.loads(shown)["verdict"] == "PASS"
    assert len(tokens_and_logprobs(base)) == expected
    assert sorted(tokens_and_logprobs(twin)) == sorted(tokens_and_logprobs(base))
    wait_for(lambda: not processes_below(sshd.process.pid) and not processes_below(running.pid), 30)
