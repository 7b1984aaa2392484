"""`parity watch` as a command, on servers that change their mind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from fake_server import MODEL, FakeServer, fake_server

PROMPTS = ("--suite", "smoke", "--max-tokens", "12", "--score", "none", "--model", str(MODEL))


def start(home: Path, *args: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "parity", "watch", *PROMPTS, *args],
        env={**os.environ, "PARITY_HOME": str(home)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def probes(process: subprocess.Popen[str], count: int) -> list[dict[str, Any]]:
    assert process.stdout is not None
    return [json.loads(process.stdout.readline()) for _ in range(count)]


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    out, err = process.communicate(timeout=60)
    assert "Traceback" not in err, err
    return process.returncode, out + err


def recording(home: Path, server: FakeServer, *args: str) -> Path:
    command = [sys.executable, "-m", "parity", "run", *PROMPTS, *args, "--server", f"a={server.url}", "--server",
               f"b={server.url}", "--out", str(home / "golden")]  # fmt: skip
    done = subprocess.run(command, env={**os.environ, "PARITY_HOME": str(home)}, capture_output=True, timeout=60)
    assert done.returncode in (0, 4), done.stderr  # samples without scores: nothing wrong, nothing proved
    return home / "golden" / "server-a.jsonl"


def test_a_server_that_goes_wrong_is_noticed_and_told(tmp_path: Path) -> None:
    """As with Qwen2.5-VL on vLLM 0.7.3: several samples asked for, one returned, whatever n is."""
    samples = ("--temperature", "0.8", "--n", "2")
    with fake_server() as server:
        golden = recording(tmp_path, server, *samples)
        process = start(
            tmp_path, *samples, "--replay", f"golden={golden}", "--server", f"live={server.url}", "--interval", "0.5",
            "--until", "corrupt", "--metrics-port", "0", "--json",
        )  # fmt: skip
        assert process.stderr is not None
        metrics = next(line for line in process.stderr if line.startswith("metrics at ")).split()[-1]
        (first,) = probes(process, 1)
        assert first["verdict"] in ("PASS", "INCONCLUSIVE")  # as far as so few samples can say
        text = urllib.request.urlopen(metrics, timeout=10).read().decode()
        assert 'parity_completions_total{arm="server/live"}' in text
        assert 'parity_last_verdict{verdict="DIVERGED"} 0.0' in text
        server.behaviour.mode = "one of n"
        code, said = ended(process)
    assert code == 1, said
    last = json.loads(next(line for line in reversed(said.splitlines()) if line.startswith("{")))
    assert last["verdict"] == "DIVERGED"
    kinds = {finding["kind"] for finding in last["result"]["arms"]["server/live"]["findings"]}
    assert "missing_completion" in kinds


def test_a_server_that_goes_away_is_a_failed_probe_and_not_the_end(tmp_path: Path) -> None:
    with fake_server() as server:
        golden = recording(tmp_path, server)
        process = start(
            tmp_path, "--replay", f"golden={golden}", "--server", f"live={server.url}", "--server-option", "retries=0",
            "--interval", "0", "--probes", "3", "--json",
        )  # fmt: skip
        probes(process, 1)
        server.behaviour.mode = "http 500"
        code, said = ended(process)
    assert code == 3, said
    assert "failed: server/live" in said


@pytest.mark.parametrize("keep", ["1", "3"])
def test_captures_of_probes_that_pass_do_not_pile_up(tmp_path: Path, keep: str) -> None:
    with fake_server() as server:
        process = start(
            tmp_path, "--server", f"a={server.url}", "--server", f"b={server.url}", "--interval", "0",
            "--probes", "3", "--keep", keep,
        )  # fmt: skip
        code, said = ended(process)
    assert code == 0, said
    assert "3 probes: 3 PASS" in said
    assert len(list((tmp_path / "runs").iterdir())) == int(keep)


def test_ctrl_c_ends_it(tmp_path: Path) -> None:
    with fake_server() as server:
        process = start(
            tmp_path, "--server", f"a={server.url}", "--server", f"b={server.url}", "--interval", "60", "--json"
        )
        probes(process, 1)
        process.send_signal(signal.SIGINT)
        code, said = ended(process)
    assert code == 130, said
    assert "1 probe: 1 " in said


@pytest.mark.parametrize("logprobs", [("--logprobs", "5"), ()])
def test_the_recipe_catches_a_model_that_was_swapped(tmp_path: Path, logprobs: tuple[str, ...]) -> None:
    """docs/watch.md: with logprobs the probe diverges; without, the watch says at once that it could not tell."""
    with fake_server() as server:
        golden = recording(tmp_path, server, *logprobs)
        server.behaviour.salt = "another model"
        process = start(
            tmp_path,
            *logprobs,
            "--replay",
            f"golden={golden}",
            "--server",
            f"live={server.url}",
            "--probes",
            "1",
            "--json",
        )
        code, said = ended(process)
    assert code == (1 if logprobs else 4), said
    assert ("cannot be set apart from rounding" in said) is not bool(logprobs)


def test_what_a_recording_cannot_score_is_said_once(tmp_path: Path) -> None:
    with fake_server() as server:
        golden = recording(tmp_path, server)
        process = start(
            tmp_path, "--score", "all", "--replay", f"golden={golden}", "--server", f"live={server.url}",
            "--interval", "0", "--probes", "2",
        )  # fmt: skip
        _, said = ended(process)
    first, _, rest = said.partition("probe 1: ")
    assert "not scored" in first
    assert "probe 2: " in rest
    assert "not scored" not in rest
