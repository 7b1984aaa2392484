"""A list of findings that is filtered and sorted."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import Final

from textual.widgets import Input

from parity.messages import message
from parity.store import FindingRow, FindingSort, RunRow
from parity.store.browse import Facet
from parity.tui.screens.dialogs import ChooseFilter
from parity.tui.screens.listing import SearchedScreen
from parity.tui.screens.previewing import PreviewingScreen
from parity.tui.view import GROUPS, View
from parity.tui.widgets.table import VirtualTable

MANY = 100_000
"""Findings that an index walks through in some 20 ms."""


SIFTING: Final = frozenset({"search", "filter", "sort", "reverse", "near_ties", "follow_ups", "groups"})
"""What is done with a list, and needs one."""


class FilteringScreen(SearchedScreen[FindingRow], PreviewingScreen):
    """What passes is read anew by `refresh_rows`, wherever the filter or the order changes."""

    def __init__(self, run: RunRow) -> None:
        super().__init__(run)
        self.facets: list[Facet] | None = None
        """What there is to filter by; None before it was counted."""

    of_a_row = frozenset({"open", "select", "select_range", "select_all", "next_new"})

    def possible(self, action: str) -> bool:
        return (self.facets != [] or action not in SIFTING) and super().possible(action)

    @abstractmethod
    def refresh_rows(self, *, cursor: int | None = None, stay_on: FindingRow | None = None) -> None:
        """Count what passes the filter and draw it, on the same finding where that still passes."""

    @property
    def many(self) -> bool:
        """Are there so many findings that walking an index of them keeps a person waiting?"""
        return self.facets is None or sum(facet.findings for facet in self.facets) > MANY

    def action_clear(self) -> None:
        if self.table.selected or self.aside:
            self.unselect()
        elif self.view.text:
            self.query_one("#search", Input).value = ""
            self.change_view(replace(self.view, text=""))
        elif self.view.chosen:
            self.change_view(replace(self.view, chosen=frozenset()))

    def change_view(self, view: View, *, stay: bool = True) -> None:
        row = self.table.current if stay else None
        self.view = view
        self.set_aside()
        self.refresh_rows(cursor=0 if row is None or self.many else None, stay_on=row)

    def action_near_ties(self) -> None:
        self.change_view(replace(self.view, near_ties=not self.view.near_ties))

    def action_follow_ups(self) -> None:
        self.change_view(replace(self.view, follow_ups=not self.view.follow_ups))

    def action_sort(self) -> None:
        orders = list(FindingSort)
        following = orders[(orders.index(self.view.sort) + 1) % len(orders)]
        self.change_view(replace(self.view, sort=following, descending=False), stay=False)

    def action_reverse(self) -> None:
        self.change_view(replace(self.view, descending=not self.view.descending), stay=False)

    def on_virtual_table_header_clicked(self, event: VirtualTable.HeaderClicked) -> None:
        chosen = FindingSort(event.sort)
        turned = chosen is self.view.sort and not self.view.descending
        self.change_view(replace(self.view, sort=chosen, descending=turned), stay=False)

    def on_input_changed(self, event: Input.Changed) -> None:
        if event.value != self.view.text:
            self.change_view(replace(self.view, text=event.value), stay=False)

    def action_filter(self) -> None:
        if self.facets is None:
            self.tell(message("tui.still_counting", "still counting, one moment"))
            return
        counts: dict[tuple[str, str], int] = {}
        for facet in self.facets:
            for group in GROUPS:
                key = (group, str(getattr(facet, group)))
                counts[key] = counts.get(key, 0) + facet.findings
        options = sorted(counts, key=lambda key: (GROUPS.index(key[0]), -counts[key]))

        def chosen(answer: frozenset[tuple[str, str]] | None) -> None:
            if answer is not None:
                self.change_view(replace(self.view, chosen=answer), stay=False)

        self.app.push_screen(ChooseFilter([(*key, counts[key]) for key in options], self.view.chosen), chosen)
