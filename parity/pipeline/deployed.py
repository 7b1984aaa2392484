"""Arms as production runs them, and the ladder that leads from the pinned arms to them, one setting a rung."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from parity.errors import ParityError
from parity.messages import Message, message
from parity.paths import expanded
from parity.plan import Arm, Plan
from parity.plan.matrix import ENVIRONMENT, Axis
from parity.plan.variants import DEPLOYED
from parity.records import Json, Verdict
from parity.records.deployment import Deployment
from parity.records.engine_settings import (
    draft_tokens,
    engine_settings,
    ours_beside_a_deployment,
    without_speculation,
)
from parity.run import Backend, Deployable, OwnSettings

SPECULATION = "speculative_config"
BASE = "base"


def deployments(source: str | None, backends: Mapping[str, Backend]) -> dict[str, Deployment]:
    """What `--like` names, as each backend's engine would be asked for it; {} without it. Raises ParityError."""
    if source is None:
        return {}
    found = {}
    for name, backend in backends.items():
        if isinstance(backend, Deployable):
            found[name] = backend.deployment(source)
        elif not isinstance(backend, OwnSettings):
            raise ParityError(
                message("pipeline.not_deployable", "backend {name!r} knows nothing of `vllm serve`", name=name),
                hint=message("pipeline.drop_like", "drop --like, or use a backend that starts vLLM"),
            )
    if not found:
        raise ParityError(
            message("pipeline.like_nobody", "--like names a deployment, and no arm starts an engine"),
            hint=message("pipeline.name_engine_backend", "name a backend that does: --backends cuda"),
        )
    return found


def served_model(found: Mapping[str, Deployment]) -> Path | None:
    """The checkpoint that the deployment serves; None where it names none. Raises ParityError where it is not here."""
    model = next((one.model for one in found.values() if one.model is not None), None)
    if model is None or expanded(model).is_dir():
        return None if model is None else expanded(model)
    raise ParityError(
        message(
            "pipeline.served_elsewhere", "the deployment serves {model!r}, which is no directory here", model=model
        ),
        hint=message("pipeline.name_its_directory", "name the checkpoint's directory on this machine with --model DIR"),
    )


def arm_settings(
    variant: str, deployment: Deployment | None, engine: Mapping[str, Json], env: Mapping[str, str]
) -> tuple[dict[str, Json], dict[str, str]]:
    """An adapter's settings for a variant, changed by a deployment.

    `deployed` is what the deployment asks for. Pinned arms stay pinned in how they run, and take over what is run:
    the precision, the quantisation, the devices that the model lies on, whatever is no `rung`.
    """
    if deployment is None:
        return dict(engine), dict(env)
    if variant == DEPLOYED:
        return {**without_speculation(engine), **deployment.engine}, {**env, **deployment.env}
    shared = {name: value for name, value in deployment.engine.items() if not ours_beside_a_deployment(name)}
    return {**engine, **shared}, {**deployment.env, **env}


# ------------------------------------------------------------------ the ladder


def with_ladder(plan: Plan) -> Plan:
    """The plan with the rungs of each backend between its `base` and its `deployed`."""
    arms: list[Arm] = []
    named = {arm.name: arm for arm in plan.arms}
    for arm in plan.arms:
        base = named.get(f"{arm.name.partition('/')[0]}/{BASE}")
        arms += rungs(base, arm) if arm.variant == DEPLOYED and base is not None else [arm]
    return replace(plan, arms=tuple(arms))


