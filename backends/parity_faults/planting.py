"""What to plant, and the text that says so: `NAME[:rate=R][:seed=N][:OPTION=VALUE]`.

Standard library only, as the catalogue: the launcher reads it where no engine is, the engine where parity is not.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from .catalogue import FAULTS, Fault

CONDITIONS: dict[str, str] = {
    "new": "its request is new in this step",
    "moved": "its row moved in this step",
    "moved_before": "its row moved in the step before",
    "boundary": "its first new position is a multiple of `block` tokens",
    "mixed": "it decodes while another row computes a prompt",
    "preempted": "its request was preempted before",
    "accepted": "all its drafts were accepted in its last step",
    "rejected": "a draft of it was rejected in its last step",
    "drawn_beside": "another row's request is drawn (temperature above 0)",
}
"""What may hold of a row: `when` names one, or several joined by +. `conditions.py` asks the engine."""

UNCONDITIONAL = (
    "unstable_order", "weight_scale", "weight_quant", "kv_fp8", "rope_off", "drafter_off", "drafter_input_off",
)  # fmt: skip
"""Faults of the model runner that strike whole steps, or the drafter, which runs when the step is over."""


def conditional(fault: Fault) -> bool:
    """Whether `when` can bound the rows that the fault strikes. Those of the bookkeeping do not ask."""
    return fault.layer == "runner" and fault.name not in UNCONDITIONAL and "violation" not in fault.expected


@dataclass(frozen=True)
class Planting:
    """What to plant: the fault, how often, from when, at most how often."""

    fault: str = "none"
    rate: float = 1.0
    seed: int = 0
    from_step: int = 0
    maximum: int = 0
    """0: no limit."""
    independent: int = 0
    """1: each step in which it can happen is hit or not on its own; 0: exactly every 1/rate-th one is."""
    from_version: str = ""
    """Planted in engines of this version of vLLM and later only; empty: in all."""
    noise: int = 0
    """Not 0: every logit of every step moves by up to one unit in the last place of bf16 as well, drawn from this
    seed: the same engine with another machine's rounding."""
    when: str = ""
    """Names of CONDITIONS joined by +: it strikes only rows in which all of them hold; empty: any row."""
    block: int = 16
    """Tokens whose multiples are the condition `boundary`."""
    span: int = 0
    ulps: int = 1
    millinats: int = 0
    share: int = 1
    permille: int = 0
    every: int = 0
    """1: all rows of the step, and a request again and again."""
    bits: int = 8
    fp8: int = 0

    @property
    def conditions(self) -> tuple[str, ...]:
        return tuple(self.when.split("+")) if self.when else ()

    def to_text(self) -> str:
        text = f"{self.fault}:rate={self.rate!r}:seed={self.seed}"
        if self.from_step:
            text += f":from_step={self.from_step}"
        if self.maximum:
            text += f":max={self.maximum}"
        if self.independent:
            text += f":independent={self.independent}"
        if self.from_version:
            text += f":from_version={self.from_version}"
        if self.noise:
            text += f":noise={self.noise}"
        if self.when:
            text += f":when={self.when}"
        if self.block != Planting.block:
            text += f":block={self.block}"
        own = dict(FAULTS[self.fault].options) if self.fault in FAULTS else {}
        for option in own:
            text += f":{option}={getattr(self, option)}"
        return text


COMMON = ("rate", "seed", "from_step", "max", "independent", "from_version", "noise", "when", "block")


def parse(text: str) -> Planting:
    """The value of PARITY_FAULT: `NAME[:rate=R][:seed=N][:OPTION=N]`.

    Options of every fault: `from_step`, `max`, `independent` (0 or 1), `from_version` (such as 0.31.0),
    `noise` (a seed; 0 for none), `when` (names of CONDITIONS joined by +), `block` (tokens, for `when=boundary`).

    Raises ValueError that names the part which is wrong.
    """
    name, *parts = text.strip().split(":")
    name = name or "none"
    if name != "none" and name not in FAULTS:
        raise ValueError(f"no fault is called {name!r}; there are: {', '.join(FAULTS)}")
    own = dict(FAULTS[name].options) if name in FAULTS else {}
    values: dict[str, Any] = dict(own)
    for part in parts:
        key, equals, value = part.partition("=")
        if not equals or (key not in COMMON and key not in own):
            raise ValueError(f"{part!r} in {text!r} is not an option of {name}")
        if key == "from_version":
            if not release(value):
                raise ValueError(f"{part!r} in {text!r} is not a version such as 0.31.0")
            values[key] = value
            continue
        if key == "when":
            values[key] = _conditions(name, value, text)
            continue
        try:
            values["maximum" if key == "max" else key] = float(value) if key == "rate" else int(value)
        except ValueError:
            raise ValueError(f"{part!r} in {text!r} is not a number") from None
    planting = Planting(fault=name, **values)
    if not 0.0 < planting.rate <= 1.0:
        raise ValueError(f"rate in {text!r} must be above 0 and at most 1")
    if planting.independent not in (0, 1):
        raise ValueError(f"independent in {text!r} must be 0 or 1")
    if planting.block < 1:
        raise ValueError(f"block in {text!r} must be at least 1")
    return planting


def _conditions(fault: str, value: str, text: str) -> str:
    """`value` as it was given. Raises ValueError for a name that is no condition, or a fault that asks for none."""
    unknown = [one for one in value.split("+") if one not in CONDITIONS]
    if unknown:
        raise ValueError(f"{unknown[0]!r} in {text!r} is not a condition; there are: {', '.join(CONDITIONS)}")
    if fault == "none" or not conditional(FAULTS[fault]):
        able = [one.name for one in FAULTS.values() if conditional(one)]
        raise ValueError(f"`when` in {text!r} has no meaning with {fault}; it has with {', '.join(able)}")
    return value


def release(version: str) -> tuple[int, ...]:
    """The numbers of a version for comparing, without zeros at the end: (0, 32) of 0.32.0.dev3+cpu; () for none."""
    numbers = []
    for part in version.split("+")[0].split("."):
        digits = re.match("[0-9]+", part)
        if digits is None:
            break
        numbers.append(int(digits.group()))
        if digits.group() != part:
            break
    while len(numbers) > 1 and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)
