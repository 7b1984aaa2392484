"""What contributors are given does what it says: the workflow, the hooks, the examples of CONTRIBUTING.md."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from captures import capture, completion

from parity.comparator import compare
from parity.comparator.detect import registry
from parity.errors import ParityError
from parity.pipeline.analyse import arm_result, for_store, plan_of_captures
from parity.records import engine_settings, kinds, sampling
from parity.records.sampling import Sampling, read_values
from parity.report import formats
from parity.report.formats import names
from parity.report.write import write_report
from parity.run import Backend
from parity.store import NewRun, RunStatus, Store

sys.path.insert(0, str(Path(__file__).parent / "functional"))

from driving import Person, drive

ROOT = Path(__file__).resolve().parent.parent


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


WORKFLOWS = sorted(path.name for path in (ROOT / ".github" / "workflows").iterdir())


def workflow(name: str = "ci.yml") -> dict[Any, Any]:
    loaded: dict[Any, Any] = yaml.safe_load(text_of(f".github/workflows/{name}"))
    return loaded


def test_the_workflow_runs_everything_on_linux_and_the_rest_elsewhere() -> None:
    everything, engine_free = workflow()["jobs"].values()
    runs = [step["run"] for step in everything["steps"] if "run" in step]
    assert everything["runs-on"].startswith("ubuntu")
    assert runs[-1] == ".ci/run"
    assert "make test" in text_of(".ci/run")
    assert {system.split("-")[0] for system in engine_free["strategy"]["matrix"]["os"]} == {"macos", "windows"}
    assert engine_free["steps"][-1]["run"] == 'python -m pytest -m "not engine"'


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_has_what_github_asks_for(name: str) -> None:
    loaded = workflow(name)
    assert loaded[True], "`on:`, which YAML reads as true"
    assert loaded["permissions"] == {"contents": "read"}, "a job that writes says so itself"
    for job in loaded["jobs"].values():
        assert job["timeout-minutes"]
        for step in job["steps"]:
            assert ("run" in step) != ("uses" in step)
            assert "uses" not in step or re.fullmatch(r"[\w-]+/[\w/-]+@(v\d+|release/v\d+)", step["uses"])
    for cached in re.findall(r"hashFiles\('([^']+)'\)", text_of(f".github/workflows/{name}")):
        assert list(ROOT.glob(cached))


def test_a_release_is_built_tried_everywhere_and_signed() -> None:
    build, tried, publish = workflow("release.yml")["jobs"].values()
    assert any(step.get("run") == "make dist" for step in build["steps"])
    assert {system.split("-")[0] for system in tried["strategy"]["matrix"]["os"]} == {"ubuntu", "macos", "windows"}
    used = [step["uses"].split("@")[0] for step in publish["steps"] if "uses" in step]
    assert used.index("actions/attest-build-provenance") < used.index("pypa/gh-action-pypi-publish")
    assert publish["permissions"] == {"contents": "write", "id-token": "write", "attestations": "write"}


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
    assert re.search(rf"^\| .*\[`{re.escape(name)}`\]", text_of("docs/promises.md"), re.MULTILINE)


# --------------------------------------------------------------------------- the examples


def example(name: str) -> dict[str, Any]:
    """What the example defines, once it was run as it stands on the page."""
    found = re.search(rf"<!-- example: {name} -->\n```python\n(.*?)```", text_of("CONTRIBUTING.md"), re.DOTALL)
    assert found, f"no example {name}"
    names: dict[str, Any] = {"__name__": f"example_{name}"}
    exec(compile(found.group(1), f"CONTRIBUTING.md: {name}", "exec"), names)
    return names


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Path]:
    """A run in which the example's detector found the example's kind, stored."""
    defined = example("kind")
    registry.register(defined["DETECTOR"])
    try:
        tokens = np.arange(40)
        swapped = tokens.copy()
        swapped[[2, 3]] = swapped[[3, 2]]
        captures = [capture("cpu/base", completion(tokens)), capture("cpu/mtp", completion(swapped))]
        comparison = compare(*captures)
        assert [(one.kind, one.position) for one in comparison.findings] == [("token_swap", 2)]
        plan = plan_of_captures(captures[0], captures[1:])
        with Store.open(tmp_path / "parity.db") as store:
            store.create_run(NewRun("r", plan, "parity compare"))
            for one in captures:
                store.save_arm("r", one.header.arm, one, None, arm_result(one))
            store.save_comparison("r", "cpu/mtp", for_store(comparison))
            store.finish_run("r", RunStatus.FINISHED, verdict="DIVERGED", reasons=["a swap"])
        yield tmp_path / "parity.db"
    finally:
        registry.forget(defined["DETECTOR"])
        kinds.forget(defined["TOKEN_SWAP"])


def test_a_kind_reaches_every_report(database: Path) -> None:
    with Store.open(database) as store:
        for format in names():
            report = write_report(store, "r", format)
            assert "token_swap" in report or "two tokens swapped" in report, format


def test_a_kind_reaches_the_terminal_interface(database: Path) -> None:
    async def task(person: Person) -> None:
        await person.sees("DIVERGED", "1 token_swap")
        await person.press("enter")
        await person.sees("token_swap")
        await person.press("enter")
        await person.sees("corrupt token_swap", "Tokens 2 and 3 are swapped.")

    drive(database, task)


def test_a_sampling_parameter_reaches_the_plan() -> None:
    row = example("sampling")["TOP_A"]
    try:
        asked = Sampling().having(read_values({"top_a": 0.2}, lambda name, problem: ParityError(f"{name} {problem}")))
        assert asked.to_json()["top_a"] == 0.2
        with pytest.raises(ParityError, match="top_a"):
            Sampling().having(read_values({"top_a": 2}, lambda name, problem: ParityError(f"{name} {problem}"))).check()
    finally:
        sampling.forget(row)


def test_an_engine_setting_is_read_back_and_named() -> None:
    row = example("setting")["ROUTER_DTYPE"]
    try:
        assert engine_settings.setting_called("router") is row
    finally:
        engine_settings.forget(row)


def test_a_backend_is_what_parity_asks_of_one() -> None:
    backend = example("backend")["MyChipBackend"]()
    for member in {name for name in vars(Backend) if not name.startswith("_")} | set(Backend.__annotations__):
        assert hasattr(backend, member), member
    assert not backend.detect().available
    assert backend.env_defaults("mtp")["MYCHIP_DETERMINISTIC"] == "1"
    assert backend.engine_defaults("mtp", num_speculative_tokens=3)["speculative_config"]["num_speculative_tokens"] == 3
    assert b"__main__" in backend.worker_source()


def test_a_format_is_a_module(database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = re.search(r"<!-- example: format -->\n```python\n(.*?)```", text_of("CONTRIBUTING.md"), re.DOTALL)
    assert found
    (tmp_path / "csv.py").write_text(found.group(1), encoding="utf-8")
    monkeypatch.setattr(formats, "__path__", [*formats.__path__, str(tmp_path)])
    assert "csv" in names()
    with Store.open(database) as store:
        assert write_report(store, "r", "csv") == "kind,arm,request,token\ntoken_swap,cpu/mtp,p0,2\n"
