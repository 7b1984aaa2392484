"""The process on the node, held by a Ray actor. Sent there by value: standard library only, parity is not there."""

from __future__ import annotations

import os
import queue
import signal
import socket
import subprocess
import threading
from typing import IO

CHUNK = 65536
WAITING = 64
"""Chunks held for a reader that is slow; then the process waits."""

Part = tuple[int, bytes | int]
"""(1, stdout), (2, stderr) or (0, exit code), the last one."""


class FarProcess:
    """Starts a command and passes its three streams on. Methods are called from several threads."""

    def start(self, argv: list[str]) -> str:
        """Start it; the node's name. Raises OSError."""
        # Ray sets this for its own workers; an engine must choose its threads as it does without Ray.
        env = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
        self.parts: queue.Queue[Part] = queue.Queue(WAITING)
        self.process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, start_new_session=True
        )
        assert self.process.stdin is not None
        self.input = self.process.stdin
        readers = [
            threading.Thread(target=self._read, args=(number, stream), daemon=True)
            for number, stream in ((1, self.process.stdout), (2, self.process.stderr))
        ]
        for reader in readers:
            reader.start()
        threading.Thread(target=self._wait, args=(readers,), daemon=True).start()
        return socket.gethostname()

    def _read(self, number: int, stream: IO[bytes] | None) -> None:
        assert stream is not None
        while True:
            data = os.read(stream.fileno(), CHUNK)
            if not data:
                return
            self.parts.put((number, data))

    def _wait(self, readers: list[threading.Thread]) -> None:
        code = self.process.wait()
        for reader in readers:
            reader.join(10)  # a grandchild may hold a pipe open for ever
        self.parts.put((0, code))

    def write(self, data: bytes) -> bool:
        """To its stdin; b"" ends it. False when nobody reads any more."""
        try:
            if data:
                self.input.write(data)
                self.input.flush()
            else:
                self.input.close()
        except (OSError, ValueError):
            return False
        return True

    def read(self, seconds: float) -> list[Part]:
        """What there is, after waiting at most `seconds` for the first part."""
        try:
            found = [self.parts.get(timeout=seconds)]
        except queue.Empty:
            return []
        while len(found) < WAITING:
            try:
                found.append(self.parts.get_nowait())
            except queue.Empty:
                break
        return found

    def kill(self) -> None:
        """It and what it started."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except (OSError, AttributeError):
            return
