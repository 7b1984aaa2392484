"""One probe after another: each is a run like any other, stored like any other."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from parity.errors import ParityError
from parity.messages import Message, Say, message
from parity.pipeline.outcome import Outcome
from parity.records import Json, Verdict
from parity.run import Interrupted
from parity.watch.evidence import NOTHING_YET, Change, Evidence


@dataclass(frozen=True, slots=True)
class Probe:
    """What became of one. `outcome` is None where it failed: a server did not answer, a disk was full."""

    number: int
    started: float
    """Seconds since the epoch."""
    seconds: float
    outcome: Outcome | None
    failure: str | None = None
    changes: tuple[Change, ...] = ()
    """What has changed since the watch began, by all probes together."""
    new_changes: tuple[Change, ...] = ()
    """Those that the probe before did not show."""

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
            "changes": [change.to_json() for change in self.changes],
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
    corrupt: str | None = None
    """The run of the first probe that DIVERGED."""
    changes: tuple[Change, ...] = ()

    def add(self, probe: Probe) -> None:
        self.probes += 1
        self.changes = probe.changes
        counts = self.verdicts if self.verdicts is not None else {}
        counts[probe.verdict] = counts.get(probe.verdict, 0) + 1
        if probe.outcome is not None and probe.verdict is Verdict.DIVERGED and self.corrupt is None:
            self.corrupt = probe.outcome.run_id
        self.verdicts = counts

    @property
    def worst(self) -> Verdict:
        """DIVERGED before ERROR: a server that was away for one probe must not hide what another one said. A number
        that has changed says of no probe that it is wrong, and leaves none of them clear."""
        counts = self.verdicts or {}
        order = (Verdict.DIVERGED, Verdict.ERROR, Verdict.INCONCLUSIVE, Verdict.PASS)
        worst = next((verdict for verdict in order if counts.get(verdict)), Verdict.INCONCLUSIVE)
        return Verdict.INCONCLUSIVE if worst is Verdict.PASS and self.changes else worst


def watch(
    probe: Callable[[int], Outcome],
    listeners: tuple[Listener, ...],
    *,
    interval: float,
    probes: int | None,
    until: frozenset[Verdict],
    until_changed: bool = False,
    evidence: Evidence = NOTHING_YET,
    watched: Watched | None = None,
    say: Say,
    clock: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
) -> Watched:
    """Probe every `interval` seconds, counted from start to start, `probes` times or for ever (None).

    `probe` is given its number, from 1. Ends early at a verdict in `until`, or when a number has changed
    (`until_changed`); `evidence` is that of earlier probes of the same plan. A probe that takes longer than the
    interval is followed by the next at once; those that were due meanwhile are left out. A probe that fails is a
    verdict ERROR and the watch goes on: a monitoring that dies with what it monitors is of no use. `watched` is added
    to, so that who ends a watch still has what it saw. Raises what is not a ParityError.
    """
    watched = Watched() if watched is None else watched
    due = clock()
    while probes is None or watched.probes < probes:
        wait = due - clock()
        if wait > 0:
            sleep(wait)
        started = clock()
        outcome, failure = None, None
        try:
            outcome = probe(watched.probes + 1)
        except Interrupted:
            raise
        except ParityError as error:
            failure = str(error)
        if outcome is not None:
            comparisons = outcome.comparisons
            evidence = evidence.after(outcome.run_id, {arm: comparisons[arm].stats for arm in comparisons})
        changes, known = evidence.changes(), {(one.arm, one.measure) for one in watched.changes}
        new = tuple(one for one in changes if (one.arm, one.measure) not in known)
        done = Probe(watched.probes + 1, started, max(0.0, clock() - started), outcome, failure, changes, new)
        watched.add(done)
        say(_line(done))
        for change in new:
            say(change.sentence)
        for listener in listeners:
            listener.ended(done)
        if done.verdict in until or (until_changed and changes):
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
