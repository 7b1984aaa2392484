"""parity-ray on a local cluster of two nodes, one with a declared GPU and one with a declared NPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from backend import FaultyBackend
from plans import fake_plan

from parity.plan.hosts import Host
from parity.ray.launcher import CANNOT, arguments, lacking
from parity.run import Timeouts, run_arm
from parity.run.launch import run_python

LAUNCHER = (sys.executable, "-m", "parity.ray.launcher")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a cluster whose nodes are processes here. Few workers: it shares two cores with all else."""
    from ray.cluster_utils import Cluster

    made = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 2, "num_gpus": 1, "include_dashboard": False, "object_store_memory": 80 << 20},
    )
    made.add_node(num_cpus=2, num_gpus=0, resources={"NPU": 2}, object_store_memory=80 << 20)
    made.wait_for_nodes(60)
    yield made.address
    made.shutdown()


def launched(address: str, *words: str, data: bytes = b"", timeout: float = 90) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*LAUNCHER, "--address", address, *words], input=data, capture_output=True, timeout=timeout)


def test_streams_and_exit_code(cluster: str) -> None:
    code = "import sys; d = sys.stdin.buffer.read(); sys.stdout.buffer.write(d[::-1]); print('log', file=sys.stderr)"
    code += "; sys.exit(7)"
    data = os.urandom(300_000)
    done = launched(cluster, "--gpus", "1", sys.executable, "-c", code, data=data)
    assert done.returncode == 7
    assert done.stdout == data[::-1]
    assert done.stderr == b"log\n"


def test_each_resource_leads_to_its_node(cluster: str) -> None:
    code = "import os; print(os.environ.get('CUDA_VISIBLE_DEVICES'), os.environ.get('ASCEND_RT_VISIBLE_DEVICES'))"
    gpu = launched(cluster, "--gpus", "1", sys.executable, "-c", code).stdout.split()
    npu = launched(cluster, "--npus", "1", sys.executable, "-c", code).stdout.split()
    assert gpu[0] == b"0"
    assert npu[1] in {b"0", b"1"}


def test_an_interactive_program_answers_while_it_runs(cluster: str) -> None:
    process = subprocess.Popen(
        [*LAUNCHER, "--address", cluster, "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    )
    assert process.stdin is not None
    assert process.stdout is not None
    for line in (b"one\n", b"two\n"):
        process.stdin.write(line)
        assert process.stdout.readline() == line
    process.stdin.close()
    assert process.wait(timeout=30) == 0


def test_nothing_stays_behind_when_the_launcher_is_killed(cluster: str, tmp_path: Path) -> None:
    sign = tmp_path / "pid"
    code = f"import os, sys; open({str(sign)!r}, 'w').write(str(os.getpid())); sys.stdin.read()"
    process = subprocess.Popen(
        [*LAUNCHER, "--address", cluster, sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    until = time.monotonic() + 60
    while not (sign.exists() and sign.read_text()) and time.monotonic() < until:
        time.sleep(0.1)
    pid = int(sign.read_text())
    process.kill()
    process.wait()
    while Path(f"/proc/{pid}").exists() and time.monotonic() < until:
        time.sleep(0.1)
    assert not Path(f"/proc/{pid}").exists()


def test_it_is_a_command_prefix(cluster: str) -> None:
    """What parity puts behind it: an interpreter that reads its program from stdin, and environment variables."""
    host = Host("npu", "ascend", command=(*LAUNCHER, "--address", cluster, "--npus", "1"), python=sys.executable,
                env={"MARK": "with 'quotes' and $signs"})  # fmt: skip
    source = "import os, sys; print(os.environ['MARK'], sys.argv[1:], 'OMP_NUM_THREADS' in os.environ)"
    assert run_python(host, source, ["a b"]).split("\n")[0] == "with 'quotes' and $signs ['a b'] False"


def test_replicas_of_an_arm_share_its_requests(cluster: str, tmp_path: Path) -> None:
    plan = fake_plan(requests=6)
    prefix = (*LAUNCHER, "--address", cluster, "--npus", "1")
    host = Host("fake", "fake", command=prefix, python=sys.executable, replicas=2)
    patience = Timeouts(start=90.0, stall=60.0, grace=10.0)
    capture = tmp_path / "base.jsonl"
    with run_arm(
        plan, "fake/base", capture, tmp_path / "base.log", backend=FaultyBackend(), host=host, timeouts=patience
    ) as session:
        session.generate()
    records = [json.loads(line) for line in capture.read_text().splitlines()]
    done = [record for record in records if record["record"] == "completion"]
    assert sorted(record["request"] for record in done) == [f"p{i}" for i in range(6)]
    assert {record["request"]: record["replica"] for record in done} == {f"p{i}": i % 2 for i in range(6)}


def test_what_cannot_be_had(cluster: str) -> None:
    none = launched(cluster, "--resource", "TPU=1", "true")
    assert none.returncode == CANNOT
    assert b"the cluster has no TPU=1" in none.stderr
    assert b"NPU=2" in none.stderr
    missing = launched(cluster, "/no/such/python")
    assert missing.returncode == CANNOT
    assert b"cannot be started there" in missing.stderr
    nowhere = launched("127.0.0.1:1", "true")
    assert nowhere.returncode == CANNOT
    assert b"no Ray cluster" in nowhere.stderr


def test_a_device_that_is_taken_is_waited_for_and_no_longer(cluster: str) -> None:
    holder = subprocess.Popen(
        [*LAUNCHER, "--address", cluster, "--gpus", "1", "cat"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    holder.stdin.write(b"x\n")
    assert holder.stdout.readline() == b"x\n"
    late = launched(cluster, "--gpus", "1", "--wait", "2", "true")
    holder.stdin.close()
    holder.wait(timeout=30)
    assert late.returncode == CANNOT
    assert b"GPU=1 free within 2 s" in late.stderr


def test_arguments() -> None:
    args = arguments(["--npus", "2", "--resource", "big=0.5", "--", "python3", "--gpus", "9"])
    assert args.resources == {"NPU": 2.0, "big": 0.5}
    assert args.command == ["python3", "--gpus", "9"]
    assert lacking({"CPU": 1, "GPU": 2}, {"CPU": 4, "GPU": 1}) == {"GPU": 2}
    for bad in ([], ["--resource", "x=y", "true"]):
        with pytest.raises(SystemExit) as caught:
            arguments(bad)
        assert caught.value.code == 2
