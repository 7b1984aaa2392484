"""A recording that is a directory of shards is the arm that its one file is."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from parity_backends.replay.worker.recording import Recording, scores_of

from parity.capture.shards import INDEX
from parity.capture.split import split
from parity.cli.endpoints import EndpointOptions, own_arms
from parity.errors import ParityError
from parity.run import OwnSettings, load_backend

DEMO = Path(str(files("parity") / "demo"))
ARMS = ("base", "mtp-broken")


@pytest.fixture
def recordings(tmp_path: Path) -> Path:
    """Captures and scores as files, and as shards of a few KiB in `shards`."""
    for name in (*ARMS, "scores"):
        path = tmp_path / f"{name}.jsonl"
        path.write_bytes(gzip.decompress((DEMO / f"{name}.jsonl.gz").read_bytes()))
        assert len(split(path, tmp_path / "shards" / name, 4_000)) > 3
    return tmp_path


def parity(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PARITY_HOME": str(folder / "home")}
    command = [sys.executable, "-m", "parity", *arguments]
    return subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, timeout=120)


def judged(folder: Path, out: Path) -> dict[str, Any]:
    recordings = [part for name in ARMS for part in ("--replay", str(folder / name))]
    done = parity(folder, "run", *recordings, "--out", str(out), "--json")
    assert done.returncode == 1, done.stderr
    arms: dict[str, Any] = json.loads(done.stdout)["arms"]
    return arms


def test_shards_are_judged_as_the_file_is(recordings: Path) -> None:
    folder = recordings / "shards"
    (folder / "scores.jsonl").write_bytes((recordings / "scores.jsonl").read_bytes())
    for name in ARMS:
        (recordings / name).symlink_to(recordings / f"{name}.jsonl")
    of_files = judged(recordings, recordings / "of-files")
    assert judged(folder, recordings / "of-shards") == of_files
    assert of_files["replay/mtp-broken"]["verdict"] == "DIVERGED"


def test_scores_may_be_shards_too(recordings: Path) -> None:
    folder = recordings / "shards"
    backend = load_backend("replay")
    assert isinstance(backend, OwnSettings)
    given = {"capture": str(folder / "base"), "scores": str(folder / "scores")}
    assert backend.arm_settings(given) == given
    (folder / "scores" / "00002.jsonl").rename(recordings / "gone")
    with pytest.raises(ParityError, match=r"lacks 00002\.jsonl"):
        backend.arm_settings(given)
    (recordings / "gone").rename(folder / "scores" / "00002.jsonl")
    assert scores_of(str(folder / "scores")) == scores_of(str(recordings / "scores.jsonl"))
    assert Recording(str(folder / "base")).counters == Recording(str(recordings / "base.jsonl")).counters


def test_a_stored_comparison_of_shards_is_reported_as_one_of_files_is(recordings: Path) -> None:
    reports = []
    for folder, ending in ((recordings, ".jsonl"), (recordings / "shards", "")):
        files = [f"{name}{ending}" for name in (*ARMS, "scores")]
        done = parity(folder, "compare", *files[:2], "--scores", files[2], "--save")
        assert done.returncode == 1, done.stderr
        done = parity(folder, "report", "-o", "report.md")
        assert done.returncode == 0, done.stderr
        report = (folder / "report.md").read_text().replace(".jsonl", "")
        reports.append(re.sub(r"run `[^`]*`", "run", report))
    assert reports[0] == reports[1]
    assert "compare base mtp-broken --scores scores" in reports[0]


def test_a_missing_shard_is_named_before_anything_starts(recordings: Path) -> None:
    folder = recordings / "shards" / "base"
    (folder / "00002.jsonl").unlink()
    done = parity(recordings, "run", "--replay", str(folder), "--replay", "mtp-broken.jsonl")
    assert done.returncode == 2
    assert "lacks 00002.jsonl" in done.stderr
    assert "starting" not in done.stderr


def test_a_directory_without_an_index_is_that_of_a_run(recordings: Path) -> None:
    folder = recordings / "shards" / "base"

    def names() -> list[str]:
        options = EndpointOptions(servers=(), server_options=(), replays=((None, str(folder)),), arbiter=None)
        return [arm.name for arm in own_arms(options)]

    assert names() == ["replay/base"]
    (folder / INDEX).unlink()
    assert names()[:2] == ["replay/00001", "replay/00002"]
