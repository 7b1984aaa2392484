"""Hosts that cannot reach each other: plan here, worker there, compare here; only files travel.

The far side is a directory with the plan and the single worker file, and a Python that has no parity: not in its
site-packages, not on its path, not in its environment.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cli_process import Parity
from parity_backends.vllm.local import worker_source

from parity.capture import check_capture, read_capture, read_scores

HERE = Path(__file__).parent
PLAIN_PYTHON = Path(sys.base_prefix) / "bin" / "python3"

BY_HAND = """
class Arm(Arm):  # what the fake engine lacks, since the supervisor does not ask for it
    start_seconds = 0.1

    def score(self, items, top):
        super().score(items, top)
        return len(items)
"""


@pytest.fixture
def island(parity: Parity, tmp_path: Path) -> Path:
    """A directory with a plan made here, and a worker whose engine is the fake one."""
    place = tmp_path / "island"
    place.mkdir()
    done = parity(
        "plan", "--backends", "fake", "--max-tokens", "24", "--suite", "smoke", "-o", str(place / "plan.json")
    )
    assert done.returncode == 0, done.stderr
    real, main = worker_source().decode().split('\nif __name__ == "__main__":')
    fake = (HERE / "fake_engine.py").read_text(encoding="utf-8")
    (place / "worker.py").write_text(f'{real}\n{fake}\n{BY_HAND}\nif __name__ == "__main__":{main}', encoding="utf-8")
    return place


def there(place: Path, *command: str, **env: str) -> subprocess.CompletedProcess[bytes]:
    """A command on the island: no variable of ours, another directory, isolated Python."""
    return subprocess.run(
        [str(PLAIN_PYTHON), "-I", *command], cwd=place, capture_output=True, timeout=60, check=False,
        env={"PATH": "/usr/bin:/bin", "FAKE_STARTS": str(place / "starts"), **env},
    )  # fmt: skip


@pytest.mark.parametrize(("fake", "code"), [("", 0), ("corrupt", 1)])
def test_the_whole_round_trip(parity: Parity, island: Path, tmp_path: Path, fake: str, code: int) -> None:
    assert b"No module named 'parity'" in there(island, "-c", "import parity").stderr
    for output, *arguments in (
        ("base.jsonl", "--arm", "fake/base"),
        ("mtp.jsonl", "--arm", "fake/mtp"),
        ("scores.jsonl", "--arm", "fake/base", "--score", "base.jsonl", "--score", "mtp.jsonl"),
    ):
        done = there(island, "worker.py", "plan.json", *arguments, FAKE=fake if output == "mtp.jsonl" else "")
        assert done.returncode == 0, done.stderr.decode()
        (island / output).write_bytes(done.stdout)
    back = tmp_path / "back"
    back.mkdir()
    for name in ("base.jsonl", "mtp.jsonl", "scores.jsonl"):
        shutil.move(island / name, back / name)
        assert check_capture(back / name) == []
    compared = parity(
        "compare", str(back / "base.jsonl"), str(back / "mtp.jsonl"), "--scores", str(back / "scores.jsonl")
    )
    assert compared.returncode == code, compared.stderr


def test_parity_worker_writes_what_a_run_would(parity: Parity, island: Path) -> None:
    plan = str(island / "plan.json")
    assert parity("run", "--plan", plan, "--out", str(island / "run")).returncode == 0
    for variant in ("base", "mtp"):
        done = parity("worker", plan, "--arm", f"fake/{variant}")
        assert done.returncode == 0, done.stderr
        assert done.stdout == (island / "run" / f"fake-{variant}.jsonl").read_text()
    scored = parity("worker", plan, "--arm", "fake/base", "--score", str(island / "run" / "fake-mtp.jsonl"))
    (island / "scores.jsonl").write_text(scored.stdout)
    assert {key.arm for key in read_scores(island / "scores.jsonl")} == {"fake/mtp"}


def test_parity_worker_continues_a_file(parity: Parity, island: Path) -> None:
    output = island / "mtp.jsonl"
    command = ("worker", str(island / "plan.json"), "--arm", "fake/mtp", "-o", str(output))
    failed = parity(*command, FAKE="die")
    assert failed.returncode == 3
    assert "which are kept" in failed.stderr
    assert len(read_capture(output, partial=True).completions) == 3
    assert parity(*command).returncode == 0
    assert len(read_capture(output).completions) == 4


def test_a_worker_that_dies_leaves_what_it_had_on_stdout(parity: Parity, island: Path) -> None:
    failed = parity("worker", str(island / "plan.json"), "--arm", "fake/mtp", FAKE="die")
    assert failed.returncode == 3
    assert [json.loads(line)["record"] for line in failed.stdout.splitlines()] == ["header"] + ["completion"] * 3


def test_the_worker_of_a_backend_is_one_file(parity: Parity, tmp_path: Path) -> None:
    target = tmp_path / "w.py"
    assert parity("worker", "--write", str(target)).returncode == 0
    assert os.access(target, os.X_OK)
    asked = there(tmp_path, str(target), "--help")
    assert b"--arm" in asked.stdout
    assert parity("worker", "--write", "-").stdout == target.read_text()


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ((), "PLAN and --arm are needed"),
        (("no.json", "--arm", "fake/base"), "cannot read no.json"),
        (("PLAN", "--arm", "fake/x"), "it has fake/base, fake/mtp"),
        (("PLAN", "--arm", "fake/mtp", "--score", "PLAN"), "PLAN"),
        (("PLAN", "--arm", "fake/base", "--host", "gpu=ssh x"), "names no backend"),
        (("--write", "/no/such/dir/w.py"), "cannot write /no/such/dir/w.py"),
    ],
)
def test_mistakes(parity: Parity, island: Path, args: tuple[str, ...], words: str) -> None:
    done = parity("worker", *(str(island / "plan.json") if arg == "PLAN" else arg for arg in args))
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert words.replace("PLAN", "plan.json") in done.stderr or words in done.stderr
