"""A screen whose body is one long table: how the cursor moves in it."""

from __future__ import annotations

from typing import ClassVar, Generic, TypeVar

from textual.widgets import Input

from parity.tui.screens.base import ParityScreen
from parity.tui.widgets.table import VirtualTable

Line = TypeVar("Line")


class ListScreen(ParityScreen, Generic[Line]):
    """`Line`: what a row of the table is."""

    of_a_row: ClassVar[frozenset[str]] = frozenset({"open"})
    """What is done with the row under the cursor."""

    def possible(self, action: str) -> bool:
        return (action not in self.of_a_row or bool(self.table.total)) and super().possible(action)

    @property
    def table(self) -> VirtualTable[Line]:
        return self.query_one("#table", VirtualTable)

    def action_move(self, step: int) -> None:
        self.table.go(self.table.cursor + step)

    def action_page(self, step: int) -> None:
        self.table.page(step)

    def action_first(self) -> None:
        self.table.go(0)

    def action_last(self) -> None:
        self.table.go(self.table.total - 1)


class SearchedScreen(ListScreen[Line]):
    """One with a line for text to filter by, which `on_input_changed` reads."""

    def action_search(self) -> None:
        search = self.query_one("#search", Input)
        search.disabled = False
        search.add_class("open")
        search.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.input.remove_class("open")
        self.table.focus()
        event.input.disabled = True
