"""The reducer on simulated engines: deterministic and flaky ones, at rates from 0.01 to 1."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from simulated import Simulated, always, case_of, needs, plan, setup_of

from parity.errors import BackendError
from parity.plan import Plan
from parity.plan.churn import Churn
from parity.reduce.case import Case, Setup
from parity.reduce.notebook import Notebook
from parity.reduce.oracle import Oracle
from parity.reduce.result import confirm
from parity.reduce.search import MOST_ENDED, SHORTEST_PROMPT, Found, Goal, Search
from parity.reduce.sequential import in_rounds


def goal_of(made: Plan, share: float = 0.25) -> Goal:
    return Goal(tokens=round(case_of(made).tokens * made.rounds * share))


def search(
    engine: Simulated, made: Plan, directory: Path, *, first: tuple[str, ...] = ("r20",), seconds: float | None = None
) -> tuple[Found, Oracle]:
    with Notebook(directory / "shots.jsonl") as notebook:
        oracle = Oracle(engine, notebook, clock=engine.clock)
        oracle.until(seconds)
        return Search(oracle, case_of(made), setup_of(made), goal=goal_of(made), first=first).run(), oracle


def ids(found: Found) -> list[str]:
    assert found.case is not None
    return [request.id for request in found.case.requests]


def test_a_deterministic_failure_is_reduced_to_what_it_needs_in_single_shots(tmp_path: Path) -> None:
    def condition(case: Case, setup: Setup) -> bool:
        prompts = {request.id: request.prompt_token_ids for request in case.requests}
        return {"r20", "r22"} <= set(prompts) and 27 in prompts["r20"] and case.sampling.max_tokens >= 11

    engine = Simulated(1.0, condition)
    found, oracle = search(engine, plan(), tmp_path)
    assert found.deterministic
    assert ids(found) == ["r20", "r22"]
    assert found.case is not None
    assert found.case.sampling.max_tokens == 11
    lengths = {request.id: len(request.prompt_token_ids) for request in found.case.requests}
    assert lengths == {"r20": SHORTEST_PROMPT, "r22": SHORTEST_PROMPT}
    assert 27 in found.case.requests[0].prompt_token_ids
    assert found.order_matters is False
    decided = [step for step in found.steps if step.accepted][1:]
    assert {step.shots for step in decided} == {1}
    assert oracle.shots <= 120


@pytest.mark.parametrize("rate", [0.01, 0.03, 0.1, 0.3, 0.7, 1.0])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_any_rate_is_reduced_to_one_request_within_the_budget(rate: float, seed: int, tmp_path: Path) -> None:
    made = plan()
    engine = Simulated(rate, seed=seed)
    found, oracle = search(engine, made, tmp_path)
    assert ids(found) == ["r20"]
    assert found.case is not None
    with Notebook(tmp_path / "shots.jsonl") as notebook:
        oracle = Oracle(engine, notebook, clock=engine.clock)
        confirmation = confirm(oracle, found, setup_of(made), goal_of(made))
    assert confirmation.failures
    assert found.case.tokens * confirmation.rounds <= goal_of(made).tokens * 1.5
    # What is stated holds: the true chance of a round is known here.
    truth = in_rounds(rate, found.case.sampling.max_tokens)
    low, high = confirmation.interval
    assert low * 0.9 <= truth <= min(1.0, high * 1.1)
    assert in_rounds(truth, confirmation.rounds) > 0.8


@pytest.mark.parametrize("rate", [0.05, 0.3])
def test_a_flaky_failure_that_needs_two_rows_keeps_both(rate: float, tmp_path: Path) -> None:
    found, _ = search(Simulated(rate, needs("r20", "r25"), seed=3), plan(max_tokens=64, rounds=6), tmp_path)
    assert ids(found) == ["r20", "r25"]


def test_the_donor_that_a_finding_names_is_tried_first(tmp_path: Path) -> None:
    engine = Simulated(1.0, needs("r20", "r60"))
    found, _ = search(engine, plan(), tmp_path, first=("r20", "r60"))
    assert ids(found) == ["r20", "r60"]
    assert max(len(case.requests) for case, _ in engine.shots) == 2


def test_what_needs_the_whole_batch_keeps_it(tmp_path: Path) -> None:
    made = plan(requests=6, rounds=2)
    everyone = [request.id for request in made.requests]
    found, _ = search(Simulated(1.0, needs(*everyone)), made, tmp_path, first=())
    assert ids(found) == everyone


def test_what_never_fails_again_gives_nothing(tmp_path: Path) -> None:
    found, _ = search(Simulated(0.0), plan(requests=4), tmp_path)
    assert found.case is None
    assert not any(step.accepted for step in found.steps)


def test_churn_and_sampling_are_dropped_where_they_do_not_matter_and_kept_where_they_do(tmp_path: Path) -> None:
    made = plan(requests=8, rounds=2, temperature=0.8, top_p=0.9, n=2, repetition_penalty=1.1)
    made = replace(made, churn=Churn(arrival="fixed", every=2.0, needle="r3"))

    def warm(case: Case, setup: Setup) -> bool:
        return case.sampling.temperature > 0

    found, _ = search(Simulated(1.0, warm), made, tmp_path, first=("r5",))
    assert found.case is not None
    assert found.case.churn == Churn()
    assert found.case.sampling.temperature == 0.8
    assert (found.case.sampling.top_p, found.case.sampling.repetition_penalty) == (1.0, 1.0)

    found, _ = search(Simulated(1.0, always), made, tmp_path / "plain", first=("r5",))
    assert found.case is not None
    assert (found.case.sampling.temperature, found.case.sampling.n) == (0.0, 1)


def test_only_the_findings_own_kind_counts_when_asked(tmp_path: Path) -> None:
    made = plan(requests=4)
    engine = Simulated(1.0, kind="omission")
    with Notebook(tmp_path / "shots.jsonl") as notebook:
        oracle = Oracle(engine, notebook, kinds=frozenset({"duplication"}), clock=engine.clock)
        assert Search(oracle, case_of(made), setup_of(made), goal=goal_of(made)).run().case is None


def test_time_that_runs_out_leaves_the_best_so_far(tmp_path: Path) -> None:
    made = plan(max_tokens=64, rounds=6)
    engine = Simulated(0.05, needs("r20", "r21"), seed=1)
    found, _ = search(engine, made, tmp_path, seconds=260)
    assert found.out_of_time
    assert engine.clock.now <= 260 + 3.2  # the shot that was under way
    assert {"r20", "r21"} <= set(ids(found))


def test_without_time_nothing_is_confirmed_and_nothing_claimed(tmp_path: Path) -> None:
    made = plan()
    engine = Simulated(0.1)
    with Notebook(tmp_path / "shots.jsonl") as notebook:
        oracle = Oracle(engine, notebook, clock=engine.clock)
        found = Search(oracle, case_of(made), setup_of(made), goal=goal_of(made)).run()
        oracle.until(0.0)
        confirmation = confirm(oracle, found, setup_of(made), goal_of(made))
    assert (confirmation.failures, confirmation.shots, confirmation.interval) == (0, 0, (0.0, 1.0))
    assert confirmation.rounds >= 20


@pytest.mark.parametrize("stop_after", [1, 7, 30])
def test_an_interrupted_search_goes_on_where_it_was(stop_after: int, tmp_path: Path) -> None:
    """Every shot is asked for once, over both attempts, and the outcome is that of an uninterrupted search."""
    made = plan()

    class Dies(Simulated):
        def shot(self, case: Case, setup: Setup, number: int):  # type: ignore[no-untyped-def]
            if len(self.shots) == stop_after:
                raise KeyboardInterrupt
            return super().shot(case, setup, number)

    engine = Dies(0.1, needs("r20", "r22"), seed=5)
    with pytest.raises(KeyboardInterrupt):
        search(engine, made, tmp_path)
    with (tmp_path / "shots.jsonl").open("ab") as file:
        file.write(b'{"record":"shot","setup"')  # cut off in the middle of a write
    stop_after = -1
    found, oracle = search(engine, made, tmp_path)
    whole = Simulated(0.1, needs("r20", "r22"), seed=5)
    expected, _ = search(whole, made, tmp_path / "whole")
    assert found.case == expected.case
    assert found.steps == expected.steps
    assert [case.digest() for case, _ in engine.shots] == [case.digest() for case, _ in whole.shots]
    assert oracle.shots == len(whole.shots)


def test_a_case_that_ends_the_engine_is_passed_over(tmp_path: Path) -> None:
    """As vLLM's CPU build does of batches of one with some models: larger ones run."""
    engine = Simulated(1.0, dies=lambda case: len(case.requests) < 2)
    found, _ = search(engine, plan(requests=8), tmp_path, first=("r5",))
    assert len(ids(found)) == 2
    passed_over = [step for step in found.steps if step.why]
    assert passed_over
    assert {(step.accepted, step.why) for step in passed_over} == {
        (False, "fake/mtp: the worker ended while trying a case")
    }
    assert engine.deaths <= len(passed_over) + 1  # no case is tried twice


def test_an_engine_that_ends_of_every_case_is_an_error(tmp_path: Path) -> None:
    for name, requests in (("few", 2), ("many", 64)):
        engine = Simulated(1.0, dies=lambda case: True)
        with pytest.raises(BackendError, match="the worker ended"):
            search(engine, plan(requests=requests), tmp_path / name)
        assert engine.deaths <= MOST_ENDED + 5
