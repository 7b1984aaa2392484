"""The planted twins of reported bugs (benchmarks/twins.py): what is said of them is so."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from parity_faults import parse

from parity.explain.predicates import PREDICATES

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "benchmarks"))

from twins import TWINS, in_books, trial_of  # noqa: E402

CORPUS = ROOT / "docs" / "corpus.md"


def test_there_are_twenty_each_with_its_threads_and_its_condition() -> None:
    known = {one.name for one in PREDICATES}
    assert len({one.threads for one in TWINS}) == len(TWINS) == 20
    for twin in TWINS:
        assert all(re.fullmatch(r"[\w./-]+#\d+", thread) for thread in twin.threads.split(", ")), twin.threads
        assert set(twin.condition) <= known
        assert bool(twin.fault) != (twin.change is not None)
        if twin.fault:
            assert parse(trial_of(twin).text).fault == trial_of(twin).fault


@pytest.mark.parametrize("twin", [one for one in TWINS if not one.fault], ids=lambda one: one.threads)
def test_what_breaks_the_books_is_located_at_its_step_and_row(twin: object) -> None:
    seen = in_books(twin)  # type: ignore[arg-type]
    assert seen.row_steps >= 5
    assert seen.located == seen.row_steps


def test_the_page_lists_every_twin() -> None:
    page = CORPUS.read_text(encoding="utf-8")
    assert all(f"| {twin.threads} | {twin.story} |" in page for twin in TWINS)
