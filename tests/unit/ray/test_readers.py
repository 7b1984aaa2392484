"""`parity compare --ray` on a local cluster of two nodes: the same result, with a node killed in the middle too."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parity.capture import lines, read_capture, stretch
from parity.capture.split import split
from parity.errors import ParityError
from parity.language import render
from parity.ray import readers
from parity.ray.readers import RayReaders
from tests.unit.test_capture_beside import arm_of, said_by, written
from tests.unit.test_packed_captures import packed

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="Ray is not installed: pip install 'parity-mtp[ray]'"
)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Two nodes that are processes here."""
    from ray.cluster_utils import Cluster

    store = 80 << 20
    made = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 1, "include_dashboard": False, "object_store_memory": store},
    )
    made.add_node(num_cpus=1, object_store_memory=store)
    made.wait_for_nodes(60)
    monkeypatch.setenv("RAY_ADDRESS", made.address)
    yield made
    made.shutdown()


@pytest.fixture
def captures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, Path]]:
    """A file and a directory of shards, both of many stretches."""
    monkeypatch.setattr(stretch, "BYTES", 20_000)
    made = arm_of(3000)
    one = written(tmp_path / "base.jsonl", "a/base", made)
    made[2500] = replace(made[2500], token_ids=np.array([1, 2, 3]))
    split(written(tmp_path / "mtp.jsonl", "a/mtp", made), tmp_path / "mtp", 200_000)
    with packed():
        yield one, tmp_path / "mtp"


def test_a_node_is_killed_in_the_middle(
    cluster: Any, captures: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = read_capture(captures[0])
    alone = [said_by(first), said_by(read_capture(captures[1], beside=first))]
    monkeypatch.setattr(lines, "SEEN_EVERY", 1)
    node = next(iter(cluster.worker_nodes))
    counts: dict[str, int] = {"seen": 0, "joined": 0}

    def kill(_: int) -> None:
        counts["seen"] += 1
        if counts["seen"] == 5:
            cluster.remove_node(node, allow_graceful=False)

    def joined(data: bytes) -> stretch.Stretch:
        found = stretch.loaded(data)
        counts["joined"] += found.lines
        return found

    monkeypatch.setattr(readers, "loaded", joined)
    with RayReaders() as cluster_readers:
        mine = read_capture(captures[0], readers=cluster_readers, seen=kill)
        theirs = read_capture(captures[1], beside=mine, readers=cluster_readers)
    assert [said_by(mine), said_by(theirs)] == alone
    assert node not in cluster.worker_nodes
    assert counts["seen"] > 10
    assert counts["joined"] > 5000  # of 6000, so it was the cluster that read


def test_the_command_gives_the_same_result(cluster: Any, captures: tuple[Path, Path]) -> None:
    code = "import atexit, os, sys; from parity.capture import read, stretch; stretch.BYTES = 20_000; "
    code += "atexit.register(lambda: 'ray' in sys.modules and os._exit(99)); "  # such a process is not to be copied
    code += "read.PACKED_FROM = read.LISTS_PACKED_FROM = 0; from parity.cli.main import entry; sys.exit(entry())"
    said = []
    for more in (["--ray"], ["--jobs", "1"]):
        command = [sys.executable, "-c", code, "compare", *map(str, captures), "--json", *more]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert done.returncode in (0, 1, 4), done.stderr
        said.append(json.loads(done.stdout))
    assert said[0] == said[1]
    other = subprocess.run(
        [sys.executable, "-c", code, "compare", *map(str, captures), "--ray", "--jobs", "2"],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert other.returncode == 2
    assert "name one of them" in other.stderr


def test_what_no_node_can_do_is_an_error(
    cluster: Any, captures: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    with RayReaders() as cluster_readers:
        gone = stretch.Span(0, captures[0].with_name("gone.jsonl"), 0, 10)
        with pytest.raises(ParityError, match=r"does not see .*gone\.jsonl"):
            list(cluster_readers.stretches(iter([gone])))
        monkeypatch.setattr(readers, "__version__", "0.0.0")
        there = stretch.Span(0, captures[0], 0, 10)
        with pytest.raises(ParityError, match="cannot read: ") as told:
            list(cluster_readers.stretches(iter([there])))
    assert told.value.hint is not None
    assert "0.0.0" in render(told.value.hint)


FAKE = """
import os
print("raylet: lost")
def init(*args, **kwargs):
    print("a node died")
    os.write(1, b"and another\\n")
def cluster_resources():
    return {"CPU": 2}
class exceptions:
    class RayError(Exception): pass
    class RayTaskError(RayError): pass
class Task:
    def __init__(self, work): self.work = work
    def remote(self, *args): return self.work, args
def remote(**kwargs): return Task
def get(asked):
    if FAILS: raise exceptions.RayError("all nodes are lost")
    return asked[0](*asked[1])
"""


@pytest.mark.parametrize("fails", [False, True])
def test_what_ray_prints_is_no_result(
    captures: tuple[Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    fails: bool,
) -> None:
    """It prints the end of a lost node's log. What no node could read is read here."""
    (tmp_path / "fake").mkdir()
    (tmp_path / "fake/ray.py").write_text(FAKE + f"FAILS = {fails}\n")
    monkeypatch.syspath_prepend(str(tmp_path / "fake"))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    alone = said_by(read_capture(captures[0]))
    loaded: list[int] = []
    monkeypatch.setattr(readers, "loaded", lambda data: loaded.append(len(data)) or stretch.loaded(data))
    with RayReaders() as ours:
        assert said_by(read_capture(captures[0], readers=ours)) == alone
    assert bool(loaded) is not fails
    out, err = capfd.readouterr()
    assert out == ""
    for one in ("raylet: lost", "a node died", "and another"):
        assert one in err


def test_the_process_that_speaks_to_ray_is_killed(
    cluster: Any, captures: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = said_by(read_capture(captures[0]))
    monkeypatch.setattr(lines, "SEEN_EVERY", 1)
    seen: list[int] = []

    def kill(_: int) -> None:
        seen.append(1)
        if len(seen) == 5:
            ours._process.kill()

    with RayReaders() as ours:
        assert said_by(read_capture(captures[0], readers=ours, seen=kill)) == alone
    assert len(seen) > 5
    assert ours._process.returncode is not None


def test_answers_that_nobody_waited_for_are_nobody_elses(cluster: Any, captures: tuple[Path, Path]) -> None:
    size = captures[0].stat().st_size
    spans = [stretch.Span(0, captures[0], at, min(at + 20_000, size)) for at in range(0, size, 20_000)]
    with RayReaders() as ours:
        whole = list(ours.stretches(iter(spans)))
        next(ours.stretches(iter(spans[:6])))  # five were asked for, and are left
        again = list(ours.stretches(iter(reversed(spans))))
        assert not ours._early  # each is some megabytes
    assert [one and one.begin for _, one in again] == [one and one.begin for _, one in reversed(whole)]
    assert any(one is not None for _, one in again)


def test_without_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    with pytest.raises(ParityError, match=r"no Ray cluster: nothing answers at 127\.0\.0\.1:1"):
        RayReaders().__enter__()


def test_without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ParityError, match="not installed") as told:
        RayReaders().__enter__()
    assert told.value.hint is not None
    assert "pip install" in render(told.value.hint)
