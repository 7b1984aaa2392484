"""A worker process: started with its source on stdin, spoken to in lines, never outliving its supervisor.

The worker leads a process group of its own, so Ctrl-C on the terminal does not reach it and all of it can
be killed at once; it kills that group itself when its stdin ends, so `kill -9` of parity leaves no orphan.
"""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from parity.capture import MAX_LINE_BYTES
from parity.errors import BackendError, ParityError
from parity.messages import Message, message
from parity.run.commands import Command, Exit, Ping, command_line_of
from parity.run.lines import lines_of
from parity.run.messages import FromWorker, ProtocolError, decode, unfit
from parity.run.words import printable

HELD_OPEN_SECONDS = 5.0
"""So long may what a worker has said arrive after it has ended."""

MAX_PREAMBLE_LINES = 200
"""As many lines may a login shell or a container's entry point print before the worker's first message."""

MAX_LOG_BYTES = 64 * 1024 * 1024
"""The engine log stops growing here; the last lines are still kept for the error message."""

BOOTSTRAP = (
    "import os;s=os.fdopen(os.dup(0),'rb');g={{'__name__':'parity_worker','__file__':'parity_worker.py'}};"
    "exec(compile(s.read({size}),'parity_worker.py','exec'),g);g['supervised'](s)"
)
"""Reads the worker's source from stdin and runs it. Needs no file on the far side, so the same command
works behind `ssh HOST` or `docker exec -i`."""

_TAIL_LINES = 25
_KEPT_LINES = 500
"""Of the log's end: where an engine has ranks, the reason stands before their leader's complaint."""

_LINE_SHOWN = 400

_GROUP_SECONDS = 5.0
"""So long may what was killed take to give back its memory, before the end is reported without it."""


class WorkerGone(Exception):
    """The worker closed its side of the protocol."""


class NoAnswer(Exception):
    """Nothing came within the time allowed."""


def worker_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """This process's environment without what belongs to its own Python, with `extra` over it."""
    env = {name: value for name, value in os.environ.items() if name not in _OWN}
    env["PYTHONUNBUFFERED"] = "1"
    env.update(extra)
    return env


