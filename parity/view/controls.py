"""A positive control that was not caught: what to try next, and the commands for it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from parity.capture.sketches import sketches_path
from parity.capture.steps import steps_path
from parity.files import is_file
from parity.messages import Message, message
from parity.records.next_steps import NextStep, Step
from parity.view.arm import ArmView
from parity.view.at_hand import Here
from parity.view.next_command import NextCommand, made

SELDOM: Final = 0.05
"""Rates of planted faults below it are less than any fault's usual one (docs/fault-lab.md)."""

MISSED, UNFIT, ABSENT = "pipeline.control_not_caught", "pipeline.control_unfit", "pipeline.control_absent"
"""The reason that a positive control was not caught; and its reasons, where nothing came to be planted."""

ENOUGH: Final = 60
"""Completions that see a fault in one of 20 with 95 %: one that stays unseen in so many does not show in tokens."""

STRONG: Final = ("row_swap:rate=0.1", "garbled_row:rate=0.1")
"""Faults that change tokens of any model; the second where the first is the one that was missed."""


def of_missed(here: Here) -> tuple[ArmView, list[NextStep]]:
    """More of the same, where few completions were asked; then a closer look at them; then another fault. One that was
    never planted has nothing to look at, and one whose plugin was not there is planted by no plan."""
    missed = next((one for one in here.view.run.reasons if one.id == MISSED), None)
    said = {} if missed is None else missed.parameters
    arm = next((one for one in here.view.controls if one.name == said.get("arm")), here.view.controls[0])
    why = said.get("why")
    why_id = why.id if isinstance(why, Message) else ""
    steps = [NextStep(Step.USUAL_RATE, MISSED)]
    if 0 < arm.completions < ENOUGH:
        steps.append(NextStep(Step.ROUNDS, MISSED, max(2, -(-ENOUGH // arm.completions))))
    if why_id != UNFIT:
        steps.append(NextStep(Step.DEEPER, MISSED))
    if why_id == ABSENT:
        steps = []
    return arm, [*steps, NextStep(Step.OTHER_FAULT, why_id)]


def usual_rate(here: Here, step: NextStep, arm: ArmView) -> NextCommand | None:
    parts = (arm.control or "").split(":")
    rates = [part.removeprefix("rate=") for part in parts if part.startswith("rate=")]
    # Sketches take what is wrong in half of the completions for the run's own noise (docs/sketches.md).
    most = SELDOM if is_file(sketches_path(Path(arm.capture or ""))) else 1.0
    if not rates or SELDOM <= _number(rates[-1]) <= most:
        return None
    fault = ":".join(part for part in parts if not part.startswith("rate="))
    what = message("next.usual_rate", "run it with {fault} planted at its usual rate", fault=fault)
    words = here.as_asked("--positive-control", fault, without=("--positive-control",))
    return made(step, arm, what, words)


def deeper(here: Here, step: NextStep, arm: ArmView) -> NextCommand | None:
    path = Path(arm.capture or "")
    asked = {
        "--record": not is_file(steps_path(path)),
        "--sketch=parts": not is_file(sketches_path(path)) and not here.view.run.churn.get("asynchronous"),
    }
    options = [option for option, wanted in asked.items() if wanted]
    what = message(
        "next.deeper",
        "run it with {options}: numbers of modules and the engine's bookkeeping show a fault that no token shows",
        options=options,
    )
    return made(step, arm, what, here.on_plan(*options)) if options else None


def other_fault(here: Here, step: NextStep, arm: ArmView) -> NextCommand | None:
    if step.settles == ABSENT:
        what = message(
            "next.plugin_absent",
            "see in the log of {arm} why its engine did not load the fault: VLLM_PLUGINS, where it is set, must have "
            "parity_faults",
            arm=arm.name,
        )
        return NextCommand(step, (arm.name,), what)
    fault, _, _ = (arm.control or "").partition(":")
    strong = next(one for one in STRONG if not one.startswith(f"{fault}:"))
    if step.settles == UNFIT:
        what = message(
            "next.fit_fault",
            "plant a fault that this run has steps for: docs/fault-lab.md says what {fault} needs",
            fault=fault,
        )
    else:
        what = message("next.strong_fault", "plant a fault that changes tokens: {fault} is too weak here", fault=fault)
    words = here.as_asked("--positive-control", strong, without=("--positive-control",))
    return NextCommand(step, (arm.name,), what, words or ())


def _number(text: str) -> float:
    """Of a rate that was taken already; 1 for what is none."""
    try:
        return float(text)
    except ValueError:
        return 1.0
