"""What a reduction came to: the plan that still fails, and with what probability."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from parity.messages import Message
from parity.plan import Plan
from parity.records import Json
from parity.records.control import CONTROL
from parity.reduce.case import Case, Setup
from parity.reduce.hypothesis import Asked
from parity.reduce.oracle import Fresh, Oracle
from parity.reduce.search import FEWEST_ROUNDS, MOST_ROUNDS, Found, Goal
from parity.reduce.sequential import clopper_pearson, in_rounds, predictive, rounds_predicted

FEWEST_SHOTS, MOST_SHOTS = 12, MOST_ROUNDS
"""Twelve are enough for what seems to fail every time: seven tenths do so twelve times in a row once in seventy. And
as many as the rarest failure worth having is to show itself in: no fewer, or a true result would be thrown away often
for want of a failure."""

WANTED_FAILURES = 8
"""As many failures as the confirming shots should give: then the interval is within a factor of about two."""


@dataclass(frozen=True, slots=True)
class Size:
    """How large a plan is. `tokens`: prompts and outputs of all its rounds."""

    requests: int
    prompt_tokens: int
    max_tokens: int
    rounds: int
    tokens: int

    @staticmethod
    def of(case: Case, rounds: int) -> Size:
        longest = max((case.limit(request) for request in case.requests), default=0)
        return Size(len(case.requests), case.prompt_tokens, longest, rounds, case.tokens * rounds)

    def to_json(self) -> dict[str, Json]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


@dataclass(frozen=True, slots=True)
class Confirmation:
    """Shots taken after the search, which chose nothing: they alone say how often the reduced case fails."""

    failures: int
    shots: int
    rounds: int
    alike: bool = False
    """Every one failed, with the same output token by token."""
    passed_over: int = 0
    """Shots not counted, since an engine that was started anew may have repeated those that chose the case."""

    @property
    def rate(self) -> float:
        return self.failures / self.shots if self.shots else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        return clopper_pearson(self.failures, self.shots)

    @property
    def probability(self) -> float:
        """That the plan fails, all rounds together: what few shots leave open is reckoned with. 0 without shots."""
        return predictive(self.failures, self.shots, self.rounds) if self.shots else 0.0

    @property
    def at_least(self) -> float:
        """The same at the lower end of the interval."""
        return in_rounds(self.interval[0], self.rounds)

    def to_json(self) -> dict[str, Json]:
        low, high = self.interval
        return {
            "failures": self.failures,
            "shots": self.shots,
            "alike": self.alike,
            "passed_over": self.passed_over,
            "round": {"rate": round(self.rate, 4), "low": round(low, 4), "high": round(high, 4)},
            "rounds": self.rounds,
            "plan": {"probability": round(self.probability, 4), "at_least": round(self.at_least, 4)},
        }


@dataclass(slots=True)
class Reduction:
    """`plan` and `confirmation` are None where nothing smaller fails often enough."""

    finding: Message
    """What was reduced, in words."""
    found: Found
    before: Size
    after: Size | None = None
    plan: Plan | None = None
    plan_file: Path | None = None
    confirmation: Confirmation | None = None
    reproduced: str | None = None
    """The run in which fresh engines showed it again."""
    attempts: list[str] = field(default_factory=list)
    """Runs of the reduced plan in fresh engines, that one included."""
    shots: int = 0
    tokens: int = 0
    seconds: float = 0.0
    engine_starts: int = 0
    settings: Mapping[str, Json] | None = None
    hypotheses: tuple[Asked, ...] = ()
    """The case without what recorded steps suspect."""

    def to_json(self) -> dict[str, Json]:
        return {
            "schema": "parity.reduction/1",
            "finding": str(self.finding),
            "before": self.before.to_json(),
            "after": None if self.after is None else self.after.to_json(),
            "plan": None if self.plan_file is None else str(self.plan_file),
            "kinds": list(self.found.kinds),
            "deterministic": self.found.deterministic and (self.confirmation is None or self.confirmation.alike),
            "order_matters": self.found.order_matters,
            "confirmation": None if self.confirmation is None else self.confirmation.to_json(),
            "reproduced": self.reproduced,
            "attempts": self.attempts,
            "settings": self.settings,
            **({"hypotheses": [one.to_json() for one in self.hypotheses]} if self.hypotheses else {}),
            "out_of_time": self.found.out_of_time,
            "shots": self.shots,
            "tokens": self.tokens,
            "seconds": round(self.seconds, 1),
            "engine_starts": self.engine_starts,
            "steps": [step.to_json() for step in self.found.steps],
        }


def confirm(oracle: Oracle, found: Found, setup: Setup, goal: Goal) -> Confirmation:
    """Takes new shots at the case that was found, and chooses the rounds of the plan from them. (0, 0) without time,
    and where it ended before a failure: so few shots without one say nothing against the case.

    How many shots is settled before the first of them, from the search's: then their share is what it seems. Enough
    rounds for the goal as `predictive` has it, as far as they fit into the budget. Raises BackendError, Interrupted.
    """
    assert found.case is not None
    wanted = FEWEST_SHOTS
    if not found.deterministic:
        wanted = max(FEWEST_SHOTS, round(min(MOST_SHOTS, WANTED_FAILURES / max(found.at_least, 0.01))))
    fresh = oracle.count(found.case, setup, wanted)
    affordable = max(FEWEST_ROUNDS, goal.tokens // max(1, found.case.tokens))
    rounds = goal.rounds(found.case)
    if not fresh.failures and fresh.shots < wanted:
        fresh = Fresh(0, 0)
    if fresh.shots:
        rounds = rounds_predicted(goal.probability, fresh.failures, fresh.shots, affordable)
    return Confirmation(fresh.failures, fresh.shots, rounds, fresh.alike, fresh.passed_over)


def reduced_plan(plan: Plan, case: Case, setup: Setup, rounds: int, tolerance: float) -> Plan:
    """The plan with this case and two arms: the one that fails, and its baseline.

    A positive control becomes an ordinary arm, by its name too: its fault is what this plan is about, so finding it is
    DIVERGED.
    """
    failing = setup.candidate
    name, variant = (one.replace(CONTROL, "-") for one in (failing.name, failing.variant))
    failing = replace(failing, name=name, variant=variant, control=None)
    return replace(
        plan,
        requests=case.requests,
        sampling=case.sampling,
        churn=case.churn,
        rounds=rounds,
        arms=(plan.arm(plan.baseline), failing),
        tolerance=tolerance,
        skipped=(),
    )
