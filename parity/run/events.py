"""What a running arm tells whoever watches it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum


class Phase(StrEnum):
    """Where an arm is."""

    STARTING = "starting"
    READY = "ready"
    GENERATING = "generating"
    SCORING = "scoring"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class ArmEvent:
    """One observation. `done` of `total` completions (or scores), `tokens` output tokens so far,
    `running` requests in the engine, `seconds` since the phase began. `note` is a line for the user."""

    arm: str
    phase: Phase
    done: int = 0
    total: int = 0
    tokens: int = 0
    running: int = 0
    seconds: float = 0.0
    note: str | None = None


OnEvent = Callable[[ArmEvent], None]


def ignore(event: ArmEvent) -> None:
    """The watcher for callers that do not watch."""
