"""From what the user asked for to a plan: asks the adapters for their defaults, starts nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

from parity.errors import ParityError
from parity.messages import message
from parity.pipeline.arbitrate import with_arbiter
from parity.pipeline.arms import (
    OwnArm,
    Planned,
    baseline_cannot_run,
    check_lengths,
    check_no_secrets,
    control_arm,
    default_baseline,
    own_arms,
    planned_arms,
    settled,
)
from parity.pipeline.checkpoints import default_model
from parity.pipeline.deployed import deployments, served_model, with_ladder
from parity.pipeline.recorded import Questions
from parity.pipeline.samples import repeated, samples_of, with_lists, with_usual
from parity.plan import (
    Arm,
    Plan,
    Prompt,
    Sampling,
    Score,
    build_plan,
    load_prompts,
    load_suite,
    read_checkpoint,
)
from parity.plan.churn import ChurnRequest, output_limit
from parity.plan.matrix import Axis
from parity.plan.variants import DEPLOYED, Variant
from parity.records import Json
from parity.records.deployment import Deployment
from parity.records.words import of_arms
from parity.run import Backend, Checking, Foreseeing, OfCheckpoint, OwnSettings, Seeded, load_backend

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
    score_top: int | None = None
    """Tokens that a score lists; None: the plan's default, or `samples.LONG_LIST` where requests need it."""
    tolerance: float | str | None = None
    engine: Mapping[str, Json] = field(default_factory=dict)
    positive_controls: Sequence[str] = ()
    """Faults to plant in a copy of each backend's last variant: `NAME[:rate=R]`."""
    vary: Sequence[Axis] = ()
    named_variants: Mapping[str, Variant] = field(default_factory=dict)
    """Variants of the configuration file, by name."""
    samples: int = 1
    """Completions of each prompt per round: `n` where sampling is random, else copies of the request."""
    churn: ChurnRequest = field(default_factory=ChurnRequest)
    record: bool | str = False
    """Whether the engines' steps are recorded: all of them (True), or "ring"."""
    sketch: str = ""
    """Of which modules activations are sketched, one of `parity.plan.types.SKETCHED` or none."""
    own: Sequence[OwnArm] = ()
    """Servers and recordings, each an arm beside those of `backends`."""
    arbiter: str | None = None
    """A backend that scores both sides where they differ."""
    usual: Sequence[str] = ()
    """Sampling parameters of which the user said nothing and that have a usual value (`Parameter.usual`)."""
    questions: Questions | None = None
    """Prompts of a recording, which take the place of `prompts` and `suite`."""
    like: str | None = None
    """A `vllm serve` command line, a recipe file or a server's URL: how production runs the engine."""
    ladder: bool = False
    """Arms between `base` and `deployed`, one setting each."""


def load_backends(names: Sequence[str]) -> dict[str, Backend]:
    """The adapters by name, in this order. Raises ParityError for an unknown one."""
    return {name: load_backend(name) for name in names}


def make_plan(request: PlanRequest, backends: Mapping[str, Backend]) -> Plan:
    """A checked plan for this request. Raises ParityError for anything that does not fit."""
    engines = _engines(request, backends)
    found = deployments(request.like, engines)
    planned = _all_arms(request, backends, engines, found)
    arms = [arm for arm, _ in planned]
    prompts = _prompts(request)
    model = request.model or served_model(found) or default_model(backends)
    checkpoint = read_checkpoint(model, weights=_need_weights(request, backends))
    sampling, copies = samples_of(request.sampling, request.samples)
    overrides = _overrides(request)
    _check_values(arms, overrides, backends)
    plan = build_plan(
        checkpoint,
        repeated(prompts, copies),
        arms,
        baseline=request.baseline or default_baseline(arms),
        sampling=with_usual(sampling, request.usual, [backends[arm.backend] for arm in arms]),
        rounds=request.rounds,
        score=Score(mode=request.score),
        tolerance=request.tolerance,
        overrides=overrides,
        own={name for name, backend in backends.items() if isinstance(backend, OwnSettings)},
    )
    plan = replace(plan, set_aside=tuple(dict.fromkeys(chain.from_iterable(one.aside for one in found.values()))))
    plan = _with_seeds(plan, backends, _asked_for(request, overrides))
    plan = _for_checkpoint(plan, backends, checkpoint.config)
    plan = with_ladder(plan) if request.ladder else plan
    check_images(plan, backends)
    plan = with_lists(with_arbiter(plan, request.arbiter), request.score_top)
    plan = _settled(plan, planned, backends, request.baseline, checkpoint.config)
    _check_values(plan.arms, {}, backends)  # of an axis as well
    _foresee(plan, backends)
    return _with_churn(plan, request)


