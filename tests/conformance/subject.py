"""A backend that is up, to be asked."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import subjects

from parity.capture import read_capture
from parity.errors import BackendError
from parity.records import Capture, Completion, Json
from parity.run import ArmSession, run_arm
from parity.run.live import LiveArm


@dataclass
class Subject:
    """A backend that is up and has generated the suite's plan."""

    name: str
    up: subjects.Up
    directory: Path
    _open: ExitStack = field(default_factory=ExitStack)
    _session: ArmSession | None = None

    @property
    def session(self) -> ArmSession:
        """Its session; a new one where an error ended the last (an error ends the worker)."""
        if self._session is None:
            arm = run_arm(self.up.plan(), self.up.arm, self.path, self.directory / "engine.log", resume=True)
            self._session = self._open.enter_context(arm)
            self._session.link.start()
        return self._session

    def close(self) -> None:
        self._open.close()
        self._session = None

    @property
    def path(self) -> Path:
        return self.directory / "capture.jsonl"

    @property
    def capture(self) -> Capture:
        return read_capture(self.path)

    def ask(
        self, requests: list[dict[str, Any]] | None = None, **sampling: Json
    ) -> tuple[list[Completion], dict[str, Json]]:
        """Other questions, on the engine that is up."""
        plan = self.up.plan(requests=requests, **sampling)
        link = self.session.link
        link.listen_to([0])
        try:
            completions, counters = LiveArm(link).trial(plan.requests, plan.sampling)
        except BackendError:
            self.close()
            raise
        return completions, dict(counters)

    def again(self, path: Path) -> Capture:
        """The suite's plan into another file, or what is missing of it there, on the engine that is up."""
        plan = self.up.plan()
        ArmSession(plan, plan.arms[0], path, self.session.link).generate()
        return read_capture(path)
