"""`parity reduce` from start to end: search, settings, confirm, and show it again with fresh engines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from parity.errors import ParityError, writing
from parity.messages import Message, Say, message
from parity.pipeline.directory import write_json, write_plan
from parity.plan import Plan
from parity.records import Verdict
from parity.reduce.case import Setup
from parity.reduce.engines import Engines
from parity.reduce.hypothesis import Asked, ask_without
from parity.reduce.oracle import Oracle
from parity.reduce.result import Confirmation, Reduction, Size, confirm, reduced_plan
from parity.reduce.search import Found, Goal, Search
from parity.reduce.sequential import Question, repeated
from parity.reduce.settings import SettingsSearch
from parity.reduce.subject import Subject

Rerun = Callable[[Plan], tuple[str, Verdict]]
"""Runs a plan in fresh engines: the run's id and verdict."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the user asked for."""

    goal: Goal
    settings: bool = True
    """Also look for the settings that it needs."""
    seconds: float | None = None
    """For all of it, the start of engines included. The run with fresh engines at the end is not cut off: it is left
    a fifth, and may take more."""

    def until(self, share: float) -> float | None:
        return None if self.seconds is None else self.seconds * share


SEARCH, SETTINGS, CONFIRM = 0.5, 0.7, 0.8
"""Shares of the time after which each of these has to be over; the rest is for the run in fresh engines."""


def reduce(
    subject: Subject,
    wanted: Wanted,
    oracle: Oracle,
    engines: Engines,
    directory: Path,
    *,
    rerun: Rerun | None,
    say: Say = lambda line: None,
) -> Reduction:
    """The smaller plan, written to `directory`/reduced.json. Raises BackendError, Interrupted, ParityError."""
    result, setup = _narrowed(subject, wanted, oracle, say, one_shot=True)
    confirmation = result.confirmation
    if result.found.deterministic and confirmation is not None and confirmation.failures < confirmation.shots:
        say(
            message(
                "reduce.not_fail_every",
                "it does not fail every time after all: searching again, with as many shots as it takes",
            )
        )
        steps = result.found.steps
        result, setup = _narrowed(subject, wanted, oracle, say, one_shot=False)
        result.found.steps[:0] = steps
    if result.confirmation is not None and (result.confirmation.failures or not result.confirmation.shots):
        _write(subject, setup, result, directory, result.confirmation.rounds)
    result.shots, result.tokens = oracle.shots, oracle.tokens
    result.engine_starts = oracle.starts
    if result.plan is not None and rerun is not None:
        engines.stop()  # their memory and cores are wanted
        _reproduce(subject, setup, result, directory, rerun, say)
    result.seconds = oracle.spent
    _save(result, directory)
    return result


def _narrowed(subject: Subject, wanted: Wanted, oracle: Oracle, say: Say, *, one_shot: bool) -> tuple[Reduction, Setup]:
    """Search, settings and confirmation; the setup that fails. What was asked before costs nothing."""
    goal = wanted.goal
    search = Search(oracle, subject.case, subject.setup, goal=goal, first=subject.first, one_shot=one_shot, say=say)
    result = Reduction(subject.name, search.found, Size.of(subject.case, subject.plan.rounds))
    oracle.until(wanted.until(SEARCH))
    found = search.run()
    setup = subject.setup
    if found.case is not None:
        if wanted.settings:
            oracle.until(wanted.until(SETTINGS))
            result.hypotheses = _hypotheses(subject, setup, oracle, goal, found, say)
            setup = _fewer_settings(subject, setup, oracle, goal, result, say)
        say(message("reduce.confirming_new_shots", "confirming with new shots"))
        oracle.until(wanted.until(CONFIRM))
        result.confirmation = confirm(oracle, found, setup, goal)
        say(_told(result.confirmation))
        if result.confirmation.passed_over:
            over = result.confirmation.passed_over
            say(
                message(
                    "reduce.shots_not_counted",
                    "{over} shots are not counted: an engine that was started anew may repeat those that "
                    "chose the case",
                    over=over,
                )
            )
    return result, setup


