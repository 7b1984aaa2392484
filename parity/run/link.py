"""What ties parity to the engines of one arm: their start, each message checked, their failure reported, their end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NoReturn, ParamSpec, TypeVar

from msgspec import UNSET

from parity.errors import BackendError, ParityError
from parity.messages import Message, Say, message
from parity.paths import expanded
from parity.plan import Arm, Plan
from parity.plan.hosts import Host
from parity.records import Header
from parity.records.plan_digest import plan_digest
from parity.records.sampling import wire
from parity.run.backend import Backend, HasDevices, HoldsMemory, LoadsAhead, Patient, Remote, hint_for
from parity.run.budget import Budget
from parity.run.commands import Command, Job, Start
from parity.run.events import ArmEvent, OnEvent, Phase
from parity.run.expected import check_header
from parity.run.failures import Doing, Interrupted, Timeouts, Trouble, engine_words, memory_held, words_of
from parity.run.launch import Launch, command_line, place_in_words, python_of, remedy, run_python
from parity.run.messages import (
    Completion,
    Failed,
    Footer,
    FromWorker,
    Progress,
    ProtocolError,
    Round,
    Score,
    count,
    unfit,
)
from parity.run.pool import Pool, log_of, share
from parity.run.process import BOOTSTRAP, NoAnswer, WorkerGone
from parity.run.resume import engine_differences
from parity.secrecy import blanked

_POLL_SECONDS = 0.25
SETTLE_SECONDS = 60.0
"""So long the memory of a device may take to come back from an engine that has ended: vllm-ascend's own tests wait up
to 50 s between two engines (`tests/e2e/conftest.py`, `wait_until_npu_memory_free`)."""
_T = TypeVar("_T")
_P = ParamSpec("_P")


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
        after_another: bool = False,
        resumed: bool = True,
    ) -> None:
        """`after_another`: an engine of this run has just ended on the same devices. `resumed`: what is answered is
        part of a run, which --resume continues."""
        self.name = arm.name
        self.header: Header | None = None
        self.replicas = max(1, min(host.workers, len(plan.requests)))
        self.plans = [share(plan, replica, self.replicas) for replica in range(self.replicas)]
        self.say = say
        self.plan = plan
        self._arm, self._log_path = arm, log_path
        self._backend, self._host = backend, host
        self._on_event, self._timeouts, self._stop = on_event, timeouts, stop
        self._memory_signs = backend.memory_signs if isinstance(backend, HoldsMemory) else ()
        self._after_another, self._resumed = after_another, resumed
        self._memory_held, self._memory_line = False, ""
        self.stall = host.stall_timeout or (
            max(timeouts.stall, backend.stall_seconds) if isinstance(backend, Patient) else timeouts.stall
        )
        self._pool: Pool | None = None
        self._loading = False
        self._phase = Phase.STARTING
        self._began = time.monotonic()
        self.done = self.total = self.tokens = 0
        self._budgets = [Budget() for _ in range(self.replicas)]

    # ------------------------------------------------------------------ start and end

    def load(self) -> None:
        """Start the workers, whose engine's code is loaded while they wait for `start`; nothing where this backend or
        its host does not want that. Raises what starting a process raises."""
        wanted = isinstance(self._backend, LoadsAhead) and self._backend.loads_ahead and self._host.load_ahead
        if wanted and not self._host.far and self._pool is None:
            self._launch(wait=True)
            self._loading = True

    def _launch(self, settle: float = 0.0, *, wait: bool = False) -> None:
        source = self._backend.worker_source()
        self._pool = Pool(
            self._launches(len(source)), source, self._log_path,
            far=self._host.far, heartbeat=self._timeouts.heartbeat if self._host.far else None,
        )  # fmt: skip
        for replica, plan in enumerate(self.plans):
            self.send(replica, self._job(plan, settle, wait=wait))

    def start(self) -> Header:
        """Start the engines unless they are up; the header of the arm.

        Once more where the memory of their devices was not free: an engine before may just have ended.
        """
        if self.header is not None:
            return self.header
        settle = SETTLE_SECONDS if self._memory_signs else 0.0
        try:
            return self._start(settle if self._after_another else 0.0)
        except BackendError as error:
            if not self._memory_held:
                raise
            self.say(memory_held(self.name, settle, self._memory_line))
            try:
                return self._start(settle)
            except BackendError as again:
                raise again from error

    def _start(self, settle: float) -> Header:
        self._memory_held = False
        with self.guarded():
            if self._loading:
                self._loading = False
                for replica in range(self.replicas):
                    self.send(replica, Start(settle or UNSET))
            else:
                self._launch(settle)
            assert self._pool is not None
            until = time.monotonic() + (self._host.start_timeout or self._timeouts.start)
            headers: dict[int, Header] = {}
            while len(headers) < self.replicas:
                said = self.receive(Doing.STARTING, until)
                if isinstance(said, Header):
                    plan = self.plans[self._pool.speaker]
                    headers[self._pool.speaker] = self.checked(check_header, said, self.name, plan)
                elif isinstance(said, Completion | Score | Round | Footer):
                    self.fail(
                        message(
                            "run.before_header", "{arm}: the worker sent something before its header", arm=self.name
                        )
                    )
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
            found = expanded(host.python) if host.python else self._backend.interpreter(self.say)
            python = str(found)
            env = {**self._backend.launch_env(found), **env}
        env.update(host.env)
        program = [python, "-u", "-c", BOOTSTRAP.format(size=source_bytes)]
        return [command_line(host, program, {**env, **self._devices(n)}) for n in range(self.replicas)]

    def _devices(self, replica: int) -> dict[str, str]:
        if not self._host.devices:
            return {}
        if not isinstance(self._backend, HasDevices):
            raise ParityError(
                message(
                    "run.no_devices",
                    "backend {backend} names devices, but its adapter {adapter} has none to choose",
                    backend=repr(self._host.name),
                    adapter=repr(self._backend.name),
                ),
                hint=message("run.use_replicas", "use replicas = N, or set the variable of that hardware in env"),
            )
        return {self._backend.device_variable: self._host.devices[replica]}

    def _job(self, plan: Plan, settle: float, *, wait: bool) -> Job:
        if self._host.model is not None:
            plan = plan.with_model_path(self._host.model)
        asked = {**plan.to_json(), "parameters": wire()}
        silence = self._timeouts.heartbeat * 4 if self._host.far else UNSET
        return Job(asked, self.name, silence, settle or UNSET, wait or UNSET)

    def _one_header(self, headers: Sequence[Header]) -> Header:
        """The header of the arm from those of its replicas, which must be of one engine."""
        first = headers[0]
        for replica, other in enumerate(headers[1:], 1):
            differences = engine_differences(first, other, of_replicas=True)
            if differences:
                assert self._pool is not None
                self._pool.speaker = replica
                self.fail(
                    message(
                        "run.other_replica",
                        "{arm}: replica {replica} has another engine than replica 0: {differences}",
                        arm=self.name,
                        replica=replica,
                        differences=differences,
                    )
                )
        if len(headers) == 1:
            return first
        about = [
            {
                "visible_devices": self._host.devices[replica] if self._host.devices else None,
                "devices": header.environment.get("devices"),
            }
            for replica, header in enumerate(headers)
        ]
        return replace(first, extra={**first.extra, "plan_digest": plan_digest(self.plan.to_json()), "replicas": about})

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

    def send(self, replica: int, command: Command) -> None:
        assert self._pool is not None
        self._budgets[replica] = Budget()
        self._pool.send(replica, command)

    def listen_to(self, replicas: list[int]) -> None:
        assert self._pool is not None
        self._pool.listen_to(replicas)

    def receive(self, doing: Doing, until: float | None = None) -> FromWorker:
        """The next message; `until` is a time.monotonic() deadline, None means the stall timeout."""
        assert self._pool is not None
        if until is None:
            until = time.monotonic() + self.stall
        while True:
            if self._stop is not None and self._stop.is_set():
                raise KeyboardInterrupt
            try:
                said = self._pool.receive(min(_POLL_SECONDS, max(0.0, until - time.monotonic())))
                self._budgets[self._pool.speaker].spend(said)
            except NoAnswer:
                if time.monotonic() >= until:
                    self.fail(words_of(Trouble.SILENT, self.name, doing))
                self.tell()
                continue
            except WorkerGone:
                self.fail(words_of(Trouble.GONE, self.name, doing), gone=True)
            except ProtocolError as error:
                self.fail(words_of(Trouble.PROTOCOL, self.name, doing, error.said))
            if doing is not Doing.STARTING and self._budgets[self._pool.speaker].is_late(self.stall):
                self.fail(words_of(Trouble.FRUITLESS, self.name, doing))
            if isinstance(said, Failed):
                self.fail(words_of(Trouble.ENGINE, self.name, doing, engine_words(said)))
            return said

    def checked(self, check: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """What `check` returns; a breach of the protocol is a failure of the engine, and so is whatever else goes wrong
        with what a worker said: it must end this arm and no other."""
        try:
            return check(*args, **kwargs)
        except (ParityError, OSError, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as caught:  # noqa: BLE001 - a panic in Rust is no Exception
            error = caught if isinstance(caught, ProtocolError) else unfit(caught)
            self.fail(
                message(
                    "run.broke_protocol", "{arm}: the worker broke the protocol: {said}", arm=self.name, said=error.said
                )
            )

    def fail(self, said: Message, *, gone: bool = False) -> NoReturn:
        """Kill what is left and raise BackendError with the end of the engine's log."""
        assert self._pool is not None
        replica = self._pool.speaker
        worker = self._pool.workers[replica]
        if gone:
            worker.wait(2.0)
        else:
            worker.hear_out()
        self._pool.kill()
        tail, log = blanked(worker.log_tail(), self._host.secrets), log_of(self._log_path, replica)
        if gone:
            said = message("run.with_fate", "{said} ({fate})", said=said, fate=worker.fate())
        if self._host.far:
            said = message("run.on_host", "{said}, on {place}", said=said, place=place_in_words(self._host))
        if self.replicas > 1:
            said = message(
                "run.of_replica",
                "{said}, replica {replica} of {replicas}",
                said=said,
                replica=replica,
                replicas=self.replicas,
            )
        if self.done:
            said = message(
                "run.kept",
                "{said}, after {done} of {total}, which are kept",
                said=said,
                done=self.done,
                total=self.total,
            )
        if tail:
            lines = "".join(f"\n  {line}" for line in tail.splitlines())
            said = message("run.with_log", "{said}\nthe end of {log}:{lines}", said=said, log=str(log), lines=lines)
        self._memory_line = worker.line_with(self._memory_signs)
        self._memory_held = self.header is None and bool(self._memory_line)
        hint = (
            remedy(self._host, tail)
            or hint_for(self._backend, said)
            or self._backend.explain(self._memory_line or tail)
        )
        self.enter(Phase.FAILED, self.done, self.total, self.tokens)
        raise BackendError(
            said,
            hint=hint or self._way_on(str(log)),
        )

    def _way_on(self, log: str) -> Message:
        if self._resumed:
            return message(
                "run.whole_log",
                "the whole engine log is {log}. `parity run --resume` goes on where something beside the plan is "
                "mended (memory, a device, a server); what the plan asks takes a new run",
                log=log,
            )
        return message("run.whole_log_again", "the whole engine log is {log}; the same command goes on", log=log)

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
                message(
                    "run.interrupted",
                    "{arm}: interrupted after {done} of {total}, which are kept",
                    arm=self.name,
                    done=self.done,
                    total=self.total,
                ),
                hint=message("run.finish", "`parity run --resume` finishes it"),
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

    def event(self, said: FromWorker) -> None:
        """A message that is only shown, if anything."""
        if isinstance(said, Progress):
            self.tell(running=count(said.running))

    def tell(self, running: int = 0) -> None:
        seconds = time.monotonic() - self._began
        self._on_event(ArmEvent(self.name, self._phase, self.done, self.total, self.tokens, running, seconds))
