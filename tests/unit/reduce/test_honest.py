"""What is stated of the reduced plan holds: many reductions of engines whose true rate is known."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from simulated import Simulated, case_of, plan, setup_of

from parity.errors import BackendError
from parity.messages import Say
from parity.plan import Plan
from parity.records import Verdict
from parity.reduce.case import Case, Setup, Shot, Unresolved
from parity.reduce.notebook import Notebook
from parity.reduce.oracle import Oracle
from parity.reduce.reducing import Wanted, reduce
from parity.reduce.result import Confirmation, Reduction, confirm, reduced_plan
from parity.reduce.search import Found, Goal, Search
from parity.reduce.sequential import Question, clopper_pearson, in_rounds
from parity.reduce.subject import Subject


class Engines:
    """What `reduce` needs of the engines beside shots."""

    def stop(self) -> None:
        pass


@dataclass
class SamePlace(Simulated):
    """Fails in a share of the shots, always with the same output: a race that strikes at one place."""

    share: float = 0.7

    def shot(self, case: Case, setup: Setup, number: int) -> Shot:
        shot = super().shot(case, setup, number)
        failed = self._draw.random() < self.share and self.condition(case, setup)
        return replace(shot, failed=failed, kinds=(self.kind,) if failed else (), streams=f"{case.digest()} {failed}")


def subject_of(made: Plan) -> Subject:
    return Subject("the finding", made, made.arm("fake/mtp"), ("r2",), None, 0.25)


def reduced(
    engine: Simulated,
    made: Plan,
    directory: Path,
    verdicts: list[Verdict] | None = None,
    say: Say = lambda line: None,
) -> Reduction:
    """`parity reduce` on this engine; where `verdicts` are given, the reduced plan runs with them in turn."""
    goal = Goal(tokens=case_of(made).tokens * made.rounds // 4)
    left = iter(verdicts or ())
    with Notebook(directory / "shots.jsonl") as notebook:
        oracle = Oracle(engine, notebook, clock=engine.clock)
        return reduce(
            subject_of(made),
            Wanted(goal, settings=False),
            oracle,
            Engines(),  # type: ignore[arg-type]
            directory,
            rerun=None if verdicts is None else lambda plan: ("run", next(left)),
            say=say,
        )


@pytest.mark.parametrize("per_step", [0.003, 0.01, 0.05])
def test_over_many_reductions_the_plans_fail_as_often_as_was_stated(per_step: float, tmp_path: Path) -> None:
    """Search and confirmation together, luck of the search included: 60 reductions of a fault at each rate."""
    made = plan(requests=8, max_tokens=16, rounds=40)
    goal = Goal(tokens=case_of(made).tokens * made.rounds // 4)
    stated, true, missed, said = 0.0, 0.0, 0, 0
    for seed in range(60):
        engine = Simulated(per_step, seed=seed)
        with Notebook(tmp_path / f"{seed}.jsonl") as notebook:
            oracle = Oracle(engine, notebook, clock=engine.clock)
            found = Search(oracle, case_of(made), setup_of(made), goal=goal, first=["r2"]).run()
            assert found.case is not None
            confirmation = confirm(oracle, found, setup_of(made), goal)
        if not confirmation.failures:
            continue  # nothing is stated
        truth = in_rounds(per_step, found.case.sampling.max_tokens)
        low, high = confirmation.interval
        said += 1
        missed += not low <= truth <= high
        stated += confirmation.probability
        true += in_rounds(truth, confirmation.rounds)
    assert said >= 40
    assert missed <= 8  # 3 of 60 are allowed; 8 would be one in a hundred
    assert stated / said <= true / said + 0.03
    assert true / said >= 0.85


def test_what_the_search_saw_is_not_what_is_stated(tmp_path: Path) -> None:
    """The share among the shots that chose the case is far too high; that of the confirming shots is the truth."""
    made = plan(requests=1)
    case, setup, truth = case_of(made), setup_of(made), in_rounds(0.001, 32)
    chosen, fresh = [], []
    for seed in range(300):
        engine = Simulated(0.001, seed=seed)
        with Notebook(tmp_path / f"{seed}.jsonl") as notebook:
            oracle = Oracle(engine, notebook, clock=engine.clock)
            decision = oracle.decide(case, setup, Question(truth, 4 * truth, 0.2, 0.2))
            if decision.fails:
                chosen.append(decision.failures / decision.shots)
                counted = oracle.count(case, setup, 60)
                fresh.append(counted.failures / counted.shots)
    assert sum(chosen) / len(chosen) > 3 * truth
    assert sum(fresh) / len(fresh) == pytest.approx(truth, rel=0.35)


@dataclass
class Repeats(Simulated):
    """An engine that does the same after each start, its faults included. Another setup is another start."""

    notebook: Notebook | None = None
    up: str = ""

    def shot(self, case: Case, setup: Setup, number: int) -> Shot:
        if self.up != setup.digest():
            self.up, self._draw = setup.digest(), random.Random(self.seed)
            assert self.notebook is not None
            self.notebook.started(10.0)
        return super().shot(case, setup, number)


def test_an_engine_that_repeats_itself_after_a_start_does_not_confirm_its_own_luck(tmp_path: Path) -> None:
    made = plan(requests=1)
    case, setup = case_of(made), setup_of(made)
    other = replace(setup, candidate=made.arm("fake/base"))
    truth = in_rounds(0.002, 32)
    shares, passed_over = [], 0
    for seed in range(200):
        with Notebook(tmp_path / f"{seed}.jsonl") as notebook:
            engine = Repeats(0.002, seed=seed, notebook=notebook)
            oracle = Oracle(engine, notebook, clock=engine.clock)
            question = Question(truth, 4 * truth, 0.2, 0.2)
            decision = oracle.decide(case, setup, question)
            if not decision.fails:
                continue
            oracle.decide(case, other, question)
            fresh = oracle.count(case, setup, 30)
            assert (fresh.shots, fresh.passed_over) == (30, decision.shots)
            shares.append(fresh.failures / fresh.shots)
            passed_over += fresh.passed_over
    assert len(shares) >= 20
    assert sum(shares) / len(shares) == pytest.approx(truth, rel=0.5)


def test_shots_of_the_engine_that_chose_the_case_are_new_ones(tmp_path: Path) -> None:
    made = plan(requests=1)
    with Notebook(tmp_path / "shots.jsonl") as notebook:
        engine = Repeats(0.1, seed=4, notebook=notebook)
        oracle = Oracle(engine, notebook, clock=engine.clock)
        assert oracle.decide(case_of(made), setup_of(made), Question(0.1, 0.5)).fails
        assert oracle.count(case_of(made), setup_of(made), 20).passed_over == 0
    with Notebook(tmp_path / "shots.jsonl") as notebook:  # the next attempt takes the same ones for new
        oracle = Oracle(Repeats(0.1, seed=4, notebook=notebook), notebook, clock=engine.clock)
        oracle.decide(case_of(made), setup_of(made), Question(0.1, 0.5))
        assert oracle.count(case_of(made), setup_of(made), 20).passed_over == 0
        assert oracle.count(case_of(made), setup_of(made), 25).passed_over > 0  # the rest is of another engine


def test_what_only_looked_deterministic_is_searched_again_with_more_shots(tmp_path: Path) -> None:
    """Three failures alike are taken for certainty, and single shots for answers, until the confirming shots say no."""
    made = plan(requests=8, max_tokens=16, rounds=40)
    again, found = 0, []
    for seed in range(30):
        engine = SamePlace(1.0, lambda case, setup: {"r2", "r5"} <= {r.id for r in case.requests}, seed=seed)
        said: list[str] = []
        result = reduced(engine, made, tmp_path / str(seed), say=lambda line, said=said: said.append(str(line)))
        assert result.plan is not None
        assert result.confirmation is not None
        assert result.to_json()["deterministic"] == result.confirmation.alike
        again += any("searching again" in line for line in said)
        found.append({request.id for request in result.plan.requests})
        if not result.confirmation.alike:
            low, high = result.confirmation.interval
            assert low < 1
            assert high > 0.5
    assert again >= 5
    assert found.count({"r2", "r5"}) >= 29


def test_rounds_that_did_not_fail_again_count_against_the_plan(tmp_path: Path) -> None:
    made = plan(requests=4, rounds=40)
    once = reduced(Simulated(0.01, seed=2), made, tmp_path / "once", [Verdict.DIVERGED])
    twice = reduced(Simulated(0.01, seed=2), made, tmp_path / "twice", [Verdict.PASS, Verdict.DIVERGED])
    assert once.confirmation is not None
    assert twice.confirmation is not None
    rounds = once.confirmation.rounds
    assert twice.confirmation == Confirmation(once.confirmation.failures, once.confirmation.shots + rounds, 2 * rounds)
    assert twice.plan is not None
    assert (twice.plan.rounds, len(twice.attempts), twice.reproduced) == (2 * rounds, 2, "run")
    alone = replace(once.confirmation, rounds=2 * rounds)
    assert twice.confirmation.probability < alone.probability


def test_an_engine_that_dies_while_it_is_confirmed_is_said(tmp_path: Path) -> None:
    class Dies(Simulated):
        def shot(self, case: Case, setup: Setup, number: int) -> Shot:
            if number > 20:
                raise Unresolved("fake/mtp: the engine died")
            return super().shot(case, setup, number)

    with pytest.raises(BackendError, match="the engine died"):
        reduced(Dies(0.05, seed=1), plan(requests=1, rounds=80), tmp_path)


def test_the_plan_without_a_shot_states_nothing() -> None:
    nothing = Confirmation(0, 0, 30)
    assert (nothing.probability, nothing.interval) == (0.0, (0.0, 1.0))
    assert Confirmation(12, 12, 1, alike=True).probability == pytest.approx(0.96, abs=0.01)
    few = Confirmation(2, 40, 88)
    assert in_rounds(few.rate, 88) > few.probability > few.at_least
    assert few.interval == clopper_pearson(2, 40)


def test_a_few_shots_without_a_failure_say_nothing_where_the_time_is_spent(tmp_path: Path) -> None:
    """A case that fails in a tenth of its shots passes six in a row every other time."""
    made = plan(requests=1)
    found, engine = Found(case=case_of(made), at_least=0.05), Simulated(0.0)
    for name, seconds, shots in (("few", 5.0, 0), ("all", None, 60)):
        with Notebook(tmp_path / f"{name}.jsonl") as notebook:
            oracle = Oracle(engine, notebook, clock=engine.clock)
            oracle.until(seconds)
            confirmation = confirm(oracle, found, setup_of(made), Goal())
        assert (confirmation.failures, confirmation.shots) == (0, shots)


def test_what_was_a_control_is_an_ordinary_arm_of_the_reduced_plan() -> None:
    """Views, lists of runs and policies know controls by their names."""
    made = plan(requests=1)
    base = made.arm("fake/base")
    control = replace(made.arm("fake/mtp"), name="fake/mtp-control-loop", variant="mtp-control-loop", control="loop")
    planned = replace(made, arms=(base, control))
    arm = reduced_plan(planned, case_of(made), Setup(control, base), 3, 0.25).arms[1]
    assert (arm.name, arm.variant, arm.control) == ("fake/mtp-loop", "mtp-loop", None)
    assert arm.engine == control.engine
