"""What is shown while arms run: live bars on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

from parity.files import print_talk
from parity.language import render
from parity.messages import Message, message
from parity.run.events import ArmEvent, OnEvent, Phase

LINE_SECONDS = 10.0
"""Between two plain lines of the same arm and phase."""

_PHASES = {
    Phase.STARTING: message("run.phase.starting", "starting"),
    Phase.READY: message("run.phase.ready", "ready"),
    Phase.GENERATING: message("run.phase.generating", "generating"),
    Phase.SCORING: message("run.phase.scoring", "scoring"),
    Phase.DONE: message("run.phase.done", "done"),
    Phase.FAILED: message("run.phase.failed", "failed"),
}


def _rate(event: ArmEvent, first_tokens: int) -> float:
    return (event.tokens - first_tokens) / event.seconds if event.seconds > 0.2 else 0.0


class _Rates:
    """Tokens per second since the phase began, without what an earlier run had captured."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[Phase, int]] = {}

    def rate(self, event: ArmEvent) -> float:
        phase, tokens = self._seen.get(event.arm, (None, 0))
        if phase != event.phase:
            tokens = event.tokens
            self._seen[event.arm] = (event.phase, tokens)
        return _rate(event, tokens)


class PlainProgress:
    """Lines such as `cpu/mtp: 12 of 64 completions, 210 tokens/s`; every change of phase gets one."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._last: dict[str, tuple[Phase, float]] = {}
        self._rates = _Rates()

    def __call__(self, event: ArmEvent) -> None:
        rate = self._rates.rate(event)
        phase, at = self._last.get(event.arm, (None, 0.0))
        now = time.monotonic()
        if phase == event.phase and now - at < LINE_SECONDS:
            return
        self._last[event.arm] = (event.phase, now)
        print_talk(render(self._line(event, rate)), self._stream)

    @staticmethod
    def _line(event: ArmEvent, rate: float) -> Message:
        arm = event.arm
        if event.phase is Phase.STARTING and event.seconds >= 1:
            return message(
                "run.still_starting",
                "{arm}: the engine is starting ({seconds:.0f} s)",
                arm=arm,
                seconds=event.seconds,
            )
        if event.phase is Phase.STARTING:
            return message("run.is_starting", "{arm}: starting", arm=arm)
        if event.phase is Phase.READY:
            return message("run.is_ready", "{arm}: the engine is ready", arm=arm)
        done = message("run.done_of", "{done} of {total}", done=event.done, total=event.total)
        if event.phase is Phase.GENERATING:
            done = message("run.completions", "{done} of {total} completions", done=event.done, total=event.total)
        elif event.phase is Phase.SCORING:
            done = message("run.scores", "{done} of {total} scores", done=event.done, total=event.total)
        line = message("run.progress", "{arm}: {phase}, {done}", arm=arm, phase=_PHASES[event.phase], done=done)
        if not rate:
            return line
        return message("run.progress.speed", "{progress}, {rate:,.0f} tokens/s", progress=line, rate=rate)


@contextmanager
def progress(arms: Sequence[str], stream: TextIO | None = None) -> Iterator[OnEvent]:
    """A watcher for `run_arm`'s events that shows them on `stream` (stderr unless given)."""
    stream = sys.stderr if stream is None else stream
    if not stream.isatty():
        yield PlainProgress(stream)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

    rates = _Rates()
    bars = Progress(
        TextColumn("{task.fields[arm]}", style="bold"),
        TextColumn("{task.fields[state]}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[speed]}"),
        TimeElapsedColumn(),
        console=Console(file=stream),
        refresh_per_second=8,
    )
    tasks: dict[str, TaskID] = {}

    def show(event: ArmEvent) -> None:
        rate = rates.rate(event)
        speed = render(message("run.tokens", "{rate:,.0f} tokens/s", rate=rate)) if rate else ""
        if event.running:
            speed += render(message("run.running", "  {running} running", running=event.running))
        if event.arm not in tasks:  # an engine that only scores
            tasks[event.arm] = bars.add_task("", total=None, start=True, arm=event.arm, state="", speed="")
        bars.update(
            tasks[event.arm],
            total=event.total or None,
            completed=event.done,
            state=render(_PHASES[event.phase]),
            speed=speed,
        )

    with bars:
        for arm in arms:
            tasks[arm] = bars.add_task(
                "", total=None, start=True, arm=arm, state=render(message("run.waiting", "waiting")), speed=""
            )
        yield show
