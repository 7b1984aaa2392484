"""`parity report`, `parity repro` and `parity plot` from a database, as a person calls them."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from captures import capture, completion, written
from click.testing import CliRunner, Result
from lxml import html as lxml_html
from plans import rough_plan

from parity.cli.main import cli
from parity.records import ScoreKey, TopLogprobs
from parity.report import texts as sentences
from parity.report.formats import names
from parity.report.formats.json import schema
from parity.store import NewRun, RunStatus, Store

BASE = [5, 6, 7, 8, 9, 10, 11, 12]
GARBLED = [5, 6, 99, 98, 97, 96, 95, 94]


def recorded(path: Path, arm: str, tokens: list[int], **environment: Any) -> Path:
    ids = np.array([[token, 77, 50] for token in tokens])
    best = [-0.5 if token < 90 else -9.0 for token in tokens]
    scores = {ScoreKey(arm, "p0", 0, 0): TopLogprobs(ids, np.array([[value, -4.0, -6.0] for value in best]))}
    engine = {"asked": {"dtype": "bfloat16", "max_num_seqs": 4}}
    made = capture(arm, completion(tokens), scores=scores, max_tokens=len(BASE), engine=engine, environment=environment)
    return written(path, made)


def parity(*arguments: object) -> Result:
    result = CliRunner().invoke(cli, [str(argument) for argument in arguments])
    assert isinstance(result.exception, SystemExit | None), result.output
    return result


@pytest.fixture
def db(tmp_path: Path) -> Path:
    """Two runs: the older diverged, the newer is clean."""
    path = tmp_path / "parity.db"
    base = recorded(tmp_path / "base.jsonl", "cpu/base", BASE, versions={"vllm": "0.32.0"})
    bad = recorded(tmp_path / "bad.jsonl", "cpu/other", GARBLED, versions={"vllm": "0.32.0"})
    good = recorded(tmp_path / "good.jsonl", "cpu/other", BASE, versions={"vllm": "0.32.0"})
    assert parity("compare", base, bad, "--db", path).exit_code == 1
    assert parity("compare", base, good, "--db", path).exit_code == 0
    return path


def bad_run(db: Path) -> dict[str, Any]:
    runs = json.loads(parity("runs", "list", "--db", db, "--json").stdout)
    name = next(run["run"] for run in runs if run["verdict"] == "DIVERGED")
    shown: dict[str, Any] = json.loads(parity("runs", "show", name, "--db", db, "--json").stdout)
    return shown


@pytest.mark.parametrize("format_", names())
def test_every_format_of_every_run(db: Path, format_: str) -> None:
    for run in (bad_run(db)["run"], ""):
        result = parity("report", *([run] if run else []), "--db", db, "--format", format_)
        assert result.exit_code == 0, result.output
        assert result.stdout.strip()
    if format_ == "json":
        jsonschema.Draft202012Validator(schema()).validate(json.loads(result.stdout))


def test_a_finding_is_named_by_number_or_fingerprint(db: Path) -> None:
    finding = bad_run(db)["findings"][0]
    by_number = parity("report", finding["id"], "--db", db).stdout
    assert f"at output token {finding['position']}" in by_number
    for name in (f"finding:{finding['id']}", finding["fingerprint"], finding["fingerprint"][:9]):
        assert parity("report", name, "--db", db).stdout == by_number


def test_a_format_is_one_module(db: Path, tmp_path: Path) -> None:
    """A module put beside the others is found and written; nothing else names it."""
    (tmp_path / "dummy.py").write_text(
        "from parity.report.format import Document, Format\n"
        "FORMAT = Format(lambda case, wanted: [Document('dummy of ' + case.run.baseline)])\n",
        encoding="utf-8",
    )
    code = (
        "import sys, parity.report.formats as formats\n"
        "formats.__path__.append(sys.argv.pop(1))\n"
        "from parity.cli.main import entry\n"
        "entry()\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path), "report", "--db", str(db), "--format", "dummy"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "dummy of cpu/base"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["report", "nothing-like-it"], "there is no run"),
        (["report", "finding:999"], "there is no finding 999"),
        (["report", "--format", "html", "--for", "vllm"], "--for is about Markdown"),
        (["report", "--format", "doc"], "is not one of"),
        (["report", "--see-also", "vllm=ftp://x"], "PROJECT=https"),
        (["report", "-o", "no/such/directory/x.md"], "cannot write"),
        (["repro"], "has nothing corrupt to reproduce"),
        (["plot", "nothing-like-it"], "there is no run"),
    ],
)
def test_a_mistake_gets_one_message(db: Path, arguments: list[str], said: str) -> None:
    result = parity(*arguments, "--db", db)
    assert result.exit_code == 2
    assert said in result.stderr


def test_the_report_goes_into_a_file_and_the_address_to_stderr(db: Path, tmp_path: Path) -> None:
    out = tmp_path / "bug.md"
    result = parity("report", bad_run(db)["run"], "--db", db, "--for", "vllm-ascend", "-o", out)
    assert result.stdout == ""
    assert out.read_text(encoding="utf-8").startswith("# [Bug]: ")
    assert "https://github.com/vllm-project/vllm-ascend/issues/new?template=400-bug-report.yml" in result.stderr


def test_arms_of_two_projects_make_two_files(tmp_path: Path) -> None:
    db = tmp_path / "parity.db"
    base = recorded(tmp_path / "base.jsonl", "cpu/base", BASE)
    bad = recorded(tmp_path / "bad.jsonl", "ascend/base", GARBLED, versions={"vllm": "0.32.0", "vllm_ascend": "0.23.0"})
    parity("compare", base, bad, "--db", db)
    out = tmp_path / "bug.md"
    parity("report", "--db", db, "-o", out, "--see-also", "vllm=https://github.com/vllm-project/vllm/issues/30631")
    text = out.read_text(encoding="utf-8")
    assert "vllm-ascend 0.23.0" in text.splitlines()[0]
    assert "issues/30631" in text


def test_the_script_of_a_finding(db: Path, tmp_path: Path) -> None:
    out = tmp_path / "repro.py"
    result = parity("repro", bad_run(db)["run"], "--db", db, "-o", out, "--model", "org/tiny")
    assert result.exit_code == 0, result.output
    text = out.read_text(encoding="utf-8")
    assert "MODEL = 'org/tiny'" in text
    assert "'tokens': [5, 6, 7, 8, 9, 10, 11, 12]" in text
    assert "NEAR_TIES = {}" in text


def test_plots_are_written(db: Path, tmp_path: Path) -> None:
    result = parity("plot", bad_run(db)["run"], "--db", db, "-o", tmp_path / "plots", "--json")
    names = [Path(path).name for path in json.loads(result.stdout)["plots"]]
    assert names == ["gaps.svg", "divergences.svg", "lengths.svg"]
    assert all((tmp_path / "plots" / name).is_file() for name in names)


def test_what_is_gone_is_said(db: Path, tmp_path: Path) -> None:
    run = bad_run(db)["run"]
    for name in ("base.jsonl", "bad.jsonl"):
        (tmp_path / name).unlink()
    drawn = parity("plot", run, "--db", db, "-o", tmp_path / "plots", "--json")
    assert len(json.loads(drawn.stdout)["plots"]) == 3, "the numbers are in the store"
    assert parity("report", run, "--db", db, "--format", "html").exit_code == 0
    assert "'tokens': [5, 6, 7, 8, 9, 10, 11, 12]" in parity("repro", run, "--db", db).stdout  # from the store


def test_a_run_stored_without_gaps_is_compared_again(db: Path, tmp_path: Path) -> None:
    run = bad_run(db)["run"]
    before = parity("report", run, "--db", db, "--format", "html").stdout
    with sqlite3.connect(db) as connection:
        connection.execute("DELETE FROM gaps")
    assert parity("report", run, "--db", db, "--format", "html").stdout == before
    (tmp_path / "base.jsonl").unlink()
    (tmp_path / "bad.jsonl").unlink()
    result = parity("plot", run, "--db", db, "-o", tmp_path / "plots")
    assert result.exit_code == 2
    assert "the capture of cpu/base is not there" in result.stderr


@pytest.mark.parametrize("format_", names())
def test_a_run_that_is_not_finished_is_reported_as_such(tmp_path: Path, format_: str) -> None:
    arms = [{"name": name, "backend": "cpu", "variant": name[4:], "engine": {}} for name in ("cpu/base", "cpu/mtp")]
    requests = [{"id": "p0", "prompt": "x", "prompt_token_ids": [1]}]
    plan = {"model": {"name": "tiny"}, "sampling": {}, "requests": requests, "arms": arms, "baseline": "cpu/base"}
    with Store.open(tmp_path / "parity.db") as store:
        store.create_run(NewRun("20261121-000000-aaaa", rough_plan(plan), "parity run"))
    result = parity("report", "--db", tmp_path / "parity.db", "--format", format_)
    assert result.exit_code == 0, result.output
    if format_ == "md":
        assert "The run has no verdict (running)" in result.stdout
    if format_ == "junit":
        assert 'errors="1"' in result.stdout
    refused = parity("report", "--db", tmp_path / "parity.db", "--format", "junit", "--policy", policy(tmp_path))
    assert (refused.exit_code, "has no verdict yet" in refused.stderr) == (2, True)


def test_a_run_that_failed_before_it_compared_anything_has_no_report(tmp_path: Path) -> None:
    arms = [{"name": name, "backend": "cpu", "variant": name[4:], "engine": {}} for name in ("cpu/base", "cpu/mtp")]
    plan = {"model": {"name": "tiny"}, "sampling": {}, "requests": [], "arms": arms, "baseline": "cpu/base"}
    with Store.open(tmp_path / "parity.db") as store:
        store.create_run(NewRun("20261121-000000-aaaa", rough_plan(plan), "parity run"))
        store.finish_run("20261121-000000-aaaa", RunStatus.FAILED, verdict="ERROR", message="cpu/mtp: no vllm")
    result = parity("report", "--db", tmp_path / "parity.db")
    assert result.exit_code == 2
    assert "has nothing to report" in result.stderr
    assert "--resume 20261121-000000-aaaa" in result.stderr


def policy(tmp_path: Path) -> Path:
    path = tmp_path / "parity.toml"
    path.write_text("[policy]\ninconclusive = 'fail'\n", encoding="utf-8")
    return path


def test_every_sentence_is_used_and_every_one_used_is_there() -> None:
    """Another language translates this table, so nothing may be missing from it and nothing idle in it."""
    folder = Path(sentences.__file__).parent
    sources = [path for path in folder.rglob("*.*") if path.suffix in (".py", ".html") and path.name != "texts.py"]
    code = "".join(path.read_text(encoding="utf-8") for path in sources)
    known = set(sentences.ENGLISH)
    used = set(re.findall(r"[\"']([a-z]+(?:[._][a-z_.]+)*)[\"']", code)) | set(re.findall(r"\"(github\.\w+)\"", code))
    prefixes = {f"column.{name}" for name in known_columns(known)}
    assert known - used - prefixes == set()
    for name in re.findall(r"texts\(\s*[\"']([\w.]+)[\"']", code):
        assert name in known


def known_columns(known: set[str]) -> set[str]:
    return {name.removeprefix("column.") for name in known if name.startswith("column.")}


def test_a_site_is_an_index_and_a_page_for_each_run(db: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    done = parity("report", "--site", site, "--db", db)
    assert done.exit_code == 0, done.stderr
    assert "new pages: 2" in done.stderr
    index = lxml_html.document_fromstring((site / "index.html").read_text(encoding="utf-8"))
    links = [one.get("href") for one in index.findall(".//a")]
    assert sorted(links) == sorted(path.name for path in site.glob("*.html") if path.name != "index.html")
    rows = {row[0].text_content(): [cell.text_content() for cell in row] for row in index.findall(".//tbody/tr")}
    bad = bad_run(db)["run"]
    assert rows[bad][1] == "DIVERGED"
    assert {row[1] for row in rows.values()} == {"PASS", "DIVERGED"}
    assert not index.findall(".//script")
    page = site / f"{bad}.html"
    page.write_text("mine", encoding="utf-8")
    assert "new pages: 0" in parity("report", "--site", site, "--db", db).stderr
    assert page.read_text(encoding="utf-8") == "mine", "what is there is kept"
    assert parity("report", bad, "--site", site, "--db", db).exit_code == 2


def test_a_site_writes_over_nobodys_index_and_through_no_link(db: Path, tmp_path: Path) -> None:
    site, outside = tmp_path / "site", tmp_path / "outside.html"
    site.mkdir()
    (site / "index.html").write_text("mine")
    done = parity("report", "--site", site, "--db", db)
    assert done.exit_code == 2
    assert "parity did not write it" in done.stderr
    assert (site / "index.html").read_text() == "mine"
    (site / "index.html").unlink()
    run = next(path for path in site.glob("*.html"))
    run.unlink()
    run.symlink_to(outside)
    assert parity("report", "--site", site, "--db", db).exit_code == 2
    assert not outside.exists()
