"""A rehearsal: in minutes, what a long run would find at its end.

Each arm starts once and answers one prompt, the longest. The baseline's engine scores one sequence of the greatest
length, which takes more memory than any step before it, and is started a second time, after engines have ended on that
machine. Nothing of it is stored as a run.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from parity.capture import read_capture
from parity.errors import BackendError, ParityError
from parity.messages import Message, Say, message
from parity.pipeline.capturing import Runner, Session
from parity.pipeline.directory import RunDirectory
from parity.pipeline.memory import Free, free_again
from parity.pipeline.rehearsed import recorded, sketched_tokens
from parity.plan import Arm, Plan
from parity.plan.churn import Churn
from parity.plan.hosts import Host, host_of
from parity.records import Capture, Json
from parity.records.engine_settings import draft_tokens, speculates, without_speculation
from parity.records.objects import object_of
from parity.run import Interrupted, OwnSettings, ScoreItem, load_backend
from parity.run.backend import Dear
from parity.store import Store

TOKENS = 8
"""Output tokens at least: some steps with drafts."""

AGAIN = "again"

Look = Callable[[Host], Free | None]


@dataclass(frozen=True, slots=True)
class ArmRehearsed:
    """What one arm showed; None for what was not tried or not said. Memory in MiB, times in seconds."""

    arm: str
    failed: Message | None = None
    start_seconds: float | None = None
    tokens: int = 0
    seconds: float | None = None
    free_before: int | None = None
    free_after: int | None = None
    kept_memory: bool = False
    """A device's memory did not come back after the engine had ended."""
    rows_seen: bool = False
    """Whether rows of the batch can be watched, as churn wants them."""
    scored_tokens: int | None = None
    score_seconds: float | None = None
    second_start: float | None = None
    row_steps: int | None = None
    """Recorded; None where nobody asks for steps."""
    sketched: int | None = None
    """Tokens of its own and of the score; None where nobody asks for sketches."""
    unwritten: tuple[Message, ...] = ()
    """Why steps or sketches that were asked for are not there, or end."""

    def to_json(self) -> dict[str, Json]:
        said: dict[str, Json] = {"unwritten": [str(why) for why in self.unwritten]}
        named = asdict(replace(self, failed=None, unwritten=()))
        return {**named, **said, "failed": None if self.failed is None else str(self.failed)}


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """A table of arms, and what a whole run would take at least and at most, in seconds."""

    arms: tuple[ArmRehearsed, ...]
    at_least: float
    at_most: float

    @property
    def failed(self) -> dict[str, Message]:
        return {one.arm: one.failed for one in self.arms if one.failed is not None}

    def to_json(self) -> dict[str, Json]:
        rows: list[Json] = [one.to_json() for one in self.arms]
        return {"schema": "parity.rehearsal/1", "arms": rows, "at_least": self.at_least, "at_most": self.at_most}


def unknown_hosts(plan: Plan, hosts: Mapping[str, Host], store: Store) -> list[str]:
    """Backends that never ran where they are to run now, as far as the store knows, and whose engines are dear."""
    wanted = {
        name: host
        for name, host in hosts.items()
        if any(arm.name.partition("/")[0] == name for arm in plan.arms) and _dear(host.adapter)
    }
    for run in store.runs() if wanted else ():
        if run.directory is None:
            continue
        recorded = RunDirectory(Path(run.directory)).describe().hosts
        ran = {arm.name.partition("/")[0] for arm in store.arms(run.id) if arm.status in ("captured", "compared")}
        for name in [name for name in wanted if name in ran and _same_place(wanted[name], recorded)]:
            del wanted[name]
        if not wanted:
            break
    return list(wanted)


def _dear(adapter: str) -> bool:
    backend = load_backend(adapter)
    return isinstance(backend, Dear) and backend.dear


def _same_place(host: Host, recorded: Json) -> bool:
    """Whether a run's own notes say that this backend was on this host."""
    names = object_of(recorded)
    return host.name in names and list(host.command) == list(object_of(names[host.name]).get("command") or ())