def _engines(request: PlanRequest, backends: Mapping[str, Backend]) -> dict[str, Backend]:
    """Without those whose arms were named one by one: these give no others."""
    return {name: backend for name, backend in backends.items() if name not in {one.backend for one in request.own}}


def _all_arms(
    request: PlanRequest,
    backends: Mapping[str, Backend],
    engines: Mapping[str, Backend],
    found: Mapping[str, Deployment],
) -> list[Planned]:
    """Arms of engines, servers and recordings, and the positive controls."""
    planned = planned_arms(
        engines,
        _variants(request),
        request.vary,
        request.named_variants,
        num_speculative_tokens=request.num_speculative_tokens,
        overrides=request.engine,
        deployed=found,
    )
    planned += own_arms(request.own, backends)
    if request.positive_controls and not engines:
        raise ParityError(
            message(
                "pipeline.no_engine_to_plant_in",
                "the positive control {fault} needs an engine to plant it in, and {arms} start none",
                fault=request.positive_controls[0],
                arms=[arm.name for arm, _ in planned],
            ),
            hint=message(
                "pipeline.plant_elsewhere",
                "add a backend that starts its own engine, such as --backends cpu, or drop it",
            ),
        )
    planned += [
        (control_arm(last, fault, backends[name]), point)
        for name in engines
        for last, point in [one for one in planned if one[0].backend == name][-1:]
        for fault in request.positive_controls
    ]
    return planned


def _prompts(request: PlanRequest) -> Sequence[Prompt]:
    if request.prompts is not None and request.suite is not None:
        raise ParityError(
            message("pipeline.both_prompts_suite", "both --prompts and --suite were given"),
            hint=message("pipeline.give_one_them", "give one of them"),
        )
    if request.questions is not None:
        return request.questions.prompts
    return load_prompts(request.prompts) if request.prompts else load_suite(request.suite or DEFAULT_SUITE)


def _overrides(request: PlanRequest) -> dict[str, Json]:
    """Engine settings for every arm: the user's, and the KV space of churn."""
    if request.churn.kv_blocks is None:
        return dict(request.engine)
    if "num_gpu_blocks_override" in request.engine:
        raise ParityError(
            message("pipeline.kv_space_given", "the KV space was given twice"),
            hint=message("pipeline.drop_engine_num", "drop --engine num_gpu_blocks_override=…"),
        )
    return {**request.engine, "num_gpu_blocks_override": request.churn.kv_blocks}


def _asked_for(request: PlanRequest, overrides: Mapping[str, Json]) -> set[str]:
    """Names of the engine settings of which the user said something."""
    variants = (variant.engine for variant in request.named_variants.values())
    return {*overrides, *(axis.name for axis in request.vary), *chain.from_iterable(variants)}


def _variants(request: PlanRequest) -> Sequence[str]:
    """Those asked for; a ladder stands between two of them. Raises ParityError."""
    if not request.ladder:
        return request.variants
    if request.vary:
        raise ParityError(
            message("pipeline.ladder_and_axes", "--ladder and --vary were both given"),
            hint=message("pipeline.ladder_varies", "the ladder varies one setting after another itself: drop --vary"),
        )
    return tuple(dict.fromkeys(("base", *request.variants, DEPLOYED)))


def _with_seeds(plan: Plan, backends: Mapping[str, Backend], asked: set[str]) -> Plan:
    """The plan with what backends need for sampling with seeds; where a setting of it was asked for, all stay."""
    each = ({**plan.sampling.to_json(), **request.sampling} for request in plan.requests)
    if plan.sampling.seed is None or not any(one["temperature"] for one in each):
        return plan
    arms = []
    for arm in plan.arms:
        backend = backends[arm.backend]
        engine = backend.for_seeds(arm.engine) if isinstance(backend, Seeded) else arm.engine
        changed = {name for name, value in engine.items() if arm.engine.get(name) != value}
        arms.append(arm if changed & asked else replace(arm, engine=engine))
    return replace(plan, arms=tuple(arms))


