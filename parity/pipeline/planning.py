"""From what the user asked for to a plan: asks the adapters for their defaults, starts nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from parity.errors import ParityError
from parity.plan import (
    Arm,
    Plan,
    Sampling,
    Score,
    build_plan,
    check_fingerprint,
    load_prompts,
    load_suite,
    read_checkpoint,
)
from parity.records import Json
from parity.run import Backend, load_backend

DEFAULT_SUITE = "mixed"


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """What the user asked for; docs/command-line.md says what each means."""

    backends: Sequence[str] = ("cpu",)
    variants: Sequence[str] = ("base", "mtp")
    baseline: str | None = None
    model: Path | None = None
    prompts: Path | None = None
    suite: str | None = None
    num_speculative_tokens: int = 2
    sampling: Sampling = field(default_factory=Sampling)
    rounds: int = 1
    score: str = "all"
    tolerance: float | str | None = None
    engine: Mapping[str, Json] = field(default_factory=dict)
    positive_controls: Sequence[str] = ()
    """Faults to plant in a copy of each backend's last variant: `NAME[:rate=R]`."""


def load_backends(names: Sequence[str]) -> dict[str, Backend]:
    """The adapters by name, in this order. Raises ParityError for an unknown one."""
    return {name: load_backend(name) for name in names}


def make_plan(request: PlanRequest, backends: Mapping[str, Backend]) -> Plan:
    """A checked plan for this request. Raises ParityError for anything that does not fit."""
    if request.prompts is not None and request.suite is not None:
        raise ParityError("both --prompts and --suite were given", hint="give one of them")
    arms = [
        Arm(
            name=f"{name}/{variant}",
            backend=name,
            variant=variant,
            engine=backend.engine_defaults(variant, num_speculative_tokens=request.num_speculative_tokens),
            env=backend.env_defaults(variant),
        )
        for name, backend in backends.items()
        for variant in request.variants
    ]
    arms += [
        _control(arm, fault, backends[arm.backend])
        for arm in arms
        if arm.variant == request.variants[-1]
        for fault in request.positive_controls
    ]
    prompts = load_prompts(request.prompts) if request.prompts else load_suite(request.suite or DEFAULT_SUITE)
    checkpoint = read_checkpoint(request.model or default_model(backends))
    return build_plan(
        checkpoint,
        prompts,
        arms,
        baseline=request.baseline,
        sampling=request.sampling,
        rounds=request.rounds,
        score=Score(mode=request.score),
        tolerance=request.tolerance,
        overrides=request.engine,
    )


def _control(arm: Arm, fault: str, backend: Backend) -> Arm:
    """A copy of an arm with a fault planted in its engine. Raises ParityError for an unknown fault."""
    name = fault.partition(":")[0]
    variant = f"{arm.variant}-control-{name}"
    return replace(
        arm,
        name=f"{arm.backend}/{variant}",
        variant=variant,
        env={**arm.env, **backend.plant(fault)},
        control=fault,
    )


def default_model(backends: Mapping[str, Backend]) -> Path:
    """The checkpoint of the first backend that has one. Raises ParityError where none does."""
    for backend in backends.values():
        model = backend.default_model()
        if model is not None:
            return model
    raise ParityError(
        f"no model was named, and {', '.join(backends)} has no default one",
        hint="give --model the directory of a checkpoint",
    )


def locate_model(plan: Plan, override: Path | None, backends: Mapping[str, Backend]) -> Plan:
    """The plan with the checkpoint's path on this machine, its content checked against the plan's.

    Looks at `override`, then where the plan says, then at the backends' own checkpoint of that name.
    """
    places = [override] if override is not None else [Path(plan.model.path)]
    if override is None:
        places += [
            model
            for backend in backends.values()
            if (model := backend.default_model()) is not None and model.name == plan.model.name
        ]
    for place in places:
        if place.expanduser().is_dir():
            found = read_checkpoint(place).model
            check_fingerprint(plan.model, found)
            return plan.with_model_path(found.path)
    raise ParityError(
        f"the plan's model {plan.model.name!r} is not at {places[0]}",
        hint="name its directory on this machine with --model DIR",
    )
