"""What is shown while arms run: live bars on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

from parity.language import render, t
from parity.messages import message
from parity.run.events import ArmEvent, OnEvent, Phase

LINE_SECONDS = 10.0
"""Between two plain lines of the same arm and phase."""

_NOUN = {Phase.SCORING: "scores"}


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
        print(t(self._line(event, rate)), file=self._stream, flush=True)

    @staticmethod
    def _line(event: ArmEvent, rate: float) -> str:
        count = f"{event.done} of {event.total} {_NOUN.get(event.phase, 'completions')}"
        if event.phase in (Phase.GENERATING, Phase.SCORING):
            speed = f", {rate:,.0f} tokens/s" if rate else ""
            return f"{event.arm}: {event.phase}, {count}{speed}"
        if event.phase is Phase.STARTING and event.seconds >= 1:
            return f"{event.arm}: the engine is starting ({event.seconds:.0f} s)"
        if event.phase is Phase.STARTING:
            return f"{event.arm}: starting"
        if event.phase is Phase.READY:
            return f"{event.arm}: the engine is ready"
        return f"{event.arm}: {event.phase}, {event.done} of {event.total}"


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
            state=t(str(event.phase)),
            speed=speed,
        )

    with bars:
        for arm in arms:
            tasks[arm] = bars.add_task(
                "", total=None, start=True, arm=arm, state=render(message("run.waiting", "waiting")), speed=""
            )
        yield show
