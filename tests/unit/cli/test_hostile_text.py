"""One hostile string in every place of a database, through every command that shows it."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from hostile_store import hostile_database
from lxml import etree
from lxml import html as lxml_html
from markdown_it import MarkdownIt

from parity.cli.main import cli
from parity.text import visible

OWN = ("<details>", "</details>", "<summary>", "</summary>", "<code>", "</code>", "<sub>", "</sub>", "<!--")


def markdown(text: str) -> None:
    """No HTML but our own, no image, no link to where the string points."""
    for token in MarkdownIt("commonmark", {"html": True, "linkify": True}).enable(["table", "linkify"]).parse(text):
        for child in token.children or []:
            assert child.type != "image"
            assert child.type != "html_inline" or child.content.startswith(OWN)
            assert child.type != "link_open" or "evil" not in str(child.attrs["href"])
        if token.type == "html_block":
            assert token.content.strip().startswith(OWN)


def page(text: str) -> None:
    read = lxml_html.document_fromstring(text)
    assert len(read.findall(".//script")) == 1
    assert not [name for one in read.iter() for name in one.attrib if name.startswith("on") or name == "src"]


def xml(text: str) -> None:
    etree.fromstring(text.encode())


def plain(text: str) -> None:
    assert "\\x1b]0;owned" in text or "[red]" not in text


SURFACES: dict[str, tuple[tuple[str, ...], Callable[[str], object]]] = {
    "list": (("runs", "list"), plain),
    "list, json": (("runs", "list", "--json"), json.loads),
    "show": (("runs", "show"), plain),
    "show, json": (("runs", "show", "--json"), json.loads),
    "check": (("runs", "check"), plain),
    "check, json": (("runs", "check", "--json"), json.loads),
    "table": (("table",), plain),
    "table, md": (("table", "--format", "md"), markdown),
    "table, json": (("table", "--format", "json"), json.loads),
    "report, md": (("report", "--format", "md", "--for", "vllm"), markdown),
    "report, html": (("report", "--format", "html"), page),
    "report, json": (("report", "--format", "json"), json.loads),
    "report, junit": (("report", "--format", "junit"), xml),
    "report, sarif": (("report", "--format", "sarif"), json.loads),
    "report, github": (("report", "--format", "github"), markdown),
    "report, annotations": (("report", "--format", "annotations"), plain),
    "repro": (("repro",), ast.parse),
    "why": (("why",), plain),
}


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return hostile_database(tmp_path_factory.mktemp("hostile") / "parity.db")


@pytest.mark.parametrize("surface", list(SURFACES))
def test_text_from_a_database_is_only_text(surface: str, database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARITY_HOME", str(database.parent))
    monkeypatch.setenv("PARITY_LANG", "en")
    args, reads = SURFACES[surface]
    result = CliRunner().invoke(cli, [*args, "--db", str(database)])
    assert result.exit_code in (0, 2), result.output
    for text in (result.stdout, result.stderr):
        assert visible(text, keep="\n\t") == text
    if result.stdout:
        reads(result.stdout)


def test_json_is_the_same_value_in_escapes() -> None:
    from parity.text import in_escapes

    value = ["\x9b31m\u202e\u200b\U000e0041\x7f é 你好", {"a\u2028": "\n\t\\"}]
    text = json.dumps(value, ensure_ascii=False, indent=1)
    assert json.loads(in_escapes(text)) == value
    assert visible(in_escapes(text), keep="\n") == in_escapes(text)
    assert "你好" in in_escapes(text)


def test_no_name_of_a_database_becomes_a_statement(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scripts and commands that reports hold are there to be run."""
    monkeypatch.setenv("PARITY_HOME", str(database.parent))
    report = CliRunner().invoke(cli, ["report", "--format", "md", "--for", "vllm", "--db", str(database)]).stdout
    blocks = re.findall(r"```python\n(.*?)```", report, flags=re.DOTALL)
    called = {
        getattr(one.func, "id", getattr(one.func, "attr", ""))
        for block in blocks
        for one in ast.walk(ast.parse(block))
        if isinstance(one, ast.Call)
    }
    assert "system" not in called
    assert not re.search(r"^\s*(\S+=)?\$\(touch", report, flags=re.MULTILINE)
