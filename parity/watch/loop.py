"""One probe after another: each is a run like any other, stored like any other."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from parity.errors import ParityError
from parity.messages import Message, Say, message
from parity.pipeline import Outcome
from parity.records import Json, Verdict
from parity.run import Interrupted


@dataclass(frozen=True, slots=True)
class Probe:
    """What became of one. `outcome` is None where it failed: a server did not answer, a disk was full."""

    number: int
    started: float
    """Seconds since the epoch."""
    seconds: float
    outcome: Outcome | None
    failure: str | None = None

    @property
    def verdict(self) -> Verdict:
        return Verdict.ERROR if self.outcome is None else self.outcome.verdict

    def to_json(self) -> dict[str, Json]:
        return {
            "schema": "parity.probe/1",
            "probe": self.number,
            "started": self.started,
            "seconds": round(self.seconds, 3),
            "verdict": str(self.verdict),
            "failure": self.failure,
            "result": None if self.outcome is None else self.outcome.to_json(),
        }


class Listener(Protocol):
    """Hears of every probe when it is over; must not raise."""

    def ended(self, probe: Probe) -> None: ...


@dataclass(slots=True)
class Watched:
    """How many probes came to which verdict, and whether the last one was one to stop at."""

    probes: int = 0
    verdicts: dict[Verdict, int] | None = None
    stopped_by: Probe | None = None

    def add(self, probe: Probe) -> None:
        self.probes += 1
        counts = self.verdicts if self.verdicts is not None else {}
        counts[probe.verdict] = counts.get(probe.verdict, 0) + 1
        self.verdicts = counts

    @property
    def worst(self) -> Verdict:
        """DIVERGED before ERROR: a server that was away for one probe must not hide what another one said."""
        counts = self.verdicts or {}
        order = (Verdict.DIVERGED, Verdict.ERROR, Verdict.INCONCLUSIVE, Verdict.PASS)
        return next((verdict for verdict in order if counts.get(verdict)), Verdict.INCONCLUSIVE)


def watch(
    probe: Callable[[], Outcome],
    listeners: tuple[Listener, ...],
    *,
    interval: float,
    probes: int | None,
    until: frozenset[Verdict],
    say: Say,
    clock: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
) -> Watched:
    """Probe every `interval` seconds, counted from start to start, `probes` times or for ever (None).

    Ends early at a verdict in `until`. A probe that takes longer than the interval is followed by the next at once;
    those that were due meanwhile are left out. A probe that fails is a verdict ERROR and the watch goes on: a
    monitoring that dies with what it monitors is of no use. Raises what is not a ParityError.
    """
    watched = Watched()
    due = clock()
    while probes is None or watched.probes < probes:
        wait = due - clock()
        if wait > 0:
            sleep(wait)
        started = clock()
        outcome, failure = None, None
        try:
            outcome = probe()
        except Interrupted:
            raise
        except ParityError as error:
            failure = str(error)
        done = Probe(watched.probes + 1, started, max(0.0, clock() - started), outcome, failure)
        watched.add(done)
        say(_line(done))
        for listener in listeners:
            listener.ended(done)
        if done.verdict in until:
            watched.stopped_by = done
            break
        due = max(due + interval, clock())
    return watched


def _line(probe: Probe) -> Message:
    if probe.outcome is None:
        said = (probe.failure or "").split("\n")[0]
        return message("watch.failed", "probe {number}: failed: {said}", number=probe.number, said=said)
    return message(
        "watch.probed",
        "probe {number}: {verdict} ({run}, {seconds:.1f} s) {reason}",
        number=probe.number,
        verdict=str(probe.verdict),
        run=probe.outcome.run_id,
        seconds=probe.seconds,
        reason=probe.outcome.reasons[0] if probe.outcome.reasons else "",
    )
