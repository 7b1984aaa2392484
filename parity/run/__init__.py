"""Running arms: one worker process per arm, in the backend's own interpreter.

The public side of it:

    with progress(arms, sys.stderr) as on_event, interruptible() as stop:
        for arm in candidates:
            with run_arm(plan, arm, captures[arm], logs[arm], on_event=on_event) as session:
                session.generate()
        with run_arm(plan, baseline, captures[baseline], logs[baseline], on_event=on_event) as session:
            session.generate()
            session.score(items, scores_path, top=5)

Candidates first and the baseline last: its engine then scores, so that there is one engine start per arm
and never two engines at once. Everything here takes the plan as its JSON mapping (`parity.plan/1`).
An arm that is complete (its capture has a footer) starts no engine in `generate`; the engine starts when
it is first needed.

Failures are BackendError (exit code 3) with the last lines of the engine's log, and nothing that was
captured is lost: the same call again continues (`resume=True`) where it stopped. Ctrl-C raises
Interrupted after the worker has ended.
"""

from __future__ import annotations

from parity.run.backend import Backend, Detection, backend_names, load_backend
from parity.run.events import ArmEvent, OnEvent, Phase

__all__ = [
    "ArmEvent",
    "Backend",
    "Detection",
    "OnEvent",
    "Phase",
    "backend_names",
    "load_backend",
]
