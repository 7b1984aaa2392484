"""One arm, from spawning its engine to the last record of its capture."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypedDict, Unpack

from parity.errors import ParityError
from parity.files import print_talk
from parity.messages import Message, Say, message
from parity.plan import Arm, Plan
from parity.plan.hosts import Host
from parity.records import Header, ScoreKey
from parity.records.engine_settings import speculates
from parity.run import resume
from parity.run.adapters import load_backend
from parity.run.backend import Backend
from parity.run.events import OnEvent, Phase, ignore
from parity.run.expected import Expected
from parity.run.failures import Timeouts
from parity.run.generating import Generation
from parity.run.items import ScoreItem
from parity.run.link import Link
from parity.run.scoring import Scoring


def say_to_stderr(line: Message | str) -> None:
    print_talk(str(line), sys.stderr)


class ArmSettings(TypedDict, total=False):
    """How a session is made."""

    on_event: OnEvent
    say: Say
    """Takes lines for the user; they go to stderr unless this says otherwise."""
    resume: bool
    """An existing capture is refused without this; with it, a complete one is left alone and an unfinished one
    continued."""
    timeouts: Timeouts | None
    stop: threading.Event | None
    """Ends the run like Ctrl-C does."""
    backend: Backend | None
    """Replaces the installed adapter."""
    host: Host | None
    """Where the engine runs; here where it is not said."""
    after_another: bool
    """An engine of this run has just ended there."""


class ArmSession:
    """Runs one arm of a plan. Made by `run_arm`; the engine starts at the first call that needs it."""

    def __init__(self, plan: Plan, arm: Arm, capture_path: Path, link: Link) -> None:
        self.plan = plan
        self.arm = arm
        self.name = arm.name
        self.capture_path = capture_path
        self.link = link
        self._expected = Expected.of(plan, self.name)
        self._of_replica = [Expected.of(part, self.name) for part in link.plans]

    @property
    def header(self) -> Header | None:
        """The engine's header, once it has started."""
        return self.link.header

    def generate(self) -> None:
        """Run all rounds of the plan into the capture file, or what is missing of them.

        A capture with a footer is left as it is and no engine starts. Raises BackendError (engine),
        ParityError (capture file), Interrupted.
        """
        held = resume.read_held(self.capture_path)
        resume.check_same_plan(held, self.plan, self.arm, self.capture_path)
        link = self.link
        if held.complete:
            link.enter(Phase.DONE, len(held.completions), self._expected.completions, held.tokens)
            return
        generation = Generation(link, held, self._of_replica, self.capture_path)
        header = self._started(len(held.completions), self._expected.completions, held.tokens)
        if held.header is not None:
            resume.check_same_engine(held.header, header, self.capture_path)
        with link.guarded():
            generation.run(header)
        link.enter(Phase.DONE, link.done, link.total, link.tokens)

    def score(self, items: Sequence[ScoreItem], scores_path: Path, *, top: int = 5) -> None:
        """Teacher-force `items` on this arm into `scores_path`, or what is missing of them there.

        Each distinct sequence is computed once. Items that the engine cannot take (longer than
        max_model_len, ids outside the vocabulary) are named in the footer's counters as `unscored`.
        Raises BackendError, ParityError, Interrupted.
        """
        if speculates(self.arm.engine):
            raise ParityError(
                message("run.cannot_score", "{arm} cannot score: it has speculation on", arm=self.name),
                hint=message("run.score_on_base", "score on the baseline, a base arm"),
            )
        held = resume.read_held(scores_path)
        resume.check_same_plan(held, self.plan, self.arm, scores_path)
        refused = {ScoreKey(*entry[:4]) for entry in held.counters.get("unscored_items", [])}
        wanted = {item.key: item for item in items}
        missing = [item for key, item in wanted.items() if key not in held.scores and key not in refused]
        link = self.link
        if held.complete and not missing:
            link.enter(Phase.DONE, len(held.scores), len(wanted), 0)
            return
        scoring = Scoring(link, held, missing, top, scores_path)
        header = self._started(len(held.scores), len(wanted), 0)
        if held.header is not None:
            resume.check_same_engine(held.header, header, scores_path)
        with link.guarded():
            scoring.run(header, len(wanted), scores_path)
        link.enter(Phase.DONE, link.done, link.total, link.tokens)

    def _started(self, done: int, total: int, tokens: int) -> Header:
        """The engine's header; starts it, and says so, unless it is up."""
        if self.link.header is None:
            self.link.enter(Phase.STARTING, done, total, tokens)
        return self.link.start()

    def load(self) -> None:
        """Load the engine's code before its turn, where the backend can: nothing is said of it until it starts."""
        self.link.load()

    def close(self) -> None:
        """End the engine, orderly where it goes along; safe to call again."""
        self.link.close()

    def kill(self) -> None:
        """End the engine at once."""
        self.link.kill()


def arm_session(
    plan: Plan, arm_name: str, capture_path: Path, log_path: Path, **settings: Unpack[ArmSettings]
) -> ArmSession:
    """A session for the arm called `arm_name` of a plan; nothing has been started.

    Raises ParityError for what the caller got wrong.
    """
    arm = next((arm for arm in plan.arms if arm.name == arm_name), None)
    if arm is None:
        raise ParityError(
            message("run.no_arm", "the plan has no arm {arm}", arm=repr(arm_name)),
            hint=message("run.arms_there_are", "it has {arms}", arms=[arm.name for arm in plan.arms]),
        )
    if not settings.get("resume") and capture_path.exists() and capture_path.stat().st_size:
        raise ParityError(
            message("run.exists", "{path} exists already", path=str(capture_path)),
            hint=message("run.continue", "continue it with --resume, or move it away"),
        )
    link = Link(
        plan,
        arm,
        log_path,
        backend=settings.get("backend") or load_backend(arm.backend),
        host=settings.get("host") or Host(arm_name.partition("/")[0], arm.backend),
        on_event=settings.get("on_event", ignore),
        say=settings.get("say", say_to_stderr),
        timeouts=settings.get("timeouts") or Timeouts(),
        stop=settings.get("stop"),
        after_another=settings.get("after_another", False),
    )
    return ArmSession(plan, arm, capture_path, link)


@contextmanager
def running(session: ArmSession) -> Iterator[ArmSession]:
    """The session; its engine has ended when the block is left, at once where an error leaves it."""
    try:
        yield session
    except BaseException:
        session.kill()
        raise
    session.close()


@contextmanager
def run_arm(
    plan: Plan, arm_name: str, capture_path: Path, log_path: Path, **settings: Unpack[ArmSettings]
) -> Iterator[ArmSession]:
    """`arm_session` and `running` in one: a session whose engine has ended when the block is left.

    Raises ParityError for what the caller got wrong and BackendError for everything else.
    """
    with running(arm_session(plan, arm_name, capture_path, log_path, **settings)) as session:
        yield session
