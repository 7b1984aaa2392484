"""Arms on another host: a real sshd on loopback, and whatever may go wrong on the way.

The worker is the real one but for the engine; the far side sees nothing of this project where it can be hidden.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from backend import FaultyBackend
from plans import fake_plan, in_mode

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from sshd import NoSshd, Sshd, find_sshd
from test_death import alive, children, wait_for

from parity.capture import check_capture, read_capture
from parity.errors import BackendError, ExitCode, ParityError
from parity.plan import Plan
from parity.plan.hosts import Host
from parity.run import ArmEvent, ScoreItem, Timeouts, run_arm
from parity.run.commands import Command, Ping, command_line_of
from parity.run.launch import run_python

PYTHON = sys.executable
ROOM = Timeouts(start=60.0, stall=60.0, grace=5.0)

DOCKER = """#!/bin/sh
# Like `docker exec -i NAME …`: another directory, an environment of its own, nothing of the caller's.
shift 3
cd / && exec env -i PATH=/usr/bin:/bin HOME=/nonexistent "$@"
"""


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Sshd]:
    try:
        server = find_sshd(Path(request.config.cache.mkdir("sshd")))
        small = [tmp_path_factory.mktemp("small")] if os.geteuid() == 0 else []
        running = Sshd(server, tmp_path_factory.mktemp("sshd"), small=small).start()
    except NoSshd as why:
        pytest.skip(f"no sshd on this machine: {why}")
    yield running
    running.stop()


def far(sshd: Sshd, **more: Any) -> Host:
    return Host("fake", "fake", command=tuple(sshd.command), python=PYTHON, **more)


@pytest.fixture
def docker(tmp_path: Path) -> Host:
    script = tmp_path / "docker"
    script.write_text(DOCKER)
    script.chmod(0o755)
    return Host("fake", "fake", command=(str(script), "exec", "-i", "vllm"), python=PYTHON)


def run(
    host: Host | None,
    plan: Plan,
    backend: FaultyBackend,
    capture: Path,
    *,
    timeouts: Timeouts = ROOM,
    **extra: Any,
) -> None:
    with run_arm(
        plan, "fake/base", capture, capture.with_suffix(".log"), backend=backend, host=host, timeouts=timeouts,
        resume=True, **extra,
    ) as session:  # fmt: skip
        session.generate()


def same_but_for_the_machine(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def processes_with(mark: str) -> list[int]:
    """Workers on this machine whose environment has PARITY_MARK=mark: the far side is here, too."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and alive(int(entry.name)):
            try:
                if f"PARITY_MARK={mark}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def clients_with(mark: str) -> list[int]:
    """Processes of ssh that carry the mark in their command line."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if words[0].endswith(b"ssh") and any(mark.encode() in word for word in words):
            found.append(int(entry.name))
    return found


# --------------------------------------------------------------------------- the same as here


def test_over_ssh_it_is_the_same_capture(sshd: Sshd, backend: FaultyBackend, tmp_path: Path) -> None:
    plan = fake_plan(rounds=2, n=2)
    run(None, plan, backend, tmp_path / "here.jsonl")
    run(far(sshd), plan, backend, tmp_path / "there.jsonl")
    assert same_but_for_the_machine(tmp_path / "there.jsonl") == same_but_for_the_machine(tmp_path / "here.jsonl")
    assert "loading weights" in (tmp_path / "there.log").read_text()


def test_in_a_container_it_is_the_same_capture(docker: Host, backend: FaultyBackend, tmp_path: Path) -> None:
    run(None, fake_plan(), backend, tmp_path / "here.jsonl")
    run(docker, fake_plan(), backend, tmp_path / "there.jsonl")
    assert same_but_for_the_machine(tmp_path / "there.jsonl") == same_but_for_the_machine(tmp_path / "here.jsonl")


def test_a_container_on_another_host(sshd: Sshd, docker: Host, backend: FaultyBackend, tmp_path: Path) -> None:
    host = Host("fake", "fake", command=(*sshd.command, *docker.command), python=PYTHON, env={"FAKE_ENGINE": "it's 7"})
    run(host, fake_plan(), backend, tmp_path / "a.jsonl")
    assert json.loads((tmp_path / "a.jsonl").read_text().splitlines()[0])["engine"]["fake"] == "it's 7"


def test_what_a_login_shell_prints_does_no_harm(backend: FaultyBackend, tmp_path: Path) -> None:
    greeting = ("sh", "-c", 'echo "Welcome to gpu1"; echo "  2 updates"; exec "$@"', "sh")
    run(Host("fake", "fake", command=greeting, python=PYTHON), fake_plan(), backend, tmp_path / "a.jsonl")
    assert len(read_capture(tmp_path / "a.jsonl").completions) == 4


def test_scores_come_from_there_too(sshd: Sshd, backend: FaultyBackend, tmp_path: Path) -> None:
    items = [ScoreItem("fake/mtp", f"p{i}", 0, 0, [1, 2, i], [5, i]) for i in range(4)]
    with run_arm(
        fake_plan(), "fake/base", tmp_path / "a.jsonl", tmp_path / "a.log", backend=backend, host=far(sshd)
    ) as session:
        session.generate()
        session.score(items, tmp_path / "scores.jsonl")
    assert check_capture(tmp_path / "scores.jsonl") == []


def test_a_small_program_over_ssh(sshd: Sshd) -> None:
    said = run_python(far(sshd, env={"A": "b 'c'"}), "import os, sys\nprint(sys.argv[1:], os.environ['A'])", ["x  y"])
    assert said == "['x  y'] b 'c'\n"


# --------------------------------------------------------------------------- what may go wrong


@pytest.mark.parametrize(
    ("mode", "words", "kept"),
    [
        ("die at start", "ended while starting the engine", None),
        ("error at start", "RuntimeError: no such checkpoint", None),
        ("hang at start", "too long while starting", None),
        ("other plan", "works on another plan", None),
        ("other checkpoint", "not the plan's 'fake': config.json differ", None),
        ("die", "ended while generating", 3),
        ("hang", "too long while generating", 3),
        ("garbage", "not JSON: 'Traceback:  nonsense", 3),
        ("truncated", "cut off", 3),
        ("endless", "longer than 0 MiB", 3),
        ("wrong type", "completion: Expected 'array', got 'str' - at 'token_ids'", 3),
        ("nested", "a line that is not a JSON object", 3),
        ("error", "the prompt is too long", 3),
        ("full disk", "No space left on device", 3),
    ],
)
def test_every_failure_over_ssh(
    sshd: Sshd,
    backend: FaultyBackend,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
    words: str,
    kept: int | None,
) -> None:
    """One clear message with the far side's last words, exit code 3, what was captured kept, nobody left behind."""
    monkeypatch.setattr("parity.run.process.MAX_LINE_BYTES", 200_000)
    capture, mark = tmp_path / "a.jsonl", tmp_path.name + mode.replace(" ", "")
    plan = fake_plan(mode, PARITY_MARK=mark)
    plan = replace(plan, model=replace(plan.model, fingerprint={"config.json": "0" * 64}))
    impatient = mode.startswith("hang")
    patience = Timeouts(start=20.0 if impatient else 60.0, stall=1.5 if impatient else 60.0, grace=0.5)
    disk = str(sshd.small[0] / "file") if sshd.small else "/dev/full"
    with pytest.raises(BackendError) as caught:
        run(far(sshd, env={"FAKE_DISK": disk}), plan, backend, capture, timeouts=patience)
    assert words in str(caught.value)
    assert "on `ssh" in str(caught.value)
    assert "red line with  bell" in str(caught.value)  # the end of the far side's log, without its escapes
    assert "\x1b" not in str(caught.value)
    assert caught.value.exit_code is ExitCode.BACKEND_FAILED
    assert caught.value.hint
    wait_for(lambda: not processes_with(mark))
    if kept is None:
        assert not capture.exists()
        return
    assert f"after {kept} of 4, which are kept" in str(caught.value)
    assert len(capture.read_text().splitlines()) == 1 + kept
    run(far(sshd), in_mode(plan, ""), backend, capture)
    assert len(read_capture(capture).completions) == 4


