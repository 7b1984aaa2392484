"""What nobody has decided about yet, in all runs: findings that are alike as one line."""

from __future__ import annotations

from collections.abc import Sequence

from parity.messages import Message, message
from parity.store import RunRow
from parity.store.browse import Browser
from parity.tui.names import FIELDS
from parity.tui.screens.groups import COLUMNS, MOST, GroupsScreen
from parity.tui.view import View
from parity.tui.widgets.table import Column
from parity.view.alike import Group

_RUNS: Column[Group] = Column(message("tui.column.runs", "runs"), 5, lambda one: (f"{len(one.runs):,}", ""), right=True)
_NEWEST: Column[Group] = Column(
    message("tui.column.newest", "newest run"), 20, lambda one: (one.first.run, "dim"), from_width=100
)


class InboxScreen(GroupsScreen):
    """Groups of all runs. `run`: that of the group under the cursor, `first` at first."""

    columns = (*(one for one in COLUMNS if one.title is not FIELDS["new"]), _RUNS, _NEWEST)

    def __init__(self, first: RunRow) -> None:
        super().__init__(first, View())

    @property
    def scope(self) -> str | None:
        return None

    def heading(self) -> Message:
        return message("tui.inbox", "inbox: what nobody has decided about and no rule of a known bug takes")

    def why_empty(self) -> Message:
        return message("tui.inbox_empty", "Nothing is new: every finding of every run has been decided about.")

    def read(self, store: Browser) -> tuple[Sequence[int], int]:
        ids = store.inbox(limit=MOST + 1)
        return ids[:MOST], len(ids) - MOST if len(ids) > MOST else 0

    def on_virtual_table_moved(self) -> None:
        super().on_virtual_table_moved()
        group, store = self.table.current, self.store
        if group is not None and store is not None and group.first.run != self.run.id:
            self.run = self.parity.attempt(lambda: store.run(group.first.run), self.run)
