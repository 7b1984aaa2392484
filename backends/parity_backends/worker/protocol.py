"""The line protocol with the supervisor, and an end that leaves no orphans."""

from __future__ import annotations

import json
import multiprocessing
import os
import queue
import signal
import sys
import threading
import time
import traceback
from multiprocessing import resource_tracker
from typing import IO, Any, Callable, Iterable, Iterator, Optional

from .asked import Record
from .sentences import EngineError, WorkerError, message

SCHEMA = "parity.capture/1"
EXIT_SECONDS = 15.0
"""An engine that has not shut down after this long is killed."""
CHILD_SECONDS = 5.0
"""So long may what this process started take to be gone, once it is killed."""


MOST_AT_ONCE = 1 << 20
"""Characters of records that are held to be written together."""


class Stopped(Exception):
    """The supervisor asked for an end."""


def refuse_churn(churn: Any) -> None:
    """For arms that ask everything at once. Raises WorkerError for a schedule of arrivals and aborts."""
    if churn:
        raise WorkerError(
            message(
                "worker.no_churn",
                "requests that come and go (churn) need an engine that parity starts; here all come at once",
            )
        )


def as_line(record: Record) -> str:
    # allow_nan=False: a NaN that slipped through would be a line that other readers refuse.
    return json.dumps(record, separators=(",", ":"), allow_nan=False)


class Channel:
    """Writes protocol lines to a private copy of stdout; fd 1 itself then points at stderr."""

    def __init__(self, events: bool) -> None:
        self.fd = os.dup(1)
        self.events = events
        sys.stdout.flush()
        os.dup2(2, 1)

    def record(self, record: Record) -> None:
        self._write(as_line(record))

    def records(self, records: Iterable[Record]) -> None:
        """Several, in few writes: each one wakes the supervisor, which takes a core from the engine."""
        lines: list[str] = []
        size = 0
        for record in records:
            lines.append(as_line(record))
            size += len(lines[-1])
            if size > MOST_AT_ONCE:
                self._write("\n".join(lines))
                lines, size = [], 0
        if lines:
            self._write("\n".join(lines))

    def event(self, event: str, **fields: Any) -> None:
        line = json.dumps(dict(event=event, **fields), separators=(",", ":"), default=str)
        if self.events:
            self._write(line)
        elif event != "progress":
            sys.stderr.write("parity worker: " + line + "\n")

    def _write(self, text: str) -> None:
        data = memoryview(text.encode("utf-8", "replace") + b"\n")
        while data:
            data = data[os.write(self.fd, data) :]


