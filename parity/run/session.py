"""One arm, from spawning its engine to the last record of its capture."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, ParamSpec, TypeVar

import numpy as np

from parity.errors import BackendError, ParityError
from parity.records import Json, Key, ScoreKey, TokenIds
from parity.run import messages, resume
from parity.run.backend import Backend, load_backend
from parity.run.envs import Say
from parity.run.events import ArmEvent, OnEvent, Phase, ignore
from parity.run.failures import Interrupted, Timeouts
from parity.run.process import (
    NoAnswer,
    ProtocolError,
    WorkerGone,
    WorkerProcess,
    printable,
    worker_command,
    worker_environment,
)

SCORE_CHUNK = 256
"""Items of one score command: enough to fill an engine's batch, small enough to lose little."""

_POLL_SECONDS = 0.25
_T = TypeVar("_T")
_P = ParamSpec("_P")


@dataclass(frozen=True, slots=True)
class ScoreItem:
    """A completion of `arm` to be teacher-forced: each of its tokens gets the scoring engine's opinion."""

    arm: str
    request: str
    round: int
    sample: int
    prompt_token_ids: Sequence[int] | TokenIds
    token_ids: Sequence[int] | TokenIds

    @property
    def key(self) -> ScoreKey:
        return ScoreKey(self.arm, self.request, self.round, self.sample)

    def to_json(self) -> dict[str, Json]:
        return {
            **self.key._asdict(),
            "prompt_token_ids": _plain_ids(self.prompt_token_ids),
            "token_ids": _plain_ids(self.token_ids),
        }


def _plain_ids(ids: Sequence[int] | TokenIds) -> list[int]:
    """A list of Python integers, also from a numpy array."""
    plain: list[int] = ids.tolist() if isinstance(ids, np.ndarray) else [int(token) for token in ids]
    return plain


def say_to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


