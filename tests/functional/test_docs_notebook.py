"""The notebook of the docs, run as Jupyter runs it: what it shows is what stands in it."""

from __future__ import annotations

from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")

NOTEBOOK = Path(__file__).resolve().parents[2] / "docs" / "notebook.ipynb"
AGAIN = "cd docs && jupyter execute --inplace notebook.ipynb"


def shown(notebook: object) -> list[tuple[str, str, str]]:
    """Every output's kind and text, with the code that gave it; what was printed is one text, for a kernel sends it in
    as many pieces as time makes of it."""
    found: list[tuple[str, str, str]] = []
    for cell in notebook.cells:  # type: ignore[attr-defined]
        for out in cell.outputs if cell.cell_type == "code" else ():
            printed = out.output_type == "stream"
            kind, text = (out.name, out.text) if printed else (out.output_type, out["data"]["text/plain"])
            if printed and found and found[-1][:2] == (cell.source, kind):
                text = found.pop()[2] + text
            found.append((cell.source, kind, text))
    return found


def test_printed_text_is_one_whatever_its_pieces() -> None:
    whole, pieces = (
        nbformat.v4.new_notebook(
            cells=[
                nbformat.v4.new_code_cell(
                    "print()", outputs=[nbformat.v4.new_output("stream", name="stdout", text=one) for one in texts]
                )
            ]
        )
        for texts in (["a\n"], ["a", "\n"])
    )
    assert shown(whole) == shown(pieces) == [("print()", "stdout", "a\n")]


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
