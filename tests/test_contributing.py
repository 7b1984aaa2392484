"""What contributors are given does what it says: the workflow, the hooks, the examples of CONTRIBUTING.md."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def workflow() -> dict[Any, Any]:
    loaded: dict[Any, Any] = yaml.safe_load(text_of(".github/workflows/ci.yml"))
    return loaded


def test_the_workflow_runs_everything_on_linux_and_the_rest_elsewhere() -> None:
    everything, engine_free = workflow()["jobs"].values()
    runs = [step["run"] for step in everything["steps"] if "run" in step]
    assert everything["runs-on"].startswith("ubuntu")
    assert runs[-1] == ".ci/run"
    assert "make test" in text_of(".ci/run")
    assert {system.split("-")[0] for system in engine_free["strategy"]["matrix"]["os"]} == {"macos", "windows"}
    assert engine_free["steps"][-1]["run"] == 'python -m pytest -m "not engine"'


def test_the_workflow_has_what_github_asks_for() -> None:
    loaded = workflow()
    assert loaded[True], "`on:`, which YAML reads as true"
    for job in loaded["jobs"].values():
        assert job["timeout-minutes"]
        for step in job["steps"]:
            assert ("run" in step) != ("uses" in step)
            assert "uses" not in step or re.fullmatch(r"[\w-]+/[\w/-]+@v\d+", step["uses"])
    (cached,) = re.findall(r"hashFiles\('([^']+)'\)", text_of(".github/workflows/ci.yml"))
    assert list(ROOT.glob(cached))


def test_the_hooks_are_the_commands_of_make_check() -> None:
    check = re.search(r"^check:.*\n((?:\t.*\n)+)", text_of("Makefile"), re.MULTILINE)
    assert check
    commands = [line.strip().removeprefix("$(BIN)/").split()[0] for line in check.group(1).splitlines()]
    (repository,) = yaml.safe_load(text_of(".pre-commit-config.yaml"))["repos"]
    assert [hook["entry"].split()[0] for hook in repository["hooks"]] == [f".venv/bin/{name}" for name in commands]


@pytest.mark.parametrize("name", ["parity.capture/1", "parity.plan/1", "parity.report/1"])
def test_every_format_has_a_promise(name: str) -> None:
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "parity").rglob("*.py"))
    assert f'"{name}"' in sources
    assert re.search(rf"^\| \[`{re.escape(name)}`\]", text_of("CHANGELOG.md"), re.MULTILINE)