def _hypotheses(
    subject: Subject, setup: Setup, oracle: Oracle, goal: Goal, found: Found, say: Say
) -> tuple[Asked, ...]:
    """The case without what the run's recorded steps suspect; nothing was asked of a run that was not recorded."""
    assert found.case is not None
    return tuple(ask_without(oracle, found.case, setup, _question(goal, found), subject.conditions, say))


def _question(goal: Goal, found: Found) -> Question:
    assert found.case is not None
    return repeated(goal.alpha, goal.beta) if found.deterministic else goal.question(found.case)


def _told(confirmation: Confirmation) -> Message:
    if not confirmation.shots:
        return message("reduce.no_time_to_confirm", "the time was spent before it was confirmed")
    low, high = confirmation.interval
    return message(
        "reduce.confirmed",
        "a round fails in {failures} of {shots} shots: {rate:.2g} ({low:.2g} to {high:.2g} at 95 %)",
        failures=confirmation.failures,
        shots=confirmation.shots,
        rate=confirmation.rate,
        low=low,
        high=high,
    )


def _fewer_settings(subject: Subject, setup: Setup, oracle: Oracle, goal: Goal, result: Reduction, say: Say) -> Setup:
    """The setup with only those settings of the failing arm that it needs, the rest as in the baseline.

    The planted fault of a control is what the reduction is about: it stays.
    """
    found = result.found
    assert found.case is not None
    baseline = subject.plan.arm(subject.plan.baseline)
    if baseline.backend != setup.candidate.backend:
        return setup
    faulty = {name: value for name, value in setup.candidate.env.items() if name.startswith("PARITY_FAULT")}
    passing = replace(baseline, env={**baseline.env, **faulty}, control=None)
    if (dict(passing.engine), dict(passing.env)) == (dict(setup.candidate.engine), dict(setup.candidate.env)):
        return setup
    question = _question(goal, found)
    search = SettingsSearch(oracle, found.case, setup.reference, question, suspected=subject.suspected, say=say)
    try:
        called = message("reduce.planted_too", "{arm} with the planted fault", arm=passing.name) if faulty else None
        flip = search.run(setup.candidate, passing, checked=True, or_none=True, called=called)
    except ParityError as error:
        say(message("reduce.settings", "settings: {message}", message=error.message))
        return setup
    found.out_of_time |= flip.out_of_time
    found.steps += flip.steps
    result.settings = flip.to_json()
    return setup if flip.arm is None else replace(setup, candidate=flip.arm)


def _write(subject: Subject, setup: Setup, result: Reduction, directory: Path, rounds: int) -> None:
    found = result.found
    assert found.case is not None
    result.plan = reduced_plan(subject.plan, found.case, setup, rounds, subject.tolerance)
    result.plan.check()
    result.after = Size.of(found.case, rounds)
    result.plan_file = directory / "reduced.json"
    write_plan(result.plan_file, result.plan)


def _reproduce(subject: Subject, setup: Setup, result: Reduction, directory: Path, rerun: Rerun, say: Say) -> None:
    """Runs the plan in fresh engines; where luck has it that it passes, once more with twice the rounds.

    Rounds that passed are shots like any other: what is stated of the longer plan reckons with them.
    """
    assert result.confirmation is not None
    passed = 0
    for factor in (1, 2):
        before = result.confirmation
        rounds = before.rounds * factor
        if factor > 1:
            result.confirmation = replace(before, rounds=rounds, shots=before.shots + passed, alike=False)
            _write(subject, setup, result, directory, rounds)
        assert result.plan is not None
        say(
            message(
                "reduce.running_reduced_plan",
                "running the reduced plan in fresh engines ({rounds} rounds)",
                rounds=rounds,
            )
        )
        run, verdict = rerun(result.plan)
        result.attempts.append(run)
        if verdict is Verdict.DIVERGED:
            result.reproduced = run
            return
        say(message("reduce.run_not_reproduced", "run {run} is {verdict}: not reproduced", run=run, verdict=verdict))
        passed = rounds if verdict is Verdict.PASS else 0


def _save(result: Reduction, directory: Path) -> None:
    with writing(directory / "reduction.json"):
        write_json(directory / "reduction.json", result.to_json())
