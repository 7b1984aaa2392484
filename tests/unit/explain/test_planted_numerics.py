"""What benchmarks/why_numerics.py plants and how it counts, without an engine."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from parity_faults.planting import CONDITIONS, parse

from parity.explain.association import Association
from parity.explain.hypotheses import Form
from parity.explain.predicates import PREDICATES

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "benchmarks"))

from why_numerics import CASES, STEPS, Case, hit


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_each_case_is_one_that_the_fault_lab_takes(case: Case) -> None:
    assert parse(case.text).conditions == ((case.when,) if case.when else ())


def test_cases_have_folders_of_their_own_and_conditions_that_are_asked() -> None:
    assert len({case.name for case in CASES}) == len(CASES)
    assert set(STEPS) <= set(CONDITIONS)
    assert set(STEPS.values()) <= {one.name for one in PREDICATES}
    assert any(not case.when for case in CASES)


@pytest.mark.parametrize(("names", "same", "mark"), [
    (("moved",), (), "="),
    (("moved",), (("taken over",),), "~"),
    (("taken over",), (("moved",),), "~"),
    (("moved", "moved before"), (), "+"),
    (("full",), (("moved", "left"),), "+"),
    (("full",), (("left",),), "-"),
])  # fmt: skip
def test_the_marks(names: tuple[str, ...], same: tuple[tuple[str, ...], ...], mark: str) -> None:
    form = Form.ONE if len(names) == 1 else Form.EITHER
    first = Association(names, 5, 20, 1e-6, 1e-4, 0.2, 100.0, form, same=same)
    assert hit("moved", first, telling=True) == mark
    assert hit("moved", first, telling=False) == ""
    assert hit("", first, telling=True) == "-"
