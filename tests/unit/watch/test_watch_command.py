"""`parity watch` as a service manager runs it, and what it refuses or says before the first probe."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import IO

import pytest
from captures import TEXT, capture, completion, written
from click.testing import CliRunner

from parity.cli.main import cli

DEMO = Path(str(files("parity") / "demo"))
RECORDED = f"a={DEMO / 'base.jsonl.gz'}"

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="a worker needs POSIX process groups")


def ended(words: list[str], home: Path) -> tuple[int, str]:
    done = CliRunner().invoke(cli, ["watch", *words, "--interval", "0"], env={"PARITY_HOME": str(home)})
    return done.exit_code, done.output


def until(stream: IO[str], wanted: str) -> list[str]:
    """Lines up to the one that has it."""
    lines = []
    for line in stream:
        lines.append(line)
        if wanted in line:
            return lines
    raise AssertionError(lines)


def test_a_service_manager_ends_it_with_its_summary_and_by_its_signal(tmp_path: Path) -> None:
    words = ["watch", "--replay", RECORDED, "--replay", RECORDED.replace("a=", "b="), "--interval", "1000"]
    process = subprocess.Popen(
        [sys.executable, "-m", "parity", *words],
        env={**os.environ, "PARITY_HOME": str(tmp_path)},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        until(process.stderr, "probe 1: PASS")
        process.send_signal(signal.SIGTERM)
        rest = process.stderr.read()
        assert process.wait(30) == -signal.SIGTERM
    finally:
        process.kill()
        process.wait()
    assert rest.strip() == "1 probe: 1 PASS"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--model", "{other}"], "is a recording of the model 'tiny-qwen3-next-mtp', the plan is for 'other'"),
        (["--suite", "smoke", "--max-tokens", "48"], "has nothing for the request 'name', round 0"),
        (["--max-tokens", "7", "--suite", "mixed"], "was recorded with max_tokens="),
    ],
)
def test_a_recording_that_has_no_answer_is_refused_once_before_the_first_probe(
    tmp_path: Path, more: list[str], said: str
) -> None:
    shipped = Path(str(files("parity") / "models" / "tiny-qwen3-next-mtp"))
    (tmp_path / "other").symlink_to(shipped)
    words = [word.format(other=tmp_path / "other") for word in more]
    code, output = ended(
        [
            "--replay",
            RECORDED,
            "--server",
            "live=http://127.0.0.1:9",
            "--server-option",
            "retries=0",
            "--probes",
            "1",
            *words,
        ],
        tmp_path,
    )
    assert code == 2, output
    assert said in output
    assert "probe 1" not in output
    assert "hint: " in output


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_recording_that_cannot_judge_draws_is_said_before_the_first_probe(tmp_path: Path, temperature: float) -> None:
    base = capture("cpu/base", completion(TEXT), model="tiny-qwen3-next-mtp")
    header = replace(base.header, sampling={**base.header.sampling, "temperature": temperature})
    path = written(tmp_path / "drawn.jsonl", replace(base, header=header))
    words = [
        "--replay",
        f"a={path}",
        "--server",
        "live=http://127.0.0.1:9",
        "--server-option",
        "retries=0",
        "--probes",
        "1",
    ]
    _, output = ended(words, tmp_path)
    said = f"replay/a is a recording, and cannot score what is drawn at temperature {temperature:g}"
    assert (said in output) is bool(temperature), output
    assert output.index("warning: ") < output.index("probe 1: failed")


def test_what_is_said_of_a_recording_without_lists_holds_of_one_that_diverges(tmp_path: Path) -> None:
    code, output = ended(
        ["--replay", RECORDED, "--replay", f"b={DEMO / 'mtp-broken.jsonl.gz'}", "--probes", "1"], tmp_path
    )
    assert code == 1
    assert "probe 1: DIVERGED" in output
    assert "never DIVERGED" not in output
    assert "where they prove a fault by themselves" in output
