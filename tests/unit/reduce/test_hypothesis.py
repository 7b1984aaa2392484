"""The smallest case, asked without what recorded steps suspect."""

from __future__ import annotations

from pathlib import Path

from simulated import Simulated, case_of, plan, setup_of

from parity.messages import Message
from parity.reduce.hypothesis import Asked, ask_without
from parity.reduce.notebook import Notebook
from parity.reduce.oracle import Oracle
from parity.reduce.sequential import certain


def asked(engine: Simulated, directory: Path, *conditions: str, seconds: float | None = None) -> list[Asked]:
    made, said = plan(requests=2), list[Message]()
    with Notebook(directory / "shots.jsonl") as notebook:
        oracle = Oracle(engine, notebook, clock=engine.clock)
        oracle.until(seconds)
        found = ask_without(oracle, case_of(made), setup_of(made), certain(), conditions, said.append)
    assert said[: len(found)] == [one.line for one in found]
    assert [one.id for one in said[len(found) :]] == ["reduce.no_time_without"] * (seconds == 0)
    return found


def test_a_case_that_stays_away_without_the_condition(tmp_path: Path) -> None:
    """One that needs more than one row."""
    engine = Simulated(1.0, lambda case, setup: setup.candidate.engine["max_num_seqs"] != 1)
    (one,) = asked(engine, tmp_path, "moved", "taken over", "even step")
    assert (one.condition, dict(one.settings)) == ("moved", {"max_num_seqs": 1})
    assert not one.decision.fails
    assert one.decision.shots
    assert [setup.candidate.engine["max_num_seqs"] for _, setup in engine.shots] == [1] * one.decision.shots
    assert str(one.line) == (
        "without the suspected condition (its row moved in this step; max_num_seqs = 1): does not fail (0 of 1 shot)"
    )
    assert one.to_json()["fails"] is False


def test_a_case_that_fails_all_the_same(tmp_path: Path) -> None:
    engine = Simulated(1.0)
    both = asked(engine, tmp_path, "mixed", "chunked", "graph")
    assert [one.condition for one in both] == ["mixed", "chunked"]  # the plan runs without graphs; two at most
    assert all(one.decision.fails for one in both)


def test_what_cannot_be_tried_and_no_time(tmp_path: Path) -> None:
    refuses = Simulated(1.0, refuses=lambda setup: setup.candidate.engine["max_num_seqs"] == 1)
    (one,) = asked(refuses, tmp_path / "a", "moved")
    assert one.to_json()["fails"] is None
    assert "cannot be tried (the engine does not like it)" in str(one.line)
    assert asked(Simulated(1.0), tmp_path / "b", "moved", seconds=0) == []
