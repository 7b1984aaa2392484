"""The arms of a plan: backends × variants × axes, and those combinations that cannot run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from parity.errors import ParityError
from parity.messages import Message, joined, message
from parity.pipeline.deployed import arm_settings
from parity.plan import Arm, Plan
from parity.plan.matrix import SPECULATION, Axis, Point, apply, check_axes, contradiction, points
from parity.plan.parts import Skipped
from parity.plan.variants import DEPLOYED, SPECULATION_DECIDES, Variant, resolve
from parity.records import Json
from parity.records.control import CONTROL
from parity.records.deployment import Deployment
from parity.records.engine_settings import speculates
from parity.run import Backend, OwnSettings, impossible
from parity.secrecy import secret_settings

Planned = tuple[Arm, Point]
"""An arm with the adapter's settings, and the point of the matrix that goes on top of the plan's own."""


@dataclass(frozen=True, slots=True)
class OwnArm:
    """An arm of a backend with settings of its own, such as a server: named by the user, one by one."""

    backend: str
    variant: str
    settings: Mapping[str, Json]

    @property
    def name(self) -> str:
        return f"{self.backend}/{self.variant}"


def own_arms(wanted: Sequence[OwnArm], backends: Mapping[str, Backend]) -> list[Planned]:
    """Arms with settings of their own, checked by their adapters. Raises ParityError."""
    arms = []
    for one in wanted:
        backend = backends[one.backend]
        if not isinstance(backend, OwnSettings):
            raise ParityError(
                message(
                    "pipeline.backend_no_settings",
                    "backend {backend!r} has no settings of its own",
                    backend=one.backend,
                ),
                hint=message("pipeline.use_engine_key", "use --engine KEY=VALUE"),
            )
        env = backend.env_defaults(one.variant)
        arms.append((Arm(one.name, one.backend, one.variant, backend.arm_settings(one.settings), env), Point()))
    return arms


def planned_arms(
    backends: Mapping[str, Backend],
    variants: Sequence[str],
    axes: Sequence[Axis],
    named: Mapping[str, Variant],
    *,
    num_speculative_tokens: int,
    overrides: Mapping[str, Json],
    deployed: Mapping[str, Deployment] | None = None,
) -> list[Planned]:
    """An arm for each backend, variant and point. Raises ParityError for an unknown variant, a double axis, ….

    An axis over num_speculative_tokens takes the place of `base` and `mtp`: 0 is the one, more the other.
    Variants of the configuration stand beside it, each with the other axes only. `deployed`: by backend, what its
    engine is asked for in production.
    """
    check_axes(axes, overrides)
    arms: list[Planned] = []
    grid = points(axes)
    speculation = any(axis.name == SPECULATION for axis in axes)
    own = [name for name in variants if not (speculation and name in SPECULATION_DECIDES)]
    for name, backend in backends.items():
        like = (deployed or {}).get(name)
        if isinstance(backend, OwnSettings):
            for variant in backend.variants:
                given = backend.engine_defaults(variant, num_speculative_tokens=num_speculative_tokens)
                arms += own_arms([OwnArm(name, variant, given)], backends)
            continue
        if speculation:
            arms += [
                (
                    _arm(name, backend, Variant("", "mtp" if point.num_speculative_tokens else "base"), point, 1, like),
                    point,
                )
                for point in grid
            ]
        others = list({rest.label(): rest for rest in (point.without(SPECULATION) for point in grid)}.values())
        arms += [
            (_arm(name, backend, resolve(variant, named), point, num_speculative_tokens, like), point)
            for variant in own
            for point in others
        ]
    return arms


def _arm(
    name: str, backend: Backend, variant: Variant, point: Point, num_speculative_tokens: int, like: Deployment | None
) -> Arm:
    tokens = point.num_speculative_tokens or variant.num_speculative_tokens or num_speculative_tokens
    label = point.label(variant.name)
    engine, env = arm_settings(
        variant.extends,
        like,
        backend.engine_defaults(variant.extends, num_speculative_tokens=tokens),
        backend.env_defaults(variant.extends),
    )
    return Arm(
        name=f"{name}/{label}",
        backend=name,
        variant=label,
        engine={**engine, **variant.engine},
        env={**env, **variant.env},
        deployed=variant.extends == DEPLOYED,
    )


def settled(
    arms: Sequence[Arm], planned: Sequence[Planned], backends: Mapping[str, Backend], config: Mapping[str, Json]
) -> tuple[list[Arm], list[Skipped]]:
    """The plan's arms with their points on top, and those that no engine could run, with the reason.

    `config`: the checkpoint's config.json.
    """
    where = {arm.name: point for arm, point in planned}
    kept: list[Arm] = []
    reasons: dict[str, Message] = {}
    for arm in arms:
        varied = apply(arm, where.get(arm.name, Point()))
        reason = contradiction(varied.engine) or impossible(backends[arm.backend], varied.engine, config)
        if reason is None:
            kept.append(varied)
        else:
            reasons[arm.name] = reason
    _check_left(kept, reasons)
    return kept, [Skipped(arm, reason) for arm, reason in reasons.items()]


def left_of(plan: Plan, reasons: Mapping[str, Message]) -> Plan:
    """The plan without the arms that cannot run for these reasons, by their names. Raises ParityError where that leaves
    nothing to compare, or not the baseline."""
    if not reasons:
        return plan
    if plan.baseline in reasons:
        raise baseline_cannot_run(plan.baseline, reasons[plan.baseline])
    kept = tuple(arm for arm in plan.arms if arm.name not in reasons)
    _check_left(kept, reasons)
    skipped = (*plan.skipped, *(Skipped(arm, reason) for arm, reason in reasons.items()))
    return replace(plan, arms=kept, skipped=skipped)


def baseline_cannot_run(arm: str, reason: Message) -> ParityError:
    return ParityError(
        message(
            "pipeline.baseline_cannot_run",
            "the baseline {asked} cannot run: {asked_2}",
            asked=arm,
            asked_2=reason,
        ),
        hint=message("pipeline.name_another_baseline", "name another with --baseline"),
    )


def _check_left(kept: Sequence[Arm], reasons: Mapping[str, Message]) -> None:
    """Raises ParityError where fewer than two arms are left."""
    listed = joined([part for arm, reason in reasons.items() for part in (f"\n  {arm}: ", reason)], by="")
    if reasons and not kept:
        raise ParityError(
            message("pipeline.none_arms_can", "none of the arms can run:{listed}", listed=listed),
            hint=message("pipeline.vary_other_settings", "vary other settings, or use another backend"),
        )
    if len(kept) == 1 and reasons:
        raise ParityError(
            message(
                "pipeline.only_can_run",
                "only {kept} can run, and one arm has nothing to be compared with; skipped:{listed}",
                kept=kept[0].name,
                listed=listed,
            ),
            hint=message("pipeline.vary_other_settings", "vary other settings, or use another backend"),
        )


def check_no_secrets(arms: Sequence[Arm]) -> None:
    """Raises ParityError for arms whose settings or variables hold a secret: plans, captures and reports hold them."""
    found = {name: None for arm in arms for name in secret_settings({**arm.engine, "env": dict(arm.env)})}
    if found:
        raise ParityError(
            message(
                "pipeline.secret_setting",
                "{names}: a secret, and settings of arms are written into plans, captures and reports",
                names=list(found),
            ),
            hint=message(
                "pipeline.secret_setting_hint",
                "set it in the environment that parity is started in (HF_TOKEN=… parity run …), or for a host under "
                "[backends.NAME.env] of parity.toml",
            ),
        )


def check_lengths(arms: Sequence[Arm], needed: int) -> None:
    """Raises ParityError for an arm whose own max_model_len is too short for the requests."""
    for arm in arms:
        length = arm.engine.get("max_model_len")
        if isinstance(length, int) and 0 <= length < needed:  # -1: the engine chooses
            raise ParityError(
                message(
                    "pipeline.max_model_len",
                    "{arm}: max_model_len {length} is too short, the requests need {needed}",
                    arm=arm.name,
                    length=length,
                    needed=needed,
                ),
                hint=message("pipeline.vary_there_up", "vary it from there up, or shorten prompts and --max-tokens"),
            )


def default_baseline(arms: Sequence[Arm]) -> str | None:
    """The first backend's `base`, else its first arm without speculation; None leaves it to the plan."""
    if not arms:
        return None
    mine = [arm for arm in arms if arm.backend == arms[0].backend and not arm.control]
    plain = [arm for arm in mine if arm.variant == "base"] or [a for a in mine if not speculates(a.engine)]
    return plain[0].name if plain else None


def control_arm(arm: Arm, fault: str, backend: Backend) -> Arm:
    """A copy of an arm with a fault planted in its engine. Raises ParityError for an unknown fault."""
    variant = f"{arm.variant}{CONTROL}{fault.partition(':')[0]}"
    return replace(
        arm,
        name=f"{arm.backend}/{variant}",
        variant=variant,
        env={**arm.env, **backend.plant(fault)},
        control=fault,
    )
