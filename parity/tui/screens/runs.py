"""The list of runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.widgets import Static

from parity.language import render
from parity.records import Kind
from parity.store import ArmRow, RunRow, RunStatus
from parity.store.browse import Browser
from parity.tui.bindings import APP, RUNS, bindings
from parity.tui.format import counted, error_text, moment, plain, seconds, short_path
from parity.tui.progress import Progress, drawn
from parity.tui.screens.base import ParityScreen
from parity.tui.screens.dialogs import Confirm
from parity.tui.screens.findings import FindingsScreen
from parity.tui.view import controls
from parity.tui.widgets.keybar import KeyBar
from parity.tui.widgets.table import Column, VirtualTable

_COLOURS = {"PASS": "good", "DIVERGED": "corrupt", "INCONCLUSIVE": "warning", "ERROR": "corrupt"}


@dataclass(frozen=True, slots=True)
class RunLine:
    run: RunRow
    arms: Sequence[ArmRow]
    status: str
    """As stored, but `interrupted` where the process that was running is gone."""
    counts: dict[str, int]
    """Findings by kind over all arms but those with a fault planted on purpose."""
    planted: dict[str, int]
    """Findings by kind in those."""

    @property
    def findings(self) -> int:
        return sum(self.counts.values()) + sum(self.planted.values())

    @property
    def near_ties(self) -> int:
        return self.counts.get(Kind.NEAR_TIE, 0)

    @property
    def others(self) -> int:
        return sum(self.counts.values()) - self.near_ties


def run_line(store: Browser, run: RunRow) -> RunLine:
    arms = store.arms(run.id)
    counts: dict[str, int] = {}
    planted: dict[str, int] = {}
    control = controls(run)
    for arm in arms:
        into = planted if arm.name in control else counts
        for kind, count in arm.counts.items():
            into[kind] = into.get(kind, 0) + count
    status = str(run.status)
    if run.status is RunStatus.RUNNING and run.directory:
        from parity.pipeline import RunDirectory  # brings the comparison along: half of the time to start

        if not RunDirectory(Path(run.directory)).in_use():
            status = str(RunStatus.INTERRUPTED)
    return RunLine(run, arms, status, counts, planted)


def _verdict(line: RunLine) -> tuple[str, str]:
    word = line.run.verdict or line.status
    return plain(word), _COLOURS.get(word, "dim")


def _kinds(counts: Mapping[str, int]) -> str:
    """The counts by kind, near-ties last."""
    kinds = sorted(counts.items(), key=lambda item: (item[0] == Kind.NEAR_TIE, -item[1]))
    return ", ".join(f"{count:,} {plain(kind)}" for kind, count in kinds)


def _arms(line: RunLine) -> str:
    return " ".join(plain(arm.name) for arm in line.arms)


COLUMNS: list[Column[RunLine]] = [
    Column("verdict", 12, _verdict),
    Column("date", 16, lambda line: (moment(line.run.created), "")),
    Column("found", 7, lambda line: (f"{line.others:,}", "corrupt" if line.others else "dim"), right=True),
    Column("ties", 7, lambda line: (f"{line.near_ties:,}", "dim"), right=True),
    Column("time", 6, lambda line: (seconds(line.run.duration), ""), right=True),
    Column("arms", 0, lambda line: (_arms(line), ""), least=12, middle=True),
    Column("model", 0, lambda line: (plain(line.run.model), "dim"), from_width=120),
    Column("kinds", 0, lambda line: (_kinds(line.counts), ""), from_width=140, least=14),
]


class RunsScreen(ParityScreen):
    """All runs, the newest first; below, what the run under the cursor is about."""

    BINDINGS: ClassVar[list[Any]] = [*bindings(RUNS)]
    AUTO_FOCUS = "#table"
    group = "runs"

    def __init__(self) -> None:
        super().__init__()
        self.progress = Progress()

    def compose(self) -> ComposeResult:
        yield Static(Text("parity  runs"), classes="title", id="title")
        yield VirtualTable[RunLine](COLUMNS, self._fetch, lambda line: line.run.id, id="table")
        yield Static(classes="empty", id="empty")
        yield Static(classes="detail", id="detail")
        yield KeyBar(RUNS, APP)

    def on_mount(self) -> None:
        self.set_text("#title", f"parity  runs in {short_path(self.parity.database)}")
        self.say(Text("opening the database …"))
        self.reload()

    @property
    def table(self) -> VirtualTable[RunLine]:
        return self.query_one("#table", VirtualTable)

    def say(self, text: Text) -> None:
        """Show words in place of the table."""
        self.set_text("#empty", text)
        self.query_one("#empty").display = True
        self.table.display = False
        self.query_one("#detail").display = False

    # ------------------------------------------------------------------ data

    def reload(self) -> None:
        if self.store is None:
            error = self.parity.not_opened
            if error is not None:
                self.say(error_text(error).append("\n\nctrl+l tries again, q quits", style="dim"))
            return
        total = self.parity.attempt(self.store.count_runs, 0)
        if not total:
            self.say(
                Text(
                    f"No runs in {short_path(self.parity.database)} yet.\n\n"
                    "Start one with\n    parity run --backends cpu"
                )
            )
            self.table.show(0)
            return
        self.query_one("#empty").display = False
        self.table.display = True
        self.query_one("#detail").display = True
        if self.app.screen is self:
            self.table.focus()
        self.table.show(total, cursor=self._same_run())

    def _same_run(self) -> int | None:
        """Where the run under the cursor is now, since new ones come in above it. None: stay where the cursor is."""
        store, line, cursor = self.store, self.table.current, self.table.cursor
        if store is None or line is None or not cursor:
            return None
        nothing: list[str] = []
        above = self.parity.attempt(lambda: [run.id for run in store.runs(limit=cursor + 20)], nothing)
        return above.index(line.run.id) if line.run.id in above else None

    def tick(self) -> None:
        """Now and then: the progress of the run under the cursor, where another process works on it."""
        line = self.table.current
        if line is not None and line.run.status is RunStatus.RUNNING:
            self.table.show(self.table.total)

    def _fetch(self, offset: int, limit: int) -> list[RunLine]:
        store = self.store
        if store is None:
            return []
        return self.parity.attempt(lambda: [run_line(store, run) for run in store.runs(offset=offset, limit=limit)], [])

    def on_virtual_table_moved(self) -> None:
        line = self.table.current
        self.set_text("#detail", "" if line is None else self._detail(line))

    def _detail(self, line: RunLine) -> Text:
        run, store = line.run, self.store
        text = Text(no_wrap=False)
        text.append(f"{plain(run.id)}", style="bold")
        text.append(f"  {line.status}, model {plain(run.model)}, {counted(len(line.arms), 'arm')}\n")
        text.append((_kinds(line.counts) or "no findings") + "\n")
        if line.planted:
            text.append(f"in positive controls, planted on purpose: {_kinds(line.planted)}\n", style="dim")
        if line.status == RunStatus.RUNNING:
            requests = self.parity.attempt(lambda: store.count_requests(run.id), 0) if store is not None else 0
            text.append_text(drawn(self.progress.look(run, line.arms, requests)))
        elif line.status == RunStatus.INTERRUPTED:
            text.append(f"finish it with: parity run --resume {plain(run.id)}\n")
        for reason in map(render, [*run.reasons, *([run.message] if run.message else [])][:2]):
            text.append(plain(reason) + "\n", style="dim")
        text.append(plain(run.command), style="dim")
        return text

    # ------------------------------------------------------------------ actions

    def action_move(self, step: int) -> None:
        self.table.go(self.table.cursor + step)

    def action_page(self, step: int) -> None:
        self.table.page(step)

    def action_first(self) -> None:
        self.table.go(0)

    def action_last(self) -> None:
        self.table.go(self.table.total - 1)

    def on_virtual_table_opened(self) -> None:
        self.action_open()

    def action_open(self) -> None:
        line = self.table.current
        if line is not None:
            self.open_run(line.run)

    def open_run(self, run: RunRow) -> None:
        self.app.push_screen(FindingsScreen(run))

    def action_copy_command(self) -> None:
        line = self.table.current
        if line is not None:
            self.parity.copy(line.run.command)

    def action_start(self) -> None:
        line = self.table.current
        if line is not None:
            self.parity.start(line.run, None)

    def action_delete(self) -> None:
        line = self.table.current
        if line is None:
            return
        run = line.run
        if line.status == RunStatus.RUNNING:
            self.notify(
                "another process is working on this run: wait for it, or stop it", severity="error", markup=False
            )
            return

        def answered(yes: bool | None) -> None:
            if yes:
                self.parity.change(lambda store: _delete(store, run.id))

        self.app.push_screen(
            Confirm(
                f"Delete run {run.id} of {moment(run.created)}?",
                f"{counted(line.findings, 'finding')} {'goes' if line.findings == 1 else 'go'} from the database."
                " Triage stays, it belongs to later runs too."
                f" Files stay{f' in {run.directory}' if run.directory else ''}.",
            ),
            answered,
        )


def _delete(store: Browser, run_id: str) -> str:
    store.delete_run(run_id)
    return f"deleted {run_id}"
