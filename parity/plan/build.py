"""From prompts, arms and settings to a checked plan."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from parity.errors import ParityError
from parity.messages import message
from parity.plan.checkpoint import Checkpoint
from parity.plan.parts import Arm, Request, Score
from parity.plan.prompts import Prompt
from parity.plan.requests import tokenise
from parity.plan.types import Plan
from parity.records import DEFAULT_TOLERANCE, Json
from parity.records.engine_settings import pinned_settings
from parity.records.sampling import Sampling

LENGTH_STEP = 64
"""max_model_len is rounded up to a multiple of this, so that plans of similar prompts share a setting."""

OF_CHECKPOINT = message("plan.of_checkpoint", "the checkpoint's max_position_embeddings")


def build_plan(
    checkpoint: Checkpoint,
    prompts: Sequence[Prompt],
    arms: Sequence[Arm],
    *,
    baseline: str | None = None,
    sampling: Sampling | None = None,
    rounds: int = 1,
    score: Score | None = None,
    tolerance: float | str | None = None,
    overrides: Mapping[str, Json] | None = None,
    own: Collection[str] = (),
) -> Plan:
    """A checked plan in which every arm gets the same token ids.

    `arms` carry the adapters' engine defaults; `overrides` are engine settings of the user's, which win in
    every arm but those of the backends in `own`, whose settings are their own, and those that are deployed, where they
    stand below what the deployment asks for. max_model_len, where not
    overridden, is what the longest request needs, within the bound of the checkpoint. Without `baseline` the
    first backend's `base` is it, else the first arm.

    Raises ParityError naming the prompt that does not fit, the setting left open, and so on.
    """
    sampling = sampling or Sampling()
    score = score or Score()
    requests = tokenise(prompts, checkpoint.model.path)
    if checkpoint.primary_eos is not None:
        # With generation_config="vllm" an engine stops by itself only at the tokenizer's EOS.
        others = set(checkpoint.model.eos_token_ids) - {checkpoint.primary_eos}
        requests = [_ending(request, sampling, others) for request in requests]
        if not sampling.ignore_eos:
            sampling = replace(sampling, stop_token_ids=_with(sampling.stop_token_ids, others))
    room = 0 if score.mode == "none" else 1
    settings = _for_every_arm(overrides or {}, requests, sampling.max_tokens + room, checkpoint.max_positions)
    if not room and "max_model_len" not in (overrides or {}):  # to score, if somebody asks for it when the run is over
        length = settings["max_model_len"]
        settings["max_model_len"] = min(length + 1, checkpoint.max_positions or length + 1)
    pinned = tuple(arm if arm.backend in own else _with_settings(arm, settings, overrides or {}) for arm in arms)
    _check_pinned([arm for arm in pinned if arm.backend not in own and not arm.deployed])
    plan = Plan(
        model=checkpoint.model,
        requests=tuple(requests),
        arms=pinned,
        baseline=baseline or _default_baseline(pinned),
        sampling=sampling,
        rounds=rounds,
        score=score,
        tolerance=DEFAULT_TOLERANCE if tolerance is None else tolerance,
    )
    plan.check()
    return plan


def _with_settings(arm: Arm, settings: Mapping[str, Json], overrides: Mapping[str, Json]) -> Arm:
    engine = {**overrides, **arm.engine} if arm.deployed else {**arm.engine, **settings}
    return replace(arm, engine=engine)


def _for_every_arm(
    overrides: Mapping[str, Json], requests: Sequence[Request], extra: int, bound: int | None
) -> dict[str, Json]:
    """The engine settings of every arm that has not its own. Raises ParityError."""
    settings = dict(overrides)
    for name in ("model", "speculative_config"):
        if name in settings:
            raise ParityError(
                message("plan.cannot_set_every", "{name} cannot be set for every arm", name=name),
                hint=message("plan.use_model_variants", "use --model, --variants and -k for that"),
            )
    asked = settings.get("max_model_len")
    if asked is not None and (isinstance(asked, bool) or not isinstance(asked, int) or asked < 1):
        raise ParityError(
            message("plan.max_model_len", "max_model_len is {asked!r}", asked=asked),
            hint=message("plan.give_number_tokens", "give a number of tokens"),
        )
    settings["max_model_len"] = _max_model_len(requests, extra, bound, asked)
    return settings


def _check_pinned(arms: Sequence[Arm]) -> None:
    """Raises ParityError for a setting that an arm leaves open."""
    for arm in arms:
        missing = [name for name in pinned_settings() if name not in arm.engine]
        if missing:
            raise ParityError(
                message(
                    "plan.arm_leaves_engines",
                    "the arm {arm} leaves {missing} to the engine's default, which differs between hosts and versions",
                    arm=arm.name,
                    missing=missing,
                ),
                hint=message("plan.pin_engine_value", "pin it with --engine {missing}=VALUE", missing=missing[0]),
            )


def _ending(request: Request, sampling: Sampling, others: set[int]) -> Request:
    """The request with the checkpoint's further EOS ids in its own `stop_token_ids`, where it says how it ends."""
    if not {"ignore_eos", "stop_token_ids"} & set(request.sampling):
        return request
    own = sampling.having(request.sampling)
    ids = own.stop_token_ids if own.ignore_eos else _with(own.stop_token_ids, others)
    return replace(request, sampling={**request.sampling, "stop_token_ids": ids})


