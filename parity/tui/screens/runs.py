"""The list of runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from msgspec.structs import replace
from rich.text import Text
from textual.app import ComposeResult
from textual.widgets import Input, Static

from parity.language import render
from parity.messages import Message, joined, message
from parity.store import RunFilter, RunRow, RunSort, RunStatus
from parity.store.browse import Browser
from parity.tui.bindings import APP, RUNS
from parity.tui.command import bindings
from parity.tui.format import error_text, plain, short_path
from parity.tui.names import FIELDS, value_name
from parity.tui.progress import drawn, times
from parity.tui.run_columns import COLUMNS
from parity.tui.screens import about
from parity.tui.screens.dialogs import ChooseFilter, Reading
from parity.tui.screens.filtering import SIFTING
from parity.tui.screens.findings import FindingsScreen
from parity.tui.screens.run_actions import RunActions
from parity.tui.widgets.keybar import KeyBar
from parity.tui.widgets.table import VirtualTable
from parity.view.lines import RunLine, States, run_lines
from parity.view.progress import Progress

GROUPS = ("verdict", "tag", "model")
PAGE = 32
"""Runs read at once: each has arms with their settings."""
TALL = 30
"""Lines from which the arms of the run under the cursor are shown."""


class RunsScreen(RunActions):
    """All runs, the newest first; below, what the run under the cursor is about."""

    BINDINGS: ClassVar[list[Any]] = [*bindings(RUNS)]
    AUTO_FOCUS = "#table"
    group = "runs"

    def __init__(self) -> None:
        super().__init__()
        self.progress = Progress()
        self.where, self.sort, self.descending = RunFilter(), RunSort.DATE, True

    def compose(self) -> ComposeResult:
        yield Static(classes="title", id="title")
        hint = message("tui.search_runs_hint", "text in id, name, tag, model, command or verdict; Enter closes")
        yield Input(placeholder=render(hint), id="search", disabled=True)
        yield VirtualTable[RunLine](COLUMNS, self._fetch, lambda line: line.run.id, id="table", page=PAGE)
        yield Static(classes="empty", id="empty")
        yield Static(classes="detail", id="detail")
        yield KeyBar(RUNS, APP)

    def on_mount(self) -> None:
        self._say_title()
        self.say(Text(render(message("tui.opening", "opening the database …"))))
        self.reload()

    def _say_title(self) -> None:
        path = short_path(self.parity.database)
        parts: list[Message | str] = ["parity ", message("tui.runs_in", "runs in {path}", path=path)]
        chosen = [value_name(group, value) for group, value in sorted(self._chosen())]
        if self.where.text:
            chosen.append(render(message("tui.text", 'text "{text}"', text=plain(self.where.text))))
        if chosen:
            parts.append(" | " + " ".join(chosen))
        if (self.sort, self.descending) != (RunSort.DATE, True):
            by = message("tui.by", "by {column}", column=FIELDS[self.sort.value])
            parts += [" | ", by]
        self.set_text("#title", render(joined(parts, " ")))

    def say(self, text: Text) -> None:
        """Show words in place of the table."""
        self.set_text("#empty", text)
        self.query_one("#empty").display = True
        self.table.display = False
        self.query_one("#detail").display = False

    # ------------------------------------------------------------------ data

    @property
    def reading(self) -> bool:
        return self.store is None and self.parity.not_opened is None

    def reload(self) -> None:
        if self.store is None:
            error = self.parity.not_opened
            if error is not None:
                again = message("tui.try_again", "ctrl+l tries again, q quits")
                self.say(error_text(error).append("\n\n" + render(again), style="dim"))
            return
        store, where = self.store, self.where
        total = self.parity.attempt(lambda: store.count_runs(where), 0)
        self._say_title()
        self.table.sorted_by, self.table.descending = self.sort.value, self.descending
        if not total:
            self.say(self._why_empty())
            self.table.show(0)
            return
        self.query_one("#empty").display = False
        self.table.display = True
        self.query_one("#detail").display = True
        if self.app.screen is self and not self.query_one("#search").has_focus:
            self.table.focus()
        self.table.show(total, cursor=self._same_run())

    def _why_empty(self) -> Text:
        if self.where != RunFilter():
            said = message("tui.no_run_passes", "No run passes the filter. Esc clears it.")
            if self.where.text:
                said = message("tui.no_run_has", 'No run has "{text}". Esc clears it.', text=plain(self.where.text))
            return Text(render(said))
        none = message("tui.no_runs", "No runs in {path} yet.", path=short_path(self.parity.database))
        start = message("tui.start_one", "Start one with")
        return Text(f"{render(none)}\n\n{render(start)}\n    parity run --backends cpu")

    def _read(self, store: Browser, *, offset: int = 0, limit: int) -> list[RunRow]:
        return store.runs(offset=offset, limit=limit, where=self.where, sort=self.sort, descending=self.descending)

    def _same_run(self) -> int | None:
        """Where the run under the cursor is now, since new ones come in above it. None: stay where the cursor is."""
        store, line, cursor = self.store, self.table.current, self.table.cursor
        if store is None or line is None or not cursor:
            return None
        nothing: list[str] = []
        above = self.parity.attempt(lambda: [run.id for run in self._read(store, limit=cursor + 20)], nothing)
        return above.index(line.run.id) if line.run.id in above else None

    def tick(self) -> None:
        """Now and then: the progress of the run under the cursor, where another process works on it."""
        line = self.table.current
        if line is not None and line.run.status is RunStatus.RUNNING:
            self.table.show(self.table.total)

    def _fetch(self, offset: int, limit: int) -> Sequence[RunLine]:
        store = self.store
        if store is None:
            return []
        nothing: list[RunRow] = []
        rows = self.parity.attempt(lambda: self._read(store, offset=offset, limit=limit), nothing)
        unknown: States = {}
        states = self.parity.attempt(lambda: store.states_of([run.id for run in rows]), unknown)
        return self.parity.attempt(lambda: run_lines(store, rows, states), [])

    def on_virtual_table_moved(self) -> None:
        line = self.table.current
        self.set_text("#detail", "" if line is None else self._detail(line))

    def _detail(self, line: RunLine) -> Text:
        text, store = about.headline(line, self.parity.database), self.store
        if line.status == RunStatus.RUNNING:
            requests = self.parity.attempt(lambda: store.count_requests(line.run.id), 0) if store is not None else 0
            found = self.progress.look(line.run, line.arms, requests)
            text.append(times(line.run, found) + "\n")
            text.append_text(drawn(found))
        elif self.size.height >= TALL:
            text.append_text(about.arms_table(line))
        return text.append_text(about.reasons(line))

    # ------------------------------------------------------------------ opening

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

    def action_watch(self) -> None:
        from parity.tui.screens.live import LiveScreen

        line = self.table.current
        if line is not None:
            self.app.push_screen(LiveScreen(line.run))

    def action_about(self) -> None:
        line = self.table.current
        if line is not None:
            heading = message("tui.about", "About run {run}", run=plain(line.run.id))
            self.app.push_screen(Reading(heading, about.everything(line, self.parity.database), wide=True))

    def action_inbox(self) -> None:
        from parity.tui.screens.inbox import InboxScreen

        line = self.table.current
        if line is not None:
            self.app.push_screen(InboxScreen(line.run))

    def action_known_bugs(self) -> None:
        from parity.tui.screens.known_bugs import KnownBugsScreen

        self.app.push_screen(KnownBugsScreen())

    def possible(self, action: str) -> bool:
        some = bool(self.table.total) or self.where != RunFilter()
        return (some or action not in SIFTING) and super().possible(action)

    # ------------------------------------------------------------------ searching, filtering, sorting

    def change_view(self, where: RunFilter | None = None, sort: RunSort | None = None, *, turned: bool = False) -> None:
        """Another filter or order; `turned`: not the direction in which it is read first."""
        self.where, self.sort = where or self.where, sort or self.sort
        if sort is not None:
            self.descending = turned == (sort in (RunSort.VERDICT, RunSort.MODEL, RunSort.NAME))
        self.reload()

    def on_input_changed(self, event: Input.Changed) -> None:
        if event.value != self.where.text:
            self.change_view(replace(self.where, text=event.value))

    def action_sort(self) -> None:
        orders = list(RunSort)
        self.change_view(sort=orders[(orders.index(self.sort) + 1) % len(orders)])

    def action_reverse(self) -> None:
        self.descending = not self.descending
        self.reload()

    def on_virtual_table_header_clicked(self, event: VirtualTable.HeaderClicked) -> None:
        if event.sort == self.sort.value:
            self.action_reverse()
        else:
            self.change_view(sort=RunSort(event.sort))

    def _chosen(self) -> frozenset[tuple[str, str]]:
        shown = zip(GROUPS, (self.where.verdicts, self.where.tags, self.where.models), strict=True)
        return frozenset((group, value) for group, values in shown for value in values)

    def action_filter(self) -> None:
        store = self.store
        if store is None:
            return
        nothing: list[tuple[str, str, int]] = []
        options = self.parity.attempt(store.run_values, nothing)
        options = sorted(options, key=lambda one: (GROUPS.index(one[0]), -one[2], one[1]))

        def chosen(answer: frozenset[tuple[str, str]] | None) -> None:
            if answer is not None:
                of = {group: frozenset(value for name, value in answer if name == group) for group in GROUPS}
                verdicts, tags, models = (of[group] for group in GROUPS)
                self.change_view(replace(self.where, verdicts=verdicts, tags=tags, models=models))

        self.app.push_screen(ChooseFilter(options, self._chosen()), chosen)

    def action_clear(self) -> None:
        if self.table.selected:
            self.marked = None
            self.table.selected.clear()
            self.table.refresh()
        elif self.where != RunFilter():
            self.query_one("#search", Input).value = ""
            self.change_view(RunFilter())
