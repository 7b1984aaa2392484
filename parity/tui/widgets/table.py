"""A table over rows that are fetched a page at a time: its cost does not depend on how many there are."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Generic, TypeVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from parity import messages
from parity.language import render
from parity.tui.format import fit

Row = TypeVar("Row")

PAGE: Final = 128
"""Rows fetched at once: two or three screenfuls."""
PAGES_KEPT: Final = 24


@dataclass(frozen=True)
class Column(Generic[Row]):
    """`cell` gives text (already safe) and the name of a style, "" for the ordinary one.

    `width` in columns; 0 takes a share of what is left, by `least` and at least that. A table narrower than
    `from_width` or at least `below_width` wide goes without the column. `middle`: what is too long loses its middle.
    """

    title: messages.Message | str
    """A word of ours, or a sign."""
    width: int
    cell: Callable[[Row], tuple[str, str]]
    sort: str = ""
    right: bool = False
    least: int = 8
    from_width: int = 0
    below_width: int = 10_000
    middle: bool = False


class VirtualTable(ScrollView, Generic[Row], can_focus=True, inherit_bindings=False):
    """Draws the rows that are in view with the line API; `fetch(offset, limit)` gives them."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "table--header",
        "table--cursor",
        "table--selected",
        "table--corrupt",
        "table--good",
        "table--warning",
        "table--dim",
    }

    class Opened(Message):
        """A row was clicked twice."""

    class Moved(Message):
        """The cursor is on another row."""

    class HeaderClicked(Message):
        def __init__(self, sort: str) -> None:
            super().__init__()
            self.sort = sort

    def __init__(
        self,
        columns: Sequence[Column[Row]],
        fetch: Callable[[int, int], Sequence[Row]],
        key: Callable[[Row], Hashable],
        *,
        id: str | None = None,
        page: int = PAGE,
    ) -> None:
        super().__init__(id=id)
        self.page_rows = page
        """Rows fetched at once: fewer where a row takes long to read."""
        self.columns = list(columns)
        self.fetch = fetch
        self.key = key
        self.total = 0
        self.cursor = 0
        self.selected: set[Hashable] = set()
        self.sorted_by = ""
        self.descending = False
        self._pages: OrderedDict[int, Sequence[Row]] = OrderedDict()

    # ------------------------------------------------------------------ data

    def show(self, total: int, *, cursor: int | None = None) -> None:
        """Forget what was fetched; there are `total` rows now."""
        self._pages.clear()
        before, self.total = self.total, max(0, total)
        if bool(before) != bool(self.total):
            self.screen.refresh_bindings()  # there is something now that keys can do, or nothing any more
        if cursor is not None:
            self.cursor = cursor
        self.cursor = min(max(0, self.cursor), max(0, self.total - 1))
        self.virtual_size = Size(self.size.width, self.total + 1)
        self._follow()
        self._read_ahead()
        self.refresh()
        self.post_message(self.Moved())

    def _read_ahead(self) -> None:
        """Have the rows in view at hand, so that painting reads nothing."""
        top = round(self.scroll_y)
        for index in (top, top + self._visible_rows):
            self.row(min(index, self.total - 1))

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        self._read_ahead()
        super().watch_scroll_y(old_value, new_value)

    @property
    def in_view(self) -> range:
        """The rows that are on the screen."""
        top = round(self.scroll_y)
        return range(top, min(self.total, top + self._visible_rows))

    def row(self, index: int) -> Row | None:
        if not 0 <= index < self.total:
            return None
        number, offset = divmod(index, self.page_rows)
        page = self._pages.get(number)
        if page is None:
            page = self._pages[number] = self.fetch(number * self.page_rows, self.page_rows)
            while len(self._pages) > PAGES_KEPT:
                self._pages.popitem(last=False)
        else:
            self._pages.move_to_end(number)
        return page[offset] if offset < len(page) else None

    def at_hand(self, index: int) -> Row | None:
        """The row where it was read already."""
        number, offset = divmod(index, self.page_rows)
        page = self._pages.get(number, ())
        return page[offset] if 0 <= index < self.total and offset < len(page) else None

    @property
    def current(self) -> Row | None:
        return self.row(self.cursor)

    # ------------------------------------------------------------------ moving

    @property
    def _visible_rows(self) -> int:
        return max(1, self.size.height - 1)

    def go(self, index: int) -> None:
        index = min(max(0, index), max(0, self.total - 1))
        if index != self.cursor:
            before, self.cursor = self.cursor, index
            self._follow()
            self.redraw(before, index)
            self.post_message(self.Moved())

    def redraw(self, *rows: int) -> None:
        """Draw these rows again; scrolling draws all of them anyway."""
        for index in rows:
            self.refresh_lines(index + 1)

    def page(self, step: int) -> None:
        self.go(self.cursor + step * self._visible_rows)

    def _follow(self) -> None:
        top = round(self.scroll_y)
        if self.cursor < top:
            top = self.cursor
        elif self.cursor >= top + self._visible_rows:
            top = self.cursor - self._visible_rows + 1
        # Not animated: an animated page of a long table takes most of a second.
        if top != round(self.scroll_y):
            self.scroll_to(y=top, animate=False, force=True, immediate=True)

    def on_resize(self, event: events.Resize) -> None:
        self.virtual_size = Size(event.size.width, self.total + 1)
        self._read_ahead()
        self.call_after_refresh(self._follow)

    def on_click(self, event: events.Click) -> None:
        if event.y == 0:
            for start, width, column in self._layout():
                if start <= event.x < start + width and column.sort:
                    self.post_message(self.HeaderClicked(column.sort))
            return
        index = round(self.scroll_y) + event.y - 1
        if index < self.total:
            again = index == self.cursor and event.chain > 1
            self.go(index)
            if again:
                self.post_message(self.Opened())

    # ------------------------------------------------------------------ drawing

    @property
    def room(self) -> int:
        """Columns left of the scrollbar."""
        return int(self.scrollable_content_region.width)

    def _layout(self) -> list[tuple[int, int, Column[Row]]]:
        """(first column, width, column) of what fits; the first two columns hold cursor and selection."""
        room = self.room - 2
        columns = [c for c in self.columns if c.from_width <= self.size.width < c.below_width]
        fixed = sum(column.width + 1 for column in columns if column.width)
        shares = [column for column in columns if not column.width]
        left, weights = max(0, room - fixed), sum(column.least for column in shares) or 1
        placed: list[tuple[int, int, Column[Row]]] = []
        at = 2
        for column in columns:
            width = column.width or max(column.least, left * column.least // weights - 1)
            width = min(width, self.room - at)
            if width <= 0:
                break
            placed.append((at, width, column))
            at += width + 1
        return placed

    def render_line(self, y: int) -> Strip:
        width = self.room
        if y == 0:
            return self._header(width)
        index = round(self.scroll_y) + y - 1
        row = self.at_hand(index)
        if row is None:
            return Strip.blank(width, self.rich_style)
        here = index == self.cursor
        chosen = self.key(row) in self.selected
        base = self.rich_style
        if chosen:
            base = self.get_component_rich_style("table--selected")
        if here:
            base = self.get_component_rich_style("table--cursor")
        segments = [Segment((">" if here else " ") + ("*" if chosen else " "), base)]
        for _, cell_width, column in self._layout():
            text, name = column.cell(row)
            style = base if here or not name else base + self._colour(name)
            segments.append(Segment(fit(text, cell_width, right=column.right, middle=column.middle) + " ", style))
        return Strip(segments).adjust_cell_length(width, base).simplify()

    def _header(self, width: int) -> Strip:
        style = self.get_component_rich_style("table--header")
        segments = [Segment("  ", style)]
        for _, cell_width, column in self._layout():
            title = render(column.title)
            if column.sort and column.sort == self.sorted_by:
                title += "↓" if self.descending else "↑"
            segments.append(Segment(fit(title, cell_width, right=column.right) + " ", style))
        return Strip(segments).adjust_cell_length(width, style).simplify()

    def _colour(self, name: str) -> Style:
        return Style(color=self.get_component_rich_style(f"table--{name}").color)
