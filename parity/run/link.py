"""What ties parity to the engines of one arm: their start, each message checked, their failure told, their end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn, ParamSpec, Protocol, TypeVar, runtime_checkable

from parity.errors import BackendError, ParityError
from parity.messages import Say
from parity.plan import Arm, Plan
from parity.plan.digest import plan_digest
from parity.plan.hosts import Host
from parity.records import Json
from parity.run import messages, resume
from parity.run.backend import Backend
from parity.run.events import ArmEvent, OnEvent, Phase
from parity.run.failures import Interrupted, Timeouts
from parity.run.items import plain
from parity.run.launch import Launch, command_line, place_in_words, python_of, remedy, run_python
from parity.run.pool import Pool, log_of, share
from parity.run.process import BOOTSTRAP, NoAnswer, ProtocolError, WorkerGone

_POLL_SECONDS = 0.25
_T = TypeVar("_T")
_P = ParamSpec("_P")

Ask = Callable[[str], str]
"""Runs Python source on a host and returns what it prints."""


@runtime_checkable
class Remote(Protocol):
    """An adapter that must know something of a far host before an engine starts there."""

    def far_env(self, ask: Ask) -> dict[str, str]:
        """Environment variables that only that machine knows; `ask` asks it. The answer is untrusted."""
        ...


class Link:
    """The workers of one arm. `header` is there once they have started."""

    def __init__(
        self,
        plan: Plan,
        arm: Arm,
        log_path: Path,
        *,
        backend: Backend,
        host: Host,
        on_event: OnEvent,
        say: Say,
        timeouts: Timeouts,
        stop: threading.Event | None,
    ) -> None:
        self.name = arm.name
        self.header: dict[str, Json] | None = None
        self.replicas = max(1, min(host.workers, len(plan.requests)))
        self.plans = [share(plan, replica, self.replicas) for replica in range(self.replicas)]
        self.say = say
        self.plan = plan
        self._arm, self._log_path = arm, log_path
        self._backend, self._host = backend, host
        self._on_event, self._timeouts, self._stop = on_event, timeouts, stop
        self._pool: Pool | None = None
        self._phase = Phase.STARTING
        self._began = time.monotonic()
        self.done = self.total = self.tokens = 0

    # ------------------------------------------------------------------ start and end

    def start(self) -> dict[str, Json]:
        """Start the engines unless they are up; the header of the arm."""
        if self.header is not None:
            return self.header
        source = self._backend.worker_source()
        launches = self._launches(len(source))
        with self.guarded():
            self._pool = Pool(
                launches, source, self._log_path,
                far=self._host.far, heartbeat=self._timeouts.heartbeat if self._host.far else None,
            )  # fmt: skip
            for replica, plan in enumerate(self.plans):
                self.send(replica, self._job(plan))
            until = time.monotonic() + (self._host.start_timeout or self._timeouts.start)
            headers: dict[int, dict[str, Json]] = {}
            while len(headers) < self.replicas:
                message = self.receive("starting the engine", until)
                if message.get("record") == "header":
                    plan = self.plans[self._pool.speaker]
                    headers[self._pool.speaker] = self.checked(messages.check_header, message, self.name, plan)
                elif "event" not in message:
                    self.fail(f"{self.name}: the worker sent {message.get('record')!r} before its header")
            self.header = self._one_header([headers[replica] for replica in range(self.replicas)])
        self.enter(Phase.READY, self.done, self.total, self.tokens)
        return self.header

    def _launches(self, source_bytes: int) -> list[Launch]:
        """The command lines; nothing has been started yet, but a host may have been asked something."""
        host, env = self._host, dict(self._arm.env)
        if host.far:
            python = python_of(host)
            if isinstance(self._backend, Remote):
                env = {**self._backend.far_env(lambda source: run_python(host, source)), **env}
        else:
            found = Path(host.python).expanduser() if host.python else self._backend.interpreter(self.say)
            python = str(found)
            env = {**self._backend.launch_env(found), **env}
        env.update(host.env)
        program = [python, "-u", "-c", BOOTSTRAP.format(size=source_bytes)]
        return [command_line(host, program, {**env, **self._devices(n)}) for n in range(self.replicas)]

    def _devices(self, replica: int) -> dict[str, str]:
        if not self._host.devices:
            return {}
        variable = getattr(self._backend, "device_variable", None)
        if not isinstance(variable, str):
            raise ParityError(
                f"backend {self._host.name!r} names devices, but its adapter {self._backend.name!r} has none to choose",
                hint="use replicas = N, or set the variable of that hardware in env",
            )
        return {variable: self._host.devices[replica]}

    def _job(self, plan: Plan) -> dict[str, Json]:
        if self._host.model is not None:
            plan = plan.with_model_path(self._host.model)
        job: dict[str, Json] = {"plan": plan.to_json(), "arm": self.name}
        if self._host.far:
            job["silence"] = self._timeouts.heartbeat * 4
        return job

    def _one_header(self, headers: list[dict[str, Json]]) -> dict[str, Json]:
        """The header of the arm from those of its replicas, which must be of one engine."""
        first = headers[0]
        for replica, other in enumerate(headers[1:], 1):
            differences = resume.engine_differences(first, other, of_replicas=True)
            if differences:
                assert self._pool is not None
                self._pool.speaker = replica
                self.fail(f"{self.name}: replica {replica} has another engine than replica 0: {', '.join(differences)}")
        if len(headers) == 1:
            return first
        about = [
            {
                "visible_devices": self._host.devices[replica] if self._host.devices else None,
                "devices": header["environment"].get("devices"),
            }
            for replica, header in enumerate(headers)
        ]
        return {**first, "plan_digest": plan_digest(self.plan), "replicas": about}

    def close(self) -> None:
        """End the engines, orderly where they go along; safe to call again."""
        if self._pool is not None:
            self._pool.end(self._timeouts.grace)

    def kill(self) -> None:
        if self._pool is not None:
            self._pool.kill()

    # ------------------------------------------------------------------ talking

    @property
    def speaker(self) -> int:
        """The replica that the last message came from."""
        assert self._pool is not None
        return self._pool.speaker

    def send(self, replica: int, command: Mapping[str, Json]) -> None:
        assert self._pool is not None
        self._pool.send(replica, command)

    def listen_to(self, replicas: list[int]) -> None:
        assert self._pool is not None
        self._pool.listen_to(replicas)

    def receive(self, doing: str, until: float | None = None) -> dict[str, Json]:
        """The next message; `until` is a time.monotonic() deadline, None means the stall timeout."""
        assert self._pool is not None
        if until is None:
            until = time.monotonic() + self._timeouts.stall
        while True:
            if self._stop is not None and self._stop.is_set():
                raise KeyboardInterrupt
            try:
                message = self._pool.receive(min(_POLL_SECONDS, max(0.0, until - time.monotonic())))
            except NoAnswer:
                if time.monotonic() >= until:
                    self.fail(f"{self.name}: nothing from the worker for too long while {doing}")
                self.tell()
                continue
            except WorkerGone:
                self.fail(f"{self.name}: the worker ended while {doing}", gone=True)
            except ProtocolError as error:
                self.fail(f"{self.name}: the worker broke the protocol while {doing}: {error}")
            if message.get("event") == "error":
                # Told: the worker's word for a failure whose message says all there is to say
                told = "" if message.get("type") == "Told" else f"{message.get('type')}: "
                what = f"{told}{message.get('message')}"
                self.fail(f"{self.name}: the engine failed while {doing}: {plain(what)}")
            return message

    def checked(self, check: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """What `check` returns; a breach of the protocol is a failure of the engine."""
        try:
            return check(*args, **kwargs)
        except ProtocolError as error:
            self.fail(f"{self.name}: the worker broke the protocol: {error}")

    def fail(self, message: str, *, gone: bool = False) -> NoReturn:
        """Kill what is left and raise BackendError with the end of the engine's log."""
        assert self._pool is not None
        replica = self._pool.speaker
        worker = self._pool.workers[replica]
        if gone:
            worker.wait(2.0)
        else:
            worker.hear_out()
        self._pool.kill()
        tail = worker.log_tail()
        lines = [f"{message} ({worker.fate()})" if gone else message]
        if self._host.far:
            lines[0] += f", on {place_in_words(self._host)}"
        if self.replicas > 1:
            lines[0] += f", replica {replica} of {self.replicas}"
        if self.done:
            lines[0] += f", after {self.done} of {self.total}, which are kept"
        log = log_of(self._log_path, replica)
        if tail:
            lines.append(f"the end of {log}:")
            lines += ["  " + line for line in tail.splitlines()]
        hint = remedy(self._host, tail) or self._backend.explain(tail)
        self.enter(Phase.FAILED, self.done, self.total, self.tokens)
        raise BackendError("\n".join(lines), hint=hint or f"the whole engine log is {log}; --resume continues")

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Ctrl-C ends the workers in order; any other way out of a stage kills them."""
        try:
            yield
        except KeyboardInterrupt:
            try:
                self.close()
            except KeyboardInterrupt:  # a second Ctrl-C: do not wait for the engine
                self.kill()
            self.enter(Phase.FAILED, self.done, self.total, self.tokens)
            raise Interrupted(
                f"{self.name}: interrupted after {self.done} of {self.total}, which are kept",
                hint="`parity run --resume` finishes it",
            ) from None
        except BaseException:
            self.kill()
            raise

    # ------------------------------------------------------------------ telling the watcher

    def enter(self, phase: Phase, done: int, total: int, tokens: int) -> None:
        self._phase, self.done, self.total, self.tokens = phase, done, total, tokens
        self._began = time.monotonic()
        self.tell()

    def advance(self, done: int, tokens: int) -> None:
        self.done += done
        self.tokens += tokens
        self.tell()

    def event(self, message: Mapping[str, Json]) -> None:
        """A message that is only shown."""
        if message.get("event") == "progress":
            self.tell(running=messages.count(message.get("running")))

    def tell(self, running: int = 0) -> None:
        seconds = time.monotonic() - self._began
        self._on_event(ArmEvent(self.name, self._phase, self.done, self.total, self.tokens, running, seconds))
