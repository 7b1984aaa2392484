"""The documentation keeps in step with the code."""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
import sys
from pathlib import Path

import click
import pytest
import yaml

import parity.comparator
from parity.capture import check_capture, read_capture, read_scores
from parity.cli.main import COMMANDS, cli
from parity.comparator import compare
from parity.errors import ExitCode
from parity.records import Kind, Severity, Verdict
from parity.records.kinds import kinds

PREFIX = "parity.comparator."
ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
MADE = {"messages.md", "thresholds.md"}
"""Pages of the site that are made when it is built (tools/site_links.py), and not kept."""
PAGES = sorted(
    [
        *(ROOT / f"{name}.md" for name in ("README", "ARCHITECTURE", "CONTRIBUTING", "CHANGELOG")),
        *(page for page in DOCS.glob("*.md") if page.name not in MADE),
    ]
)

sys.path.insert(0, str(ROOT / "tools"))
make_cli_docs = importlib.import_module("make_cli_docs")

ALL_COMMANDS = list(make_cli_docs.walk(cli))
NAMES = [" ".join(path) for path, _ in ALL_COMMANDS]


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def section(text: str, heading: str) -> str:
    """What stands under a heading, up to the next one of the same level."""
    level = heading.split(" ", 1)[0]
    found = re.search(rf"^{re.escape(heading)}\n(.*?)(?=^{level} |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found, f"no section {heading!r}"
    return found.group(1)


# --------------------------------------------------------------------------- the command line


@pytest.mark.parametrize(("path", "command"), ALL_COMMANDS, ids=NAMES)
def test_every_command_and_option_has_help(path: tuple[str, ...], command: click.Command) -> None:
    assert command.help, f"{' '.join(path)} has no help"
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{' '.join(path)} {parameter.opts[0]} has no help"


@pytest.mark.parametrize(("path", "command"), ALL_COMMANDS, ids=NAMES)
def test_every_command_and_option_is_documented(path: tuple[str, ...], command: click.Command) -> None:
    here = section(text_of("docs/command-line.md"), f"## `{' '.join(path)}`")
    for parameter in command.params:
        if isinstance(parameter, click.Option) and not parameter.hidden:
            for name in parameter.opts:
                assert re.search(rf"`[^`]*{re.escape(name)}\b", here), f"{' '.join(path)}: {name} is not documented"


def test_command_line_page_is_current() -> None:
    assert text_of("docs/command-line.md") == make_cli_docs.page(), "run python tools/make_cli_docs.py"


def test_short_help_of_the_lazy_commands_is_their_own() -> None:
    for name, (_, short) in COMMANDS.items():
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        assert command.get_short_help_str(200) == short


# --------------------------------------------------------------------------- links


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    found: set[str] = set()
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").lower()
        anchor = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        found.add(anchor if anchor not in found else f"{anchor}-1")
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_relative_links_resolve(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)|(?:src|href)=\"([^\"]+)\"", text):
        link = target[0] or target[1]
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), f"{page.name}: {link} does not exist"
        if anchor and there.suffix == ".md":
            assert anchor in anchors(there), f"{page.name}: {link} has no such heading"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_code_named_in_the_docs_exists(page: Path) -> None:
    """Paths in backticks that begin in the repository are there (`tests/v1`, `tests/models` are vLLM's)."""
    for path in re.findall(r"`((?:parity|backends|tests|tools|benchmarks|docs)/[\w./-]+)`", page.read_text("utf-8")):
        if path.startswith(("tests/v1/", "tests/models/")):
            continue
        assert (ROOT / path).exists(), f"{page.name} names {path}"


def test_every_compare_module_has_its_place() -> None:
    page = text_of("ARCHITECTURE.md")
    for info in pkgutil.walk_packages(parity.comparator.__path__, PREFIX):
        path = info.name.removeprefix(PREFIX).replace(".", "/")
        if not info.ispkg and path != "types":
            assert f"`{path}.py`" in page, f"ARCHITECTURE.md does not place parity/comparator/{path}.py"


def test_every_page_is_reachable_from_the_readme() -> None:
    readme, index = text_of("README.md"), text_of("docs/index.md")
    assert "(docs/index.md)" in readme
    for page in DOCS.glob("*.md"):
        assert page.name in {"index.md", "index.zh.md", *MADE} or f"({page.name})" in index + text_of(
            "docs/index.zh.md"
        ), f"docs/index.md does not link {page.name}"


def test_the_page_of_messages_has_errors_with_their_remedies() -> None:
    rows = {id: (said, hint) for id, said, hint in importlib.import_module("messages_page").remedies()}
    assert len(rows) > 100
    assert rows["capture.no_such_capture"] == (
        "no such capture: {path}",
        "check the path; `parity runs list` names runs",
    )


