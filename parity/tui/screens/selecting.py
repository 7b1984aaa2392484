"""Choosing several findings of a list, to decide about all of them at once."""

from __future__ import annotations

from collections.abc import Sequence

from parity.store import FindingRow, RunRow
from parity.tui.screens.triaging import TriageScreen
from parity.tui.view import View
from parity.tui.widgets.table import VirtualTable


class SelectingScreen(TriageScreen):
    """A list of findings with a selection; without one, the row under the cursor is meant."""

    def __init__(self, run: RunRow) -> None:
        super().__init__()
        self.run = run
        self.view = View()
        self.range_start = 0

    @property
    def table(self) -> VirtualTable[FindingRow]:
        return self.query_one("#table", VirtualTable)

    def say(self) -> None:
        """Say how many are selected."""

    def targets(self) -> Sequence[int]:
        if self.table.selected:
            return sorted(i for i in self.table.selected if isinstance(i, int))
        row = self.table.current
        return [] if row is None else [row.id]

    def current(self) -> FindingRow | None:
        return self.table.current

    def decided(self) -> None:
        self.table.selected.clear()

    def action_select(self) -> None:
        row = self.table.current
        if row is not None:
            self.table.selected ^= {row.id}
            self.range_start = self.table.cursor
            self.table.go(self.table.cursor + 1)
            self.table.refresh()
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
        nothing: list[int] = []
        ids = self.parity.attempt(
            lambda: store.finding_ids(
                self.run.id, view.filter(), sort=view.sort, descending=view.descending, offset=offset, limit=limit
            ),
            nothing,
        )
        self.table.selected.update(ids)
        self.table.refresh()
        self.say()
