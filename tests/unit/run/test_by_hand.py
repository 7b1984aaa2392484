"""The worker by hand, as docs/hosts.md tells it: two hosts that parity cannot reach, files carried between them.

Everything is the real worker's but the engine (tests/unit/pipeline/fake_engine.py).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from parity_backends.vllm.local import worker_source

from parity.capture import check_capture, read_capture, read_scores
from parity.comparator import CompareOptions, compare
from parity.records import Kind, Verdict

PIPELINE = Path(__file__).parents[1] / "pipeline"


def plan() -> dict[str, Any]:
    spec = {"method": "mtp", "num_speculative_tokens": 2}
    return {
        "schema": "parity.plan/1",
        "model": {"name": "m", "path": "/nowhere", "vocab_size": 2048, "eos_token_ids": [0]},
        "rounds": 2,
        "sampling": {"temperature": 0.0, "max_tokens": 24, "n": 1},
        "requests": [{"id": f"p{n}", "prompt": None, "prompt_token_ids": [n + 3, 7]} for n in range(4)],
        "arms": [
            {"name": "cuda/base", "backend": "cuda", "variant": "base", "engine": {}, "env": {}},
            {
                "name": "ascend/mtp",
                "backend": "ascend",
                "variant": "mtp",
                "engine": {"speculative_config": spec},
                "env": {"PARITY_TEST_ONLY": "1"},
            },
        ],
        "baseline": "cuda/base",
    }


BY_HAND = """
class Arm(Arm):  # what the fake engine lacks, since the supervisor does not ask for it
    start_seconds = 0.1

    def score(self, items, top):
        super().score(items, top)
        return len(items)
"""


@pytest.fixture
def host(tmp_path: Path) -> Path:
    real, main = worker_source().decode().split('\nif __name__ == "__main__":')
    fake = (PIPELINE / "fake_engine.py").read_text(encoding="utf-8")
    source = f'{real}\n{fake}\n{BY_HAND}\nif __name__ == "__main__":{main}'
    (tmp_path / "worker.py").write_text(source, encoding="utf-8")
    (tmp_path / "plan.json").write_text(json.dumps(plan()), encoding="utf-8")
    return tmp_path


def by_hand(host: Path, output: str, *arguments: str, fake: str = "") -> Path:
    """`python worker.py … > output`."""
    env = {**os.environ, "FAKE": fake, "FAKE_STARTS": str(host / "starts.txt")}
    command = [sys.executable, "worker.py", "plan.json", *arguments]
    with (host / output).open("wb") as file:
        done = subprocess.run(command, cwd=host, env=env, stdout=file, stderr=subprocess.PIPE, timeout=60, text=True)
    assert done.returncode == 0, done.stderr
    return host / output


@pytest.mark.parametrize(("fake", "verdict"), [("", Verdict.PASS), ("corrupt", Verdict.DIVERGED)])
def test_two_hosts_by_hand(host: Path, fake: str, verdict: Verdict) -> None:
    base = by_hand(host, "base.jsonl", "--arm", "cuda/base", "--model", "/elsewhere")
    mtp = by_hand(host, "mtp.jsonl", "--arm", "ascend/mtp", fake=fake)
    scored = by_hand(
        host, "scores.jsonl", "--arm", "cuda/base", "--score", "mtp.jsonl", "--score", "base.jsonl", "--top", "2"
    )
    for path in (base, mtp, scored):
        assert check_capture(path) == []
    scores = read_scores(scored)
    assert {key.arm for key in scores} == {"cuda/base", "ascend/mtp"}
    assert len(scores) == 2 * 4 * 2
    result = compare(read_capture(base), read_capture(mtp), scores, CompareOptions(tolerance="auto"))
    assert result.verdict is verdict
    assert result.stats.floor is not None
    assert (result.baseline, result.candidate) == ("cuda/base", "ascend/mtp")
    if fake:
        assert {finding.request for finding in result.corrupt} == {"p2"}
        assert result.corrupt[0].position == 11
    else:
        assert {finding.kind for finding in result.findings} == {Kind.NEAR_TIE}


def test_an_unknown_arm_names_those_there_are(host: Path) -> None:
    command = [sys.executable, "worker.py", "plan.json", "--arm", "cuda/mtp"]
    done = subprocess.run(command, cwd=host, capture_output=True, timeout=60, text=True)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert "the plan has no arm 'cuda/mtp'; it has cuda/base, ascend/mtp" in done.stderr


def test_compact_captures_are_scored_as_well(host: Path) -> None:
    from parity.capture import write_capture

    mtp = by_hand(host, "mtp.jsonl", "--arm", "ascend/mtp")
    write_capture(host / "packed.jsonl", read_capture(mtp), compact=True)
    plain = read_scores(by_hand(host, "plain.jsonl", "--arm", "cuda/base", "--score", "mtp.jsonl"))
    packed = read_scores(by_hand(host, "again.jsonl", "--arm", "cuda/base", "--score", "packed.jsonl"))
    assert {key: top.ids.tolist() for key, top in plain.items()} == {
        key: top.ids.tolist() for key, top in packed.items()
    }


def test_a_python_without_vllm_says_so_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "worker.py").write_bytes(worker_source())
    (tmp_path / "plan.json").write_text(json.dumps(plan()), encoding="utf-8")
    command = [sys.executable, "worker.py", "plan.json", "--arm", "cuda/base"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=60, text=True)
    assert done.returncode == 2
    assert done.stdout == ""
    starting, said = done.stderr.splitlines()
    assert "starting" in starting
    assert f"{sys.executable} has no vllm: run this file with the Python that has vLLM" in said


def test_an_old_python_says_so_in_a_line(tmp_path: Path) -> None:
    """Its version is made up: the rest of the file must not be reached."""
    old = "import sys\nsys.version_info = (3, 8, 10, 'final', 0)\n"
    source = old + worker_source().decode().replace("from __future__ import annotations", "", 1)
    done = subprocess.run([sys.executable, "-"], input=source, capture_output=True, timeout=60, text=True)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "this file needs 3.9 or newer" in done.stderr
