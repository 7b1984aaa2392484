"""What the recorded steps suspect is asked before the settings that differ."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from simulated import Simulated, plan, speculates

from parity.errors import ParityError
from parity.messages import Message, verbatim
from parity.reduce.flipping import Flipped, flipped
from parity.reduce.notebook import Notebook
from parity.reduce.oracle import Oracle
from parity.reduce.search import Goal
from parity.reduce.subject import Subject


def asked(engine: Simulated, directory: Path, *conditions: str, seconds: float | None = None) -> Flipped:
    made = plan(requests=4)
    subject = Subject(verbatim("a run"), made, made.arm("fake/mtp"), ("r1",), None, 0.5, conditions=conditions)
    said: list[Message] = []
    with Notebook(directory / "shots.jsonl") as notebook:
        oracle = Oracle(engine, notebook, clock=engine.clock)
        goal = Goal(tokens=subject.case.tokens * made.rounds)
        return flipped(subject, made.arm("fake/base"), oracle, goal, seconds, said.append)


def settings_shot(engine: Simulated) -> list[str]:
    """Which settings each shot had, those that repeat once."""
    named = []
    for _, setup in engine.shots:
        arm = setup.candidate.engine
        one = "baseline" if not speculates(_, setup) else "alone" if arm["max_num_seqs"] == 1 else "failing"
        if named[-1:] != [one]:
            named.append(one)
    return named


def test_the_condition_is_asked_before_any_setting(tmp_path: Path) -> None:
    engine = Simulated(1.0, lambda case, setup: speculates(case, setup) and setup.candidate.engine["max_num_seqs"] != 1)
    done = asked(engine, tmp_path, "moved")
    (one,) = done.asked
    assert one.to_json()["fails"] is False
    assert done.flip.settings is not None
    assert [each.name for each in done.flip.settings] == ["speculation"]
    assert settings_shot(engine)[:3] == ["failing", "alone", "baseline"]


def test_nothing_suspected(tmp_path: Path) -> None:
    engine = Simulated(1.0, speculates)
    done = asked(engine, tmp_path)
    assert done.asked == ()
    assert settings_shot(engine)[:2] == ["failing", "baseline"]


def test_the_settings_keep_half_of_the_time(tmp_path: Path) -> None:
    """Rare faults: to say that it stays away takes more shots than there is time for."""
    engine = Simulated(
        0.02, lambda case, setup: speculates(case, setup) and setup.candidate.engine["max_num_seqs"] != 1
    )
    done = asked(engine, tmp_path, "moved", seconds=40)
    assert done.asked == ()
    assert settings_shot(engine)[:3] == ["failing", "alone", "baseline"]
    assert done.flip.out_of_time


@pytest.mark.parametrize(
    ("other", "says"), [({"backend": "elsewhere"}, "different backends"), ({"name": "fake/same"}, "the same settings")]
)
def test_arms_that_no_setting_tells_apart_are_refused_before_any_engine_starts(
    other: dict[str, str], says: str, tmp_path: Path
) -> None:
    engine, made = Simulated(1.0), plan(requests=4)
    passing = replace(made.arm("fake/base" if "backend" in other else "fake/mtp"), **other)
    subject = Subject(verbatim("a run"), made, made.arm("fake/mtp"), ("r1",), None, 0.5)
    with Notebook(tmp_path / "shots.jsonl") as notebook, pytest.raises(ParityError, match=says):
        flipped(subject, passing, Oracle(engine, notebook), Goal(), None, print)
    assert engine.shots == []
