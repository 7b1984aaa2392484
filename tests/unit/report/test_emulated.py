"""An arm on an emulated NPU says so on every surface, whether by its backend or by what its device called itself."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from captures import capture, completion, header, written
from report_data import BASE, MTP, arm_case, make_case
from rich.console import Console

from parity.api import compare
from parity.comparator.inputs.resolved import remarks
from parity.language import render
from parity.messages import verbatim
from parity.records.emulated import proves
from parity.report.format import Wanted
from parity.report.formats.github import step_summary
from parity.report.formats.html import html_report
from parity.report.formats.json import json_report, schema
from parity.report.formats.junit import junit_xml
from parity.report.formats.md import bug_reports
from parity.report.formats.sarif import sarif_log
from parity.report.table_text import print_table
from parity.report.terminal import print_summary
from parity.report.texts import Texts
from parity.view import RunView

MARK = {"emulated": "Ascend 910B1, emulated on the CPU"}
ARMS: dict[str, tuple[str, dict[str, Any]]] = {
    "by its backend": ("ascend-emulated/mtp", {}),
    "by its release": ("ascend-emulated@0.23.0/mtp", {}),
    "by its device": ("ascend/mtp", MARK),
}


def _terminal(view: RunView) -> str:
    out = io.StringIO()
    print_summary(Console(file=out, width=200, no_color=True), view)
    return out.getvalue()


SURFACES: dict[str, Callable[[RunView], str]] = {
    "terminal": _terminal,
    "markdown": lambda view: bug_reports(view, Wanted(Texts(), "vllm-ascend"))[0].markdown,
    "html": html_report,
    "json": json_report,
    "sarif": sarif_log,
    "junit": junit_xml,
    "github": step_summary,
}


@pytest.mark.parametrize("surface", SURFACES)
@pytest.mark.parametrize("how", ARMS)
def test_every_report_says_emulated(surface: str, how: str) -> None:
    name, environment = ARMS[how]
    real = arm_case(MTP, backend="ascend")
    arm = replace(real, backend=name.partition("/")[0], environment={**real.environment, **environment})
    said = SURFACES[surface](make_case(arms=[arm_case(BASE), arm]))
    without = SURFACES[surface](make_case(arms=[arm_case(BASE), real]))
    if surface == "json":
        jsonschema.validate(json.loads(said), schema())
    mark = '"emulated"' if surface == "sarif" else "emulated NPU"
    assert mark in said
    assert mark not in without


@pytest.mark.parametrize("how", ARMS)
def test_the_verdict_says_what_it_proves_and_what_not(how: str, tmp_path: Path) -> None:
    name, environment = ARMS[how]
    assert remarks(header(name, environment=environment)).notes == (proves(name),)
    assert remarks(header("ascend/mtp")).notes == ()
    base = written(tmp_path / "base.jsonl", capture("cpu/base", completion([5, 6])))
    other = written(tmp_path / "other.jsonl", capture(name, completion([5, 6]), environment=environment))
    assert str(proves(name)) in [str(note) for note in compare(base, other).notes]


def test_what_it_proves_and_what_not_is_named_in_both_languages() -> None:
    english, chinese = str(proves("x/y")), render(proves("x/y"), "zh")
    for word in ("emulated NPU", "rejection sampling", "CANN", "HCCL", "graphs"):
        assert word in english
    assert chinese != english
    assert "CANN" in chinese


def test_the_list_of_runs_knows_the_arms() -> None:
    from parity.view.lines import RunLine

    arms = tuple(
        type("Row", (), {"name": name, "backend": name.split("/")[0], "environment": environment})()
        for name, environment in [*ARMS.values(), ("cpu/base", {}), ("ascend/base", {})]
    )
    line = RunLine(run=None, arms=arms, status="finished")  # type: ignore[arg-type]
    assert line.emulated == tuple(name for name, _ in ARMS.values())


def test_it_is_said_once_for_all_arms() -> None:
    arms = [replace(arm_case(name), environment=MARK, notes=(proves(BASE, name),)) for name in (MTP, "cpu/k1")]
    view = make_case(arms=[arm_case(BASE), *arms])
    assert list(map(str, view.notes)) == [str(proves(*(arm.name for arm in arms)))]


def test_what_holds_for_several_arms_is_said_once() -> None:
    same, own = verbatim("the arms ran other versions"), verbatim("of one alone")
    arms = [replace(arm_case(MTP), notes=(same,)), replace(arm_case("cpu/k1"), notes=(own, same))]
    said = _terminal(view := make_case(arms=[arm_case(BASE), *arms]))
    assert said.count(str(same)) == 1
    assert list(map(str, view.notes)) == [f"{MTP}, cpu/k1: {same}", f"cpu/k1: {own}"]
    out = io.StringIO()
    print_table(Console(file=out, width=200, no_color=True), view, notes=False)
    assert str(same) not in out.getvalue()
    print_table(Console(file=out, width=200, no_color=True), view)
    assert out.getvalue().count(str(same)) == 2
