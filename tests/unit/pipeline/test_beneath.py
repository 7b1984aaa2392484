"""What sketches say, in the comparison and in `parity locate`: hidden faults convict, and a baseline's own do not."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from captures import written
from click.testing import CliRunner
from lxml import etree
from sketch_world import World, write_sketches

from parity.capture.sketches import sketches_path
from parity.cli.main import cli
from parity.comparator import compare
from parity.pipeline.analyse import analyse, arm_result, for_store, plan_of_captures
from parity.pipeline.beneath import look_beneath, with_sketches
from parity.records import Kind, Verdict
from parity.records.evidence import LocatedEvidence
from parity.report.advice import next_steps
from parity.store import NewRun, Store
from parity.view import of_store


def wrong(name: str, at: int, module: int, vector: np.ndarray) -> np.ndarray:
    return vector * 2 if (name, at) == ("p7", 20) and module >= 6 else vector


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Captures of two arms with the same tokens; in the second one module of one token is wrong."""
    place = tmp_path_factory.mktemp("run")
    healthy, faulty = World(), World(change=wrong)
    written(place / "cpu-base.jsonl", healthy.capture("cpu/base"))
    written(place / "cpu-mtp.jsonl", faulty.capture("cpu/mtp"))
    write_sketches(place / "cpu-base.sketches", healthy.candidate())
    write_sketches(place / "cpu-mtp.sketches", faulty.candidate())
    write_sketches(place / "scores.sketches", healthy.reference())
    return place


def test_a_hidden_fault_is_enough_where_tokens_are_equal(folder: Path) -> None:
    base, mtp = World().capture("cpu/base"), World().capture("cpu/mtp")
    alone = compare(base, mtp)
    assert alone.verdict is not Verdict.DIVERGED
    found = with_sketches(alone, mtp, look_beneath(mtp, folder / "cpu-mtp.jsonl", folder / "scores.jsonl"))
    assert found.verdict is Verdict.DIVERGED
    (finding,) = [one for one in found.findings if one.kind is Kind.LOCATED_FAULT]
    evidence = finding.evidence
    assert isinstance(evidence, LocatedEvidence)
    assert (evidence.module, evidence.input_position, finding.position) == ("model.layers.1.attn", 20, 11)
    assert evidence.distance == pytest.approx(1, rel=0.5)
    assert found.classes[finding.key] == "corrupt"
    assert LocatedEvidence.from_json(json.loads(json.dumps(evidence.to_json()))).to_json() == evidence.to_json()
    assert "model.layers.1.attn" in str(found.reasons[0])


def test_a_baseline_that_is_wrong_leaves_nothing_to_conclude(folder: Path) -> None:
    base, mtp = World().capture("cpu/base"), World().capture("cpu/mtp")
    clean = look_beneath(base, folder / "cpu-base.jsonl", folder / "scores.jsonl")
    faulty = look_beneath(mtp, folder / "cpu-mtp.jsonl", folder / "scores.jsonl")
    found = with_sketches(compare(base, mtp), mtp, clean, faulty)
    assert found.verdict is Verdict.INCONCLUSIVE or compare(base, mtp).verdict is not Verdict.PASS
    assert "cpu/base" in str(found.reasons[0])
    assert not [one for one in found.findings if one.kind is Kind.LOCATED_FAULT]


def test_what_was_not_sketched_changes_nothing(tmp_path: Path) -> None:
    mtp = World(completions=2).capture("cpu/mtp")
    alone = compare(World(completions=2).capture("cpu/base"), mtp)
    assert with_sketches(alone, mtp, look_beneath(mtp, tmp_path / "a.jsonl", tmp_path / "scores.jsonl")) is alone