_OWN = frozenset({"PYTHONHOME", "PYTHONPATH", "PYTHONSTARTUP", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__"})


class WorkerProcess:
    """One worker. Use `send`, `receive` and `end`; the log file fills by itself."""

    def __init__(
        self,
        command: Sequence[str],
        env: Mapping[str, str],
        source: bytes,
        log_path: Path,
        *,
        preamble: bool = False,
        arrived: threading.Event | None = None,
        heartbeat: float | None = None,
    ) -> None:
        """Start it. Raises BackendError when the command cannot be run, ParityError for the log file.

        `preamble`: what stands before the first JSON object (a login shell's greeting) is only kept for an error.
        `arrived` is set whenever there is something to receive. `heartbeat`: say something this often (seconds),
        so that the other side can tell silence from death.
        """
        if os.name != "posix":
            raise BackendError(
                message(
                    "run.arm_cannot_run", "an arm cannot run on this system: its worker leads a POSIX process group"
                ),
                hint=message(
                    "run.run_linux_macos", "run it on Linux or macOS and bring its capture here: `parity compare`"
                ),
            )
        self.log_path = log_path
        self._heartbeat = heartbeat
        self._outbox: queue.Queue[bytes | None] = queue.Queue()
        self._preamble = MAX_PREAMBLE_LINES if preamble else 0
        self._arrived = arrived or threading.Event()
        self._tail: deque[str] = deque(maxlen=_KEPT_LINES)
        self._lines: queue.Queue[list[bytes | None]] = queue.Queue(maxsize=16)
        """What came together; None at the end."""
        self._taken: deque[bytes | None] = deque()
        self._ending = threading.Event()
        self._gone_at: float | None = None
        self._spoke = threading.Event()
        try:
            log_path.parent.mkdir(parents=True, exist_ok=True)
            log = log_path.open("ab")
        except OSError as error:
            raise ParityError(
                message(
                    "run.cannot_write_engine",
                    "cannot write the engine log {log_path}: {strerror}",
                    log_path=str(log_path),
                    strerror=error.strerror,
                )
            ) from error
        try:
            self._process = subprocess.Popen(
                list(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=dict(env),
                start_new_session=True,
            )
        except OSError as error:
            log.close()
            raise BackendError(
                message(
                    "run.cannot_run",
                    "cannot run {command}: {strerror}",
                    command=command[0],
                    strerror=str(error.strerror or error),
                )
            ) from error
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._stdin: IO[bytes] = self._process.stdin
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True)
        self._logger = threading.Thread(target=self._log, args=(self._process.stderr, log), daemon=True)
        self._reader.start()
        self._logger.start()
        threading.Thread(target=self._send_all, daemon=True).start()
        self._outbox.put(source)

    @property
    def pid(self) -> int:
        return self._process.pid

    def _read(self, stdout: IO[bytes]) -> None:
        for lines in lines_of(stdout, MAX_LINE_BYTES):
            self._hand_over(list(self._said(lines)))
        self._hand_over([None])

    def _said(self, lines: Sequence[bytes]) -> Iterator[bytes]:
        """Without what stands before the first message."""
        for line in lines:
            if self._preamble and not line.startswith(b"{") and len(line) <= MAX_LINE_BYTES:
                self._preamble -= 1
                self._tail.append(printable(line.decode("utf-8", "replace"))[:_LINE_SHOWN])
                continue
            self._preamble = 0
            yield line

    def _hand_over(self, lines: list[bytes | None]) -> None:
        while lines and not self._ending.is_set():  # then nobody takes lines, and a full pipe must not hold it up
            try:
                self._lines.put(lines, timeout=0.2)
                self._arrived.set()
                return
            except queue.Full:
                continue

    def _log(self, stderr: IO[bytes], log: IO[bytes]) -> None:
        written = log.tell()
        with log:
            while line := stderr.readline(65536):
                self._tail.append(printable(line.decode("utf-8", "replace"))[:_LINE_SHOWN])
                self._spoke.set()
                if written > MAX_LOG_BYTES:
                    continue
                written += len(line)
                if written > MAX_LOG_BYTES:
                    line = f"[parity] the log is cut here, at {MAX_LOG_BYTES >> 20} MiB\n".encode()
                try:
                    log.write(line)
                    log.flush()
                except OSError:  # a full disk: the log is the least of it, and the pipe must be emptied
                    written = MAX_LOG_BYTES + 1

    def _send_all(self) -> None:
        """Writes what is to be sent: a thread of its own, since a host that hangs takes nothing."""
        try:
            while True:
                try:
                    data = self._outbox.get(timeout=self._heartbeat)
                except queue.Empty:
                    data = command_line_of(Ping())
                if data is None:
                    break
                self._stdin.write(data)
                self._stdin.flush()
            self._stdin.close()
        except (OSError, ValueError):
            return  # it has died: the next receive says so, with what it sent before

    def send(self, command: Command) -> None:
        self._outbox.put(command_line_of(command))

    def receive(self, seconds: float) -> FromWorker:
        """The next protocol message.

        Raises NoAnswer after `seconds`, WorkerGone at the end of the stream, ProtocolError for anything
        that is not one JSON object a line.
        """
        try:
            if not self._taken:
                self._taken.extend(self._lines.get(timeout=max(seconds, 0.0)))
        except queue.Empty:
            if self._exited():
                self._kill_group()  # a child of a dead worker may hold the pipe open
                self._gone_at = self._gone_at or time.monotonic()
                if time.monotonic() - self._gone_at > HELD_OPEN_SECONDS:
                    raise WorkerGone from None  # one that has left the group still does
            raise NoAnswer from None
        line = self._taken.popleft()
        if line is None:
            raise WorkerGone
        if len(line) > MAX_LINE_BYTES:
            raise ProtocolError(message("run.long_line", "a line longer than {size} MiB", size=MAX_LINE_BYTES >> 20))
        if not line.endswith(b"\n"):
            raise ProtocolError(message("run.cut_line", "the last line is cut off after {size} bytes", size=len(line)))
        try:
            said: FromWorker = decode(line)
        except (ProtocolError, KeyboardInterrupt):
            raise
        except BaseException as error:
            raise unfit(error) from error
        return said

    def _exited(self) -> bool:
        if self._process.returncode is not None:
            return True
        # WNOWAIT leaves the zombie, so that its process group id cannot be reused before the kill below.
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None

    def wait(self, seconds: float) -> bool:
        """Whether it has exited within `seconds`."""
        until = time.monotonic() + seconds
        while not self._exited():
            if time.monotonic() >= until:
                return False
            time.sleep(0.02)
        return True

    def hear_out(self, quiet: float = 0.5, most: float = 3.0) -> None:
        """Wait until its log has been silent for `quiet` seconds, `most` at most.

        What it complained of comes on another way than what it said of it on the protocol, and may come later.
        """
        until = time.monotonic() + most
        self._spoke.clear()
        while time.monotonic() < until and self._spoke.wait(quiet):
            self._spoke.clear()

    def ask_to_end(self) -> None:
        """Tell it to stop what it does and end; completions in flight are given up."""
        if self._process.returncode is not None:
            return
        self._ending.set()
        self.send(Exit())
        self._outbox.put(None)

    def _kill_group(self) -> None:
        """Only while the worker is not reaped: until then its id cannot be somebody else's."""
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            self._process.kill()

    def kill(self) -> None:
        """End it and everything that it started, at once; safe to call again."""
        self._ending.set()
        if self._process.returncode is not None:
            return
        self._kill_group()
        until = time.monotonic() + _GROUP_SECONDS
        while living_members(self.pid) and time.monotonic() < until:  # a killed rank holds its memory for a moment
            time.sleep(0.02)
        self._process.wait()
        self._outbox.put(None)
        self._logger.join(2.0)

    def end(self, grace: float) -> None:
        """Orderly end: ask, wait up to `grace` seconds, then kill what is left of the process group."""
        if self._process.returncode is None:
            self.ask_to_end()
            self.wait(grace)
            self.kill()

    def fate(self) -> Message:
        """How it ended, in words; call after `kill`."""
        code = self._process.returncode
        if code is None:
            return message("run.still_running", "still running")
        if code < 0:
            try:
                return message("run.killed_by", "killed by {signal}", signal=signal.Signals(-code).name)
            except ValueError:
                return message("run.killed_by_number", "killed by signal {signal}", signal=-code)
        return message("run.exit_code", "exit code {code}", code=code)

    def log_tail(self) -> str:
        """The last lines of the engine's log, printable."""
        return "\n".join([line for line in self._tail if line.strip()][-_TAIL_LINES:])

    def line_with(self, signs: Sequence[str]) -> str:
        """The last line of the log that has one of these pieces of text; "" where none has."""
        found = (line for line in list(self._tail)[::-1] if any(sign in line for sign in signs))
        return next(found, "")


def living_members(group: int) -> set[int]:
    """The processes of a process group that have not ended; none where there is no /proc (proc(5), `stat`)."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            state, _, of = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[:3]
        except (OSError, ValueError):  # it ended meanwhile
            continue
        if int(of) == group and state not in "ZX":
            found.add(int(entry.name))
    return found