class _Site(yaml.SafeLoader):
    """mkdocs.yml as it is written: what makes a slug stays a name."""


_Site.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, suffix, node: suffix)


def test_every_page_has_its_place_on_the_site() -> None:
    """MkDocs itself checks links and anchors: `make docs`."""
    site = yaml.load(text_of("mkdocs.yml"), _Site)  # a SafeLoader
    listed = [
        page for part in site["nav"] for one in part.values() for page in ([one] if isinstance(one, str) else one)
    ]
    kept = {page.name for page in DOCS.glob("*.md") if not page.name.endswith(".zh.md")}
    assert sorted(listed) == sorted(kept | MADE)
    assert site["strict"] is True


# --------------------------------------------------------------------------- README


def test_readme_has_the_two_commands_and_they_exist() -> None:
    commands = re.findall(r"^make (\S+)", text_of("README.md"), re.MULTILINE)
    assert sorted(commands) == ["demo", "test"]
    makefile = text_of("Makefile")
    for name in commands:
        assert re.search(rf"^{name}:", makefile, re.MULTILINE), f"no `make {name}`"


# --------------------------------------------------------------------------- kinds


@pytest.mark.parametrize("kind", kinds(), ids=str)
def test_every_kind_has_a_section(kind: Kind) -> None:
    text = section(text_of("docs/kinds.md"), f"## `{kind}`")
    assert f"**{kind.row.severity.capitalize()}.**" in text
    assert "*Decided by*" in text
    assert any(part in text for part in ("*Evidence*", "*Limits*", "*Position and length*"))


def test_kinds_page_documents_nothing_else() -> None:
    headings = re.findall(r"^## `(\w+)`$", text_of("docs/kinds.md"), re.MULTILINE)
    assert sorted(headings) == sorted(kinds())


def test_every_threshold_of_the_code_has_its_reason() -> None:
    constants = list(importlib.import_module("thresholds_page").constants())
    assert len(constants) > 200
    assert not [one.name for one in constants if not one.reason], "write unit and reason in a docstring below each"


def test_the_page_of_thresholds_lists_the_numbers_of_the_modules() -> None:
    """What the page reads from the source is what the modules hold, and no number of theirs is left out."""
    listed = {one.name for one in importlib.import_module("thresholds_page").constants()}
    not_thresholds = importlib.import_module("thresholds_page").NOT_THRESHOLDS
    for info in pkgutil.walk_packages(parity.comparator.__path__, PREFIX):
        module = importlib.import_module(info.name)
        source = Path(str(module.__file__)).read_text(encoding="utf-8")
        for constant in re.findall(r"^([A-Z][A-Z_0-9]*)(?:: [^=]+)? = ", source, re.MULTILINE):
            name = f"{info.name.removeprefix(PREFIX)}.{constant}"
            if isinstance(getattr(module, constant), int | float) and name not in not_thresholds:
                assert name in listed, f"tools/thresholds_page.py does not see {name}"


# --------------------------------------------------------------------------- the capture format


def examples(page: str) -> dict[str, str]:
    found = re.findall(r"<!-- example: (\S+) -->\n```json\n(.*?)```", text_of(page), re.DOTALL)
    return dict(found)


@pytest.fixture
def example(tmp_path: Path) -> Path:
    for name, text in examples("docs/capture.md").items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def test_capture_example_is_what_the_page_says(example: Path) -> None:
    assert check_capture(example / "base.jsonl") == []
    assert check_capture(example / "mtp.jsonl") == []
    scores = read_scores(example / "scores.jsonl")
    result = compare(read_capture(example / "base.jsonl"), read_capture(example / "mtp.jsonl"), scores)
    assert result.verdict is Verdict.PASS
    (finding,) = result.findings
    assert (finding.request, finding.kind, finding.severity, finding.position) == (
        "p0",
        Kind.NEAR_TIE,
        Severity.BENIGN,
        3,
    )
    assert finding.evidence.to_json()["gap"] == 0.125


def test_capture_example_depends_on_the_scores(example: Path) -> None:
    """The same tokens with a score that does not support token 3 are a fault: the example proves something."""
    text = (example / "scores.jsonl").read_text(encoding="utf-8").replace("[331,-0.75]", "[331,-0.125]")
    scores_path = example / "others.jsonl"
    scores_path.write_text(text.replace("[487,-0.875]", "[487,-9.0]"), encoding="utf-8")
    captures = read_capture(example / "base.jsonl"), read_capture(example / "mtp.jsonl")
    result = compare(*captures, read_scores(scores_path))
    assert result.verdict is Verdict.DIVERGED
    assert result.findings[0].position == 3


