"""Every arm's capture, and the baseline's scores: arms on one machine take turns, machines work at the same time.

On one machine candidates run first and the baseline last: its engine then stays up and scores, so there is one
engine start per arm and never two engines at once. A baseline on a machine of its own runs beside the candidates,
and its engine waits for the last of them to score. Only a baseline with speculation needs another start, with
speculation off, for the scores.

A candidate whose engine fails is left out; the others go on. Where the baseline fails, or the last candidate, or
anything else goes wrong, all are ended in order. What they have captured stays.
"""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Protocol

from parity.capture import CaptureError, read_capture
from parity.errors import BackendError, ParityError
from parity.messages import Say, message
from parity.pipeline.crossing import crossing_items
from parity.pipeline.directory import RunDirectory
from parity.pipeline.held import HeldCaptures
from parity.pipeline.inside import bring_steps
from parity.pipeline.scoring import score_items
from parity.plan import Arm, Plan
from parity.plan.hosts import Host, host_of
from parity.records import Capture
from parity.records.engine_settings import speculates, without_speculation
from parity.run import (
    ArmSession,
    Interrupted,
    OnEvent,
    RefusedFile,
    ScoreItem,
    arm_session,
    put_aside,
    room_to_load,
    running,
)

SCORER_VARIANT = "score"
_POLL_SECONDS = 0.25


class Session(Protocol):
    """What the pipeline needs of a running arm; parity.run.ArmSession is one."""

    def generate(self) -> None: ...

    def score(self, items: Sequence[ScoreItem], scores_path: Path, *, top: int = 5) -> None: ...


class Runner(Protocol):
    """Opens sessions for arms."""

    def turn(self, arm: Arm) -> str:
        """Arms with the same value never run at the same time."""
        ...

    def load(self, plan: Plan, arm: Arm, directory: RunDirectory, stop: threading.Event) -> None:
        """Load the code of an arm's engine, whose turn comes after the one that is opened next, if there is room."""
        ...

    def open(
        self, plan: Plan, arm: Arm, directory: RunDirectory, stop: threading.Event
    ) -> AbstractContextManager[Session]:
        """A session for an arm of the plan; `stop` ends it in order, from another thread."""
        ...


@dataclass(frozen=True)
class Engines:
    """The real runner."""

    on_event: OnEvent
    say: Say
    hosts: Mapping[str, Host]
    used: set[str] = field(default_factory=set)
    """Turns in which an engine of this run has been."""
    loaded: dict[str, ArmSession] = field(default_factory=dict)
    """Of arms whose turn has not come."""

    def turn(self, arm: Arm) -> str:
        return host_of(self.hosts, arm.name, arm.backend).turn

    def load(self, plan: Plan, arm: Arm, directory: RunDirectory, stop: threading.Event) -> None:
        if room_to_load() and not directory.capture(arm.name).exists():
            session = self._session(plan, arm, directory, stop)
            try:
                session.load()
            except ParityError:
                return  # it comes again at the arm's own turn, and is its failure then
            self.loaded[arm.name] = session

    def open(
        self, plan: Plan, arm: Arm, directory: RunDirectory, stop: threading.Event
    ) -> AbstractContextManager[Session]:
        loaded = self.loaded.pop(arm.name, None)
        return running(loaded or self._session(plan, arm, directory, stop))

    def _session(self, plan: Plan, arm: Arm, directory: RunDirectory, stop: threading.Event) -> ArmSession:
        turn = self.turn(arm)
        after_another = turn in self.used
        self.used.add(turn)
        return arm_session(
            plan,
            arm.name,
            directory.capture(arm.name),
            directory.log(arm.name),
            on_event=self.on_event,
            say=self.say,
            resume=True,
            stop=stop,
            host=host_of(self.hosts, arm.name, arm.backend),
            after_another=after_another,
        )

    def end(self) -> None:
        """End what was loaded and never had its turn."""
        for session in self.loaded.values():
            session.kill()


@contextmanager
def engines(on_event: OnEvent, say: Say, hosts: Mapping[str, Host] | None = None) -> Iterator[Runner]:
    """The real runner, as a context so that callers can wrap a progress display around it."""
    runner = Engines(on_event, say, hosts or {})
    try:
        yield runner
    finally:
        runner.end()


class Recorder(Protocol):
    """Hears of each arm as it is done, in the calling thread."""

    def arm(self, arm: str, capture: Capture, path: Path) -> None: ...

    def arm_failed(self, arm: str, error: ParityError) -> None: ...


