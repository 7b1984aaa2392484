"""`parity why` from a stored run to its lines."""

from __future__ import annotations

import html
import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from step_world import World, changed, steps_lines

import parity
from parity.capture import write_capture
from parity.capture.steps import RowSteps, steps_path
from parity.cli.main import cli
from parity.explain.association import Associated, Association, associate
from parity.explain.hypotheses import Form
from parity.explain.ledger import Ledger
from parity.explain.predicates import moved
from parity.explain.violations import check
from parity.view.why import Why
from parity.view.why_said import said, unknown

WORLD = World(21, rows=5, steps=200)


def broken_where_rows_move(steps: RowSteps) -> tuple[RowSteps, int]:
    """An accepted count that is wrong where a row moved; and in how many requests."""
    ledger = Ledger(steps)
    rows = np.flatnonzero(moved(ledger) & (steps.numbers("path/1") == 0) & (ledger.emitted > 0))
    hit: dict[int, int] = {}
    for index in rows.tolist():
        hit.setdefault(int(ledger.request[index]), index)
    for index in list(hit.values())[:8]:
        steps = changed(steps, "accepted/1", index, int(steps.numbers("accepted/1")[index]) % 3 + 1)
    return steps, min(8, len(hit))


def stored(folder: Path, steps: RowSteps | None) -> list[str]:
    """The options that name a database with a comparison in it."""
    whole = WORLD.recorded()
    for name in ("base", "mtp"):
        write_capture(folder / f"{name}.jsonl", WORLD.capture(f"cpu/{name}", whole))
    if steps is not None:
        steps_path(folder / "mtp.jsonl").write_bytes(b"".join(steps_lines(steps)))
    database = ["--db", str(folder / "parity.db")]
    run("compare", str(folder / "base.jsonl"), str(folder / "mtp.jsonl"), "--save", *database)
    return database


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, list(arguments))


def test_the_condition_of_the_faults_is_named(tmp_path: Path) -> None:
    steps, faults = broken_where_rows_move(WORLD.recorded())
    database = stored(tmp_path, steps)
    (found,) = json.loads(run("why", "--json", *database).stdout)
    assert (found["arm"], found["faults"], found["unplaced"]) == ("cpu/mtp", faults, 0)
    first = found["ranked"][0]
    assert "moved" in {name for names in (first["conditions"], *first["same"]) for name in names}
    assert first["faults"] == faults
    result = run("why", *database)
    assert f"{faults} of {faults}: its row moved in this step" in result.stderr + result.stdout


def test_beside_what_is_sure_chance_is_not_named() -> None:
    likely = Association(("moved",), 8, 20, 1e-9, 1e-7, 0.4, 400.0)
    chance = Association(("row 0", "crosses 16"), 4, 30, 0.05, 1.0, 0.1, 12.0, Form.EITHER)
    for first, shown in ((likely, 1), (chance, 2)):
        why = Why("cpu/mtp", Associated(8, 400, 50, (first, chance)), 0)
        assert sum("row-steps (odds" in str(line) for line in said(why)) == shown


@pytest.mark.parametrize(("holds", "telling"), [(900, False), (500, True)])
def test_what_holds_of_most_row_steps_is_no_cause_of_wrong_numbers(holds: int, telling: bool) -> None:
    """All faults have it, and so its odds are large."""
    first = Association(("2 drafts",), 200, holds, 1e-12, 1e-10, 0.1, 400.0)
    why = Why("cpu/mtp", Associated(200, 1000, 50, (first,)), 0, nats=0.1)
    assert why.telling is telling
    assert ("none of these need be the cause" in str(said(why)[-1])) is not telling


def test_a_chance_too_small_to_write_is_said_to_be_smaller() -> None:
    for p, words in ((1e-9, "p = 1e-09, corrected 1e-07"), (0.0, "p < 1e-300, corrected < 1e-300")):
        found = Association(("moved",), 8, 20, p, 100 * p, 0.4, 400.0)
        assert words in str(said(Why("cpu/mtp", Associated(8, 400, 50, (found,)), 0))[1])


def test_a_report_says_where_in_the_engine_and_what_to_try(tmp_path: Path) -> None:
    """On every surface the same: the sentence of `parity why`, the violation's numbers, the next experiment."""
    steps, _ = broken_where_rows_move(WORLD.recorded())
    database = stored(tmp_path, steps)
    (found,) = json.loads(run("why", "--json", *database).stdout)
    violation = check(steps, WORLD.prompts).violations[0]
    value = json.loads(run("report", "--format", "json", *database).stdout)
    (why,) = value["inside"]["why"]
    assert why["ranked"] == found["ranked"]
    assert why["experiments"] == found["experiments"]
    sentence = why["said"][1]
    place = f"step {violation.step}, row {violation.row}"
    numbers = f"{violation.found} instead of {violation.expected}"
    assert any(place in line and numbers in line for line in value["inside"]["violations"])
    for form in ("md", "html"):
        text = html.unescape(run("report", "--format", form, *database).stdout).replace("\\", "")
        assert sentence in text
        assert place in text
        assert numbers in text
        assert "parity run … --max-num-seqs 1 --record" in text
        # Before the example and the tables: on the first screen.
        assert text.index(sentence) < text.index("Measured" if form == "md" else "<h2>Findings")


