"""Can a watch tell noise from a fault? Asked before the first probe: a watch that cannot is silent when it matters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from parity.capture import read_capture
from parity.messages import Message, message
from parity.paths import expanded
from parity.plan import Plan
from parity.plan.parts import Arm

REPLAY, SERVER = "replay", "server"


def warnings(plan: Plan) -> Iterator[Message]:
    """What keeps the watch from a verdict on tokens that differ; nothing where they can be judged. Raises ParityError
    for a recording that cannot be read."""
    baseline = plan.arm(plan.baseline)
    if plan.sampling.temperature:
        if baseline.backend == REPLAY or plan.score.mode == "none":
            yield _undrawn(plan, baseline)
        return
    if plan.arbiter is not None:
        return
    asked = plan.sampling.logprobs is not None
    if baseline.backend == REPLAY and not (asked and _has_logprobs(baseline)):
        yield message(
            "watch.unjudged_recording",
            "warning: tokens that differ from {arm} cannot be set apart from rounding, and such a probe is "
            "INCONCLUSIVE but where they prove a fault by themselves: make the recording with --logprobs 5, and "
            "watch with --logprobs 5",
            arm=baseline.name,
        )
    elif baseline.backend == SERVER and plan.score.mode == "none" and not asked:
        yield message(
            "watch.unjudged_server",
            "warning: tokens that differ from {arm} cannot be set apart from rounding, and such a probe is "
            "INCONCLUSIVE but where they prove a fault by themselves: leave out --score none, or watch with "
            "--logprobs 5",
            arm=baseline.name,
        )


def _undrawn(plan: Plan, baseline: Arm) -> Message:
    """Tokens that are drawn differ without a fault, and only scores say whether the baseline would draw them."""
    if baseline.backend == REPLAY:
        return message(
            "watch.unscored_draws_recording",
            "warning: {arm} is a recording, and cannot score what is drawn at temperature {temperature:g}: a probe "
            "that differs is INCONCLUSIVE but where that proves a fault by itself. Make the recording with "
            "--temperature 0, or name a vLLM server as the baseline: --server old=URL",
            arm=baseline.name,
            temperature=plan.sampling.temperature,
        )
    return message(
        "watch.unscored_draws",
        "warning: {arm} does not score what is drawn at temperature {temperature:g}: a probe that differs is "
        "INCONCLUSIVE. Leave out --score none",
        arm=baseline.name,
        temperature=plan.sampling.temperature,
    )


def _has_logprobs(arm: Arm) -> bool:
    """Whether the recording lists the tokens that might have stood in each place, or its scores do."""
    capture = read_capture(expanded(str(arm.engine["capture"])), partial=True)
    return bool(capture.scores) or all(one.lists is not None or one.logprobs is not None for one in capture)


def servers_of(plan: Plan) -> Mapping[str, str]:
    """The address of each server of a plan, by its arm."""
    return {arm.name: str(arm.engine["url"]) for arm in plan.arms if arm.backend == SERVER and arm.engine.get("url")}