def rungs(base: Arm, deployed: Arm) -> list[Arm]:
    """Arms from `base`, which is not among them, to `deployed`, the last: each has one setting more of the latter's.

    Settings that decide nothing of how steps are made (sizes of caches, seeds) come with the last one.
    """
    found: list[Arm] = []
    engine, env = dict(base.engine), dict(base.env)
    place, changes = base.name.partition("/")[0], _changes(base, deployed)
    for number, name in enumerate(changes, 1):
        if name.startswith(ENVIRONMENT):
            variable = name.removeprefix(ENVIRONMENT)
            env = _with(env, deployed.env, variable)
            said = _said(variable, env)
        else:
            engine = _with(engine, deployed.engine, name)
            said = _said(name, engine)
        variant = f"{number}-{_label(name, engine, env)}"
        found.append(
            replace(deployed, name=f"{place}/{variant}", variant=variant, engine=dict(engine), env=dict(env), rung=said)
        )
    rest = [name for name in sorted({*engine, *deployed.engine}) if engine.get(name) != deployed.engine.get(name)]
    rest += [name for name in sorted({*env, *deployed.env}) if env.get(name) != deployed.env.get(name)]
    if rest or not found:
        return [*found, replace(deployed, rung=", ".join(rest) or None)]
    return [*found[:-1], replace(deployed, rung=found[-1].rung)]


def _changes(base: Arm, deployed: Arm) -> list[str]:
    """What a rung is made of, speculation first, then in the order of the table; variables last."""
    order = [SPECULATION, *(row.asked for row in engine_settings() if row.rung and row.decides)]
    engine = [name for name in dict.fromkeys(order) if base.engine.get(name) != deployed.engine.get(name)]
    variables = [name for name in sorted({*base.env, *deployed.env}) if base.env.get(name) != deployed.env.get(name)]
    return [*engine, *(ENVIRONMENT + name for name in variables)]


def _with(values: Mapping[str, Json], others: Mapping[str, Json], name: str) -> dict[str, Json]:
    """These values with one of the others'; without it where the others leave it to the engine."""
    rest = {key: value for key, value in values.items() if key != name}
    return {**rest, name: others[name]} if name in others else rest


def _said(name: str, values: Mapping[str, Json]) -> str:
    return f"{name}={json.dumps(values[name])}" if name in values else f"{name} unpinned"


def _label(name: str, engine: Mapping[str, Json], env: Mapping[str, str]) -> str:
    """As in the names of arms that are varied; without a value where it is left to the engine."""
    if name == SPECULATION:
        return f"k={draft_tokens(engine)}" if engine.get(name) else "k=0"
    values: Mapping[str, Json] = env if name.startswith(ENVIRONMENT) else engine
    plain = name.removeprefix(ENVIRONMENT)
    axis = Axis(name, ())
    return (axis.label(values[plain]) if plain in values else axis.short).removeprefix("VLLM_")


def first_rung(plan: Plan, verdicts: Mapping[str, Verdict]) -> list[Message]:
    """What the ladders of a run came to: the first rung that diverges, and what it adds to the one before it."""
    found = []
    for place in dict.fromkeys(arm.name.partition("/")[0] for arm in plan.arms if arm.rung):
        ladder = [arm for arm in plan.arms if arm.rung and arm.name.partition("/")[0] == place]
        found += _of_ladder([arm for arm in ladder if arm.name in verdicts], verdicts)
    return found


def _of_ladder(ladder: Sequence[Arm], verdicts: Mapping[str, Verdict]) -> list[Message]:
    for before, arm in zip((None, *ladder), ladder, strict=False):
        if verdicts[arm.name] is not Verdict.DIVERGED:
            continue
        if before is None:
            return [
                message(
                    "pipeline.first_of_all",
                    "ladder: {arm} diverges, the first rung: {setting}",
                    arm=arm.name,
                    setting=arm.rung,
                )
            ]
        return [
            message(
                "pipeline.first_rung",
                "ladder: {arm} is the first rung that diverges: {setting} on top of {before}, which is {verdict}",
                arm=arm.name,
                setting=arm.rung,
                before=before.name,
                verdict=str(verdicts[before.name]),
            )
        ]
    if ladder and all(verdicts[arm.name] is Verdict.PASS for arm in ladder):
        return [
            message(
                "pipeline.no_rung", "ladder: no rung diverges, up to {arm}, the deployed settings", arm=ladder[-1].name
            )
        ]
    return []
