"""Choosing several findings of a list, to decide about all of them at once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from textual import work

from parity.errors import ParityError
from parity.messages import Message, message
from parity.store import FindingRow, RunRow, TriageState
from parity.store.browse import Browser
from parity.tui.names import findings
from parity.tui.screens.triaging import TriageScreen
from parity.tui.view import View
from parity.tui.widgets.table import VirtualTable

AT_ONCE = 20_000
"""Findings that are selected while the screen waits."""
LOOKED_AT = 5000
"""Findings in which the next new one is looked for."""


class SelectingScreen(TriageScreen):
    """A list of findings with a selection; without one, the row under the cursor is meant."""

    def __init__(self, run: RunRow) -> None:
        super().__init__()
        self.run = run
        self.view = View()
        self.range_start = 0
        self.aside: set[Hashable] = set()
        """Selected, and not passing the filter."""

    @property
    def table(self) -> VirtualTable[FindingRow]:
        return self.query_one("#table", VirtualTable)

    def say(self) -> None:
        """Say how many are selected."""

    def targets(self) -> Sequence[int]:
        if self.table.selected:
            return sorted(i for i in self.table.selected if isinstance(i, int))
        row = self.table.current
        return [] if row is None or self.aside else [row.id]

    def set_aside(self) -> None:
        """What was selected and does not pass the filter now is left out, and comes back with another filter."""
        store, chosen = self.store, self.table.selected | self.aside
        if store is None or not chosen:
            return
        ids = [i for i in chosen if isinstance(i, int)]
        nothing: set[int] = set()
        passing = self.parity.attempt(lambda: store.passing(self.run.id, ids, self.view.filter()), nothing)
        self.table.selected, self.aside = set(passing), chosen - passing

    def selected_said(self) -> list[Message | str]:
        """How many are selected, and how many of them are not seen: off the screen, or filtered out."""
        if not self.table.selected and not self.aside:
            return []
        rows = (self.table.at_hand(index) for index in self.table.in_view)
        seen = sum(row is not None and row.id in self.table.selected for row in rows)
        count = len(self.table.selected)
        said: list[Message | str] = [message("tui.selected", "{count:,} selected", count=count)]
        if count > seen:
            said.append(message("tui.off_screen", "({count:,} of them off the screen)", count=count - seen))
        if self.aside:
            said.append(message("tui.aside", "(+{count:,} filtered out, left alone)", count=len(self.aside)))
        return ["|", *said, "|"]

    def unselect(self) -> None:
        self.table.selected.clear()
        self.aside.clear()
        self.table.refresh()
        self.say()

    def current(self) -> FindingRow | None:
        return self.table.current

    def decided(self, *, advance: bool = False) -> None:
        if self.is_attached:
            one = not self.table.selected
            self.unselect()
            if advance and one:
                self.table.go(self.table.cursor + 1)

    def action_next_new(self) -> None:
        if not self.next_new():
            self.tell(message("tui.none_new", "nothing is left that nobody has decided about"))

    def next_new(self) -> bool:
        """Go to the next finding that nobody has decided about, from the end on to the first. False: none was found
        among `LOOKED_AT`."""
        for step in range(1, min(self.table.total, LOOKED_AT) + 1):
            at = (self.table.cursor + step) % self.table.total
            row = self.table.row(at)
            if row is not None and row.state is TriageState.NEW:
                self.table.go(at)
                return True
        return False

    def action_select(self) -> None:
        row = self.table.current
        if row is not None:
            self.table.selected ^= {row.id}
            self.range_start = self.table.cursor
            self.table.redraw(self.table.cursor)
            self.table.go(self.table.cursor + 1)
            self.say()

    def action_select_range(self) -> None:
        first, last = sorted((self.range_start, self.table.cursor))
        self._select(first, last - first + 1)

    def action_select_all(self) -> None:
        self._select(0, -1)

    def _select(self, offset: int, limit: int) -> None:
        store, view = self.store, self.view
        if store is None:
            return

        def ids(of: Browser) -> list[int]:
            return of.finding_ids(
                self.run.id, view.filter(), sort=view.sort, descending=view.down, offset=offset, limit=limit
            )

        count = self.table.total if limit < 0 else limit
        if count > AT_ONCE:
            self.tell(message("tui.selecting", "selecting {findings} …", findings=findings(count)))
            self._select_many(ids, view)
        else:
            nothing: list[int] = []
            self._are_selected(self.parity.attempt(lambda: ids(store), nothing), view)

    @work(thread=True, exclusive=True, group="select")
    def _select_many(self, ids: Callable[[Browser], list[int]], view: View) -> None:
        try:
            found = ids(self.parity.background())
        except ParityError as error:
            self.parity.hand_over(None, self.parity.complain, error)
            return
        self.parity.hand_over(self, self._are_selected, found, view)

    def _are_selected(self, ids: Sequence[int], view: View) -> None:
        if view != self.view:
            return
        self.table.selected.update(ids)
        self.table.refresh()
        self.say()
