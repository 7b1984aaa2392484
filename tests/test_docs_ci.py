"""The examples of docs/ci.md: a policy that is read, workflows whose parity commands exist."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from parity.cli.main import cli
from parity.report.policy import parse_policy

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")


def example(name: str) -> str:
    found = re.search(rf"<!-- {name} -->\n```\w+\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    return found.group(1)


def commands(value: Any) -> list[str]:
    """Every line of shell in a workflow."""
    if isinstance(value, dict):
        return [line for key, item in value.items() for line in (_shell(item) if _is_shell(key) else commands(item))]
    return [line for item in value for line in commands(item)] if isinstance(value, list) else []


def _is_shell(key: str) -> bool:
    return key in ("run", "script", "after_script")


def _shell(item: Any) -> list[str]:
    text = "\n".join(item) if isinstance(item, list) else str(item)
    return [line.strip() for line in text.splitlines() if line.strip()]


def parse(line: str) -> None:
    """The command and every option of it exist, and their values are taken; nothing is run."""
    words = shlex.split(line.split(">>")[0])[1:]
    command: click.Command = cli
    context = click.Context(cli, info_name="parity")
    while isinstance(command, click.Group):
        found = command.get_command(context, words[0])
        assert found is not None, line
        command, words = found, words[1:]
        context = click.Context(command, info_name=command.name, parent=context)
    command.parse_args(context, words)


def test_the_workflow_of_the_kit_calls_what_there_is() -> None:
    text = (ROOT / ".github" / "workflows" / "kit.yml").read_text(encoding="utf-8")
    lines = [line for line in commands(yaml.safe_load(text)["jobs"]) if line.startswith("parity ")]
    assert {line.split()[1] for line in lines} == {"kit", "compare", "report"}
    for line in lines:
        parse(line.replace("$BACKEND", "ascend").replace("$MINUTES", "15"))


def test_the_policy_is_one() -> None:
    policy = parse_policy(tomllib.loads(example("policy"))["policy"], "docs/ci.md")
    assert set(policy.budgets) == {"near_tie", "unjustified", "corrupt"}
    assert len(policy.allowed) == 1


@pytest.mark.parametrize("name", ["github", "gitlab"])
def test_the_workflow_runs_commands_that_exist(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines = commands(yaml.safe_load(example(name)))
    ours = [line for line in lines if line.startswith("parity ")]
    assert [line.split()[1] for line in ours].count("run") == 1
    assert [line.split()[1] for line in ours].count("report") >= 2
    for line in ours:
        parse(line)


def test_the_github_workflow_has_what_github_asks_for() -> None:
    workflow = yaml.safe_load(example("github"))
    assert workflow["permissions"]["security-events"] == "write"
    job = workflow["jobs"]["parity"]
    assert job["timeout-minutes"]
    for step in job["steps"]:
        assert ("run" in step) != ("uses" in step)
        assert "uses" not in step or re.fullmatch(r"[\w-]+/[\w/-]+@v\d+", step["uses"])