def rehearse(
    plan: Plan, directory: RunDirectory, runner: Runner, hosts: Mapping[str, Host], say: Say, look: Look
) -> Rehearsal:
    """Try each arm of a plan in `directory`, which is a rehearsal's own. `look` says what memory is free on a host.

    An arm that fails is in the table with its error and the others go on. Raises Interrupted, and ParityError for what
    is no engine's fault.
    """
    arms = rehearsed_arms(plan)
    others = [arm.name for arm in plan.arms if arm not in arms]
    if others:
        say(
            message(
                "pipeline.not_rehearsed", "not rehearsed: {arms}, which no engine of this run answers for", arms=others
            )
        )
    short = _short(plan, max((host.workers for host in hosts.values()), default=1))
    rows = []
    for arm in arms:
        host = host_of(hosts, arm.name, arm.backend)
        before = look(host)
        row = _Trial(plan, short, arm, directory, runner, say).row
        after = free_again(lambda: look(host), before)  # noqa: B023 - called before the next host
        kept = before is not None and after is not None and after.lacks(before)
        rows.append(replace(row, free_before=_megabytes(before), free_after=_megabytes(after), kept_memory=kept))
    at_least, at_most = _estimate(plan, rows)
    return Rehearsal(tuple(rows), at_least, at_most)


def rehearsed_arms(plan: Plan) -> tuple[Arm, ...]:
    """The arms whose engines the run starts, the baseline last. A server is somebody's production: it runs already,
    and whoever tries a run out does not want it asked.

    Raises ParityError where there is none."""
    arms = tuple(arm for arm in (*plan.candidates, plan.arm(plan.baseline)) if _starts(arm))
    if not arms:
        raise ParityError(
            message("pipeline.nothing_to_rehearse", "there is nothing to rehearse: no arm of the run starts an engine"),
            hint=message("pipeline.leave_rehearse", "leave --rehearse out"),
        )
    return arms


def _starts(arm: Arm) -> bool:
    backend = load_backend(arm.backend)
    return not isinstance(backend, OwnSettings) or backend.loads_weights


def _short(plan: Plan, workers: int) -> Plan:
    """The plan with its longest prompt alone (one for each replica), asked once for a few tokens."""
    longest = sorted(plan.requests, key=lambda request: len(request.prompt_token_ids), reverse=True)[:workers]
    drafts = max(draft_tokens(arm.engine) for arm in plan.arms)
    tokens = min(plan.sampling.max_tokens, max(TOKENS, 2 * (drafts + 1)))
    sampling = plan.sampling.having({"n": 1, "max_tokens": tokens, "min_tokens": min(plan.sampling.min_tokens, tokens)})
    return replace(
        plan,
        requests=tuple(replace(request, max_tokens=None) for request in longest),
        sampling=sampling,
        rounds=1,
        churn=replace(Churn(), asynchronous=plan.churn.asynchronous),
        arbiter=None,
    )