def test_a_host_that_is_not_there(sshd: Sshd, backend: FaultyBackend, tmp_path: Path) -> None:
    lost = Host("fake", "fake", command=("ssh", "-F", str(sshd.directory / "client"), "-p", "1", "far"))
    with pytest.raises(BackendError, match="Connection refused") as caught:
        run(lost, fake_plan(), backend, tmp_path / "a.jsonl")
    assert "is sshd up" in str(caught.value.hint)
    assert "exit code 255" in str(caught.value)


def test_a_key_that_is_not_known(sshd: Sshd, backend: FaultyBackend, tmp_path: Path) -> None:
    options = (
        "IdentityFile=/dev/null",
        "IdentitiesOnly=yes",
        "StrictHostKeyChecking=no",
        "UserKnownHostsFile=/dev/null",
    )
    stranger = ("ssh", "-F", "none", "-p", str(sshd.port), *(f"-o{option}" for option in options), "127.0.0.1")
    with pytest.raises(BackendError, match="Permission denied") as caught:
        run(Host("fake", "fake", command=stranger), fake_plan(), backend, tmp_path / "a.jsonl")
    assert "set up a key" in str(caught.value.hint)


def test_an_interpreter_that_is_not_there(sshd: Sshd, backend: FaultyBackend, tmp_path: Path) -> None:
    host = Host("fake", "fake", command=tuple(sshd.command), python="/opt/none/python")
    with pytest.raises(BackendError, match="/opt/none/python") as caught:
        run(host, fake_plan(), backend, tmp_path / "a.jsonl")
    assert "--python fake=PATH" in str(caught.value.hint)