def test_every_key_of_our_own_records_is_documented() -> None:
    """Keys of the top level and of the counters, as the worker and the session write them."""
    page = text_of("docs/capture.md")
    example_text = examples("docs/capture.md")
    for line in "".join(example_text.values()).splitlines():
        record = json.loads(line)
        under = section(page, f"## `{record['record']}`")
        for key in record:
            assert f"`{key}`" in under, f"docs/capture.md: {record['record']}.{key}"
    worker = text_of("backends/parity_backends/worker/counters.py")
    block = re.search(r"^METRICS = \{(.*?)^\}", worker, re.MULTILINE | re.DOTALL)
    assert block
    for counter in re.findall(r'^    "(\w+)":', block.group(1), re.MULTILINE):
        assert f"`{counter}`" in section(page, "## `footer`"), counter


# --------------------------------------------------------------------------- other pages


def test_exit_codes_are_documented() -> None:
    table = section(text_of("docs/reading-a-verdict.md"), "## Exit codes")
    for code in ExitCode:
        assert re.search(rf"^\| {int(code)} \|", table, re.MULTILINE), f"exit code {int(code)} is not documented"
    for name in Verdict:
        assert str(name) in table


def test_every_backend_is_described() -> None:
    from parity.run import backend_names

    for page in ("docs/adapters.md", "README.md"):
        for name in backend_names():
            assert f"`{name}`" in text_of(page), f"{page} does not name {name}"


def test_every_member_of_an_adapter_is_described() -> None:
    from parity.run import backend

    page = section(text_of("docs/adapters.md"), "## Writing one")
    protocols = [one for one in vars(backend).values() if isinstance(one, type) and getattr(one, "_is_protocol", False)]
    protocols = [one for one in protocols if one.__module__ == backend.__name__]
    assert len(protocols) > 5
    for protocol in protocols:
        for name in {name for name in vars(protocol) if not name.startswith("_")} | set(protocol.__annotations__):
            assert f"`{name}" in page, f"docs/adapters.md does not describe {name}"


def test_every_environment_variable_is_documented() -> None:
    everything = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    for folder in ("parity", "backends"):
        for source in (ROOT / folder).rglob("*.py"):
            for name in set(re.findall(r'"(PARITY_[A-Z_]+)"', source.read_text(encoding="utf-8"))):
                assert name in everything, f"{source.name} reads {name}, no page says so"


def test_every_table_and_column_of_the_store_is_documented() -> None:
    from sqlite_utils import Database

    from parity.store.migrations import migrations

    db = Database(memory=True)
    migrations.apply(db)
    page = text_of("docs/store.md")
    for table in db.tables:
        if table.name.startswith(("_", "sqlite_")):
            continue
        here = section(page, f"### `{table.name}`")
        for column in table.columns:
            assert f"`{column.name}`" in here, f"docs/store.md: {table.name}.{column.name}"


def test_plan_keys_are_documented() -> None:
    from dataclasses import fields

    from parity.plan import Arm
    from parity.records.sampling import asked

    page = text_of("docs/plan.md")
    for row in asked():
        assert f"`{row.name}`" in page, f"docs/plan.md: sampling.{row.name}"
    for field in fields(Arm):
        assert f"`{field.name}`" in page, f"docs/plan.md: arms[].{field.name}"
    for key in (
        "schema",
        "parity",
        "model",
        "rounds",
        "sampling",
        "requests",
        "arms",
        "baseline",
        "score",
        "tolerance",
    ):
        assert f"`{key}`" in page, f"docs/plan.md: {key}"


# --------------------------------------------------------------------------- the configuration


CONFIGURATIONS = [
    pytest.param(block, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, block in enumerate(re.findall(r"^```toml\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S))
    if not block.startswith("[project")
]


@pytest.mark.parametrize("block", CONFIGURATIONS)
def test_every_example_of_a_configuration_is_one(block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By each command that takes one; an argument of `doctor` is called as an option of `run` is."""
    from click.testing import CliRunner

    from parity.report.policy import read_policy

    monkeypatch.chdir(tmp_path)
    path = tmp_path / "parity.toml"
    path.write_text(block, encoding="utf-8")
    for command in ("run", "doctor"):
        done = CliRunner().invoke(cli, [command, "--config", str(path), "--help"], prog_name="parity")
        assert done.exit_code == 0, done.output
    if "[policy]" in block:
        read_policy(path)
