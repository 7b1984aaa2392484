"""Wrapped text of which only the lines that changed are drawn again: over ssh each line costs."""

from __future__ import annotations

from itertools import zip_longest

from rich.text import Text
from textual import events
from textual.geometry import Region
from textual.strip import Strip

from parity.tui.widgets.paneltext import PanelText


class LinesView(PanelText):
    """As much of the text as fits."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._text = Text()
        self._wrapped: list[Strip] = []

    def show(self, text: Text) -> None:
        self._text = text
        before, self._wrapped = self._wrapped, self._wrap()
        changed = [
            Region(0, y, self.size.width, 1)
            for y, (old, new) in enumerate(zip_longest(before, self._wrapped))
            if old != new and y < self.size.height
        ]
        if changed:
            self.refresh(*changed)

    def _wrap(self) -> list[Strip]:
        width, base = self.size.width, self.rich_style
        if not width:
            return []
        console = self.app.console
        lines = (line for paragraph in self._text.split("\n") for line in paragraph.wrap(console, width))
        return [
            Strip(line.render(console)).apply_style(base).adjust_cell_length(width, base).simplify() for line in lines
        ]

    def on_resize(self, event: events.Resize) -> None:
        self._wrapped = self._wrap()
        self.refresh()

    def render_line(self, y: int) -> Strip:
        return self._wrapped[y] if y < len(self._wrapped) else Strip.blank(self.size.width, self.rich_style)
