"""What is shown while arms run."""

from __future__ import annotations

import io

import pytest

from parity.run import ArmEvent, Phase, PlainProgress, progress


def event(phase: Phase, done: int = 0, seconds: float = 0.0, tokens: int = 0) -> ArmEvent:
    return ArmEvent("cpu/mtp", phase, done, 64, tokens, 3, seconds)


def test_plain_lines_for_phases_but_not_for_every_event() -> None:
    stream = io.StringIO()
    watch = PlainProgress(stream)
    watch(event(Phase.STARTING))
    watch(event(Phase.READY))
    for done in range(64):
        watch(event(Phase.GENERATING, done, seconds=done / 10, tokens=done * 10))
    watch(event(Phase.DONE, 64))
    lines = stream.getvalue().splitlines()
    assert lines == [
        "cpu/mtp: starting",
        "cpu/mtp: the engine is ready",
        "cpu/mtp: generating, 0 of 64 completions",
        "cpu/mtp: done, 64 of 64",
    ]


def test_the_rate_leaves_out_what_was_there_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parity.run.display.LINE_SECONDS", 0.0)
    stream = io.StringIO()
    watch = PlainProgress(stream)
    watch(event(Phase.GENERATING, 32, seconds=0.0, tokens=1000))
    watch(event(Phase.GENERATING, 40, seconds=2.0, tokens=1500))
    assert stream.getvalue().splitlines()[-1] == "cpu/mtp: generating, 40 of 64 completions, 250 tokens/s"


def test_a_pipe_gets_plain_lines() -> None:
    stream = io.StringIO()
    with progress(["cpu/mtp"], stream) as watch:
        watch(event(Phase.SCORING, 3))
    assert stream.getvalue() == "cpu/mtp: scoring, 3 of 64 scores\n"


def test_a_terminal_gets_bars() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    with progress(["cpu/base", "cpu/mtp"], stream) as watch:
        watch(event(Phase.GENERATING, 12, seconds=1.0, tokens=100))
    shown = stream.getvalue()
    assert "cpu/mtp" in shown
    assert "12/64" in shown
