"""What a plan samples: how many, with which parameters, and how long the lists are that score them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from parity.errors import ParityError
from parity.messages import message
from parity.plan import Arm, Plan, Prompt, Sampling
from parity.records.sampling import needs_long_lists, parameter
from parity.run import Backend, OwnSettings, TakesUsual

LONG_LIST = 20
"""Tokens that a score lists under penalties, rules and random sampling: what vLLM allows unless asked for more."""


def samples_of(sampling: Sampling, samples: int) -> tuple[Sampling, int]:
    """Sampling parameters, and how many copies of each request make up the samples."""
    if samples == 1:
        return sampling, 1
    if sampling.n > 1:
        raise ParityError(
            message("pipeline.both_samples_given", "both --n and --samples were given"),
            hint=message("pipeline.samples_enough", "--samples is enough"),
        )
    if sampling.temperature > 0:
        return replace(sampling, n=samples), 1
    return sampling, samples


def with_usual(sampling: Sampling, usual: Sequence[str], asked: Sequence[Backend]) -> Sampling:
    """The parameters with the usual values of those in `usual`, of which nothing was said, where some arm answers anew
    and all of these take them."""
    anew = [backend for backend in asked if not isinstance(backend, OwnSettings) or backend.answers_anew]
    others = [backend for backend in anew if isinstance(backend, OwnSettings)]
    if not anew or not all(isinstance(backend, TakesUsual) and backend.takes_usual for backend in others):
        return sampling
    rows = [row for row in map(parameter, usual) if row is not None]
    return sampling.having({row.name: row.usual for row in rows if sampling.value(row.name) == row.default})


def repeated(prompts: Sequence[Prompt], copies: int) -> list[Prompt]:
    """Each prompt `copies` times, as `id#1`, `id#2`, …, spread so that copies do not stand side by side."""
    if copies == 1:
        return list(prompts)
    return [replace(prompt, id=f"{prompt.id}#{copy}") for copy in range(1, copies + 1) for prompt in prompts]


def with_lists(plan: Plan, asked: int | None) -> Plan:
    """The plan with scores that list as many tokens as were asked for, or as its requests need."""
    each = ({**plan.sampling.to_json(), **request.sampling} for request in plan.requests)
    top = asked or (LONG_LIST if any(map(needs_long_lists, each)) else plan.score.top)

    def allowing(arm: Arm) -> Arm:
        allowed = arm.engine.get("max_logprobs")
        if not isinstance(allowed, int) or allowed < 0 or allowed >= top:
            return arm
        return replace(arm, engine={**arm.engine, "max_logprobs": top})

    arbiter = None if plan.arbiter is None else allowing(plan.arbiter)
    return replace(plan, arms=tuple(map(allowing, plan.arms)), arbiter=arbiter, score=replace(plan.score, top=top))
