"""Running arms: one worker process per arm, in the backend's own interpreter.

    with progress([arm names]) as on_event:
        for arm in candidates:
            with run_arm(plan, arm, captures[arm], logs[arm], on_event=on_event) as session:
                session.generate()
        with run_arm(plan, baseline, captures[baseline], logs[baseline], on_event=on_event) as session:
            session.generate()
            session.score(items, scores_path, top=5)

Candidates first and the baseline last: its engine then scores, so there is one engine start per arm and
never two engines at once.
An arm that is complete (its capture has a footer) starts no engine; an engine starts when it is first
needed.

Failures are BackendError (exit code 3) with the last lines of the engine's log, and nothing that was
captured is lost: the same call with `resume=True` continues. Ctrl-C raises Interrupted, after the worker
has ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parity.lazily import attributes
from parity.run.adapters import backend_names, is_installed_engine, load_backend, starts_an_engine
from parity.run.backend import (
    Answering,
    Backend,
    Checking,
    Deployable,
    Detection,
    Foreseeing,
    Kit,
    OfCheckpoint,
    OfRelease,
    OwnSettings,
    Portable,
    Recorded,
    Remote,
    Seeded,
    TakesUsual,
    Versioned,
    impossible,
)
from parity.run.envs import EngineEnv, EnvSpec, list_envs
from parity.run.events import ArmEvent, OnEvent, Phase
from parity.run.items import ScoreItem

if TYPE_CHECKING:
    from parity.run.ahead import room_to_load
    from parity.run.display import PlainProgress, progress
    from parity.run.failures import Interrupted, Timeouts
    from parity.run.resume import RefusedFile, put_aside
    from parity.run.session import ArmSession, arm_session, run_arm, running

# Loaded when they are first used: what only compares or shows needs the names of backends and starts nothing.
_HOMES = {
    "ahead": ("room_to_load",),
    "display": ("PlainProgress", "progress"),
    "failures": ("Interrupted", "Timeouts"),
    "resume": ("RefusedFile", "put_aside"),
    "session": ("ArmSession", "arm_session", "run_arm", "running"),
}

__all__ = [
    "Answering",
    "ArmEvent",
    "ArmSession",
    "Backend",
    "Checking",
    "Deployable",
    "Detection",
    "EngineEnv",
    "EnvSpec",
    "Foreseeing",
    "Interrupted",
    "Kit",
    "OfCheckpoint",
    "OfRelease",
    "OnEvent",
    "OwnSettings",
    "Phase",
    "PlainProgress",
    "Portable",
    "Recorded",
    "RefusedFile",
    "Remote",
    "ScoreItem",
    "Seeded",
    "TakesUsual",
    "Timeouts",
    "Versioned",
    "arm_session",
    "backend_names",
    "impossible",
    "is_installed_engine",
    "list_envs",
    "load_backend",
    "progress",
    "put_aside",
    "room_to_load",
    "run_arm",
    "running",
    "starts_an_engine",
]


__getattr__ = attributes(__name__, _HOMES)