@pytest.mark.parametrize("end", ["the server", "the client"])
def test_a_connection_that_drops(sshd: Sshd, backend: FaultyBackend, tmp_path: Path, end: str) -> None:
    capture, mark = tmp_path / "a.jsonl", tmp_path.name
    cut: list[int] = []
    others = set(children(os.getpid()))  # the sshd, and what other tests share

    def watch(event: ArmEvent) -> None:
        if event.done == 5 and not cut:
            cut.extend(processes_with(mark))
            if end == "the server":
                sshd.cut()
            else:
                (client,) = set(children(os.getpid())) - others
                os.kill(client, signal.SIGKILL)

    plan = fake_plan("slow", requests=60, PARITY_MARK=mark)
    with pytest.raises(BackendError, match="the worker ended while generating") as caught:
        run(far(sshd), plan, backend, capture, on_event=watch)
    assert "of 60, which are kept" in str(caught.value)
    assert cut, "the worker was never seen"
    wait_for(lambda: not processes_with(mark), 10)
    assert 5 <= len(read_capture(capture, partial=True).completions) < 60
    run(far(sshd), plan, backend, capture)
    assert len(read_capture(capture).completions) == 60


PARITY = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from backend import FaultyBackend
from plans import fake_plan
from parity.plan.hosts import Host
from parity.run import run_arm
host = Host("fake", "fake", command=tuple(sys.argv[4:]), python=sys.executable)
with run_arm(fake_plan("slow", requests=400, PARITY_MARK=sys.argv[3]), "fake/base", Path(sys.argv[2]),
             Path(sys.argv[2] + ".log"), backend=FaultyBackend(), resume=True, host=host) as session:
    session.generate()
