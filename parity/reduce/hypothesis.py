"""What the recorded steps of a run suspect, asked of the smallest case: does it still fail without that condition?

`parity why` only sees what faults go with. Here the setting that removes a condition is changed and nothing else is: if
the case stays away with it, the condition is more than an association.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from parity.explain.experiments import EXPERIMENTS
from parity.explain.predicates import PREDICATES
from parity.messages import Message, Say, message, verbatim
from parity.plan import Arm
from parity.records import Json
from parity.reduce.case import Case, Setup
from parity.reduce.oracle import Decision, Oracle, OutOfTime
from parity.reduce.sequential import Question
from parity.reduce.tried import DOES_NOT_FAIL, FAILS, shots_said, untried

MOST: Final = 2
"""Settings that are tried: each is an engine start."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A condition, the settings that remove it, and what came of it."""

    condition: str
    settings: Mapping[str, Json]
    decision: Decision

    @property
    def said(self) -> Message:
        shown = ", ".join(f"{name} = {json.dumps(value)}" for name, value in self.settings.items())
        return message(
            "reduce.without",
            "without the suspected condition ({condition}; {settings})",
            condition=_words(self.condition),
            settings=shown,
        )

    @property
    def answer(self) -> Message:
        if self.decision.unresolved is not None:
            return untried(self.decision.unresolved)
        return FAILS if self.decision.fails else DOES_NOT_FAIL

    @property
    def line(self) -> Message:
        return shots_said(self.said, self.answer, self.decision)

    def to_json(self) -> dict[str, Json]:
        one = self.decision
        return {
            "condition": self.condition,
            "settings": dict(self.settings),
            "fails": None if one.unresolved is not None else one.fails,
            "shots": one.shots,
            "failures": one.failures,
            "why": str(one.unresolved or ""),
        }


def without(arm: Arm, condition: str) -> Mapping[str, Json]:
    """Engine settings that remove the condition; empty where none does, or the arm has them already."""
    experiment = EXPERIMENTS.get(condition)
    settings = {} if experiment is None else dict(experiment.engine)
    return {} if all(arm.engine.get(name) == value for name, value in settings.items()) else settings


def ask_without(
    oracle: Oracle, case: Case, setup: Setup, question: Question, conditions: Sequence[str], say: Say
) -> list[Asked]:
    """Of each way to remove one of these conditions, once. Stops when the time is spent.

    Raises BackendError, Interrupted."""
    removals: dict[str, tuple[str, Mapping[str, Json]]] = {}
    for name in conditions:
        settings = without(setup.candidate, name)
        if settings:
            removals.setdefault(json.dumps(settings, sort_keys=True), (name, settings))
    asked: list[Asked] = []
    for name, settings in list(removals.values())[:MOST]:
        arm = replace(setup.candidate, engine={**setup.candidate.engine, **settings})
        try:
            decision = oracle.decide(case, replace(setup, candidate=arm), question)
        except OutOfTime:
            say(
                message(
                    "reduce.no_time_without",
                    "no time was left to say what happens without the suspected condition ({condition}); the same "
                    "command with more minutes goes on",
                    condition=_words(name),
                )
            )
            break
        asked.append(Asked(name, settings, decision))
        say(asked[-1].line)
    return asked


def _words(name: str) -> Message:
    return next((one.said for one in PREDICATES if one.name == name), verbatim(name))
