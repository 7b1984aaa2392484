"""The real engine on a far host: over a real sshd, behind a container-like prefix, and by hand without this project.

Each must give what the same arm gives here (`base_arm`), token by token and logprob by logprob.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from engine_plan import BaseArm

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
    with run_arm(base_plan, "cpu/base", tmp_path / "a.jsonl", tmp_path / "a.log", host=host) as session:
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
            with_fingerprint(base_plan, cpu), "cpu/base", tmp_path / "a.jsonl", tmp_path / "a.log", host=host
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