@pytest.fixture
def stored(folder: Path, tmp_path: Path) -> list[str]:
    """The run in a database; the options that name it."""
    base, mtp = World().capture("cpu/base"), World().capture("cpu/mtp")
    plan = plan_of_captures(base, [mtp])
    with Store.open(tmp_path / "parity.db") as store:
        store.create_run(NewRun("r1", plan, "parity run", directory=str(folder), versions={}))
        for name, one in (("cpu/base", base), ("cpu/mtp", mtp)):
            store.save_arm("r1", name, one, str(folder / (name.replace("/", "-") + ".jsonl")), arm_result(one))
        looked = look_beneath(mtp, folder / "cpu-mtp.jsonl", folder / "scores.jsonl")
        comparison = with_sketches(analyse(base, mtp, {}, tolerance=0.25, model=None), mtp, looked)
        store.save_comparison("r1", "cpu/mtp", for_store(comparison))
    return ["--db", str(tmp_path / "parity.db")]


def test_locate_names_module_token_step_and_row(stored: list[str]) -> None:
    said = CliRunner().invoke(cli, ["locate", "r1", *stored])
    assert said.exit_code == 0, said.output
    assert "model.layers.1.attn" in said.output
    assert "input token 20" in said.output
    assert "Module.model.layers.1.attn.Attn.forward.0" in said.output.replace("\n", "")
    strip = [line for line in said.output.splitlines() if "|█|" in line]
    assert strip[0].split()[0] == "model.layers.1.attn"  # the first that is off, at its token
    sentence, drawn, msprobe = (said.output.index(text) for text in ("input token 20", "|█|", "msprobe"))
    assert sentence < drawn < msprobe, "a strip stands below its own completion"
    assert "e+" not in said.output[sentence:drawn], "how many times, in digits"
    asked = CliRunner().invoke(cli, ["locate", "r1", "--json", *stored])
    base, mtp = json.loads(asked.stdout)
    assert (base["arm"], base["is_baseline"], base["located"]) == ("cpu/base", True, [])
    (one,) = mtp["located"]
    assert (one["module"], one["position"], one["key"]["request"]) == ("model.layers.1.attn", 20, "p7")


def test_what_to_do_next_names_the_command(stored: list[str]) -> None:
    with Store.open(Path(stored[1]), create=False) as store:
        view = of_store(store, "r1")
        view = replace(view, run=replace(view.run, status="finished", verdict="DIVERGED"))
        assert view.located
    said = list(map(str, next_steps(view)))
    assert any("`parity locate r1 --db" in line for line in said), said


@pytest.mark.parametrize("form", ["md", "html"])
def test_a_report_says_where_and_shows_the_strip(stored: list[str], form: str) -> None:
    said = CliRunner().invoke(cli, ["report", "r1", "--format", form, *stored])
    assert said.exit_code == 0, said.output
    assert "is the first module beyond noise" in said.output
    assert "|█|" in said.output
    assert "Module.model.layers.1.attn.Attn.forward.0" in said.output


def test_a_profile_sets_two_arms_beside_each_other(stored: list[str], tmp_path: Path) -> None:
    drawing = tmp_path / "modules.svg"
    said = CliRunner().invoke(cli, ["profile", "r1", "--plot", str(drawing), *stored])
    assert said.exit_code == 0, said.output
    rows = [line.split() for line in said.output.splitlines() if line[:2] in ("0.", "1.", "2.")]
    assert [row[0] for row in rows[:2]] == ["0.norm", "0.attn"]
    assert len(rows) == 15
    medians = [(float(row[1]), float(row[3])) for row in rows]
    assert "1 cpu/base, 2 cpu/mtp" in said.output
    assert max(len(line) for line in said.output.splitlines() if line[:2] in ("0.", "1.", "2.")) < 80
    assert all(0.002 < one < 0.01 and 0.002 < other < 0.01 for one, other in medians)
    assert "not judged" in said.output
    lines = etree.fromstring(drawing.read_bytes()).findall(".//{http://www.w3.org/2000/svg}polyline")
    assert [len(one.get("points", "").split()) for one in lines] == [16, 16]  # an arm each, all modules and the logits
    asked = json.loads(CliRunner().invoke(cli, ["profile", "--json", "--arm", "cpu/mtp", *stored]).stdout)
    assert (asked["arms"], asked["reference"], asked["reference_arm"]) == (["cpu/mtp"], "own", "cpu/base")


