"""Catalogues follow the source: every message by its id, and what is compiled is what stands there."""

from __future__ import annotations

import importlib.util
import io
import sys
from pathlib import Path
from types import ModuleType

import pytest
from babel.messages import pofile

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("parity_messages", ROOT / "tools" / "messages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look for it
    spec.loader.exec_module(module)
    return module


def read(tool: ModuleType, text: bytes) -> object:
    return pofile.read_po(io.BytesIO(text), locale="zh", domain="parity")


def test_source_and_catalogues_agree(tool: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    """A missing translation is listed; it is no mistake."""
    assert tool.main(["--check"]) == 0, capsys.readouterr().err
    assert "without a translation" in capsys.readouterr().out


def test_mistakes_in_the_source_are_found(tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool, "ROOT", tmp_path)
    source = tmp_path / "one.py"
    source.write_text(
        'message("a.one", "one {x}", x=1)\nmessage("a.one", "uno {x}", x=1)\n'
        'message(name, "two")\nmessage("a.three", "{y}", z=3)\nmessage("a.four", "{y}")\n'
    )
    problems: list[str] = []
    found: dict[str, object] = {}
    for id_, one in tool.in_source(source, problems):
        tool.add(found, id_, one, problems)
    assert set(found) == {"a.one", "a.three", "a.four"}
    assert sum("two texts" in problem for problem in problems) == 1
    assert "one.py:3: id and English must stand here as they are" in problems
    assert "one.py:4: a.three is not given y" in problems


def test_an_entry_lives_as_long_as_its_message(tool: ModuleType) -> None:
    first = {"a.one": tool.Found("one {x}", None), "a.rows": tool.Found("{count} row", "{count} rows")}
    catalogue = tool.updated(tool.Catalog(locale="zh"), first, "zh")
    catalogue.get("a.one").string, catalogue.get("a.rows").string = "一 {x}", ("{count} 行",)
    text = tool.written(catalogue)
    kept = tool.updated(read(tool, text), first, "zh")
    assert tool.written(kept) == text
    changed = {"a.one": tool.Found("exactly one {x}", None), "a.new": tool.Found("new", None)}
    after = tool.updated(read(tool, text), changed, "zh")
    assert after.get("a.one").fuzzy
    assert after.get("a.one").string == "一 {x}"
    assert after.get("a.rows") is None
    assert not after.get("a.new").string
    assert "一" in tool.compiled(tool.written(after), "zh").decode(errors="ignore")
