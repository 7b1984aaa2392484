"""All completions of a run, whatever became of them: identical, near-tie, unjudged, missing, corrupt."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final

from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.widgets import Input, Static

from parity.errors import ParityError
from parity.language import render
from parity.messages import Message, joined, message
from parity.store import FindingRow, RunRow
from parity.store.browse import CompletionLine
from parity.tui.bindings import APP, COMPLETIONS
from parity.tui.command import bindings
from parity.tui.format import plain
from parity.tui.names import CLASS_NAMES, FIELDS, class_counts, class_name, value_name
from parity.tui.screens.dialogs import ChooseFilter
from parity.tui.screens.listing import SearchedScreen
from parity.tui.stop import Stop
from parity.tui.view import WIDE, badge, place
from parity.tui.widgets.keybar import KeyBar
from parity.tui.widgets.table import Column, VirtualTable
from parity.view.lines import actual_status

_COLOURS: Final = {
    "corrupt": "corrupt",
    "missing": "corrupt",
    "unjudged": "warning",
    "near_tie": "",
    "identical": "good",
}
RANKS: Final = {cls: rank for rank, cls in enumerate(CLASS_NAMES)}
END = message("tui.column.end", "ended by")

COLUMNS: list[Column[CompletionLine]] = [
    Column(FIELDS["class"], 12, lambda one: (class_name(one.cls), _COLOURS.get(one.cls, "dim")), "class"),
    Column(FIELDS["request"], 0, lambda one: (place(one.key), ""), "request", least=9, middle=True),
    Column(FIELDS["arm"], 0, lambda one: (plain(one.arm), ""), "arm", least=12, middle=True),
    Column(
        FIELDS["differs"],
        7,
        lambda one: ("" if one.first_divergence is None else f"{one.first_divergence:,}", ""),
        "differs",
        right=True,
    ),
    Column(FIELDS["length"], 7, lambda one: (f"{one.n_tokens:,}", "dim"), "length", right=True),
    Column(END, 8, lambda one: (plain(one.finish_reason or ""), "dim"), from_width=70),
    Column(
        FIELDS["findings"],
        8,
        lambda one: (f"{one.findings:,}" if one.findings else "", ""),
        right=True,
        from_width=WIDE,
    ),
]

ORDERS: Final[Mapping[str, Callable[[CompletionLine], tuple[Any, ...]]]] = {
    "class": lambda one: (RANKS.get(one.cls, len(RANKS)), one.ordinal, one.arm),
    "request": lambda one: (one.ordinal, one.arm),
    "arm": lambda one: (one.arm, one.ordinal),
    "differs": lambda one: (one.first_divergence is None, one.first_divergence or 0, one.ordinal),
    "length": lambda one: (one.n_tokens, one.ordinal),
}


@dataclass(frozen=True, slots=True)
class Shown:
    """Which completions are shown, and in which order."""

    chosen: frozenset[tuple[str, str]] = field(default_factory=frozenset)
    text: str = ""
    sort: str = "class"
    descending: bool = False

    def of(self, lines: Sequence[CompletionLine]) -> list[CompletionLine]:
        classes = {value for group, value in self.chosen if group == "class"}
        arms = {value for group, value in self.chosen if group == "arm"}
        found = [
            one
            for one in lines
            if (not classes or one.cls in classes)
            and (not arms or one.arm in arms)
            and self.text.lower() in one.key.request.lower()
        ]
        return sorted(found, key=ORDERS[self.sort], reverse=self.descending)


class CompletionsScreen(SearchedScreen[CompletionLine]):
    """Those that the findings say nothing of can be looked at too."""

    BINDINGS: ClassVar[list[Any]] = [*bindings(COMPLETIONS)]
    AUTO_FOCUS = "#table"
    group = "completions"

    def __init__(self, run: RunRow) -> None:
        super().__init__()
        self.run, self.view = run, Shown()
        self.lines: Sequence[CompletionLine] | None = None
        """None before they were read."""
        self.rows: Sequence[CompletionLine] = ()

    def compose(self) -> ComposeResult:
        yield Static(classes="title", id="title")
        hint = message("tui.search_request", "text in the request's name; Enter closes")
        yield Input(placeholder=render(hint), id="search", disabled=True)
        yield VirtualTable[CompletionLine](COLUMNS, self._fetch, lambda one: (one.arm, one.key), id="table")
        yield Static(classes="empty", id="empty")
        yield Static(classes="status", id="status")
        yield KeyBar(COMPLETIONS, APP)

    def on_mount(self) -> None:
        self._draw()
        self.load()

    @property
    def reading(self) -> bool:
        return self.lines is None

    def reload(self) -> None:
        store = self.store
        if store is not None:
            self.run = self.parity.attempt(lambda: store.run(self.run.id), self.run)
            self.load()

    @work(thread=True, exclusive=True, group="completions")
    def load(self) -> None:
        try:
            found = self.parity.background().completion_lines(self.run.id)
        except ParityError as error:
            self.parity.hand_over(None, self.parity.complain, error)
            return
        self.parity.hand_over(self, self._lines_are, found)

    def _lines_are(self, found: Sequence[CompletionLine]) -> None:
        self.lines = found
        self._draw(stay=True)

    def _fetch(self, offset: int, limit: int) -> Sequence[CompletionLine]:
        return self.rows[offset : offset + limit]

    def _draw(self, *, stay: bool = False) -> None:
        title = message("tui.completions_of", "completions of {run}", run=plain(self.run.id))
        verdict = self.run.verdict or actual_status(self.run)
        self.set_text("#title", Text.assemble(badge(verdict), f"  {render(title)}  {plain(self.run.model)}"))
        row = self.table.current if stay else None
        self.rows = self.view.of(self.lines or ())
        self.table.sorted_by, self.table.descending = self.view.sort, self.view.descending
        cursor = self.rows.index(row) if row is not None and row in self.rows else 0
        self.table.show(len(self.rows), cursor=cursor)
        self.table.display, empty = bool(self.rows), self.query_one("#empty")
        empty.display = not self.rows
        if self.lines is None:
            self.set_text("#empty", render(message("tui.reading_completions", "Reading the completions …")))
        elif self.lines:
            self.set_text("#empty", render(message("tui.no_completion_passes", "No completion passes the filter.")))
        else:
            self.set_text("#empty", render(message("tui.no_completions", "No completion is stored for this run yet.")))
        self._say()

    def _say(self) -> None:
        parts: list[Message | str] = [f"{self.table.cursor + 1 if self.rows else 0:,}/{len(self.rows):,}"]
        if self.lines:
            counts: dict[str, int] = {}
            for one in self.lines:
                counts[one.cls] = counts.get(one.cls, 0) + 1
            parts.append(class_counts(counts))
        if self.view.chosen:
            parts.append("| " + " ".join(sorted(value_name(*one) for one in self.view.chosen)))
        if self.view.text:
            parts.append(joined(["|", message("tui.text", 'text "{text}"', text=plain(self.view.text))], " "))
        self.set_text("#status", render(joined(parts, " ")), layout=False)

    def on_virtual_table_moved(self) -> None:
        self._say()

    # ------------------------------------------------------------------ moving and opening

    def on_virtual_table_opened(self) -> None:
        self.action_open()

    def action_open(self) -> None:
        from parity.tui.screens.finding import FindingScreen

        stop = self._stop()
        if stop is not None:
            self.app.push_screen(FindingScreen(self.run, stop, step=self.step))

    def _stop(self) -> Stop | None:
        """The completion under the cursor, at its worst finding where it has one."""
        row, store = self.table.current, self.store
        if row is None or store is None:
            return None
        nothing: list[FindingRow] = []
        found = self.parity.attempt(lambda: store.findings_of_completion(self.run.id, row.arm, row.key), nothing)
        worst = min(found, key=lambda one: (-one.weight, one.id), default=None)
        return Stop(row.arm, row.key, worst)

    def step(self, by: int) -> Stop | None:
        """Go on to another completion of the list; None at its ends."""
        before = self.table.cursor
        self.table.go(before + by)
        return self._stop() if self.table.cursor != before else None

    # ------------------------------------------------------------------ filtering and sorting

    def change_view(self, view: Shown) -> None:
        self.view = view
        self._draw(stay=True)

    def action_sort(self) -> None:
        orders = list(ORDERS)
        following = orders[(orders.index(self.view.sort) + 1) % len(orders)]
        self.change_view(replace(self.view, sort=following, descending=False))

    def action_reverse(self) -> None:
        self.change_view(replace(self.view, descending=not self.view.descending))

    def on_virtual_table_header_clicked(self, event: VirtualTable.HeaderClicked) -> None:
        turned = event.sort == self.view.sort and not self.view.descending
        self.change_view(replace(self.view, sort=event.sort, descending=turned))

    def action_clear(self) -> None:
        if self.view.text:
            self.query_one("#search", Input).value = ""
        self.change_view(replace(self.view, text="", chosen=frozenset()))

    def on_input_changed(self, event: Input.Changed) -> None:
        if event.value != self.view.text:
            self.change_view(replace(self.view, text=event.value))

    def action_filter(self) -> None:
        counts: dict[tuple[str, str], int] = {}
        for one in self.lines or ():
            for key in (("class", one.cls), ("arm", one.arm)):
                counts[key] = counts.get(key, 0) + 1
        options = sorted(counts, key=lambda key: (key[0] != "class", RANKS.get(key[1], 0), key[1]))

        def chosen(answer: frozenset[tuple[str, str]] | None) -> None:
            if answer is not None:
                self.change_view(replace(self.view, chosen=answer))

        self.app.push_screen(ChooseFilter([(*key, counts[key]) for key in options], self.view.chosen), chosen)
