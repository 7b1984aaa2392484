"""The list of runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.widgets import Input, Static

from parity.language import render
from parity.messages import Message, joined, message
from parity.records import Kind
from parity.records.emulated import proves
from parity.store import RunRow, RunStatus
from parity.store.browse import Browser
from parity.tui.bindings import APP, RUNS, bindings
from parity.tui.format import error_text, moment, plain, seconds, short_path
from parity.tui.names import status_name
from parity.tui.progress import drawn
from parity.tui.screens.dialogs import Confirm
from parity.tui.screens.findings import FindingsScreen
from parity.tui.screens.listing import ListScreen
from parity.tui.widgets.keybar import KeyBar
from parity.tui.widgets.table import Column, VirtualTable
from parity.view.lines import RunLine, run_line
from parity.view.progress import Progress

_COLOURS = {"PASS": "good", "DIVERGED": "corrupt", "INCONCLUSIVE": "warning", "ERROR": "corrupt"}


def _verdict(line: RunLine) -> tuple[str, str]:
    word = line.run.verdict or line.status
    return status_name(word), _COLOURS.get(word, "dim")


def _kinds(counts: Mapping[str, int]) -> str:
    """The counts by kind, near-ties last."""
    kinds = sorted(counts.items(), key=lambda item: (item[0] == Kind.NEAR_TIE, -item[1]))
    return ", ".join(f"{count:,} {plain(kind)}" for kind, count in kinds)


def _arms(line: RunLine) -> str:
    return " ".join(plain(arm.name) for arm in line.arms)


COLUMNS: list[Column[RunLine]] = [
    Column(message("runs.verdict", "verdict"), 12, _verdict),
    Column(message("tui.column.date", "date"), 16, lambda line: (moment(line.run.created), "")),
    Column(
        message("tui.column.found", "found"),
        7,
        lambda line: (f"{line.others:,}", "corrupt" if line.others else "dim"),
        right=True,
    ),
    Column(message("tui.column.ties", "ties"), 7, lambda line: (f"{line.near_ties:,}", "dim"), right=True),
    Column(message("tui.column.time", "time"), 6, lambda line: (seconds(line.run.duration), ""), right=True),
    Column(message("runs.arms", "arms"), 0, lambda line: (_arms(line), ""), least=12, middle=True),
    Column(message("runs.model", "model"), 0, lambda line: (plain(line.run.model), "dim"), from_width=120),
    Column(message("tui.column.kinds", "kinds"), 0, lambda line: (_kinds(line.counts), ""), from_width=140, least=14),
]


class RunsScreen(ListScreen[RunLine]):
    """All runs, the newest first; below, what the run under the cursor is about."""

    BINDINGS: ClassVar[list[Any]] = [*bindings(RUNS)]
    AUTO_FOCUS = "#table"
    group = "runs"

    def __init__(self) -> None:
        super().__init__()
        self.progress = Progress()
        self.text = ""
        self.marked: RunRow | None = None
        """To be compared with another."""

    def compose(self) -> ComposeResult:
        yield Static(classes="title", id="title")
        hint = message("tui.search_runs_hint", "text in id, model, command or verdict; Enter closes")
        yield Input(placeholder=render(hint), id="search", disabled=True)
        yield VirtualTable[RunLine](COLUMNS, self._fetch, lambda line: line.run.id, id="table")
        yield Static(classes="empty", id="empty")
        yield Static(classes="detail", id="detail")
        yield KeyBar(RUNS, APP)

    def on_mount(self) -> None:
        path = short_path(self.parity.database)
        self.set_text("#title", "parity  " + render(message("tui.runs_in", "runs in {path}", path=path)))
        self.say(Text(render(message("tui.opening", "opening the database …"))))
        self.reload()

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
                again = message("tui.try_again", "ctrl+l tries again, q quits")
                self.say(error_text(error).append("\n\n" + render(again), style="dim"))
            return
        store, text = self.store, self.text
        total = self.parity.attempt(lambda: store.count_runs(text), 0)
        if not total and text:
            self.say(Text(render(message("tui.no_run_has", 'No run has "{text}". Esc clears it.', text=plain(text)))))
            self.table.show(0)
            return
        if not total:
            none = message("tui.no_runs", "No runs in {path} yet.", path=short_path(self.parity.database))
            start = message("tui.start_one", "Start one with")
            self.say(Text(f"{render(none)}\n\n{render(start)}\n    parity run --backends cpu"))
            self.table.show(0)
            return
        self.query_one("#empty").display = False
        self.table.display = True
        self.query_one("#detail").display = True
        if self.app.screen is self and not self.query_one("#search").has_focus:
            self.table.focus()
        self.table.show(total, cursor=self._same_run())

    def _same_run(self) -> int | None:
        """Where the run under the cursor is now, since new ones come in above it. None: stay where the cursor is."""
        store, line, cursor = self.store, self.table.current, self.table.cursor
        if store is None or line is None or not cursor:
            return None
        nothing: list[str] = []
        above = self.parity.attempt(lambda: [run.id for run in store.runs(limit=cursor + 20, text=self.text)], nothing)
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
        return self.parity.attempt(
            lambda: [run_line(store, run) for run in store.runs(offset=offset, limit=limit, text=self.text)], []
        )

    def on_virtual_table_moved(self) -> None:
        line = self.table.current
        self.set_text("#detail", "" if line is None else self._detail(line))

    def _detail(self, line: RunLine) -> Text:
        run, store = line.run, self.store
        text = Text(no_wrap=False)
        text.append(f"{plain(run.id)}", style="bold")
        about = message(
            "tui.run_about",
            "{status}, model {model}, {count} arm",
            plural="{status}, model {model}, {count} arms",
            status=status_name(line.status),
            model=plain(run.model),
            count=len(line.arms),
        )
        text.append(f"  {render(about)}\n")
        text.append((_kinds(line.counts) or render(message("tui.no_findings", "no findings"))) + "\n")
        if line.planted:
            planted = message(
                "tui.planted", "in positive controls, planted on purpose: {kinds}", kinds=_kinds(line.planted)
            )
            text.append(render(planted) + "\n", style="dim")
        for arm in line.emulated:
            text.append(plain(render(proves(arm))) + "\n", style="dim")
        if line.status == RunStatus.RUNNING:
            requests = self.parity.attempt(lambda: store.count_requests(run.id), 0) if store is not None else 0
            text.append_text(drawn(self.progress.look(run, line.arms, requests)))
        elif line.status == RunStatus.INTERRUPTED:
            finish = message("tui.finish", "finish it with: {command}", command=f"parity run --resume {plain(run.id)}")
            text.append(render(finish) + "\n")
        for reason in map(render, [*run.reasons, *([run.message] if run.message else [])][:2]):
            text.append(plain(reason) + "\n", style="dim")
        text.append(plain(run.command), style="dim")
        return text

    # ------------------------------------------------------------------ actions

    def on_virtual_table_opened(self) -> None:
        self.action_open()

    def action_open(self) -> None:
        line = self.table.current
        if line is not None:
            self.open_run(line.run)

    def open_run(self, run: RunRow) -> None:
        self.app.push_screen(FindingsScreen(run))

    def action_completions(self) -> None:
        from parity.tui.screens.completions import CompletionsScreen

        line = self.table.current
        if line is not None:
            self.app.push_screen(CompletionsScreen(line.run))

    # ------------------------------------------------------------------ searching and comparing

    def action_search(self) -> None:
        search = self.query_one("#search", Input)
        search.disabled = False
        search.add_class("open")
        search.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        if event.value != self.text:
            self.text = event.value
            self.reload()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.input.remove_class("open")
        event.input.disabled = True
        self.table.focus()

    def action_clear(self) -> None:
        if self.table.selected:
            self.marked = None
            self.table.selected.clear()
            self.table.refresh()
        elif self.text:
            self.query_one("#search", Input).value = ""

    def action_select(self) -> None:
        line = self.table.current
        if line is not None:
            again = line.run.id in self.table.selected
            self.marked = None if again else line.run
            self.table.selected.clear()
            if not again:
                self.table.selected.add(line.run.id)
            self.table.refresh()
            self.table.go(self.table.cursor + 1)

    def action_compare(self) -> None:
        from parity.tui.screens.comparing import ComparingScreen

        line, marked = self.table.current, self.marked
        if line is None or marked is None or marked.id == line.run.id:
            self.tell(message("tui.mark_first", "Space marks one run, = on another compares the two"))
            return
        before, after = sorted((marked, line.run), key=lambda run: (run.created, run.id))
        self.app.push_screen(ComparingScreen(before, after))

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
            said = message("tui.run_in_use", "another process is working on this run: wait for it, or stop it")
            self.tell(said, severity="error")
            return

        def answered(yes: bool | None) -> None:
            if yes:
                self.parity.change(lambda store: _delete(store, run.id))

        self.app.push_screen(
            Confirm(
                message(
                    "tui.delete_run", "Delete run {run} of {created}?", run=plain(run.id), created=moment(run.created)
                ),
                joined([_goes(line.findings), _files_stay(run)], by=" "),
            ),
            answered,
        )


def _goes(findings: int) -> Message:
    return message(
        "tui.goes",
        "{count:,} finding goes from the database. Triage stays, it belongs to later runs too.",
        plural="{count:,} findings go from the database. Triage stays, it belongs to later runs too.",
        count=findings,
    )


def _files_stay(run: RunRow) -> Message:
    if run.directory:
        return message("tui.files_stay_in", "Files stay in {directory}.", directory=plain(run.directory))
    return message("tui.files_stay", "Files stay.")


def _delete(store: Browser, run_id: str) -> Message:
    store.delete_run(run_id)
    return message("tui.deleted", "deleted {run}", run=run_id)
