"""Where a plan's checkpoint is on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from parity.errors import ParityError
from parity.messages import message
from parity.paths import expanded
from parity.plan import Plan, check_fingerprint, read_checkpoint
from parity.run import Backend


def default_model(backends: Mapping[str, Backend]) -> Path:
    """The checkpoint of the first backend that has one. Raises ParityError where none does."""
    for backend in backends.values():
        model = backend.default_model()
        if model is not None:
            return model
    raise ParityError(
        message(
            "pipeline.no_model_named", "no model was named, and {backends} has no default one", backends=list(backends)
        ),
        hint=message("pipeline.give_model_directory", "give --model the directory of a checkpoint"),
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
        if expanded(place).is_dir():
            found = read_checkpoint(place, weights="weights" in plan.model.fingerprint).model
            check_fingerprint(plan.model, found)
            return plan.with_model_path(found.path)
    raise ParityError(
        message(
            "pipeline.plans_model_not",
            "the plan's model {model!r} is not at {places}",
            model=plan.model.name,
            places=str(places[0]),
        ),
        hint=message("pipeline.name_directory_machine", "name its directory on this machine with --model DIR"),
    )
