"""The notebook of the docs, run as Jupyter runs it: what it shows is what stands in it."""

from __future__ import annotations

from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")

NOTEBOOK = Path(__file__).resolve().parents[2] / "docs" / "notebook.ipynb"
AGAIN = "cd docs && jupyter execute --inplace notebook.ipynb"


def shown(notebook: object) -> list[tuple[str, str]]:
    """Text of every output, with the code that gave it."""
    return [
        (cell.source, out.get("text") or out["data"]["text/plain"])
        for cell in notebook.cells  # type: ignore[attr-defined]
        if cell.cell_type == "code"
        for out in cell.outputs
    ]


def test_it_runs_and_shows_what_stands_in_it() -> None:
    stored = nbformat.read(NOTEBOOK, as_version=4)
    fresh = nbformat.read(NOTEBOOK, as_version=4)
    nbclient.NotebookClient(fresh, timeout=120, resources={"metadata": {"path": str(NOTEBOOK.parent)}}).execute()
    assert len(shown(fresh)) >= 6
    assert shown(fresh) == shown(stored), AGAIN


def test_results_and_charts_show_themselves() -> None:
    kinds = [
        set(out.data)
        for cell in nbformat.read(NOTEBOOK, as_version=4).cells
        if cell.cell_type == "code"
        for out in cell.outputs
        if "data" in out
    ]
    assert [kind - {"text/plain"} for kind in kinds] == [{"text/html"}, {"image/svg+xml"}]
