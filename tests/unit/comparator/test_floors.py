"""A candidate's capture goes down the floors of the comparator, and up none of them."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import planted_set
import pytest
from test_sampled import Model

from parity.records import Capture, Scores

sys.path.insert(0, str(Path(__file__).parents[3] / "tools"))
from capture_walk import FLOORS, Walk, walk

Captures = tuple[Capture, Capture, Scores]


def greedy() -> Captures:
    """One completion is damaged, with scores."""
    case = planted_set.cases("A")[0]
    return planted_set.clean("A")[0], case.candidate, case.scores


def drawn() -> Captures:
    """The candidate draws at another temperature."""
    rng = np.random.default_rng(1)
    model = Model(rng)
    base, known = model.arm("cpu/base", model.ranks(rng, 0.8))
    other, more = model.arm("cpu/mtp", model.ranks(rng, 1.3))
    return base, other, known | more


@pytest.mark.parametrize("captures", [greedy, drawn])
def test_the_candidate_goes_down_and_never_up(captures: object) -> None:
    assert callable(captures)
    found = walk(*captures())
    assert found.back_up == ()
    assert {module.partition(".")[0] for module in found.modules} <= set(FLOORS)
    assert found.stays[0] == "comparing"
    assert found.stays[-1] == "conclude.kept"


def test_a_step_up_is_noticed() -> None:
    assert Walk(("inputs.a", "detect.b", "inputs.c", "detect.b")).back_up == (("detect.b", "inputs.c"),)
