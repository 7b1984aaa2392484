"""Two runs beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final

from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.widgets import Static

from parity.errors import ParityError
from parity.language import render
from parity.messages import Message, joined, message
from parity.store import FindingRow, RunRow
from parity.tui.bindings import APP, COMPARING
from parity.tui.command import bindings
from parity.tui.format import moment, plain
from parity.tui.names import FIELDS
from parity.tui.screens.listing import ListScreen
from parity.tui.stop import Stop
from parity.tui.view import place
from parity.tui.widgets.keybar import KeyBar
from parity.tui.widgets.table import Column, VirtualTable
from parity.view.two_runs import Change, Pair, TwoRuns, two_runs

_WORDS: Final = {
    Change.NEW: (message("tui.change.new", "new"), "corrupt"),
    Change.CHANGED: (message("tui.change.changed", "changed"), "warning"),
    Change.GONE: (message("tui.change.gone", "gone"), "good"),
    Change.UNASKED: (message("tui.change.unasked", "not judged"), "warning"),
    Change.SAME: (message("tui.change.same", "same"), "dim"),
}


def _change(pair: Pair) -> tuple[str, str]:
    word, style = _WORDS[pair.change]
    return render(word), style


def _token(pair: Pair) -> tuple[str, str]:
    places = [
        "" if one is None or one.position is None else f"{one.position}+{one.length or 0}"
        for one in (pair.before, pair.after)
    ]
    return (f"{places[0]} → {places[1]}" if pair.change is Change.CHANGED else places[1] or places[0]), ""


COLUMNS: list[Column[Pair]] = [
    Column(message("tui.column.change", "change"), 10, _change),
    Column(FIELDS["kind"], 17, lambda one: (plain(one.line.kind), "")),
    Column(FIELDS["request"], 0, lambda one: (place(one.line.key), ""), least=9, middle=True),
    Column(FIELDS["arm"], 0, lambda one: (plain(one.line.arm), ""), least=12, middle=True),
    Column(FIELDS["token"], 16, _token, right=True),
]


class ComparingScreen(ListScreen[Pair]):
    """What is new, changed, gone from the older to the newer of two runs, and the settings that differ."""

    BINDINGS: ClassVar[list[Any]] = [*bindings(COMPARING)]
    AUTO_FOCUS = "#table"
    group = "comparing"

    def __init__(self, before: RunRow, after: RunRow) -> None:
        super().__init__()
        self.before, self.after = before, after
        self.found: TwoRuns | None = None
        self.all = False
        self.pairs: Sequence[Pair] = ()

    def compose(self) -> ComposeResult:
        yield Static(classes="title", id="title")
        with VerticalScroll(id="settings", can_focus=False):
            yield Static(id="settings-text")
        yield VirtualTable[Pair](COLUMNS, self._fetch, id_of, id="table")
        yield Static(classes="empty", id="empty")
        yield Static(classes="status", id="status")
        yield KeyBar(COMPARING, APP)

    def on_mount(self) -> None:
        title = message(
            "tui.two_runs",
            "{before} ({then}) → {after} ({now})",
            before=plain(self.before.id),
            then=moment(self.before.created),
            after=plain(self.after.id),
            now=moment(self.after.created),
        )
        self.set_text("#title", render(title))
        self._draw()
        self.load()

    @property
    def reading(self) -> bool:
        return self.found is None

    def reload(self) -> None:
        self.load()

    @work(thread=True, exclusive=True, group="two runs")
    def load(self) -> None:
        try:
            found = two_runs(self.parity.background(), self.before, self.after)
        except ParityError as error:
            self.parity.hand_over(None, self.parity.complain, error)
            return
        self.parity.hand_over(self, self._found, found)

    def _found(self, found: TwoRuns) -> None:
        self.found = found
        self._draw()

    def _fetch(self, offset: int, limit: int) -> Sequence[Pair]:
        return self.pairs[offset : offset + limit]

    def _draw(self) -> None:
        pairs = self.found.pairs if self.found else ()
        self.pairs = [one for one in pairs if self.all or one.change is not Change.SAME]
        self.table.show(len(self.pairs))
        self.table.display = bool(self.pairs)
        self.query_one("#empty").display = not self.pairs
        self.set_text("#empty", render(self._why_empty()))
        self.set_text("#settings-text", self._settings())
        self.query_one("#settings").display = self.found is not None
        self._say()

    def _why_empty(self) -> Message:
        if self.found is None:
            return message("tui.comparing", "Comparing the runs …")
        return message("tui.no_change", "No finding is new, changed or gone. z shows those that stayed.")

    def _settings(self) -> Text:
        text = Text()
        if self.found is None:
            return text
        verdicts = message(
            "tui.verdicts",
            "verdict {before} → {after}",
            before=plain(self.before.verdict or self.before.status),
            after=plain(self.after.verdict or self.after.status),
        )
        text.append(render(verdicts) + "\n", "bold")
        if not self.found.settings:
            text.append(render(message("tui.same_settings", "No setting and no version differs.")))
        for one in self.found.settings:
            text.append(f"{plain(one.name)}: {plain(one.before)} → {plain(one.after)}\n")
        return text

    def _say(self) -> None:
        parts: list[Message | str] = [f"{self.table.cursor + 1 if self.pairs else 0:,}/{len(self.pairs):,}"]
        if self.found is not None:
            for change, (word, _) in _WORDS.items():
                parts.append(message("tui.change.count", "{count:,} {word}", count=self.found.count(change), word=word))
        self.set_text("#status", render(joined(parts, "  ")), layout=False)

    def on_virtual_table_moved(self) -> None:
        self._say()

    # ------------------------------------------------------------------ actions

    def action_same(self) -> None:
        self.all = not self.all
        self._draw()

    def on_virtual_table_opened(self) -> None:
        self.action_open()

    def action_open(self) -> None:
        """The finding in the run that has it, the newer one where both have it."""
        from parity.tui.screens.finding import FindingScreen

        pair, store = self.table.current, self.store
        if pair is None or store is None:
            return
        nothing: FindingRow | None = None
        row = self.parity.attempt(lambda: store.finding(pair.line.id), nothing)
        if row is not None:
            run = self.before if pair.after is None else self.after
            self.app.push_screen(FindingScreen(run, Stop.at(row)))


def id_of(pair: Pair) -> tuple[int, int]:
    """The numbers of both findings."""
    return (pair.before.id if pair.before else 0, pair.after.id if pair.after else 0)