"""


@pytest.mark.parametrize("how", ["SIGKILL", "SIGSTOP"], ids=["killed", "frozen"])
def test_parity_dies_and_the_far_worker_with_it(sshd: Sshd, tmp_path: Path, how: str) -> None:
    """kill -9 ends the stream. A parity that stands still keeps it open: then the worker waits in vain for a word."""
    capture, mark = tmp_path / "a.jsonl", tmp_path.name
    here = str(Path(__file__).parents[2] / "support")
    quick = PARITY.replace("import run_arm\n", "import Timeouts, run_arm\n").replace(
        "resume=True,", "resume=True, timeouts=Timeouts(heartbeat=0.5),"
    )
    command = [sys.executable, "-c", quick, here, str(capture), mark, *sshd.command]
    parity = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: capture.exists() and capture.read_bytes().count(b"\n") > 3, 30)
        assert len(processes_with(mark)) == 1
        parity.send_signal(getattr(signal, how))
        wait_for(lambda: not processes_with(mark), 15)
    finally:
        parity.kill()
        parity.wait()
    wait_for(lambda: not clients_with(mark), 15)


def test_a_far_worker_that_hears_from_parity_lives_on(
    sshd: Sshd, backend: FaultyBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pings = []

    def counted(command: Command) -> bytes:
        pings.extend([command] if isinstance(command, Ping) else [])
        return command_line_of(command)

    monkeypatch.setattr("parity.run.process.command_line_of", counted)
    with run_arm(
        fake_plan(), "fake/base", tmp_path / "a.jsonl", tmp_path / "a.log", backend=backend, host=far(sshd),
        timeouts=Timeouts(start=60, stall=60, grace=5, heartbeat=0.25),
    ) as session:  # fmt: skip
        session.link.start()
        wait_for(lambda: len(pings) >= 12, 60)  # three times the silence that would end it
        session.generate()
    assert len(read_capture(tmp_path / "a.jsonl").completions) == 4


def test_a_host_that_takes_nothing_is_given_up(backend: FaultyBackend, tmp_path: Path) -> None:
    deaf = Host("fake", "fake", command=("sh", "-c", "sleep 60"))
    began = time.monotonic()
    with pytest.raises(BackendError, match="too long while starting"):
        run(
            deaf,
            fake_plan(requests=20_000),
            backend,
            tmp_path / "a.jsonl",
            timeouts=Timeouts(start=2, stall=2, grace=0.5),
        )
    assert time.monotonic() - began < 20


def test_how_long_an_engine_may_take_to_start_is_the_host_s_word(backend: FaultyBackend, tmp_path: Path) -> None:
    slow = Host("fake", "fake", command=("env",), python=PYTHON, start_timeout=1)
    with pytest.raises(BackendError, match="too long while starting"):
        run(slow, fake_plan("hang at start"), backend, tmp_path / "a.jsonl", timeouts=Timeouts(start=60, grace=0.2))


def test_a_far_log_without_end_is_bounded(
    sshd: Sshd, backend: FaultyBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("parity.run.process.MAX_LOG_BYTES", 50_000)
    run(far(sshd), fake_plan("chatty"), backend, tmp_path / "a.jsonl")
    assert (tmp_path / "a.log").stat().st_size < 60_000
    assert "the log is cut here" in (tmp_path / "a.log").read_text()


# --------------------------------------------------------------------------- replicas


def replicated(tmp_path: Path, backend: FaultyBackend, mode: str = "", **extra: Any) -> Path:
    backend.device_variable = "FAKE_DEVICES"  # type: ignore[attr-defined]
    host = Host("fake", "fake", command=("env",), python=PYTHON, devices=("0,1", "2,3", "4,5"))
    run(host, fake_plan(mode, requests=7, rounds=2), backend, tmp_path / "a.jsonl", **extra)
    return tmp_path / "a.jsonl"


def test_requests_are_dealt_out_to_replicas(backend: FaultyBackend, tmp_path: Path) -> None:
    path = replicated(tmp_path, backend)
    assert check_capture(path) == []
    records = [json.loads(line) for line in path.read_text().splitlines()]
    ran = {record["request"]: record["replica"] for record in records if record["record"] == "completion"}
    assert ran == {f"p{i}": i % 3 for i in range(7)}
    assert [each["visible_devices"] for each in records[0]["replicas"]] == ["0,1", "2,3", "4,5"]
    counters = records[-1]["counters"]
    assert (counters["tokens"], counters["drafts"]) == (14 * 6, 14 * 2)
    assert [each["tokens"] for each in counters["replicas"]] == [36, 24, 24]
    single = tmp_path / "single.jsonl"
    run(None, fake_plan(requests=7, rounds=2), backend, single)
    here, there = read_capture(single), read_capture(path)
    assert {c.key: c.token_ids.tolist() for c in there} == {c.key: c.token_ids.tolist() for c in here}
    assert there.header.extra["plan_digest"] == here.header.extra["plan_digest"]
    assert (tmp_path / "a.replica2.log").exists()


def test_a_replica_that_dies_fails_the_arm_and_is_resumed(backend: FaultyBackend, tmp_path: Path) -> None:
    with pytest.raises(BackendError, match="replica 1 of 3"):
        replicated(tmp_path, backend, "die on 2,3")
    resumed = replicated(tmp_path, backend)
    assert check_capture(resumed) == []
    assert len(read_capture(resumed).completions) == 14
    assert read_capture(resumed).counters["replay_differences"] == 0  # type: ignore[index]


def test_another_number_of_replicas_does_not_continue_a_capture(backend: FaultyBackend, tmp_path: Path) -> None:
    with pytest.raises(BackendError):
        replicated(tmp_path, backend, "die on 2,3")
    plan = fake_plan(requests=7, rounds=2)
    with pytest.raises(ParityError, match="the number of replicas"):
        run(Host("fake", "fake", replicas=2), plan, backend, tmp_path / "a.jsonl")


def test_replicas_must_be_of_one_engine(backend: FaultyBackend, tmp_path: Path) -> None:
    with pytest.raises(BackendError, match="replica 2 has another engine than replica 0"):
        replicated(tmp_path, backend, "odd on 4,5")


def test_replicas_score_together(backend: FaultyBackend, tmp_path: Path) -> None:
    items = [ScoreItem("fake/mtp", f"p{i}", 0, 0, [1, 2, i], [5, i]) for i in range(30)]
    with run_arm(
        fake_plan(), "fake/base", tmp_path / "a.jsonl", tmp_path / "a.log", backend=backend,
        host=Host("fake", "fake", replicas=3),
    ) as session:  # fmt: skip
        session.score(items, tmp_path / "scores.jsonl")
    footer = json.loads((tmp_path / "scores.jsonl").read_text().splitlines()[-1])
    assert (footer["scores"], footer["counters"]["sequences"]) == (30, 30)


def test_devices_need_an_adapter_that_can_choose(backend: FaultyBackend, tmp_path: Path) -> None:
    with pytest.raises(ParityError, match="has none to choose"):
        run(Host("fake", "fake", devices=("0",)), fake_plan(), backend, tmp_path / "a.jsonl")


def test_a_stop_ends_all_replicas(backend: FaultyBackend, tmp_path: Path) -> None:
    stop = threading.Event()
    mark = tmp_path.name

    def watch(event: ArmEvent) -> None:
        if event.done == 4:
            stop.set()

    with pytest.raises(BackendError, match="interrupted after"):
        run(
            Host("fake", "fake", replicas=2), fake_plan("slow", requests=60, PARITY_MARK=mark), backend,
            tmp_path / "a.jsonl", on_event=watch, stop=stop,
        )  # fmt: skip
    assert not processes_with(mark)
    assert os.path.exists(tmp_path / "a.jsonl")
