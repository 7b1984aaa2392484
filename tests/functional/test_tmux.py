"""The interface in a real terminal (tmux): what a person sees, byte by byte through a pty."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

import pyte
import pytest

from parity.store import Store

TMUX = shutil.which("tmux")
pytestmark = pytest.mark.skipif(TMUX is None, reason="tmux, the terminal of these tests, is not installed")
PATIENCE = 40.0
"""Seconds: Python starts, the database opens, on a machine that may be busy."""


class Terminal:
    """A tmux server of its own, so that nobody's sessions are touched."""

    def __init__(self, folder: Path, home: Path, columns: int, rows: int, **environment: str) -> None:
        self.socket = folder / "tmux"
        self.output = folder / "bytes"
        command = [sys.executable, "-m", "parity", "tui"]
        settings = {"PARITY_HOME": str(home), "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", **environment}
        line = " ".join(f"{name}={shlex.quote(value)}" for name, value in settings.items())
        # COLUMNS and LINES of whoever runs the tests would be taken for the size of the terminal.
        clean = "env -u COLUMNS -u LINES -u NO_COLOR"
        script = f"cd {shlex.quote(str(folder))}; {clean} {line} {shlex.join(command)}; echo ended with $?; sleep 1000"
        self._tmux("-f", os.devnull, "new-session", "-d", "-x", str(columns), "-y", str(rows), script)
        self._tmux("pipe-pane", f"cat > {shlex.quote(str(self.output))}")

    def _tmux(self, *arguments: str) -> str:
        assert TMUX is not None
        done = subprocess.run(
            [TMUX, "-S", str(self.socket), *arguments], capture_output=True, text=True, timeout=60, check=True
        )
        return done.stdout

    @property
    def screen(self) -> str:
        return self._tmux("capture-pane", "-p")

    def press(self, *keys: str) -> None:
        for key in keys:
            self._tmux("send-keys", key)

    def sees(self, *wanted: str, without: str | None = None) -> str:
        """Wait until all of `wanted` stand on the screen, and `without` does not."""
        deadline = time.monotonic() + PATIENCE
        while True:
            screen = self.screen
            if all(one in screen for one in wanted) and (without is None or without not in screen):
                return screen
            assert time.monotonic() < deadline, f"waited in vain for {wanted}, not {without}; the screen:\n{screen}"
            time.sleep(0.05)

    def escape(self, leaves: str) -> None:
        """Close what is open, on which `leaves` stands. A key that came at once would be taken for Alt and that key."""
        self.press("Escape")
        self.sees(without=leaves)

    def close(self) -> None:
        self._tmux("kill-server")


@pytest.fixture
def home(database: Path) -> Path:
    return database.parent


def terminal(tmp_path: Path, home: Path, columns: int, rows: int, **environment: str) -> Iterator[Terminal]:
    opened = Terminal(tmp_path, home, columns, rows, **environment)
    try:
        yield opened
    finally:
        opened.close()


@pytest.fixture
def small(tmp_path: Path, home: Path) -> Iterator[Terminal]:
    yield from terminal(tmp_path, home, 80, 24)


@pytest.fixture
def large(tmp_path: Path, home: Path) -> Iterator[Terminal]:
    yield from terminal(tmp_path, home, 200, 50)


@pytest.fixture
def plain(tmp_path: Path, home: Path) -> Iterator[Terminal]:
    yield from terminal(tmp_path, home, 80, 24, NO_COLOR="1")


def test_a_walk_at_80_by_24(small: Terminal, database: Path) -> None:
    screen = small.sees("DIVERGED", "bbbb", "Enter Findings", "? Help")
    assert len(screen.splitlines()) <= 24
    small.press("Enter")
    small.sees("1/1 of 27", "duplication", "z Near-ties", "q Back")
    small.press("Enter")
    screen = small.sees("emitted again", "9.85!", "reference scores candidate", "? Help")
    assert all(len(line) <= 80 for line in screen.splitlines())
    small.press("c")
    small.sees("CONFIRMED")
    small.press("?")
    small.sees("Keys", "One token back")
    small.escape("One token back")
    small.press("q", "q", "q")
    small.sees("ended with 0")
    with Store.open(database) as store:
        assert str(store.page_findings("20261121-110000-bbbb", limit=1)[0].state) == "confirmed"


def test_a_kill_gives_the_terminal_back(small: Terminal) -> None:
    small.sees("DIVERGED", "Enter Findings")
    shell = int(small._tmux("display-message", "-p", "#{pane_pid}"))
    children = Path(f"/proc/{shell}/task/{shell}/children").read_text().split()
    (interface,) = children
    os.kill(int(interface), signal.SIGTERM)
    screen = small.sees("ended with 143")
    assert "DIVERGED" not in screen  # the alternate screen was left
    assert "\x1b[?1003l" in small.output.read_text(encoding="utf-8", errors="replace")  # the mouse is the shell's