class Commands:
    """Commands as they come in, read by a thread that also notices the supervisor's death."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.inbox: queue.Queue[dict[str, Any]] = queue.Queue()
        self.stop = threading.Event()
        self._stream = stream
        self._quiet = 0.0
        threading.Thread(target=self._read, daemon=True, name="commands").start()

    def _read(self) -> None:
        for line in self._lines():
            try:
                command = json.loads(line)
            except ValueError:
                command = {"op": "a line that is not JSON: %r" % line[:80]}
            if command.get("op") == "ping":
                continue
            if command.get("op") == "exit":
                self.leave()
            self.inbox.put(command)
        if not self.stop.is_set():
            kill_group()

    def _lines(self) -> Iterator[bytes]:
        """Whole lines. Each piece is a sign of life, for a long line on a slow link takes its time."""
        pieces: list[bytes] = []
        while True:
            piece: bytes = self._stream.read1(65536)  # type: ignore[attr-defined]
            self._quiet = 0.0
            if not piece:
                return
            *ended, rest = piece.split(b"\n")
            for end in ended:
                yield b"".join(pieces) + end
                pieces = []
            pieces.append(rest)

    def watch(self, seconds: float) -> None:
        """Kill the group after so long without a byte: a connection may be lost without an end of the stream.

        Counted in steps of its own, so that a process that stood still does not take its own sleep for silence.
        """

        def tick() -> None:
            while not self.stop.is_set():
                time.sleep(min(1.0, seconds / 4))
                self._quiet += min(1.0, seconds / 4)
                if self._quiet > seconds:
                    sys.stderr.write("parity worker: nothing from the supervisor for %.0f s, ending\n" % seconds)
                    sys.stderr.flush()
                    kill_group()

        threading.Thread(target=tick, daemon=True, name="silence").start()

    def leave(self) -> None:
        """An orderly end has begun; if the engine does not manage it in time, it is killed."""
        self.stop.set()
        timer = threading.Timer(EXIT_SECONDS, kill_group)
        timer.daemon = True
        timer.start()

    def next(self) -> dict[str, Any]:
        return self.inbox.get()


def kill_group() -> None:
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
    os._exit(137)  # the first process of a container takes no signal from inside


def end_children(group: bool) -> None:
    """Kill what this process started and wait until it is gone: a rank that stays holds its device's memory.

    Ranks of an engine whose start failed notice the end of their leader late or not at all, and behind `ssh` or
    `docker exec` nobody else can reach them. `group`: whatever else is in the group that this process leads as well,
    which a worker by hand must not do: its shell may have put other programs there.
    """
    children = multiprocessing.active_children()
    for child in children:
        child.kill()
    others = group_members() if group else []
    for pid in others:
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            continue
    until = time.monotonic() + CHILD_SECONDS
    for child in children:
        child.join(max(0.0, until - time.monotonic()))
    while others and set(others) & set(group_members()) and time.monotonic() < until:
        time.sleep(0.02)


def group_members() -> list[int]:
    """Other living processes of the group that this process leads; none where it leads none, or there is no /proc.

    Without multiprocessing's tracker of shared memory, which ends by itself, after it has removed what was left.
    """
    mine, found = os.getpid(), []
    tracker = getattr(getattr(resource_tracker, "_resource_tracker", None), "_pid", None)
    if os.getpgrp() != mine or not os.path.isdir("/proc/self"):
        return []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) in (mine, tracker):
            continue
        try:
            with open("/proc/%s/stat" % name, encoding="utf-8", errors="replace") as file:
                state, _, group = file.read().rpartition(")")[2].split()[:3]
        except (OSError, ValueError):  # it ended meanwhile
            continue
        if int(group) == mine and state not in "ZX":
            found.append(int(name))
    return found


def serve(stream: IO[bytes], make_arm: Callable[..., Any]) -> None:
    """Serve commands from `stream` (the rest of stdin) until "exit", with the arm that the first one names.

    `make_arm(plan, name, channel, stop)` gives an object with `start()` (sends the header), `generate(rounds)`,
    `score(items, top)`, `trial(requests, sampling)` and `close()`; `settle(seconds)` where engines have devices, which
    one before may not have given back yet; `load()` where the engine's code may be loaded before its turn.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the supervisor decides what Ctrl-C means
    if os.getpgrp() != os.getpid():
        os.setsid()  # so that the whole group can be killed without touching anybody else
    channel = Channel(events=True)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    commands = Commands(stream)
    where = "job"
    arm: Optional[Any] = None
    code = 0
    try:
        job = commands.next()
        if job.get("silence"):
            commands.watch(float(job["silence"]))
        if job.get("op") != "exit":
            arm = make_arm(job["plan"], job["arm"], channel, commands.stop)
            where = "start"
            if job.get("wait"):
                arm.load()
                job = commands.next()
            if job.get("settle"):
                arm.settle(float(job["settle"]))
            if job.get("op") != "exit":
                arm.start()
            while not commands.stop.is_set():
                where = "command"
                command = commands.next()
                where = str(command.get("op"))
                if where == "generate":
                    arm.generate(command["rounds"])
                elif where == "score":
                    arm.score(command["items"], int(command.get("top", 5)))
                elif where == "trial":
                    churn = {"churn": command["churn"]} if command.get("churn") else {}
                    arm.trial(command["requests"], command["sampling"], **churn)
                elif where != "exit":
                    raise ValueError("unknown command %r" % (where,))
    except Stopped:
        code = 0
    except BaseException as error:
        if isinstance(error, WorkerError) and not isinstance(error, EngineError):
            sys.stderr.write("%s: %s\n" % (type(error).__name__, error))
        else:
            traceback.print_exc()
        said = error.said if isinstance(error, WorkerError) else None
        channel.event("error", where=where, type=type(error).__name__, message=str(error)[:4000], said=said)
        code = 1
    commands.leave()
    try:
        if arm is not None:
            arm.close()
    except Exception:
        traceback.print_exc()  # everything asked for was delivered: only worth a line in the log
    end_children(group=True)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # interpreter shutdown with an engine loaded is slow and prints harmless errors
