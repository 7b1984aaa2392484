"""Processes that read stretches of large captures at the same time, on this machine.

One that is killed, or cannot be started, costs time alone: its stretch is read by whoever asked for it. None outlives
this process: they end with their input.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from queue import SimpleQueue
from types import TracebackType
from typing import Final

from parity.capture.remote import Place
from parity.capture.stretch import Span, Stretch, in_order, loaded
from parity.forked import MOST, usable_cores

AHEAD: Final = 1
"""Stretches more than processes that are asked for before they are needed; each is some 2.5 MB."""


class Crew:
    """Processes that are started with the first capture that is kept as columns. Use it with `with`."""

    def __init__(self, jobs: int | None = None) -> None:
        """`jobs`: how many, by default one for each core that this process may use, up to MOST. With one, the file is
        read by this process alone."""
        self._jobs = min(usable_cores(), MOST) if jobs is None else jobs
        self._idle: SimpleQueue[_Child] = SimpleQueue()
        self.children: list[_Child] = []
        self._threads: ThreadPoolExecutor | None = None

    def __enter__(self) -> Crew:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for child in self.children:
            child.kill()
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)
        for child in self.children:  # one may have been started again in between
            child.end()

    def stretches(self, spans: Iterator[Span]) -> Iterator[tuple[Span, Stretch | None]]:
        if self._jobs == 1:
            return iter(())
        if self._threads is None:
            self.children = [_Child() for _ in range(self._jobs)]
            for child in self.children:
                self._idle.put(child)
            self._threads = ThreadPoolExecutor(self._jobs)
        threads = self._threads
        return in_order(spans, lambda span: threads.submit(self._ask, span), Future.result, self._jobs + AHEAD + 1)

    def _ask(self, span: Span) -> Stretch | None:
        child = self._idle.get()
        try:
            return child.ask(span.path, span.begin, span.end)
        finally:
            self._idle.put(child)


class _Child:
    """One process. Started again where it was lost, a few times."""

    STARTS: Final = 3

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._starts = 0
        self._ended = False
        self._start()

    def ask(self, path: Place, begin: int, end: int) -> Stretch | None:
        """None as well where the process is lost."""
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            return None
        try:
            process.stdin.write(json.dumps([str(path.absolute()), begin, end]).encode() + b"\n")
            size = int.from_bytes(exactly(process, 8), "little")
            data = exactly(process, size)
        except (OSError, EOFError, ValueError):
            self._lose()
            return None
        return loaded(data) if data else None

    @property
    def pid(self) -> int | None:
        """None while it is not there."""
        process = self._process
        return None if process is None else process.pid

    def interrupt(self) -> bool:
        """End the process, which is started again; False where there is none."""
        process = self._process
        if process is not None:
            process.kill()
        return process is not None

    def kill(self) -> None:
        """Whoever waits for an answer gets none."""
        self._ended = True
        self.interrupt()

    def end(self) -> None:
        """When nobody asks any more."""
        self.kill()
        process, self._process = self._process, None
        if process is not None:
            reap(process)

    def _start(self) -> None:
        self._starts += 1
        env = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
        env["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        with suppress(OSError):  # too little memory, no interpreter: then it is read here
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "parity.capture.read_child"], env=env, bufsize=0,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip

    def _lose(self) -> None:
        process, self._process = self._process, None
        assert process is not None
        reap(process)
        if not self._ended and self._starts < self.STARTS:
            self._start()


def reap(process: subprocess.Popen[bytes]) -> None:
    """End it, if it has not ended, and close what it was spoken to by."""
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with suppress(OSError):
                stream.close()


def exactly(process: subprocess.Popen[bytes], size: int) -> bytearray:
    """So many bytes of what it says. Raises OSError, and EOFError where it ends before."""
    assert process.stdout is not None
    found = bytearray(size)
    view, at = memoryview(found), 0
    while at < size:
        count = process.stdout.readinto(view[at:])  # type: ignore[attr-defined]
        if not count:
            raise EOFError
        at += count
    return found
