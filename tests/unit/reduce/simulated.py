"""An engine that fails as it is told to: at a rate, and only where its condition holds."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from parity.plan import Arm, Model, Plan, Request, Sampling
from parity.records import Json
from parity.reduce.case import Case, CaseUnresolved, Setup, Shot, Unresolved, reference_of

Condition = Callable[[Case, Setup], bool]


def always(case: Case, setup: Setup) -> bool:
    return True


def needs(*names: str) -> Condition:
    """The fault needs these requests in the batch."""
    return lambda case, setup: set(names) <= {request.id for request in case.requests}


def speculates(case: Case, setup: Setup) -> bool:
    return "speculative_config" in setup.candidate.engine


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Simulated:
    """`rate`: chance per step that the fault shows, where `condition` holds. A shot takes max_tokens steps.

    A rate of 1 fails in every shot with the same output, as a deterministic engine does.
    """

    rate: float
    condition: Condition = always
    seed: int = 0
    refuses: Callable[[Setup], bool] = lambda setup: False
    dies: Callable[[Case], bool] = lambda case: False
    """The engine starts, and ends of this case."""
    deaths: int = 0
    clock: Clock = field(default_factory=Clock)
    shots: list[tuple[Case, Setup]] = field(default_factory=list)
    kind: str = "duplication"

    def __post_init__(self) -> None:
        self._draw = random.Random(self.seed)

    def shot(self, case: Case, setup: Setup, number: int) -> Shot:
        if self.refuses(setup):
            raise Unresolved("the engine does not like it")
        if self.dies(case):
            self.deaths += 1
            raise CaseUnresolved("fake/mtp: the worker ended while trying a case")
        self.shots.append((case, setup))
        steps = max(case.limit(request) for request in case.requests)
        self.clock.now += 0.05 * steps
        hits = [step for step in range(steps) if self.rate >= 1 or self._draw.random() < self.rate]
        failed = bool(hits) and self.condition(case, setup)
        return Shot(
            failed,
            (self.kind,) if failed else (),
            case.requests[0].id if failed else None,
            hits[0] if failed else None,
            tokens=steps * len(case.requests),
            seconds=0.05 * steps,
            streams=repr((case.digest(), hits)) if failed else case.digest(),
        )


def plan(requests: int = 64, prompt: int = 12, max_tokens: int = 32, rounds: int = 4, **sampling: Json) -> Plan:
    """A plan with arms fake/base and fake/mtp, which differ in speculation and in two settings that do not matter."""
    engine: Mapping[str, Json] = {"max_num_seqs": 64, "seed": 0, "enforce_eager": True}
    base = Arm("fake/base", "fake", "base", engine, {"A": "1"})
    mtp = Arm(
        "fake/mtp",
        "fake",
        "mtp",
        {
            **engine,
            "max_num_seqs": 16,
            "speculative_config": {"method": "mtp", "num_speculative_tokens": 2},
            "per_request_spec_decode_metrics": "detailed",
        },
        {"A": "2"},
    )
    return Plan(
        model=Model("tiny", "/nowhere", {}, 2048, (0,)),
        requests=tuple(
            Request(f"r{index}", f"prompt {index}", tuple(range(3 + index, 3 + index + prompt)))
            for index in range(requests)
        ),
        arms=(base, mtp),
        baseline="fake/base",
        sampling=Sampling(max_tokens=max_tokens, **sampling),
        rounds=rounds,
    )


def case_of(made: Plan) -> Case:
    return Case(made.requests, made.sampling, made.churn)


def setup_of(made: Plan) -> Setup:
    return Setup(made.arm("fake/mtp"), reference_of(made.arm("fake/base")))
