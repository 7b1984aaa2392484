"""How much a worker may say about one command, and for how long it may say nothing that counts.

An honest one reports every half second and gives what the plan asks for. One that does not stop talking must end its
arm as one that is silent does.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Final

from parity.capture.sketches import SketchesBlock, SketchesHeader, SketchesStopped
from parity.capture.steps import StepsBlock, StepsHeader, StepsStopped
from parity.messages import message
from parity.run.messages import (
    Completion,
    Footer,
    FromWorker,
    ProtocolError,
    Round,
    Score,
    Scored,
    Unscored,
)

EVENTS: Final = 5_000
EVENTS_A_SECOND: Final = 50.0
EVENTS_A_RECORD: Final = 20
"""Of what is only shown; workers send two a second, and one with some completions."""

QUIET: Final = 24.0
"""So many times the stall timeout may pass without a completion, a score or the end of a round, whatever else comes."""

STEPS_A_RECORD: Final = 4_096
"""Blocks of steps and sketches for each completion, and to begin with; one has hundreds of steps, or 4 MiB."""

_FRUIT: Final = (Completion, Score, Round, Footer, Scored, Unscored)
_STEPS: Final = (StepsHeader, StepsBlock, StepsStopped, SketchesHeader, SketchesBlock, SketchesStopped)


@dataclass
class Budget:
    """What one worker has said about the command that it has."""

    began: float = field(default_factory=time.monotonic)
    last: float = field(default_factory=time.monotonic)
    """When the last record came that counts."""
    records: int = 0
    events: int = 0
    steps: int = 0

    def spend(self, said: FromWorker) -> None:
        """Count a message. Raises ProtocolError where it is one too many."""
        if isinstance(said, _FRUIT):
            self.records += 1
            self.last = time.monotonic()
        elif isinstance(said, _STEPS):
            self.steps += 1
            if self.steps > STEPS_A_RECORD * (1 + self.records):
                raise ProtocolError(message("run.too_many_steps", "blocks of steps without end"))
        else:
            self.events += 1
            allowed = EVENTS + EVENTS_A_SECOND * (time.monotonic() - self.began) + EVENTS_A_RECORD * self.records
            if self.events > allowed:
                raise ProtocolError(message("run.too_many_events", "{count} events, and no end", count=self.events))

    def is_late(self, stall: float) -> bool:
        """Whether nothing that counts has come for too long."""
        return time.monotonic() - self.last > QUIET * stall