def test_an_unrecorded_run_says_nothing_of_the_engine(tmp_path: Path) -> None:
    database = stored(tmp_path, None)
    value = json.loads(run("report", "--format", "json", *database).stdout)
    assert value["inside"] == {"why": [], "violations": []}
    assert "Where in the engine" not in run("report", "--format", "md", *database).stdout


@pytest.mark.parametrize("surface", ["compare", "md", "html", "json", "junit", "sarif", "github", "runs", "summary"])
def test_a_pass_states_its_bound_over_row_steps_everywhere(tmp_path: Path, surface: str) -> None:
    steps = WORLD.recorded()
    database = stored(tmp_path, steps)
    bound = f"fewer than {3 / len(steps):.2g} of them do"
    if surface == "compare":
        result = run("compare", str(tmp_path / "base.jsonl"), str(tmp_path / "mtp.jsonl"))
    elif surface == "runs":
        result = run("runs", "show", *database)
    elif surface == "summary":
        result = run("compare", "--json", str(tmp_path / "base.jsonl"), str(tmp_path / "mtp.jsonl"))
    else:
        result = run("report", "--format", surface, *database)
    assert bound in " ".join(result.stdout.split()), result.stdout[-2000:]


@pytest.mark.parametrize("clean", [True, False])
def test_without_faults_or_steps_it_says_so(tmp_path: Path, clean: bool) -> None:
    result = run("why", *stored(tmp_path, WORLD.recorded() if clean else None))
    assert result.exit_code == 2
    assert ("nothing is wrong" if clean else "--record") in result.stderr


def test_the_python_interface_reads_the_steps_beside_captures(tmp_path: Path) -> None:
    steps, faults = broken_where_rows_move(WORLD.recorded())
    stored(tmp_path, steps)
    result = parity.compare(tmp_path / "base.jsonl", tmp_path / "mtp.jsonl")
    assert result.verdict == "DIVERGED"
    assert len({finding.key for finding in result.findings if finding.kind == "violation"}) == faults


def test_one_fault_is_one_and_shows_nothing_for_sure(tmp_path: Path) -> None:
    steps = WORLD.recorded()
    ledger = Ledger(steps)
    at = int(np.flatnonzero((steps.numbers("path/1") == 0) & (ledger.emitted > 0))[5])
    broken = changed(steps, "accepted/1", at, int(steps.numbers("accepted/1")[at]) % 3 + 1)
    result = run("why", *stored(tmp_path, broken))
    said = " ".join((result.stderr + result.stdout).split())
    assert "cpu/mtp: 1 fault among" in said
    assert "1 fault can show nothing for sure here, whatever the condition (p below 0.001)" in said
    assert "0.0%" not in said


def test_a_condition_of_one_row_step_is_too_rare_to_know(tmp_path: Path) -> None:
    """As with drafts that nothing proposed, once in a run: it is not said that no condition explains the fault."""
    conditions = {"a": np.arange(700) == 3, "b": np.arange(700) % 2 == 1}
    found = associate(conditions, np.array([3]), np.ones(700, dtype=bool))
    assert (found.needed, found.sure) == (None, False)
    said = [str(one) for one in unknown(Why("cpu/mtp", found, 0))]
    assert len(said) == 1
    assert "it takes a run with more of them" in said[0]


def test_completions_that_began_twice_count_once(tmp_path: Path) -> None:
    """As after an engine that was started anew, or a file that was joined to itself."""
    steps, faults = broken_where_rows_move(WORLD.recorded())
    database = stored(tmp_path, steps)
    (once,) = json.loads(run("why", "--json", *database).stdout)
    path = steps_path(tmp_path / "mtp.jsonl")
    path.write_bytes(path.read_bytes() * 2)
    (twice,) = json.loads(run("why", "--json", *database).stdout)
    assert once["faults"] == faults
    assert {name: twice[name] for name in ("faults", "row_steps", "ranked")} == {
        name: once[name] for name in ("faults", "row_steps", "ranked")
    }


def test_an_arm_that_is_not_there_and_one_that_is_clean(tmp_path: Path) -> None:
    database = stored(tmp_path, broken_where_rows_move(WORLD.recorded())[0])
    for command in ("why", "locate"):
        result = run(command, "--arm", "cpu/none", *database)
        assert result.exit_code == 2
        assert "has no arm 'cpu/none'" in result.stderr
        assert "cpu/base, cpu/mtp" in result.stderr
    (tmp_path / "clean").mkdir()
    clean = stored(tmp_path / "clean", WORLD.recorded())
    result = run("why", "--arm", "cpu/mtp", *clean)
    assert result.exit_code == 2
    assert "nothing is wrong in cpu/mtp of run" in result.stderr


def test_a_steps_file_without_steps_is_nothing_recorded(tmp_path: Path) -> None:
    database = stored(tmp_path, WORLD.recorded())
    path = steps_path(tmp_path / "mtp.jsonl")
    path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])
    result = run("why", *database)
    assert result.exit_code == 2
    assert "were not recorded" in result.stderr