def test_a_large_terminal_and_a_resize(large: Terminal) -> None:
    large.sees("bbbb", "26 near_tie", "kinds")
    large.press("Enter", "Enter")
    screen = large.sees("emitted again", "[2 origin]", "reference scores candidate")
    header = next(line for line in screen.splitlines() if "gap, nats" in line)
    assert "reference scores candidate" in header
    large._tmux("resize-window", "-x", "80", "-y", "24")
    large.sees("[1 logprobs]", "? Help")
    large._tmux("resize-window", "-x", "24", "-y", "6")
    large.press("q", "q")
    large._tmux("resize-window", "-x", "100", "-y", "30")
    large.sees("bbbb", "? Help")


JOURNEY = ["Enter", "z", "j", "j", "G", "P", "Enter", "p", "j", "l", "m", "?", "Escape", "q"]


def test_the_screen_is_the_one_that_textual_draws(tmp_path: Path, home: Path) -> None:
    """Only cells that change are sent; after each key, and a resize, both drivers show the same."""
    folders = [tmp_path / "sparing", tmp_path / "textual"]
    for folder in folders:
        folder.mkdir()
    sparing = Terminal(folders[0], home, 120, 40)
    textual = Terminal(folders[1], home, 120, 40, TEXTUAL_DRIVER="textual.drivers.linux_driver:LinuxDriver")
    try:
        for one in (sparing, textual):
            one.sees("DIVERGED", "bbbb", "Enter Findings")
        for key in JOURNEY:
            before = coloured(textual)
            sparing.press(key)
            textual.press(key)
            until_equal(sparing, textual, key, before)
        for columns, rows in ((80, 24), (100, 30)):
            before = coloured(textual)
            for one in (sparing, textual):
                one._tmux("resize-window", "-x", str(columns), "-y", str(rows))
            until_equal(sparing, textual, f"{columns}x{rows}", before)
        assert 2 * sparing.output.stat().st_size < textual.output.stat().st_size
    finally:
        sparing.close()
        textual.close()


def until_equal(one: Terminal, other: Terminal, after: str, before: list[list[object]]) -> None:
    """Until both show the same and something else than `before`."""
    deadline = time.monotonic() + PATIENCE
    while (left := coloured(one)) != (right := coloured(other)) or left == before:
        assert time.monotonic() < deadline, f"after {after}:\n{one.screen}\n{other.screen}\n{different(left, right)}"
        time.sleep(0.05)


def different(left: list[list[object]], right: list[list[object]]) -> list[object]:
    return [
        (row, column, *both)
        for row, lines in enumerate(zip(left, right, strict=True))
        for column, both in enumerate(zip_longest(*lines))
        if both[0] != both[1]
    ][:20]


def coloured(terminal: Terminal) -> list[list[object]]:
    """The screen's cells with their looks; of a blank, what shows of it."""
    text = terminal._tmux("capture-pane", "-p", "-e", "-N").rstrip("\n").split("\n")
    screen = pyte.Screen(200, len(text))
    pyte.Stream(screen).feed("\r\n".join(text))
    return [
        [
            (" ", cell.bg) if cell.data == " " and not cell.reverse else tuple(cell)
            for cell in map(row.get, range(200))
            if cell
        ]
        for row in map(screen.buffer.get, range(len(text)))
        if row
    ]


def test_without_colours_everything_is_still_said(plain: Terminal) -> None:
    plain.sees("bbbb")
    plain.press("Enter", "z")
    screen = plain.sees("1/27 of 27")
    assert "> !  duplication" in screen
    assert "  ·  near_tie" in screen
    plain.press("Enter")
    screen = plain.sees("9.85!")
    assert ">=   64 +" in screen


def test_a_command_takes_the_terminal_and_gives_it_back(small: Terminal) -> None:
    small.sees("bbbb")
    small.press("r")
    small.sees("Go on with", "Run it again", "parity run --backends cpu --max-tokens 128")
    small.press("Escape")
    small.sees("Enter Findings")


def test_a_report_is_written_where_it_was_asked_for(small: Terminal, tmp_path: Path) -> None:
    small.sees("bbbb")
    small.press("Enter")
    small.sees("1/1 of 27")
    small.press("w")
    small.sees("Write the bug report to", ".md")
    small.press("Enter")
    small.sees("written to")
    (report,) = tmp_path.glob("report-*.md")
    assert "duplication" in report.read_text(encoding="utf-8")


def test_hostile_text_does_not_reach_the_terminal(tmp_path: Path) -> None:
    from test_trouble import hostile_database

    hostile_database(tmp_path / "parity.db")
    opened = Terminal(tmp_path, tmp_path, 80, 24)
    try:
        opened.sees("DIVERGED")
        opened.press("Enter")
        opened.sees("1/2 of 2")
        opened.press("Enter")
        for key, panel in (("2", "origin"), ("3", "prompt"), ("4", "triage"), ("5", "evidence"), ("1", "logprobs")):
            opened.press(key)
            opened.sees(f"[{key} {panel}]")
        opened.press("m", "y")
        opened.sees("Copied, where")
        opened.escape("Copied, where")
        opened.press("q", "q", "q")
        opened.sees("ended with 0")
    finally:
        opened.close()
    written = opened.output.read_bytes()
    assert b"\x1b]0;owned" not in written
    assert b"\\x1b]0;owned" in written, "it is shown as an escape"
    assert "\u202e".encode() not in written
