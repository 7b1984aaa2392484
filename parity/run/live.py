"""An arm whose engine stays up and answers one question after another: trials instead of a plan's rounds."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from msgspec import structs

from parity.messages import Say
from parity.plan import Plan, Request, Sampling
from parity.plan.churn import Churn
from parity.plan.hosts import Host
from parity.records import Completion, Header, ScoreKey, TopLogprobs
from parity.run import messages
from parity.run.adapters import load_backend
from parity.run.commands import Teacher, trial_of
from parity.run.counting import Counters
from parity.run.events import OnEvent, ignore
from parity.run.expected import Expected, check_score
from parity.run.failures import Doing, Timeouts
from parity.run.items import ScoreItem
from parity.run.link import Link

NO_CHURN = Churn()


class LiveArm:
    """Runs other requests with other sampling parameters on one engine. Made by `live_arm`."""

    def __init__(self, link: Link) -> None:
        self._link = link

    @property
    def name(self) -> str:
        return self._link.name

    def engine(self) -> Header:
        """The engine's header; starts it where it has not started. Raises BackendError."""
        return self._link.start()

    def trial(
        self,
        requests: Sequence[Request],
        sampling: Sampling,
        churn: Churn = NO_CHURN,
    ) -> tuple[list[Completion], Counters]:
        """One round of `requests`, joining as `churn` says, or all at once: its completions, in the order in which
        they ended, and the counters.

        Raises BackendError, Interrupted.
        """
        link = self._link
        link.start()
        plan = replace(link.plan, requests=tuple(requests), rounds=1, sampling=sampling, churn=churn)
        expected = Expected.of(plan, link.name)
        completions: list[Completion] = []
        with link.guarded():
            link.send(0, trial_of(plan))
            while True:
                said = link.receive(Doing.TRYING)
                if isinstance(said, messages.Completion):
                    completions.append(link.checked(link.checked(expected.check_completion, said, [0]).parsed))
                elif isinstance(said, messages.Footer):
                    return completions, said.counters
                else:
                    link.event(said)

    def top_logprobs(self, items: Sequence[ScoreItem], *, top: int = 5) -> dict[ScoreKey, TopLogprobs]:
        """Teacher-force `items`; those that the engine cannot take are left out. Raises BackendError, Interrupted."""
        link = self._link
        link.start()
        lengths = {item.key: len(item.token_ids) for item in items}
        found: dict[ScoreKey, TopLogprobs] = {}
        if not items:
            return found
        with link.guarded():
            link.send(0, Teacher(items, top))
            while True:
                said = link.receive(Doing.SCORING)
                if isinstance(said, messages.Score):
                    score = link.checked(check_score, said, lengths)
                    found[score.key] = link.checked(score.parsed)
                elif isinstance(said, messages.Scored):
                    return found
                else:
                    link.event(said)

    def close(self) -> None:
        self._link.close()


@contextmanager
def live_arm(
    plan: Plan,
    arm_name: str,
    log_path: Path,
    *,
    host: Host | None = None,
    on_event: OnEvent = ignore,
    say: Say = lambda line: None,
    timeouts: Timeouts | None = None,
    stop: threading.Event | None = None,
) -> Iterator[LiveArm]:
    """A live arm of a plan; its engine has ended when the block is left.

    `host` is where the backend runs, one worker of it; this machine without one. The engine starts at the first
    trial. Raises ParityError and BackendError as `run_arm` does.
    """
    arm = plan.arm(arm_name)
    adapter = host.adapter if host is not None else arm.backend
    one = structs.replace(host, devices=host.devices[:1], replicas=1) if host else Host(name=adapter, adapter=adapter)
    link = Link(
        plan,
        arm,
        log_path,
        backend=load_backend(adapter),
        host=one,
        on_event=on_event,
        say=say,
        timeouts=timeouts or Timeouts(),
        stop=stop,
        resumed=False,
    )
    try:
        yield LiveArm(link)
    except BaseException:
        link.kill()
        raise
    link.close()