def _for_checkpoint(plan: Plan, backends: Mapping[str, Backend], config: Mapping[str, Json]) -> Plan:
    """The plan with what backends need for its checkpoint."""
    arms = []
    for arm in plan.arms:
        backend = backends[arm.backend]
        engine = backend.for_checkpoint(arm.engine, config) if isinstance(backend, OfCheckpoint) else arm.engine
        arms.append(replace(arm, engine=engine))
    return replace(plan, arms=tuple(arms))


def _check_values(arms: Sequence[Arm], overrides: Mapping[str, Json], backends: Mapping[str, Backend]) -> None:
    """Raises ParityError, with the arm's name, for a value that an argument of its engine cannot take."""
    for arm in arms:
        backend = backends[arm.backend]
        if isinstance(backend, Checking):
            try:
                backend.check_values({**arm.engine, **overrides})
            except ParityError as error:
                raise ParityError(of_arms([arm.name], error.message), hint=error.hint) from None


def _foresee(plan: Plan, backends: Mapping[str, Backend]) -> None:
    """Raises ParityError, with the arm's name, for a mistake that a backend knows before its engine starts."""
    for arm in plan.arms:
        backend = backends[arm.backend]
        if isinstance(backend, Foreseeing):
            try:
                backend.foresee(arm.engine, Path(plan.model.path))
            except ParityError as error:
                raise ParityError(of_arms([arm.name], error.message), hint=error.hint) from None


def _settled(
    plan: Plan,
    planned: Sequence[Planned],
    backends: Mapping[str, Backend],
    asked: str | None,
    config: Mapping[str, Json],
) -> Plan:
    """The plan with the matrix applied, and what cannot run left out with its reason."""
    check_no_secrets(plan.arms)
    kept, skipped = settled(plan.arms, planned, backends, config)
    check_no_secrets(kept)
    room = 0 if plan.score.mode == "none" else 1
    check_lengths(kept, max(len(r.prompt_token_ids) for r in plan.requests) + plan.sampling.max_tokens + room)
    reasons = {one.arm: one.reason for one in skipped}
    if asked in reasons:
        raise baseline_cannot_run(asked, reasons[asked])
    baseline = plan.baseline if plan.baseline not in reasons else default_baseline(kept) or kept[0].name
    return replace(plan, arms=tuple(kept), baseline=baseline, skipped=tuple(skipped))


def _with_churn(plan: Plan, request: PlanRequest) -> Plan:
    """The plan with its churn, and each request's own output limit where lengths are mixed."""
    seed, limit = request.sampling.seed or 0, plan.sampling.max_tokens
    churn = request.churn.churn(seed, limit)
    if churn.needle is not None and request.samples > 1 and request.sampling.temperature == 0:
        churn = replace(churn, needle=f"{churn.needle}#1")
    lengths = request.churn.lengths(limit)
    requests = plan.requests
    if lengths is not None:
        requests = tuple(replace(one, max_tokens=output_limit(lengths, seed, one.id)) for one in requests)
    plan = replace(plan, requests=requests, churn=churn, record=request.record, sketch=request.sketch)
    plan.check()
    return plan


def _need_weights(request: PlanRequest, backends: Mapping[str, Backend]) -> bool:
    """Does an engine of ours load the checkpoint? Servers and recordings need its tokenizer only."""
    return request.arbiter is not None or any(
        not isinstance(backend, OwnSettings) or backend.loads_weights for backend in backends.values()
    )


def check_images(plan: Plan, backends: Mapping[str, Backend]) -> None:
    """Raises ParityError where a request has image parts and a backend takes none."""
    with_images = [request.id for request in plan.requests if request.has_images]
    if not with_images:
        return
    for name in dict.fromkeys(arm.name.partition("/")[0] for arm in plan.arms):
        backend = backends[name]
        if not (isinstance(backend, OwnSettings) and backend.takes_images):
            raise ParityError(
                message(
                    "pipeline.request_image_parts",
                    "request {with_images!r} has image parts, and backend {name!r} takes token ids only",
                    with_images=with_images[0],
                    name=name,
                ),
                hint=message(
                    "pipeline.images_go_servers",
                    "images go to servers (--server URL --server-option endpoint=chat), or leave these prompts out",
                ),
            )
