"""One line of tabs with a remark at its right end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.cells import cell_len
from rich.text import Text
from textual import events
from textual.message import Message
from textual.widget import Widget

from parity.tui.format import fit


class TabLine(Widget):
    """Tabs by the key that chooses each; the chosen one stands in brackets."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"tabline--chosen", "tabline--other", "tabline--remark"}

    class Chosen(Message):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.tabs: Sequence[tuple[str, str, str]] = ()
        self.chosen = ""
        self.remark = ""

    def show(self, tabs: Sequence[tuple[str, str, str]], chosen: str, remark: str = "") -> None:
        """`tabs`: (key, name, title)."""
        if (tabs, chosen, remark) != (self.tabs, self.chosen, self.remark):
            self.tabs, self.chosen, self.remark = tabs, chosen, remark
            self.refresh()

    def _placed(self) -> list[tuple[int, int, str, str]]:
        """(first column, end, name, label)."""
        placed, at = [], 0
        for key, name, title in self.tabs:
            label = f"[{key} {title}]" if name == self.chosen else f" {key} {title} "
            placed.append((at, at + cell_len(label), name, label))
            at += cell_len(label)
        return placed

    def render(self) -> Text:
        chosen, other, remark = (self.get_component_rich_style(f"tabline--{n}") for n in ("chosen", "other", "remark"))
        text = Text(no_wrap=True, overflow="crop", style=other)
        for _, _, name, label in self._placed():
            text.append(label, style=chosen if name == self.chosen else other)
        room = self.size.width - text.cell_len - 2
        if self.remark and room > 10:
            text.append("  " + fit(self.remark, room, right=True), style=remark)
        return text

    def on_click(self, event: events.Click) -> None:
        for first, end, name, _ in self._placed():
            if first <= event.x < end:
                self.post_message(self.Chosen(name))
