"""Captures by URL: the same as the local file, and an error where it cannot be had."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
from click.testing import CliRunner

from parity.capture import read_capture, stretch
from parity.capture.crew import Crew
from parity.capture.remote import Remote
from parity.capture.shards import INDEX
from parity.capture.split import split
from parity.cli.main import cli
from parity.errors import ParityError
from parity.language import render
from tests.unit.test_capture_beside import arm_of, said_by, written
from tests.unit.test_packed_captures import packed


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """base.jsonl, mtp.jsonl, and both as shards."""
    made = arm_of(300)
    written(tmp_path / "base.jsonl", "a/base", made)
    made[7] = replace(made[7], token_ids=np.array([1, 2, 3]))
    written(tmp_path / "mtp.jsonl", "a/mtp", made)
    for name in ("base", "mtp"):
        split(tmp_path / f"{name}.jsonl", tmp_path / name, 9000)
    return tmp_path


@pytest.fixture
def url(folder: Path) -> Iterator[str]:
    """The same in memory."""
    system = fsspec.filesystem("memory")
    for each in folder.rglob("*.*"):
        system.pipe_file(f"/bucket/{each.relative_to(folder)}", each.read_bytes())
    yield "memory://bucket"
    system.rm("/bucket", recursive=True)


@pytest.mark.parametrize("name", ["base.jsonl", "base"])
@pytest.mark.parametrize("large", [False, True])
def test_it_is_the_local_capture(folder: Path, url: str, name: str, large: bool) -> None:
    expected = said_by(read_capture(folder / name))
    if large:
        with packed():
            assert said_by(read_capture(f"{url}/{name}")) == expected
    else:
        assert said_by(read_capture(f"{url}/{name}")) == expected


@pytest.mark.parametrize("name", ["mtp.jsonl", "mtp"])
def test_processes_read_it(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They see what this one sees: here the files of this machine, by URL."""
    monkeypatch.setattr(stretch, "BYTES", 5000)
    joined = []

    def loaded(data: bytes) -> stretch.Stretch:
        joined.append(stretch.loaded(data).lines)
        return stretch.loaded(data)

    monkeypatch.setattr("parity.capture.crew.loaded", loaded)
    with packed(), Crew(2) as readers:
        found = read_capture(f"file://{folder / name}", readers=readers)
    assert said_by(found) == said_by(read_capture(folder / name))
    assert sum(joined) > 200


def test_the_command_takes_urls(folder: Path, url: str) -> None:
    said = []
    for place in (str(folder), url):
        done = CliRunner().invoke(cli, ["compare", f"{place}/base", f"{place}/mtp.jsonl", "--json"])
        assert done.exit_code in (0, 1, 4), done.output
        said.append(json.loads(done.output))
        said[-1].pop("next")  # commands with the captures' names
    assert said[0] == said[1]


def test_the_command_takes_scores_by_url(folder: Path, url: str) -> None:
    tokens = [1, 2, 3]
    lists = [[[token, -9.0], [8, -0.1]] for token in tokens]
    records = [{"record": "score", "arm": "a/mtp", **arm_of(300)[7].key._asdict(), "logprobs": lists}]
    scores = b"".join(json.dumps(one).encode() + b"\n" for one in records)
    (folder / "scores.jsonl").write_bytes(scores)
    fsspec.filesystem("memory").pipe_file("/bucket/scores.jsonl", scores)
    said = []
    for place in (folder, url):
        options = ["--scores", f"{place}/scores.jsonl", "--json"]
        done = CliRunner().invoke(cli, ["compare", str(folder / "base"), str(folder / "mtp"), *options])
        assert done.exit_code == 1, done.output
        said.append(json.loads(done.output))
    assert said[0]["findings"] == said[1]["findings"]
    assert said[0]["counts"]


def gone(url: str) -> str:
    return f"{url}/gone.jsonl"


def no_such_system(url: str) -> str:
    return "nowhere://bucket/base.jsonl"


def without_its_package(url: str) -> str:
    return "s3://bucket/base.jsonl"


def a_shard_missing(url: str) -> str:
    fsspec.filesystem("memory").rm_file("/bucket/base/00002.jsonl")
    return f"{url}/base"


