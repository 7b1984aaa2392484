"""The examples of docs/ci.md: a policy that is read, workflows whose parity commands exist."""

from __future__ import annotations

import gzip
import json
import os
import re
import shlex
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from jsonschema.validators import validator_for

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


# ------------------------------------------------------------------ the action and the template

ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
TEMPLATE: list[dict[str, Any]] = list(
    yaml.safe_load_all((ROOT / "templates" / "parity.yml").read_text(encoding="utf-8"))
)


def test_the_action_is_one_that_github_reads() -> None:
    """The fields of a composite action: docs.github.com, "Metadata syntax for GitHub Actions"."""
    assert set(ACTION) <= {"name", "description", "author", "branding", "inputs", "outputs", "runs"}
    assert ACTION["runs"]["using"] == "composite"
    for step in ACTION["runs"]["steps"]:
        assert ("run" in step) != ("uses" in step)
        assert set(step) <= {"name", "id", "if", "uses", "with", "run", "shell", "env"}
        assert "run" not in step or step["shell"] == "bash", "a composite action has no default shell"
        assert "uses" not in step or re.fullmatch(r"[\w-]+/[\w/-]+@v\d+", step["uses"])
        assert "${{" not in step.get("run", ""), "what callers write reaches a shell as a variable, never as its text"
    for one in ACTION["inputs"].values():
        assert set(one) <= {"description", "default", "required"}
        assert one["description"]
    used = set(re.findall(r"inputs\.([\w-]+)", (ROOT / "action.yml").read_text(encoding="utf-8")))
    assert used == set(ACTION["inputs"])
    ids = {step["id"] for step in ACTION["runs"]["steps"] if "id" in step}
    assert {name.split(".")[1] for one in ACTION["outputs"].values() for name in [one["value"].strip("${} ")]} <= ids


def violations(schema: str, document: Any) -> list[str]:
    """What breaks a public schema (`tests/data/ci_schemas.json.gz`: SchemaStore's, Apache-2.0, and GitLab's, MIT, as
    check-jsonschema 0.39.0 carries them)."""
    given = json.loads(gzip.decompress((ROOT / "tests" / "data" / "ci_schemas.json.gz").read_bytes()))[schema]
    if True in document:  # YAML 1.1 reads the key `on` as a truth
        document = {("on" if name is True else name): value for name, value in document.items()}
    return [f"{error.json_path}: {error.message}" for error in validator_for(given)(given).iter_errors(document)]


PUBLISHED: list[tuple[str, str, Any]] = [
    ("github-actions", "action.yml", ACTION),
    *(("gitlab-ci", f"templates/parity.yml, document {at}", one) for at, one in enumerate(TEMPLATE)),
    ("github-workflows", "docs/ci.md, github", yaml.safe_load(example("github"))),
    ("gitlab-ci", "docs/ci.md, gitlab", yaml.safe_load(example("gitlab"))),
    *(
        ("github-workflows", path.name, yaml.safe_load(path.read_text(encoding="utf-8")))
        for path in sorted(
            [*(ROOT / ".github" / "workflows").glob("*.yml"), *(ROOT / "docs" / "workflows").glob("*.yml")]
        )
    ),
]


@pytest.mark.parametrize(("schema", "name", "document"), PUBLISHED, ids=[name for _, name, _ in PUBLISHED])
def test_what_ci_reads_keeps_to_its_public_schema(schema: str, name: str, document: Any) -> None:
    assert violations(schema, document) == []


def test_the_schemas_see_a_mistake() -> None:
    assert violations("github-actions", {**ACTION, "runs": {"using": "composite"}})
    assert violations("gitlab-ci", {"parity": {**TEMPLATE[-1]["parity"], "script": 3}})
    assert violations("github-workflows", {"on": "push", "jobs": {"a": {"steps": []}}})


def _filled(line: str) -> str:
    values = {'"${options[@]}"': "--db x.db --policy parity.toml", '"$PARITY_POLICY"': "parity.toml"}
    for name, value in values.items():
        line = line.replace(name, value)
    return line


@pytest.mark.parametrize(("steps", "formats"), [(ACTION["runs"], 5), (TEMPLATE[-1], 2)])
def test_they_call_what_there_is(steps: Any, formats: int) -> None:
    lines = [line.removeprefix("- ") for line in commands(steps)]
    reports = [_filled(line) for line in lines if line.startswith("parity report")]
    assert len(reports) == formats
    for line in reports:
        parse(line)
    asked = [line for line in lines if line.startswith("eval")]
    assert len(asked) == 2
    parse("parity run --backends cpu --suite smoke --policy parity.toml --out parity-reports/run --db x.db")
    parse("parity compare --against golden new.jsonl --policy parity.toml --db x.db")


def test_the_template_is_a_job_that_gitlab_reads() -> None:
    spec, job = TEMPLATE
    assert set(job) == {"parity"}
    known = {"stage", "image", "timeout", "variables", "cache", "before_script", "script", "after_script", "artifacts"}
    assert set(job["parity"]) <= known
    assert job["parity"]["artifacts"]["reports"] == {"junit": "parity-reports/parity.xml"}
    text = (ROOT / "templates" / "parity.yml").read_text(encoding="utf-8")
    assert set(re.findall(r"\$\[\[ inputs\.(\w+) \]\]", text)) == set(spec["spec"]["inputs"])


def test_the_actions_shell_does_what_it_says(tmp_path: Path) -> None:
    """Its step is run by bash with a `parity` that writes down what it was asked and ends with a code."""
    step = next(step for step in ACTION["runs"]["steps"] if step.get("id") == "judge")
    program = tmp_path / "bin" / "parity"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@" > asked\nexit 1\n')
    program.chmod(0o755)
    for given, first in (
        ({"RUN": "--suite 'a b'", "COMPARE": ""}, "run"),
        ({"RUN": "", "COMPARE": "x.jsonl"}, "compare"),
    ):
        environment = {
            "PATH": f"{program.parent}:{os.environ['PATH']}",
            "GITHUB_OUTPUT": str(tmp_path / "out"),
            "POLICY": "my policy.toml",
            **given,
        }
        command = ["bash", "-e", "-o", "pipefail", "-c", step["run"]]
        subprocess.run(command, cwd=tmp_path, env=environment, check=True, timeout=30)
        asked = (tmp_path / "asked").read_text().splitlines()
        assert asked[0] == first
        assert asked[-4:] == ["--db", "parity-reports/parity.db", "--policy", "my policy.toml"]
        assert "a b" in asked or first == "compare"
    assert (tmp_path / "out").read_text() == "code=1\ncode=1\n"