def test_a_profile_of_two_runs_names_their_arms_apart(stored: list[str], folder: Path) -> None:
    with Store.open(Path(stored[1])) as store:
        base, plan = World().capture("cpu/base"), store.run("r1").plan
        store.create_run(NewRun("r2", plan, "parity run", directory=str(folder), versions={}))
        store.save_arm("r2", "cpu/base", base, str(folder / "cpu-base.jsonl"), arm_result(base))
    asked = json.loads(CliRunner().invoke(cli, ["profile", "r1", "r2", "--json", *stored]).stdout)
    assert asked["arms"] == ["r1:cpu/base", "r1:cpu/mtp", "r2:cpu/base"]
    assert asked["tokens"] == [24 * 39] * 3
    first, _, same = asked["modules"][1]["of_arms"]
    assert (first["middle"], same["times"]) == (same["middle"], 1.0)


def test_a_profile_without_the_reference_or_the_arm_says_so(stored: list[str]) -> None:
    for options, hint in (
        (["--reference", "arbiter"], "--sketch parts --arbiter transformers"),
        (["--arm", "npu/base"], "name one of cpu/base, cpu/mtp with --arm"),
    ):
        said = CliRunner().invoke(cli, ["profile", "r1", *options, *stored])
        assert said.exit_code == 2
        assert hint in said.stderr


def test_a_page_draws_strips_over_several_lines(stored: list[str]) -> None:
    page = CliRunner().invoke(cli, ["report", "r1", "--format", "html", *stored]).output
    strips = [part.split("</pre>")[0] for part in page.split('<pre class="grid">')[1:]]
    assert len(strips) == 2  # where in the engine, and on the card
    for strip in strips:
        assert len(strip.splitlines()) > 3
        assert "\\n" not in strip


def test_a_page_and_the_plots_of_a_run_have_its_profile(stored: list[str], folder: Path, tmp_path: Path) -> None:
    """Where an arbiter was sketched that is the reference, and it says who adds what."""
    beside = write_sketches(folder / "arbiter.sketches", World(seed=9).reference())
    try:
        said = CliRunner().invoke(cli, ["report", "r1", "--format", "html", *stored])
        drawn = CliRunner().invoke(cli, ["plot", "r1", "-o", str(tmp_path), *stored])
    finally:
        beside.unlink()
    assert "no module adds 1.5 times what it adds in cpu/base" in said.output
    assert said.output.count('aria-label="How far modules are off"') == 1
    assert drawn.exit_code == 0, drawn.output
    assert (tmp_path / "modules.svg").is_file()


def test_a_run_without_sketches_says_how_to_get_them(stored: list[str], folder: Path) -> None:
    moved = [sketches_path(folder / name) for name in ("cpu-base.jsonl", "cpu-mtp.jsonl")]
    for one in moved:
        one.rename(one.with_suffix(".away"))
    try:
        said = CliRunner().invoke(cli, ["locate", "r1", *stored])
    finally:
        for one in moved:
            one.with_suffix(".away").rename(one)
    assert said.exit_code == 2
    assert "--sketch" in said.stderr


def test_the_interface_draws_the_strip_before_the_evidence(stored: list[str]) -> None:
    from parity.tui.screens.panels import evidence

    with Store.open(Path(stored[1]), create=False) as store:
        (row,) = [one for one in store.page_findings("r1", limit=10) if one.kind == Kind.LOCATED_FAULT]
        text = evidence(row).plain
    first, *_ = [line for line in text.splitlines() if "|█|" in line]
    assert first.startswith("model.layers.1.attn")
    assert '"module": "model.layers.1.attn"' in text
    assert '"strip"' not in text
    assert "Module.model.layers.1.attn.Attn.forward.0" in text
