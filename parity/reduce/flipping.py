"""Which settings make a subject's case fail: what its recorded steps suspect is asked first, then what differs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from parity.errors import ParityError
from parity.messages import Say, message
from parity.plan import Arm
from parity.reduce.case import Case
from parity.reduce.hypothesis import Asked, ask_without
from parity.reduce.oracle import Oracle, OutOfTime
from parity.reduce.search import Found, Goal, Search
from parity.reduce.sequential import repeated
from parity.reduce.settings import Flip, SettingsSearch, flip_between
from parity.reduce.subject import Subject

ASKING: Final = 0.5
"""Of the time that is left once a case fails: the most that is spent without the suspected conditions."""


@dataclass(frozen=True, slots=True)
class Flipped:
    case: Case
    """The smallest batch around the finding that fails."""
    asked: tuple[Asked, ...]
    """It without what the run's recorded steps suspect."""
    flip: Flip


def flipped(subject: Subject, passing: Arm, oracle: Oracle, goal: Goal, seconds: float | None, say: Say) -> Flipped:
    """The smallest set of settings that flips the verdict between the subject's arm and `passing`. `seconds`: to spend.

    Raises ParityError where no case fails, or the arms are not one that fails and one that does not; BackendError,
    Interrupted."""
    passing = replace(passing, control=None)
    flip_between(subject.setup.candidate, passing)
    oracle.until(seconds)
    found = _grown(subject, oracle, goal, say)
    case = found.case
    assert case is not None
    question = repeated(goal.alpha, goal.beta) if found.deterministic else goal.question(case)
    if seconds is not None:
        oracle.until(oracle.spent + ASKING * (seconds - oracle.spent))
    asked = ask_without(oracle, case, subject.setup, question, subject.conditions, say)
    oracle.until(seconds)
    search = SettingsSearch(oracle, case, subject.setup.reference, question, suspected=subject.suspected, say=say)
    flip = search.run(subject.setup.candidate, passing, checked=True)
    flip.steps[:0] = found.steps
    return Flipped(case, tuple(asked), flip)


def _grown(subject: Subject, oracle: Oracle, goal: Goal, say: Say) -> Found:
    """Raises ParityError where nothing fails."""
    search = Search(oracle, subject.case, subject.setup, goal=goal, first=subject.first, say=say)
    try:
        found = search.grow()
    except OutOfTime:
        raise ParityError(
            message("cli.time_spent_before", "the time was spent before any case had failed"),
            hint=message("cli.raise_minutes", "raise --minutes"),
        ) from None
    if found.case is None:
        raise ParityError(
            message(
                "cli.not_fail_again",
                "{arm} does not fail again on any part of {subject}",
                arm=subject.arm.name,
                subject=subject.name,
            ),
            hint=message(
                "cli.give_plan_fails",
                "give it a plan that fails more often: more rounds, or what `parity reduce` wrote",
            ),
        )
    return found