def a_broken_index(url: str) -> str:
    fsspec.filesystem("memory").pipe_file(f"/bucket/base/{INDEX}", b"{")
    return f"{url}/base"


@pytest.mark.parametrize(
    ("wrong", "said", "hint"),
    [
        (gone, "no such capture: memory://bucket/gone.jsonl", "check the path"),
        (no_such_system, "nowhere://bucket/base.jsonl", "s3://BUCKET/PATH"),
        (without_its_package, "s3://bucket/base.jsonl needs a package", "parity-mtp[remote]"),
        (a_shard_missing, "memory://bucket/base lacks 00002.jsonl, shard 2 of ", "copy 00002.jsonl again"),
        (a_broken_index, "memory://bucket/base/shards.json: no index of shards", "copy it again"),
    ],
)
def test_what_is_wrong_is_said(
    url: str, wrong: Callable[[str], str], said: str, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(ParityError) as told:
        read_capture(wrong(url))
    assert said in str(told.value)
    assert told.value.hint is not None
    assert hint in render(told.value.hint)


def test_without_fsspec(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec", None)
    done = CliRunner().invoke(cli, ["compare", "s3://bucket/a.jsonl", "s3://bucket/b.jsonl"])
    assert done.exit_code == 2
    assert "pip install 'parity-mtp[remote]'" in done.output


def test_a_failure_in_the_middle_names_the_url(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Fails(Exception):
        """As a file system's own package raises it."""

    def info(*_: object) -> None:
        raise Fails("access denied")

    place = Remote(f"{url}/base.jsonl")
    monkeypatch.setattr(fsspec.filesystem("memory"), "info", info)
    with pytest.raises(OSError, match="access denied"):
        place.stat()


@pytest.mark.parametrize("asked", ["info", "isfile"])
def test_a_service_that_goes_away_is_an_error_of_the_user(
    url: str, asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not only where its bytes are read."""

    def gone(*_: object) -> None:
        raise ConnectionError("the service is gone")

    monkeypatch.setattr(fsspec.filesystem("memory"), asked, gone)
    done = CliRunner().invoke(cli, ["compare", f"{url}/base.jsonl", f"{url}/mtp.jsonl"])
    assert done.exit_code == 2, done.output
    assert "the service is gone" in done.output
    assert "AWS_ENDPOINT_URL" in done.output


def test_a_service_that_goes_away_while_it_is_read(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its package raises what it likes, and not only OSErrors."""
    system = fsspec.filesystem("memory")
    open_there = system.open

    def opened(*asked: Any, **more: Any) -> Any:
        file = open_there(*asked, **more)
        read = file.read

        def cut(size: int = -1) -> bytes:
            if file.tell() > 0:
                raise RuntimeError("the service is gone")
            return bytes(read(min(size, 1000)))

        monkeypatch.setattr(file, "read", cut)
        return file

    monkeypatch.setattr(system, "open", opened)
    done = CliRunner().invoke(cli, ["compare", f"{url}/base.jsonl", f"{url}/mtp.jsonl"])
    assert done.exit_code == 2, done.output
    assert "the service is gone" in done.output


def test_scores_that_are_missing_are_asked_of_copies_on_this_machine(tmp_path: Path) -> None:
    """A recording is replayed from files of this machine: the way on is said, not that they were moved."""
    made = [replace(one, token_ids=one.token_ids[:4]) for one in arm_of(20)]
    system = fsspec.filesystem("memory")
    for name in ("base", "mtp"):
        written(tmp_path / f"{name}.jsonl", f"a/{name}", made)
        system.pipe_file(f"/parted/{name}.jsonl", (tmp_path / f"{name}.jsonl").read_bytes())
        made[7] = replace(made[7], token_ids=np.array([*made[7].token_ids[:3], 1]))
    done = CliRunner().invoke(cli, ["compare", "memory://parted/base.jsonl", "memory://parted/mtp.jsonl", "--json"])
    system.rm("/parted", recursive=True)
    said = json.loads(done.output)
    assert said["verdict"] == "INCONCLUSIVE"
    assert [one["what"] for one in said["next"] if "copy them here" in one["what"]]
