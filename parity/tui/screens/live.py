"""A run at work: how far each arm is, how fast, what was found so far, and what the engine says."""

from __future__ import annotations

from typing import Any, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.widgets import Static

from parity.language import render
from parity.messages import Message, message
from parity.store import ArmRow, FindingRow, KindCount, RunRow, RunStatus
from parity.tui.bindings import APP, LIVE
from parity.tui.command import bindings
from parity.tui.format import plain
from parity.tui.progress import drawn, times
from parity.tui.screens import about
from parity.tui.screens.base import ParityScreen
from parity.tui.screens.completions import CompletionsScreen
from parity.tui.screens.findings import FindingsScreen
from parity.tui.view import badge, place
from parity.tui.widgets.keybar import KeyBar
from parity.view.lines import actual_status
from parity.view.progress import Progress, log_tail

TICK_SECONDS = 1.0
LOG_LINES = 500
WORST = 5
"""Findings that are shown as they come in."""


class LiveScreen(ParityScreen):
    """Read off the files that the run writes, once a second; nothing of the run waits for it."""

    BINDINGS: ClassVar[list[Any]] = [*bindings(LIVE)]
    group = "live"

    def __init__(self, run: RunRow) -> None:
        super().__init__()
        self.run, self.progress = run, Progress()
        self.arms: list[ArmRow] = []
        self.requests = 0
        self.log_of: str | None = None
        """The arm whose log is shown; None: the one at work."""

    @property
    def at_work(self) -> bool:
        """Is there a process that works on it?"""
        return actual_status(self.run) == RunStatus.RUNNING

    def compose(self) -> ComposeResult:
        yield Static(classes="title", id="title")
        yield Static(id="arms")
        yield Static(id="found")
        yield Static(classes="title", id="log-title")
        with VerticalScroll(id="log"):
            yield Static(id="log-text")
        yield KeyBar(LIVE, APP)

    def on_mount(self) -> None:
        self.reload()
        self.set_interval(TICK_SECONDS, self.tick)

    def reload(self) -> None:
        """What the store has of it: arms that have ended, and their findings."""
        store = self.store
        if store is None:
            return
        self.run = self.parity.attempt(lambda: store.run(self.run.id), self.run)
        self.arms = self.parity.attempt(lambda: store.arms(self.run.id), self.arms)
        self.requests = self.parity.attempt(lambda: store.count_requests(self.run.id), self.requests)
        no_counts: list[KindCount] = []
        no_rows: list[FindingRow] = []
        counts = self.parity.attempt(lambda: store.counts_by_kind(self.run.id), no_counts)
        rows = self.parity.attempt(lambda: store.page_findings(self.run.id, limit=WORST), no_rows) if counts else []
        self.set_text("#found", _found(counts, rows) if counts else render(self._none()))
        self.tick()

    def _none(self) -> Message:
        if self.at_work:
            return message(
                "tui.none_compared", "Nothing was found yet: arms are compared once all have run and are scored."
            )
        return about.NONE if any(arm.status == "compared" for arm in self.arms) else about.NOT_COMPARED

    def tick(self) -> None:
        if not self.is_mounted or self.app.screen is not self:
            return
        status = self.run.verdict or actual_status(self.run)
        found = self.progress.look(self.run, self.arms, self.requests)
        said = times(self.run, found) if self.at_work else ""
        self.set_text(
            "#title", Text.assemble(badge(status), f"  {plain(self.run.id)}  {plain(self.run.model)}  {said}")
        )
        self.set_text("#arms", drawn(found))
        arm = self.log_of or next((one.arm for one in reversed(found) if one.at_work), self.run.baseline)
        self._show_log(arm)

    def _show_log(self, arm: str) -> None:
        scroll = self.query_one("#log", VerticalScroll)
        at_end = scroll.scroll_offset.y >= scroll.max_scroll_y - 1
        lines = log_tail(self.run, arm, LOG_LINES)
        self.set_text("#log-title", render(message("tui.log_of", "log of {arm}", arm=plain(arm))))
        text = "\n".join(plain(line) for line in lines)
        none = (
            message("tui.no_log", "It has written nothing yet.")
            if self.at_work
            else message("tui.no_log_left", "There is no log of it.")
        )
        self.set_text("#log-text", text or render(none))
        if at_end:
            self.call_after_refresh(scroll.scroll_end, animate=False)

    # ------------------------------------------------------------------ actions

    def action_next_log(self) -> None:
        names = [arm.name for arm in self.arms]
        if names:
            at = names.index(self.log_of) + 1 if self.log_of in names else 0
            self.log_of = names[at % len(names)]
            self.tick()

    def action_move(self, step: int) -> None:
        self.query_one("#log", VerticalScroll).scroll_relative(y=step, animate=False)

    def action_page(self, step: int) -> None:
        scroll = self.query_one("#log", VerticalScroll)
        scroll.scroll_relative(y=step * max(1, scroll.size.height - 1), animate=False)

    def action_first(self) -> None:
        self.query_one("#log", VerticalScroll).scroll_home(animate=False)

    def action_last(self) -> None:
        self.query_one("#log", VerticalScroll).scroll_end(animate=False)

    def action_open(self) -> None:
        self.app.push_screen(FindingsScreen(self.run))

    def action_completions(self) -> None:
        self.app.push_screen(CompletionsScreen(self.run))


def _found(counts: list[KindCount], rows: list[FindingRow]) -> Text:
    """Counts by kind, and the worst."""
    text = Text(", ".join(f"{one.findings:,} {plain(one.kind)}" for one in counts) + "\n", "bold")
    for row in rows:
        text.append(f"  {plain(row.kind)}  {plain(row.arm)}  {place(row.key)}  {plain(render(row.why))}\n")
    return text