@dataclass(frozen=True)
class Captured:
    """The captures there are, the baseline's among them, and what became of the other candidates."""

    captures: Mapping[str, Capture]
    failed: Mapping[str, BackendError]


def capture_all(plan: Plan, directory: RunDirectory, runner: Runner, recorder: Recorder, say: Say) -> Captured:
    """Every arm's capture, and the scores file where the plan asks for one.

    Raises the first failure that leaves nothing to compare; Interrupted or KeyboardInterrupt when the user ends it.
    """
    turns: dict[str, list[Arm]] = {}
    for arm in (*plan.candidates, plan.arm(plan.baseline)):
        turns.setdefault(runner.turn(arm), []).append(arm)
    crew = _Crew(plan, directory, runner, recorder, say)
    if len(turns) == 1:
        (arms,) = turns.values()
        crew.take_turns(arms, crew.record)
    else:
        crew.work(list(turns.values()))
    return Captured(crew.captures, crew.failed)


Report = Callable[[Arm, Capture | BaseException], None]


class _Crew:
    def __init__(self, plan: Plan, directory: RunDirectory, runner: Runner, recorder: Recorder, say: Say) -> None:
        self.plan, self.directory, self.runner, self.recorder, self.say = plan, directory, runner, recorder, say
        self.captures = HeldCaptures(plan.baseline)
        self.failed: dict[str, BackendError] = {}
        self.baseline = plan.arm(plan.baseline)
        self._stop = threading.Event()
        self._all_captured = threading.Event()

    def record(self, arm: Arm, result: Capture | BaseException) -> None:
        """In the main thread: the store's connection belongs to it. Raises the failure that ends the run."""
        if isinstance(result, Capture):
            recording = arm.engine.get("capture")
            if isinstance(recording, str):
                bring_steps(Path(recording), self.directory.capture(arm.name))
            self.captures.add(arm.name, result, self.directory.capture(arm.name))
            self.recorder.arm(arm.name, result, self.directory.capture(arm.name))
        else:
            if isinstance(result, ParityError) and not isinstance(result, Interrupted):
                self.recorder.arm_failed(arm.name, result)
            if not isinstance(result, BackendError) or not self._can_do_without(arm, result):
                raise result
            self.failed[arm.name] = result
            if all(each.name in self.failed for each in self.plan.candidates):
                raise self._nothing_to_compare(result)
            said = str(result).removeprefix(f"{arm.name}: ")
            self.say(
                message(
                    "pipeline.failed_other_arms",
                    "{arm} failed, the other arms go on: {said}",
                    arm=arm.name,
                    said=said,
                )
            )
            if result.hint:
                self.say(message("pipeline.hint", "hint: {what}", what=result.hint))
        if all(each.name in self.captures or each.name in self.failed for each in self.plan.arms):
            self._all_captured.set()

    def _can_do_without(self, arm: Arm, error: BaseException) -> bool:
        """Whether there is still something to compare when this arm has failed."""
        return arm is not self.baseline and isinstance(error, BackendError) and not isinstance(error, Interrupted)

    def _nothing_to_compare(self, last: BackendError) -> BackendError:
        if len(self.failed) == 1:
            return last
        return BackendError(
            message(
                "pipeline.all_candidates_failed",
                "the only candidate failed: {message}",
                plural="all {count} candidates failed; the last: {message}",
                count=len(self.failed),
                message=last.message,
            ),
            hint=last.hint,
        )

    def take_turns(self, arms: Sequence[Arm], report: Report) -> None:
        """Run these one after the other, until one fails without which nothing can be compared."""
        for arm, coming in itertools.zip_longest(arms, arms[1:]):
            if self._stop.is_set():
                return
            try:
                self._capture(arm, report, coming)
            except BaseException as error:  # noqa: BLE001 - it is raised again where it is reported
                report(arm, error)
                if not self._can_do_without(arm, error):
                    return

    def _capture(self, arm: Arm, report: Report, coming: Arm | None) -> None:
        speculating = speculates(arm.engine)
        with self.runner.open(self.plan, arm, self.directory, self._stop) as session:
            if coming is not None:
                self.runner.load(self.plan, coming, self.directory, self._stop)
            anew(session.generate, self.say)
            report(arm, _read_back(self.directory.capture(arm.name), arm.name))
            if arm is self.baseline and not speculating:
                self._score(session)
        if arm is self.baseline and speculating:
            self._score_apart()

    def _score(self, session: Session) -> None:
        items = self._items()
        if items:
            self._score_on(session, items)

    def _score_on(self, session: Session, items: Sequence[ScoreItem]) -> None:
        top, at = self.plan.score.top, self.directory
        anew(lambda: session.score(items, at.scores, top=top), self.say)
        more = crossing_items(self.plan, at, self.captures)
        if more:
            anew(lambda: session.score(more, at.crossings, top=top), self.say)

    def _score_apart(self) -> None:
        """The baseline has speculation on: the same backend once more without it, only to score."""
        items = self._items()
        if not items:
            return
        engine = without_speculation(self.baseline.engine)
        where = self.baseline.name.partition("/")[0]
        scorer = replace(self.baseline, name=f"{where}/{SCORER_VARIANT}", variant=SCORER_VARIANT, engine=engine)
        with_scorer = replace(self.plan, arms=(*self.plan.arms, scorer))
        with self.runner.open(with_scorer, scorer, self.directory, self._stop) as session:
            self._score_on(session, items)

    def _items(self) -> list[ScoreItem]:
        """What is to be scored, once all arms are done."""
        if self.plan.score.mode == "none":
            return []
        while not self._all_captured.wait(_POLL_SECONDS):
            if self._stop.is_set():
                raise Interrupted(
                    message(
                        "pipeline.ended_before_scoring",
                        "{baseline}: ended before scoring; its completions are kept",
                        baseline=self.baseline.name,
                    )
                )
        return score_items(self.plan, self.captures)

    # ------------------------------------------------------------------ several machines

    def work(self, turns: Sequence[Sequence[Arm]]) -> None:
        """A thread for each machine; results are recorded here. What ends the run ends the others in order."""
        results: queue.Queue[tuple[Arm, Capture | BaseException]] = queue.Queue()
        threads = [
            threading.Thread(target=self.take_turns, args=(arms, lambda *result: results.put(result)), daemon=True)
            for arms in turns
        ]
        for thread in threads:
            thread.start()
        failed: BaseException | None = None
        try:
            while any(thread.is_alive() for thread in threads) or not results.empty():
                try:
                    arm, result = results.get(timeout=_POLL_SECONDS)
                except queue.Empty:
                    continue
                try:
                    self.record(arm, result)
                except BaseException as error:  # noqa: BLE001 - kept until the others have ended, then raised
                    self._stop.set()
                    if failed is None:
                        failed = error
                    elif isinstance(error, Interrupted):
                        self.say(
                            message(
                                "pipeline.ended_since_another",
                                "{message} (ended since another arm failed)",
                                message=error.message,
                            )
                        )
                    elif isinstance(error, ParityError):
                        self.say(message("pipeline.also_failed", "also failed: {message}", message=error.message))
        except KeyboardInterrupt:
            self._stop.set()
            for thread in threads:
                thread.join()  # each ends its engine in order; a second Ctrl-C leaves at once, stdin closes, they die
            raise Interrupted(
                message("pipeline.interrupted_captured_kept", "interrupted; what was captured is kept"),
                hint=message("pipeline.finishes", "`parity run --resume` finishes it"),
            ) from None
        if failed is not None:
            raise failed


OF_AN_ATTEMPT: Final = 3
"""Files that one attempt leaves: a capture, or scores, and steps and sketches beside it."""


def anew(work: Callable[[], None], say: Say) -> None:
    """Do it; where what an earlier attempt left cannot be continued, that is put aside and it begins again.

    Whatever a worker said last time, or whoever changed the file since, no run is stuck with it."""
    for _ in range(OF_AN_ATTEMPT):
        try:
            return work()
        except RefusedFile as error:
            aside = put_aside(error.path)
            say(
                message(
                    "pipeline.begun_again",
                    "{what}; it is kept as {path}, and this begins again",
                    what=error.message,
                    path=str(aside),
                )
            )
    return work()


def _read_back(path: Path, arm: str) -> Capture:
    """The capture that an arm has just been given. Raises BackendError: what it holds is the arm's doing, and the file
    is put aside, so that a resumed run makes it anew."""
    try:
        return read_capture(path)
    except CaptureError as error:
        aside = put_aside(path)
        raise BackendError(
            message(
                "pipeline.capture_refused", "{arm}: its capture cannot be read: {what}", arm=arm, what=error.message
            ),
            hint=message("pipeline.capture_aside", "it is kept as {path}; --resume makes it anew", path=str(aside)),
        ) from error
