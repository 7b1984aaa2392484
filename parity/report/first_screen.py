"""What stands on the first screen of a report: what is wrong in one sentence, and what helps most with it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from parity.messages import Message
from parity.report import facts
from parity.report.conditions import shared_conditions
from parity.report.prose import Code
from parity.report.texts import sentence as say
from parity.view import ArmView, RunView
from parity.view.why_said import sentence

CLEAN: Final = 3
"""Arms named that do not show the fault."""


def notes(view: RunView) -> Iterator[Message]:
    """What a reader must know before anything else: that it was planted, that it is emulated."""
    yield from facts.planted(view)
    yield from view.emulated


def what(view: RunView) -> Message:
    """What is wrong, in one sentence."""
    arm = accused(view)
    if (lost := facts.failed(view)) is not None:
        return say("first.failed", arms=list(map(Code, lost[0])), why=lost[1])
    if (why := view.open_reason) is not None:
        if view.baseline_is_at_fault:
            arms = [Code(one.name) for one in view.against_baseline]
            return say("first.baseline", arms=arms, baseline=Code(view.run.baseline), why=why)
        return say("first.open", why=why)
    if not arm.corrupt:
        return say(
            "first.benign" if view.run.greedy else "first.benign.drawn",
            arm=Code(arm.name),
            near=arm.count("near_tie"),
            completions=arm.completions,
            baseline=Code(view.run.baseline),
        )
    claims = facts.claims(view, arm, drawn=not view.run.greedy)
    name = "first.what.asked" if facts.asked_otherwise(view) else "first.what"
    return say(name, arm=Code(arm.name), claims=claims, baseline=Code(view.run.baseline))


def accused(view: RunView) -> ArmView:
    """The arm of the finding shown, where it is one of those suspected."""
    arms = view.suspected or view.candidates or list(view.arms)
    chosen = view.chosen
    return next((arm for arm in arms if chosen is not None and arm.name == chosen.arm), arms[0])


def points(view: RunView) -> Iterator[Message]:
    """The condition that all faults share, how often, what switches it off, the cause as far as it is known; then the
    drafters in which something is wrong."""
    arm = accused(view)
    if arm.corrupt:
        yield from _of_fault(view, arm)
    yield from (one.drafter_wrong for one in view.candidates if one.drafter_wrong is not None)


def _of_fault(view: RunView, arm: ArmView) -> Iterator[Message]:
    yield from (say("first.condition", condition=one) for one in shared_conditions(view))
    if arm.corrupt_interval is not None and arm.faulty and not facts.asked_differently(view):
        low, high = arm.corrupt_interval
        yield say(
            "first.rate.whole" if arm.of_run else "first.rate",
            faulty=arm.faulty,
            completions=arm.total,
            rate=_percent(arm.faulty / arm.total),
            low=_percent(low),
            high=_percent(high),
        )
    for clean in clean_arms(view, arm):
        settings = list(map(Code, _differences(clean, arm)))
        name = "first.clean" if settings else "first.clean.same"
        yield say(name, arm=Code(clean.name), settings=settings, completions=clean.completions)
    for one in view.why:
        if one.telling and one.nats is not None:
            cause = sentence(one, one.associated.ranked[0])
            yield say("first.cause.numerics", arm=Code(one.arm), nats=f"{one.nats:.2g}", cause=cause)
        elif one.telling:
            yield say("first.cause", arm=Code(one.arm), cause=sentence(one, one.associated.ranked[0]))
    if view.first_violation is not None:
        yield say("first.cause.step", cause=facts.violation(view.first_violation))
    yield from (say("first.cause.located", cause=facts.located(one)) for one in view.located[:1])


def clean_arms(view: RunView, arm: ArmView) -> list[ArmView]:
    """Arms that do not show it, those first that differ from the accused one in the fewest settings."""
    clean = [one for one in view.arms if one.is_clean and not one.is_control]
    return sorted(clean, key=lambda one: len(_differences(one, arm)))[:CLEAN]


def _differences(arm: ArmView, other: ArmView) -> list[str]:
    """The settings of an arm that the other has otherwise: `k=1`."""
    theirs = set(other.config.split(", "))
    return [one for one in arm.config.split(", ") if one not in theirs]


def _percent(share: float) -> str:
    return f"{share:.2g}" if 0 < share < 0.0001 else f"{share:.2%}" if share < 0.01 else f"{share:.1%}"
