"""What can go wrong while an arm runs, as errors of their own."""

from __future__ import annotations

from dataclasses import dataclass

from parity.errors import BackendError


class Interrupted(BackendError):
    """Ctrl-C (or a stop from another thread): the worker has ended, what was captured is kept."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long to wait, in seconds.

    `start`: from spawning the worker until the engine is ready (a large model is read from a slow disk).
    `stall`: without any line from a working engine; workers report every half second while steps end.
    `heartbeat`: between two signs of life to a far worker, which ends itself after four that did not come.
    `grace`: for an orderly end before the process group is killed; the worker itself allows its engine 15.
    """

    start: float = 1800.0
    stall: float = 900.0
    grace: float = 20.0
    heartbeat: float = 15.0
