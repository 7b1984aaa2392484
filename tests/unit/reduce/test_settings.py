"""Which settings flip the verdict."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from simulated import Condition, Simulated, case_of, plan, setup_of, speculates

from parity.errors import BackendError, ParityError
from parity.plan import Arm
from parity.reduce.case import Setup
from parity.reduce.notebook import Notebook
from parity.reduce.oracle import Oracle
from parity.reduce.search import Goal, Search
from parity.reduce.sequential import Question, certain
from parity.reduce.settings import Flip, SettingsSearch, differences, mixed


def bisect(
    engine: Simulated,
    failing: Arm,
    passing: Arm,
    directory: Path,
    question: Question | None = None,
    seconds: float | None = None,
    suspected: tuple[str, ...] = (),
    **how: bool,
) -> Flip:
    made = plan(requests=2)
    with Notebook(directory / "shots.jsonl") as notebook:
        oracle = Oracle(engine, notebook, clock=engine.clock)
        oracle.until(seconds)
        asked = question or certain()
        search = SettingsSearch(oracle, case_of(made), setup_of(made).reference, asked, suspected=suspected)
        return search.run(failing, passing, **how)


def arms() -> tuple[Arm, Arm]:
    made = plan()
    return made.arm("fake/mtp"), made.arm("fake/base")


def names(flip: Flip) -> list[str]:
    assert flip.settings is not None
    return [one.name for one in flip.settings]


def test_differences_name_what_belongs_together_once() -> None:
    failing, passing = arms()
    failing = replace(failing, env={**failing.env, "PARITY_FAULT": "loop", "PARITY_FAULT_BUNDLE": "UEsDBA"})
    found = differences(failing, passing)
    assert [one.name for one in found] == ["max_num_seqs", "speculation", "A", "the planted fault"]
    shown = [str(one.said) for one in found]
    assert shown[0] == "max_num_seqs 64 → 16"
    assert shown[1].startswith('speculation (speculative_config not set → {"method": "mtp"')
    assert "UEsDBA" not in shown[3]
    assert mixed(passing, failing, found) == replace(failing, control=None)
    back = mixed(passing, failing, [])
    assert (back.engine, back.env) == (passing.engine, passing.env)
    assert differences(failing, failing) == []


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (speculates, ["speculation"]),
        (lambda case, setup: setup.candidate.engine["max_num_seqs"] == 16, ["max_num_seqs"]),
        (lambda case, setup: setup.candidate.env["A"] == "2", ["A"]),
        (
            lambda case, setup: speculates(case, setup) and setup.candidate.engine["max_num_seqs"] == 16,
            ["max_num_seqs", "speculation"],
        ),
    ],
)
@pytest.mark.parametrize("rate", [0.01, 0.1, 1.0])
def test_the_smallest_set_is_named(condition: Condition, expected: list[str], rate: float, tmp_path: Path) -> None:
    engine = Simulated(rate, condition, seed=2)
    question = certain() if rate == 1 else Question(0.02, 0.12, alpha=0.01, beta=0.01)
    flip = bisect(engine, *arms(), tmp_path, question)
    assert names(flip) == expected
    assert flip.arm is not None
    assert condition(case_of(plan(requests=2)), Setup(flip.arm, flip.arm))
    if rate == 1:
        assert {step.shots for step in flip.steps} == {1}


def test_settings_that_an_engine_refuses_are_unresolved(tmp_path: Path) -> None:
    """One difference cannot stand alone; the other, which matters, can."""

    def refuses(setup: Setup) -> bool:
        return setup.candidate.engine["max_num_seqs"] == 16 and not speculates(case_of(plan()), setup)

    flip = bisect(Simulated(1.0, speculates, refuses=refuses), *arms(), tmp_path)
    assert names(flip) == ["speculation"]
    assert flip.to_json()["settings"][0]["name"] == "speculation"


def test_arms_between_which_nothing_can_be_found_are_refused(tmp_path: Path) -> None:
    failing, passing = arms()
    engine = Simulated(1.0, speculates)
    with pytest.raises(ParityError, match="different backends"):
        bisect(engine, failing, replace(passing, backend="other"), tmp_path / "a")
    with pytest.raises(ParityError, match="the same settings"):
        bisect(engine, failing, replace(failing, name="fake/same"), tmp_path / "b")
    new, old = (replace(one, engine={**one.engine, "url": f"http://{one.variant}"}) for one in (failing, passing))
    with pytest.raises(ParityError, match="are different servers"):
        bisect(engine, new, old, tmp_path / "s")
    with pytest.raises(ParityError, match="does not fail often enough"):
        bisect(engine, passing, failing, tmp_path / "c")
    with pytest.raises(ParityError, match="fake/base fails too"):
        bisect(Simulated(1.0), failing, passing, tmp_path / "d")
    with pytest.raises(BackendError, match="fake/base cannot be tried: the engine does not like it"):
        bisect(Simulated(1.0, refuses=lambda s: not speculates(case_of(plan()), s)), failing, passing, tmp_path / "e")


def test_none_of_the_settings_is_an_answer_when_asked_for(tmp_path: Path) -> None:
    flip = bisect(Simulated(1.0), *arms(), tmp_path, checked=True, or_none=True)
    assert names(flip) == []
    assert flip.arm is not None
    assert flip.arm.engine == arms()[1].engine


def test_time_that_runs_out_is_said(tmp_path: Path) -> None:
    flip = bisect(Simulated(0.05, speculates), *arms(), tmp_path, Question(0.02, 0.3), seconds=20)
    assert flip.out_of_time
    assert flip.settings is None


def test_a_refusal_holds_for_one_attempt(tmp_path: Path) -> None:
    """An engine that did not start is not tried again and again, but once more when the search is started again."""
    made = plan(requests=2)
    setup = setup_of(made)
    engine = Simulated(1.0, refuses=lambda setup: True)
    with Notebook(tmp_path / "shots.jsonl") as notebook:
        oracle = Oracle(engine, notebook)
        assert str(oracle.decide(case_of(made), setup, certain()).unresolved) == "the engine does not like it"
        engine.refuses = lambda setup: False
        assert oracle.decide(case_of(made), setup, certain()).unresolved
    with Notebook(tmp_path / "shots.jsonl") as notebook:
        assert Oracle(engine, notebook).decide(case_of(made), setup, certain()).fails


def test_a_reduction_whose_engine_does_not_start_is_an_error_and_no_answer(tmp_path: Path) -> None:
    made = plan(requests=2)
    with Notebook(tmp_path / "shots.jsonl") as notebook:
        oracle = Oracle(Simulated(1.0, refuses=lambda setup: True), notebook)
        with pytest.raises(BackendError, match="does not like it"):
            Search(oracle, case_of(made), setup_of(made), goal=Goal()).run()


def test_what_recorded_steps_suspect_is_asked_about_first(tmp_path: Path) -> None:
    engine = Simulated(1.0, lambda case, setup: setup.candidate.env["A"] == "2")
    blind = bisect(engine, *arms(), tmp_path / "a")
    led = bisect(engine, *arms(), tmp_path / "b", suspected=("graph mode", "A", "max_num_seqs"))
    assert names(led) == names(blind) == ["A"]
    # Both arms, and the setting itself.
    assert len(led.steps) == 3 < len(blind.steps)
    wrong = bisect(engine, *arms(), tmp_path / "c", suspected=("max_num_seqs",))
    assert names(wrong) == ["A"]