class _Trial:
    """What is tried of one arm; `row` holds all that came of it, up to where it failed."""

    def __init__(self, plan: Plan, short: Plan, arm: Arm, directory: RunDirectory, runner: Runner, say: Say) -> None:
        self._plan, self._short, self._directory, self._runner = plan, short, directory, runner
        self.row = ArmRehearsed(arm.name)
        try:
            self._run(arm)
        except Interrupted:
            raise
        except BackendError as error:
            said = message(
                "pipeline.rehearsal_failed", "{arm} failed in the rehearsal: {said}", arm=arm.name, said=error.message
            )
            say(said)
            if error.hint is not None:
                say(message("pipeline.hint", "hint: {what}", what=error.hint))
            self.row = replace(self.row, failed=error.message)

    def _run(self, arm: Arm) -> None:
        is_baseline, speculating = arm.name == self._plan.baseline, speculates(arm.engine)
        scores = is_baseline and self._plan.score.mode != "none"
        with self._session(arm) as (session, capture):
            self.row = _of_capture(self.row, capture)
            if scores and not speculating:
                self._score(session, capture)
        self.row = self._with_instruments(capture)
        if not is_baseline:
            return
        engine = without_speculation(arm.engine) if scores else arm.engine
        again = replace(arm, name=f"{arm.name.partition('/')[0]}/{AGAIN}", variant=AGAIN, engine=engine)
        with self._session(again) as (session, capture):
            self.row = replace(self.row, second_start=_seconds(capture, "engine_start_seconds"))
            if scores and speculating:
                self._score(session, capture)

    @contextmanager
    def _session(self, arm: Arm) -> Iterator[tuple[Session, Capture]]:
        plan = replace(self._short, arms=tuple({each.name: each for each in (*self._short.arms, arm)}.values()))
        with self._runner.open(plan, arm, self._directory, threading.Event()) as session:
            session.generate()
            yield session, read_capture(self._directory.capture(arm.name))

    def _with_instruments(self, capture: Capture) -> ArmRehearsed:
        """What recorder and sketches wrote of this arm, where they were asked for."""
        row, path = self.row, self._directory.capture(capture.header.arm)
        if self._plan.record:
            row_steps, why = recorded(path, capture)
            row = replace(row, row_steps=row_steps, unwritten=(*row.unwritten, *why))
        if self._plan.sketch:
            paths = (path, self._directory.scores) if row.scored_tokens is not None else (path,)
            tokens, why = sketched_tokens(paths, capture)
            row = replace(row, sketched=tokens, unwritten=(*row.unwritten, *why))
        return row

    def _score(self, session: Session, capture: Capture) -> None:
        """One sequence of the greatest length that the run may have to score."""
        completion = next(iter(capture))
        longest = max(len(request.prompt_token_ids) for request in self._plan.requests) + self._plan.sampling.max_tokens
        length = longest - len(completion.prompt_token_ids)
        tokens = np.resize(completion.token_ids if len(completion.token_ids) else completion.prompt_token_ids, length)
        item = ScoreItem(capture.header.arm, *completion.key, completion.prompt_token_ids, tokens)
        began = time.monotonic()
        session.score([item], self._directory.scores, top=self._plan.score.top)
        self.row = replace(self.row, scored_tokens=longest, score_seconds=round(time.monotonic() - began, 3))


def _of_capture(row: ArmRehearsed, capture: Capture) -> ArmRehearsed:
    return replace(
        row,
        start_seconds=_seconds(capture, "engine_start_seconds"),
        tokens=sum(len(completion.token_ids) for completion in capture),
        seconds=_seconds(capture, "generate_seconds"),
        rows_seen="rows_joined" in (capture.counters or {}),
    )


def _seconds(capture: Capture, name: str) -> float | None:
    value = (capture.counters or {}).get(name)
    return float(value) if isinstance(value, int | float) else None


def _megabytes(free: Free | None) -> int | None:
    return None if free is None else free.megabytes


def _estimate(plan: Plan, rows: list[ArmRehearsed]) -> tuple[float, float]:
    """Seconds of a whole run: engine starts alone, and with every token and score taken one after another.

    Machines that work side by side count as one, and what a batch gains is not known from one request: it lies
    between the two.
    """
    starts = sum(row.start_seconds or 0.0 for row in rows)
    limits = sum(request.max_tokens or plan.sampling.max_tokens for request in plan.requests)
    tokens = limits * plan.rounds * plan.sampling.n
    alone = sum(tokens * row.seconds / row.tokens for row in rows if row.seconds and row.tokens)
    sequences = plan.expected_completions * len(plan.arms)
    scores = sum(row.score_seconds * sequences for row in rows if row.score_seconds)
    return starts, starts + alone + scores


def failure(rehearsal: Rehearsal, logs: Path) -> ParityError | None:
    """The error of a rehearsal in which an arm failed, as a run would end; None where none did."""
    if not rehearsal.failed:
        return None
    return BackendError(
        message(
            "pipeline.rehearsal_ended",
            "the rehearsal failed in {arms}; engine logs are in {logs}",
            arms=[*rehearsal.failed],
            logs=str(logs),
        ),
        hint=message("pipeline.rehearse_again", "mend it and try again; --no-rehearse runs without a rehearsal"),
    )
