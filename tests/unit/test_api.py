"""The Python interface: the examples of docs/api.md, what rows look like, and what importing costs."""

from __future__ import annotations

import doctest
import inspect
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import parity

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture
def captures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files of the worked example in docs/capture.md, in the working directory."""
    page = (DOCS / "capture.md").read_text(encoding="utf-8")
    for name, text in re.findall(r"<!-- example: (\S+) -->\n```json\n(.*?)```", page, re.DOTALL):
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_examples_of_the_page_are_true(captures: Path) -> None:
    page = (DOCS / "api.md").read_text(encoding="utf-8")
    examples = doctest.DocTestParser().get_doctest(page, {}, "api.md", str(DOCS / "api.md"), 0)
    assert len(examples.examples) >= 14
    said: list[str] = []
    doctest.DocTestRunner(verbose=False).run(examples, out=said.append)
    assert not said, "".join(said)


def test_importing_parity_loads_nothing_but_itself() -> None:
    code = (
        "import sys; import parity; parity.__version__;"
        "names = [name for name in sys.modules if name.startswith('parity.') or name in ('numpy', 'typing')];"
        "print([name for name in names if name not in ('parity._version', 'parity.lazily')])"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", f"import sys; sys.path[:0] = {sys.path!r}; {code}"],
                          capture_output=True, text=True, check=True)  # fmt: skip
    assert done.stdout.strip() == "[]"


def test_every_name_that_is_promised_is_there() -> None:
    for name in parity.__all__:
        assert getattr(parity, name) is not None
    assert set(parity.__all__) <= set(dir(parity))
    source = Path(parity.__file__).read_text(encoding="utf-8")
    seen_by_checkers = {
        name for names in re.findall(r"^    from \S+ import (.*)$", source, re.MULTILINE) for name in names.split(", ")
    }
    assert seen_by_checkers | {"__version__"} == set(parity.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = parity.nothing  # type: ignore[attr-defined]


def test_compare_is_the_function_whatever_was_imported_before(captures: Path) -> None:
    from parity.comparator import compare as library

    assert parity.compare("base.jsonl", "base.jsonl").verdict == "PASS"
    assert callable(library)
    assert list(inspect.signature(parity.compare).parameters)[:3] == ["baseline", "candidate", "scores"]
    assert "Compare two captures" in (inspect.getdoc(parity.compare) or "")
    first, second = parity.read_capture("base.jsonl"), parity.read_capture("mtp.jsonl")
    assert parity.compare(first, second, scores=["scores.jsonl"]).counts == {"near_tie": 1}
    assert parity.compare(first, second, scores=parity.read_scores("scores.jsonl")).counts == {"near_tie": 1}


def test_rows_have_the_columns_that_the_page_names(captures: Path) -> None:
    page = (DOCS / "api.md").read_text(encoding="utf-8")
    result = parity.compare("base.jsonl", "mtp.jsonl", scores="scores.jsonl")
    for name in ("to_rows", "completion_rows", "token_rows"):
        columns = re.search(rf"^\| `{name}\(\)` \| (`arm`.*) \|$", page, re.MULTILINE)
        assert columns is not None
        rows = getattr(result, name)()
        assert rows
        assert list(rows[0]) == re.findall(r"`(\w+)`", columns.group(1))
        assert all(isinstance(v, str | int | float | None) for row in rows for v in row.values())
        assert all(not isinstance(v, np.generic) for row in rows for v in row.values())


def test_plots_are_svg_that_a_notebook_shows(captures: Path) -> None:
    from lxml import etree

    result = parity.compare("base.jsonl", "mtp.jsonl", scores="scores.jsonl")
    for name, plot in result.plots().items():
        assert plot._repr_svg_() == plot
        tree = etree.fromstring(plot.encode())
        assert tree.tag == "{http://www.w3.org/2000/svg}svg", name
        assert not tree.findall(".//{*}script")
