"""The workers of one arm: one, or a replica on each group of devices.

Request i of a plan belongs to replica i modulo their number, in every round: which replica ran a completion does
not depend on timing, and each replica's batches are the same each time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from parity.plan import Plan
from parity.run.commands import Command
from parity.run.launch import Launch
from parity.run.messages import FromWorker
from parity.run.process import NoAnswer, WorkerProcess


def share(plan: Plan, replica: int, replicas: int) -> Plan:
    """The plan with the requests of one replica."""
    return plan if replicas == 1 else replace(plan, requests=plan.requests[replica::replicas])


def log_of(log_path: Path, replica: int) -> Path:
    """Each replica has a log of its own; the first has the arm's."""
    return log_path if replica == 0 else log_path.with_name(f"{log_path.stem}.replica{replica}{log_path.suffix}")


class Pool:
    """Started workers, read as one stream. `speaker` is the one that the last answer or trouble came from."""

    def __init__(
        self, launches: Sequence[Launch], source: bytes, log_path: Path, *, far: bool, heartbeat: float | None
    ) -> None:
        """Start them all. Raises what WorkerProcess raises; those already started have ended then."""
        self.speaker = 0
        self.workers: list[WorkerProcess] = []
        self._arrived = threading.Event()
        self._open: list[int] = list(range(len(launches)))
        try:
            for replica, launch in enumerate(launches):
                self.speaker = replica
                self.workers.append(
                    WorkerProcess(
                        launch.argv, launch.env, source, log_of(log_path, replica),
                        preamble=far, arrived=self._arrived, heartbeat=heartbeat,
                    )
                )  # fmt: skip
        except BaseException:
            self.kill()
            raise
        self.speaker = 0

    def __len__(self) -> int:
        return len(self.workers)

    def send(self, replica: int, command: Command) -> None:
        self.workers[replica].send(command)

    def listen_to(self, replicas: Iterable[int]) -> None:
        """Whose answers are awaited; one that is done and idle is not asked whether it is still there."""
        self._open = list(replicas)

    def receive(self, seconds: float) -> FromWorker:
        """The next message of any that is listened to; raises as WorkerProcess.receive does."""
        if len(self._open) == 1:
            self.speaker = self._open[0]
            return self.workers[self.speaker].receive(seconds)
        until = time.monotonic() + seconds
        while True:
            self._arrived.clear()
            for _ in range(len(self._open)):
                self._open.append(self._open.pop(0))  # in turn, so that a fast one does not starve the others
                self.speaker = self._open[-1]
                try:
                    return self.workers[self.speaker].receive(0.0)
                except NoAnswer:
                    continue
            left = until - time.monotonic()
            if left <= 0:
                raise NoAnswer
            self._arrived.wait(left)

    def end(self, grace: float) -> None:
        """Orderly where they go along; the grace is for all of them together."""
        for worker in self.workers:
            worker.ask_to_end()
        until = time.monotonic() + grace
        for worker in self.workers:
            worker.wait(max(0.0, until - time.monotonic()))
            worker.kill()

    def kill(self) -> None:
        for worker in self.workers:
            worker.kill()