def _with(ids: Collection[int], others: Collection[int]) -> tuple[int, ...]:
    return tuple(sorted({*ids, *others}))


def _default_baseline(arms: Sequence[Arm]) -> str:
    if not arms:
        raise ParityError(
            message("plan.plan_no_arms", "the plan has no arms"),
            hint=message("plan.name_backend_such", "name a backend, such as --backends cpu"),
        )
    first = arms[0].backend
    return next((arm.name for arm in arms if arm.backend == first and arm.variant == "base"), arms[0].name)


def _max_model_len(requests: Sequence[Request], extra: int, bound: int | None, asked: int | None) -> int:
    """The length every arm is started with. `extra`: tokens generated, and one for scoring."""
    if asked is not None and bound is not None and asked > bound:
        raise ParityError(
            message(
                "plan.max_model_len_checkpoints",
                "max_model_len is {asked}, the checkpoint's max_position_embeddings is {bound}",
                asked=asked,
                bound=bound,
            ),
            hint=message("plan.use_less", "use {bound} or less", bound=bound),
        )
    limit = asked if asked is not None else bound
    longest = max(requests, key=lambda r: len(r.prompt_token_ids), default=None)
    if longest is None:
        raise ParityError(
            message("plan.there_no_prompts", "there are no prompts"),
            hint=message("plan.give_some_prompts", "give some with --prompts FILE or --suite NAME"),
        )
    length = len(longest.prompt_token_ids)
    if limit is not None and length + extra > limit:
        what = "max_model_len" if asked is not None else OF_CHECKPOINT
        if length >= limit:
            raise ParityError(
                message(
                    "plan.prompt_tokens_longer",
                    "the prompt {longest!r} has {length} tokens, longer than {what} of {limit} allows",
                    longest=longest.id,
                    length=length,
                    what=what,
                    limit=limit,
                ),
                hint=message("plan.shorten_or_raise", "shorten or remove the prompt, or raise --max-model-len")
                if asked is not None and asked != bound
                else message("plan.shorten", "shorten or remove the prompt"),
            )
        raise ParityError(
            message(
                "plan.prompt_tokens_more",
                "the prompt {longest!r} has {length} tokens; with {extra} more for the output (and "
                "one for scoring it) that is over {what} of {limit}",
                longest=longest.id,
                length=length,
                extra=extra,
                what=what,
                limit=limit,
            ),
            hint=message(
                "plan.set_max_tokens",
                "set --max-tokens to at most {length}, or shorten the prompt",
                length=max(0, limit - length - 1),
            ),
        )
    if asked is not None:
        return asked
    needed = -(-(length + extra) // LENGTH_STEP) * LENGTH_STEP
    return needed if bound is None else min(needed, bound)
