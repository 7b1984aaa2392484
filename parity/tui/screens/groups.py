"""Findings that are alike as one line each: decided about all at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Final

from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.widgets import Static

from parity.errors import ParityError
from parity.language import render
from parity.messages import Message, joined, message
from parity.store import FindingRow, RunRow
from parity.store.browse import Browser
from parity.tui.bindings import APP, GROUP_KEYS
from parity.tui.command import bindings
from parity.tui.format import plain
from parity.tui.names import FIELDS
from parity.tui.screens.listing import ListScreen
from parity.tui.screens.triaging import TriageScreen
from parity.tui.stop import Stop
from parity.tui.view import View, place
from parity.tui.widgets.keybar import KeyBar
from parity.tui.widgets.table import Column, VirtualTable
from parity.view.alike import Group, groups

MOST: Final = 50_000
"""Findings that are looked at, the worst first."""
CHUNK: Final = 500


def _words(group: Group) -> str:
    return plain(render(joined(group.alike.said(), ", ")))


COLUMNS: list[Column[Group]] = [
    Column(FIELDS["findings"], 9, lambda one: (f"{len(one.ids):,}", ""), right=True),
    Column(FIELDS["new"], 7, lambda one: (f"{one.new:,}", "warning" if one.new else "good"), right=True),
    Column(
        FIELDS["kind"], 17, lambda one: (plain(one.alike.kind), "corrupt" if one.first.severity == "corrupt" else "dim")
    ),
    Column(message("tui.column.alike", "what is alike"), 0, lambda one: (_words(one), ""), least=16),
    Column(FIELDS["arm"], 0, lambda one: (plain(one.alike.arm), ""), least=10, middle=True),
    Column(message("tui.column.worst", "worst"), 0, lambda one: (place(one.first.key), "dim"), least=8, middle=True),
]


class GroupsScreen(ListScreen[Group], TriageScreen):
    """Groups of the findings that pass the filter of the list."""

    BINDINGS: ClassVar[list[Any]] = [*bindings(GROUP_KEYS)]
    AUTO_FOCUS = "#table"
    group = "groups"
    of_a_row = frozenset({"open", "next_new"})
    columns: ClassVar[Sequence[Column[Group]]] = COLUMNS

    def __init__(self, run: RunRow, view: View) -> None:
        super().__init__()
        self.run, self.view = run, view
        self.groups: Sequence[Group] | None = None
        self.beyond = 0
        """Findings that were not looked at."""

    def compose(self) -> ComposeResult:
        yield Static(classes="title", id="title")
        yield VirtualTable[Group](self.columns, self._fetch, lambda one: one.alike, id="table")
        yield Static(classes="empty", id="empty")
        yield Static(classes="status", id="status")
        yield KeyBar(GROUP_KEYS, APP)

    def on_mount(self) -> None:
        self.set_text("#title", Text(render(self.heading())))
        self._draw()
        self.load()

    def heading(self) -> Message:
        return message("tui.groups_of", "findings of {run} that are alike", run=plain(self.run.id))

    def why_empty(self) -> Message:
        return message("tui.no_groups", "No finding passes the filter of the list.")

    def read(self, store: Browser) -> tuple[Sequence[int], int]:
        """Ids of the findings to group, the worst first, and how many more there are."""
        ids = store.finding_ids(self.run.id, self.view.filter())
        return ids[:MOST], max(0, len(ids) - MOST)

    @property
    def reading(self) -> bool:
        return self.groups is None

    def reload(self) -> None:
        self.load()

    @work(thread=True, exclusive=True, group="groups")
    def load(self) -> None:
        try:
            store = self.parity.background()
            ids, beyond = self.read(store)
            found = groups(_rows(store, ids))
        except ParityError as error:
            self.parity.hand_over(None, self.parity.complain, error)
            return
        self.parity.hand_over(self, self._groups_are, found, beyond)

    def _groups_are(self, found: Sequence[Group], beyond: int) -> None:
        """The cursor stays on its group: one that was decided about leaves the inbox, and those below move up."""
        here = self.table.current
        self.groups, self.beyond = found, beyond
        self._draw(next((at for at, one in enumerate(found) if here is not None and one.alike == here.alike), None))

    def _fetch(self, offset: int, limit: int) -> Sequence[Group]:
        return (self.groups or ())[offset : offset + limit]

    def _draw(self, cursor: int | None = None) -> None:
        found = self.groups or ()
        self.table.show(len(found), cursor=cursor)
        self.table.display = bool(found)
        self.query_one("#empty").display = not found
        if self.groups is None:
            self.set_text("#empty", render(message("tui.grouping", "Looking at the findings …")))
        else:
            self.set_text("#empty", render(self.why_empty()))
        self._say()

    def _say(self) -> None:
        parts: list[Message | str] = [f"{self.table.cursor + 1 if self.groups else 0:,}/{len(self.groups or ()):,}"]
        if self.groups:
            total, new = sum(len(one.ids) for one in self.groups), sum(one.new for one in self.groups)
            parts.append(message("tui.grouped", "groups of {total:,} findings, {new:,} new", total=total, new=new))
        if self.beyond:
            parts.append(message("tui.beyond", "(not looked at: {beyond:,} more)", beyond=self.beyond))
        self.set_text("#status", render(joined(parts, " ")), layout=False)

    def on_virtual_table_moved(self) -> None:
        self._say()

    # ------------------------------------------------------------------ deciding

    def targets(self) -> Sequence[int]:
        group = self.table.current
        return [] if group is None else group.ids

    def current(self) -> FindingRow | None:
        group = self.table.current
        return None if group is None else group.first

    def decided(self, *, advance: bool = False) -> None:
        if advance and self.is_attached:
            self.table.go(self.table.cursor + 1)

    # ------------------------------------------------------------------ moving and opening

    def action_next_new(self) -> None:
        found = self.groups or ()
        for step in range(1, len(found) + 1):
            at = (self.table.cursor + step) % len(found)
            if found[at].new:
                self.table.go(at)
                return
        self.tell(message("tui.none_new", "nothing is left that nobody has decided about"))

    def on_virtual_table_opened(self) -> None:
        self.action_open()

    def action_open(self) -> None:
        from parity.tui.screens.finding import FindingScreen

        group, store = self.table.current, self.store
        if group is None or store is None:
            return
        at = 0
        nothing: list[FindingRow] = []

        def step(by: int) -> Stop | None:
            """Through the findings of the group."""
            nonlocal at
            if not 0 <= at + by < len(group.ids):
                return None
            at += by
            rows = self.parity.attempt(lambda: store.findings([group.ids[at]]), nothing)
            return Stop.at(rows[0]) if rows and rows[0].run == self.run.id else None

        self.app.push_screen(FindingScreen(self.run, Stop.at(group.first), step=step))


def _rows(store: Browser, ids: Sequence[int]) -> Iterator[FindingRow]:
    for start in range(0, len(ids), CHUNK):
        yield from store.findings(ids[start : start + CHUNK])