class ArmSession:
    """Runs one arm of a plan. Made by `run_arm`; the engine starts at the first call that needs it."""

    def __init__(
        self,
        plan: Mapping[str, Json],
        arm: Mapping[str, Json],
        capture_path: Path,
        log_path: Path,
        *,
        backend: Backend,
        on_event: OnEvent,
        say: Say,
        timeouts: Timeouts,
        stop: threading.Event | None,
    ) -> None:
        self.plan = plan
        self.arm = arm
        self.name: str = arm["name"]
        self.capture_path = capture_path
        self.log_path = log_path
        self.header: dict[str, Json] | None = None
        """The engine's header, once it has started."""
        self._backend = backend
        self._on_event = on_event
        self._say = say
        self._timeouts = timeouts
        self._stop = stop
        self._expected = messages.Expected.of(plan, self.name)
        self._worker: WorkerProcess | None = None
        self._phase = Phase.STARTING
        self._began = time.monotonic()
        self._done = self._total = self._tokens = 0

    # ------------------------------------------------------------------ what callers use

    def generate(self) -> None:
        """Run all rounds of the plan into the capture file, or what is missing of them.

        A capture with a footer is left as it is and no engine starts. Raises BackendError (engine),
        ParityError (capture file), Interrupted.
        """
        held = resume.read_held(self.capture_path)
        resume.check_same_plan(held, self.plan, self.arm, self.capture_path)
        self._enter(Phase.STARTING, len(held.completions), self._expected.completions, held.tokens)
        if held.complete:
            self._enter(Phase.DONE, len(held.completions), self._expected.completions, held.tokens)
            return
        header = self._start()
        if held.header is not None:
            resume.check_same_engine(held.header, header, self.capture_path)
        with self._guarded():
            self._generate(held, header)
        self._enter(Phase.DONE, self._done, self._total, self._tokens)

    def score(self, items: Sequence[ScoreItem], scores_path: Path, *, top: int = 5) -> None:
        """Teacher-force `items` on this arm into `scores_path`, or what is missing of them there.

        Each distinct sequence is computed once. Items that the engine cannot take (longer than
        max_model_len, ids outside the vocabulary) are named in the footer's counters as `unscored`.
        Raises BackendError, ParityError, Interrupted.
        """
        if self.arm["engine"].get("speculative_config"):
            raise ParityError(
                f"{self.name} cannot score: it has speculation on", hint="score on the baseline, a base arm"
            )
        held = resume.read_held(scores_path)
        resume.check_same_plan(held, self.plan, self.arm, scores_path)
        refused = {ScoreKey(*entry[:4]) for entry in _counters(held).get("unscored_items", [])}
        wanted = {item.key: item for item in items}
        missing = [item for key, item in wanted.items() if key not in held.scores and key not in refused]
        self._enter(Phase.STARTING, len(held.scores), len(wanted), 0)
        if held.complete and not missing:
            self._enter(Phase.DONE, len(held.scores), len(wanted), 0)
            return
        header = self._start()
        if held.header is not None:
            resume.check_same_engine(held.header, header, scores_path)
        with self._guarded():
            self._score(held, header, missing, len(wanted), scores_path, top)
        self._enter(Phase.DONE, self._done, self._total, self._tokens)

    def close(self) -> None:
        """End the engine, orderly where it goes along; safe to call again."""
        if self._worker is not None:
            self._worker.end(self._timeouts.grace)

    def kill(self) -> None:
        """End the engine at once."""
        if self._worker is not None:
            self._worker.kill()

    # ------------------------------------------------------------------ the engine

    def _start(self) -> dict[str, Json]:
        if self.header is not None:
            return self.header
        interpreter = self._backend.interpreter(self._say)
        source = self._backend.worker_source()
        env = {**self._backend.launch_env(interpreter), **(self.arm.get("env") or {})}
        with self._guarded():
            self._worker = WorkerProcess(
                worker_command(interpreter, source), worker_environment(env), source, self.log_path
            )
            self._worker.send({"plan": self.plan, "arm": self.name})
            until = time.monotonic() + self._timeouts.start
            while True:
                message = self._receive(until, "starting the engine")
                if message.get("record") == "header":
                    self.header = self._checked(messages.check_header, message, self.name)
                    break
                if "event" not in message:
                    self._fail(f"{self.name}: the worker sent {message.get('record')!r} before its header")
        self._enter(Phase.READY, self._done, self._total, self._tokens)
        return self.header

    def _generate(self, held: resume.Held, header: dict[str, Json]) -> None:
        rounds = held.unfinished_rounds(self._expected)
        fresh: dict[Key, resume.Kept] = {}
        replayed: dict[Key, bool] = {}
        repeated = 0
        capture = resume.Appender(self.capture_path, keep_bytes=held.end)
        try:
            if held.header is None:
                capture.add(header)
            self._enter(Phase.GENERATING, len(held.completions), self._expected.completions, held.tokens)
            self._send({"op": "generate", "rounds": rounds})
            while True:
                message = self._receive(None, "generating")
                kind = message.get("record")
                if kind == "completion":
                    key, record = self._checked(messages.check_completion, message, self._expected, rounds)
                    if key in held.completions and key not in replayed:
                        replayed[key] = held.completions[key].digest == resume.digest(record["token_ids"])
                    elif key in held.completions or key in fresh:
                        repeated += 1
                    else:
                        capture.add(record)
                        fresh[key] = kept = resume.keep(record)
                        self._advance(1, kept.tokens)
                elif kind == "footer":
                    counters = self._checked(messages.check_counters, message)
                    break
                else:
                    self._event(message)
            seconds = counters.get("generate_seconds")
            if isinstance(seconds, int | float) and seconds > 0:
                counters["tokens_per_second"] = round(messages.count(counters.get("tokens")) / seconds, 1)
            if repeated:
                counters["repeated_completions"] = repeated
            if held.header is not None:
                _add_earlier(counters, held, rounds)
                counters["replay_differences"] = sum(1 for same in replayed.values() if not same)
            counters["tokens"] = held.tokens + sum(kept.tokens for kept in fresh.values())
            total = len(held.completions) + len(fresh)
            capture.add({"record": "footer", "completions": total, "scores": 0, "counters": counters})
        finally:
            capture.close()

    def _score(
        self,
        held: resume.Held,
        header: dict[str, Json],
        missing: Sequence[ScoreItem],
        total: int,
        path: Path,
        top: int,
    ) -> None:
        lengths = {item.key: len(item.token_ids) for item in missing}
        unscored: list[list[Json]] = list(_counters(held).get("unscored_items", []))
        done = set(held.scores)
        sequences = tokens = 0
        began = time.monotonic()
        scores = resume.Appender(path, keep_bytes=held.end)
        try:
            if held.header is None:
                scores.add(header)
            self._enter(Phase.SCORING, len(done), total, 0)
            for chunk in _chunks(missing):
                self._send({"op": "score", "items": [item.to_json() for item in chunk], "top": top})
                while True:
                    message = self._receive(None, "scoring")
                    if message.get("record") == "score":
                        key, record = self._checked(messages.check_score, message, lengths)
                        if key not in done:
                            scores.add(record)
                            done.add(key)
                            self._advance(1, lengths[key])
                    elif message.get("event") == "unscored":
                        entry = self._checked(_unscored, message, lengths)
                        unscored.append(entry)
                        self._say(f"{self.name}: not scored: {entry[0]} {Key(*entry[1:4])}: {entry[4]}")
                    elif message.get("event") == "scored":
                        sequences += messages.count(message.get("sequences"))
                        tokens += messages.count(message.get("tokens"))
                        break
                    else:
                        self._event(message)
            counters: dict[str, Json] = {
                "sequences": sequences + messages.count(_counters(held).get("sequences")),
                "scored_tokens": tokens,
                "score_seconds": round(time.monotonic() - began, 3),
                "unscored": len(unscored),
                "unscored_items": unscored,
                "top": top,
            }
            scores.add({"record": "footer", "completions": 0, "scores": len(done), "counters": counters})
        finally:
            scores.close()

    # ------------------------------------------------------------------ talking to the worker

    def _send(self, command: Mapping[str, Json]) -> None:
        assert self._worker is not None
        self._worker.send(command)

    def _receive(self, until: float | None, doing: str) -> dict[str, Json]:
        """The next message; `until` is a time.monotonic() deadline, None means the stall timeout."""
        assert self._worker is not None
        if until is None:
            until = time.monotonic() + self._timeouts.stall
        while True:
            if self._stop is not None and self._stop.is_set():
                raise KeyboardInterrupt
            try:
                message = self._worker.receive(min(_POLL_SECONDS, max(0.0, until - time.monotonic())))
            except NoAnswer:
                if time.monotonic() >= until:
                    self._fail(f"{self.name}: nothing from the worker for too long while {doing}")
                self._tell()
                continue
            except WorkerGone:
                self._fail(f"{self.name}: the worker ended while {doing}", gone=True)
            except ProtocolError as error:
                self._fail(f"{self.name}: the worker broke the protocol while {doing}: {error}")
            if message.get("event") == "error":
                what = f"{message.get('type')}: {message.get('message')}"
                self._fail(f"{self.name}: the engine failed while {doing}: {_plain(what)}")
            return message

    def _checked(self, check: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return check(*args, **kwargs)
        except ProtocolError as error:
            self._fail(f"{self.name}: the worker broke the protocol: {error}")

    def _event(self, message: Mapping[str, Json]) -> None:
        if message.get("event") == "progress":
            self._tell(running=messages.count(message.get("running")))

    def _fail(self, message: str, *, gone: bool = False) -> NoReturn:
        """Kill what is left and raise BackendError with the end of the engine's log."""
        assert self._worker is not None
        if gone:
            self._worker.wait(2.0)
        self._worker.kill()
        tail = self._worker.log_tail()
        lines = [f"{message} ({self._worker.fate()})" if gone else message]
        if self._done:
            lines[0] += f", after {self._done} of {self._total}, which are kept"
        if tail:
            lines.append(f"the end of {self.log_path}:")
            lines += ["  " + line for line in tail.splitlines()]
        hint = self._backend.explain(tail) or f"the whole engine log is {self.log_path}; --resume continues"
        self._enter(Phase.FAILED, self._done, self._total, self._tokens)
        raise BackendError("\n".join(lines), hint=hint)

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """Ctrl-C ends the worker in order; any other way out of a stage kills it."""
        try:
            yield
        except KeyboardInterrupt:
            try:
                self.close()
            except KeyboardInterrupt:  # a second Ctrl-C: do not wait for the engine
                self.kill()
            self._enter(Phase.FAILED, self._done, self._total, self._tokens)
            raise Interrupted(
                f"{self.name}: interrupted after {self._done} of {self._total}, which are kept",
                hint="`parity run --resume` finishes it",
            ) from None
        except BaseException:
            self.kill()
            raise

    # ------------------------------------------------------------------ telling the watcher

    def _enter(self, phase: Phase, done: int, total: int, tokens: int) -> None:
        self._phase, self._done, self._total, self._tokens = phase, done, total, tokens
        self._began = time.monotonic()
        self._tell()

    def _advance(self, done: int, tokens: int) -> None:
        self._done += done
        self._tokens += tokens
        self._tell()

    def _tell(self, running: int = 0) -> None:
        seconds = time.monotonic() - self._began
        self._on_event(ArmEvent(self.name, self._phase, self._done, self._total, self._tokens, running, seconds))


def _plain(text: str) -> str:
    return " ".join(printable(line) for line in text.splitlines())[:2000]


def _counters(held: resume.Held) -> Mapping[str, Json]:
    return (held.footer or {}).get("counters") or {}


def _unscored(message: Mapping[str, Json], lengths: Mapping[ScoreKey, int]) -> list[Json]:
    try:
        key = ScoreKey(**message["key"])
        reason = str(message["reason"])
    except (KeyError, TypeError):
        raise ProtocolError("an unscored event without key and reason") from None
    if key not in lengths:
        raise ProtocolError(f"unscored: nobody asked for {key}")
    return [*key, _plain(reason)[:300]]


def _chunks(items: Sequence[ScoreItem]) -> Iterator[list[ScoreItem]]:
    """Commands' worth of items; the same sequence never in two of them, so it is computed once."""
    groups: dict[tuple[tuple[int, ...], tuple[int, ...]], list[ScoreItem]] = {}
    for item in items:
        sequence = (tuple(_plain_ids(item.prompt_token_ids)), tuple(_plain_ids(item.token_ids)))
        groups.setdefault(sequence, []).append(item)
    chunk: list[ScoreItem] = []
    for group in groups.values():
        chunk += group
        if len(chunk) >= SCORE_CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _add_earlier(counters: dict[str, Json], held: resume.Held, replayed_rounds: Sequence[int]) -> None:
    """Add what the rounds that were not run again had contributed, as far as the capture tells."""
    earlier = [kept for key, kept in held.completions.items() if key.round not in replayed_rounds]
    for name, value in (
        ("drafts", sum(kept.drafts for kept in earlier)),
        ("draft_tokens", sum(kept.draft_tokens for kept in earlier)),
        ("accepted_tokens", sum(kept.accepted_tokens for kept in earlier)),
        ("generation_tokens", sum(kept.tokens for kept in earlier)),
    ):
        if name in counters:
            counters[name] = messages.count(counters[name]) + value
    counters["resumed_completions"] = len(held.completions)


@contextmanager
def run_arm(
    plan: Mapping[str, Json],
    arm_name: str,
    capture_path: Path,
    log_path: Path,
    *,
    on_event: OnEvent = ignore,
    say: Say = say_to_stderr,
    resume: bool = False,
    timeouts: Timeouts | None = None,
    stop: threading.Event | None = None,
    backend: Backend | None = None,
) -> Iterator[ArmSession]:
    """A session for the arm called `arm_name` of a plan (the JSON mapping of schema parity.plan/1).

    Without `resume` an existing capture is refused; with it, a complete one is left alone and an
    unfinished one continued. `say` takes lines for the user, `stop` ends the run like Ctrl-C does,
    `backend` replaces the installed adapter. The engine has ended when the block is left.
    Raises ParityError for what the caller got wrong and BackendError for everything else.
    """
    arm = next((arm for arm in plan["arms"] if arm["name"] == arm_name), None)
    if arm is None:
        known = ", ".join(arm["name"] for arm in plan["arms"])
        raise ParityError(f"the plan has no arm {arm_name!r}", hint=f"it has {known}")
    if not resume and capture_path.exists() and capture_path.stat().st_size:
        raise ParityError(f"{capture_path} exists already", hint="continue it with --resume, or move it away")
    session = ArmSession(
        plan,
        arm,
        capture_path,
        log_path,
        backend=load_backend(arm["backend"]) if backend is None else backend,
        on_event=on_event,
        say=say,
        timeouts=timeouts or Timeouts(),
        stop=stop,
    )
    try:
        yield session
    except BaseException:
        session.kill()
        raise
    session.close()
