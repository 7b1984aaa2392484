"""One engine: the worker in a process of its own, as parity drives it, here without parity."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from typing import IO, Callable, Optional

from parity_backends.worker.asked import Record

START = (
    "import os, sys; sys.path.insert(0, %r); import worker; more = worker.preload(%r); os.environ.update(more); "
    "more and os.execv(sys.executable, [sys.executable, '-u', '-c', sys.argv[1], sys.argv[1]]); "
    "sys.argv[1:] = []; worker.supervised(os.fdopen(os.dup(0), 'rb'))"
)
"""What is preloaded counts only for a process that is started with it: then it starts once more."""

SETTLE_SECONDS = 60.0
"""For memory to come back that an engine before had."""

GRACE_SECONDS = 20.0
"""For an engine to end by itself."""


class Failed(Exception):
    """The engine failed; what it said."""


class TimeOver(Exception):
    """The time of the kit."""


class Engine:
    """A worker with the engine of one arm, in a process group of its own. It ends when its stdin does."""

    def __init__(self, folder: str, plan: Record, arm: Record, log: str) -> None:
        code = START % (folder, arm["backend"])
        environment = {**os.environ, **(arm.get("env") or {})}
        self.log: IO[bytes] = open(log, "ab")  # noqa: SIM115 - closed with the engine
        self.rest = b""
        self.process = subprocess.Popen(
            [sys.executable, "-u", "-c", code, code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log,
            env=environment, cwd=folder, start_new_session=True,
        )  # fmt: skip
        self.ask({"op": "job", "plan": plan, "arm": arm["name"], "settle": SETTLE_SECONDS})

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.ask({"op": "exit"})
            self.process.wait(timeout=GRACE_SECONDS)
        except (Failed, subprocess.TimeoutExpired, KeyboardInterrupt):
            pass
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.log.close()

    def ask(self, command: Record) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(command).encode() + b"\n")
            self.process.stdin.flush()
        except OSError:
            raise Failed("the engine's process ended") from None

    def answer(self, last: Callable[[Record], bool], until: float, take: Callable[[Record, bytes], object]) -> Record:
        """Give `take` each record with its line, up to the one that is the `last`; it is given back.

        Raises Failed, and TimeOver at `until` (of time.monotonic)."""
        while True:
            line = self._line(until)
            if line is None:
                raise Failed("the engine's process ended with %s" % self.process.wait())
            try:
                said = json.loads(line)
            except ValueError:  # somebody printed before the worker had its stdout
                continue
            if said.get("event") == "error":
                raise Failed("%s: %s" % (said.get("type"), said.get("message")))
            if "record" in said:
                take(said, line + b"\n")
            if last(said):
                return dict(said)

    def _line(self, until: float) -> Optional[bytes]:
        assert self.process.stdout is not None
        descriptor = self.process.stdout.fileno()
        while b"\n" not in self.rest:
            left = until - time.monotonic()
            if left <= 0 or not select.select([descriptor], [], [], left)[0]:
                raise TimeOver
            piece = os.read(descriptor, 1 << 20)
            if not piece:
                return None
            self.rest += piece
        line, _, self.rest = self.rest.partition(b"\n")
        return line
