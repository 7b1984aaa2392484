"""Baseline and candidate side by side, aligned token by token; drawn line by line."""

from __future__ import annotations

from typing import ClassVar, Final

import numpy as np
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from parity.language import render
from parity.messages import message
from parity.tui.format import FULL_BAR, bar, fit, nats
from parity.tui.names import FIELDS
from parity.tui.tokens import Piece, spaced
from parity.tui.widgets.sides import Content, Line, Side, flow
from parity.view.alignment import DELETED, EQUAL, INSERTED, MARKS, SUBSTITUTED, Alignment

MARGIN: Final = 11
"""Columns before the text: cursor, finding, position, kind of difference, accepted draft."""
GAP: Final = 14
"""Columns of the gap and its bar in the view of tokens."""
WARM: Final = 0.25
"""Share of the tolerance from which a gap is seen in flowing text."""
OPENS, CLOSES = "▸", "◂"
"""Around a stretch that differs, in flowing text; seen without colours."""

_STYLES: Final = {EQUAL: "", SUBSTITUTED: "substituted", INSERTED: "inserted", DELETED: "deleted"}


class TokenView(ScrollView, can_focus=True, inherit_bindings=False):
    """Rows of an alignment: one per line, or flowing text of both sides with the same tokens opposite."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "tokens--header",
        "tokens--cursor",
        "tokens--substituted",
        "tokens--inserted",
        "tokens--deleted",
        "tokens--odd",
        "tokens--dim",
        "tokens--gap",
        "tokens--copy",
        "tokens--donor",
        "tokens--warm",
        "tokens--hot",
    }

    class Moved(Message):
        """The cursor is on another row of the alignment."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.content = Content(Alignment.empty(), (), ())
        self.cursor = 0
        self.flowing = False
        self._lines: list[Line] = []
        self._line_of = np.empty(0, dtype=np.int64)
        self._placed = (0, 0)
        """The first line in view before the cursor was last followed, and after."""

    # ------------------------------------------------------------------ content and moving

    def show(self, content: Content, row: int) -> None:
        before, self.content = self.content, content
        at, self.cursor = self.cursor, min(max(0, row), max(0, len(content.alignment) - 1))
        if not (before.alignment is content.alignment and before.left is content.left):
            self._arrange()
        # What the capture adds may come while the screen is being laid out: the same place is not a move.
        self._follow(middle=True, again=before.alignment is content.alignment and at == self.cursor)
        self.refresh()

    def toggle(self) -> None:
        self.flowing = not self.flowing
        self._arrange()
        self._follow(middle=True)
        self.refresh()

    @property
    def position(self) -> tuple[int, int]:
        """(baseline token, candidate token) at the cursor, -1 for none."""
        if not len(self.content.alignment):
            return -1, -1
        return int(self.content.alignment.left[self.cursor]), int(self.content.alignment.right[self.cursor])

    def go(self, row: int, *, middle: bool = False) -> None:
        row = min(max(0, row), max(0, len(self.content.alignment) - 1))
        if row != self.cursor:
            before, self.cursor = self.cursor, row
            self._follow(middle=middle)
            for line in {self._line(before), self._line(row)}:
                self.refresh_lines(line + 1)
            self.post_message(self.Moved())

    def _line(self, row: int) -> int:
        """The line that a row of the alignment stands on."""
        if self.flowing:
            return int(self._line_of[row]) if row < len(self._line_of) else 0
        return row

    def down(self, step: int) -> None:
        """`step` lines down: as many tokens in the view of tokens, else to the line below."""
        if not self.flowing:
            self.go(self.cursor + step)
            return
        if self._lines:
            line = int(self._line_of[self.cursor])
            within = self.cursor - self._lines[line].first
            target = self._lines[min(max(0, line + step), len(self._lines) - 1)]
            self.go(min(target.first + within, target.last - 1))

    @property
    def text_height(self) -> int:
        return max(1, self.size.height - 1)

    def _height(self) -> int:
        return len(self._lines) if self.flowing else len(self.content.alignment)

    def _follow(self, *, middle: bool = False, again: bool = False) -> None:
        """Scroll to the cursor. `again`: in another size, from where it was followed, if nobody has scrolled since.

        Else the sizes on the way to a layout would decide where the cursor stands in the last one.
        """
        line = self._line(self.cursor)
        before, after = self._placed
        top = before if again and round(self.scroll_y) == after else round(self.scroll_y)
        start = top
        if middle and not top + 2 <= line < top + self.text_height - 2:
            top = line - self.text_height // 2
        elif line < top:
            top = line
        elif line >= top + self.text_height:
            top = line - self.text_height + 1
        if max(0, top) != round(self.scroll_y):
            self.scroll_to(y=max(0, top), animate=False, force=True, immediate=True)
        self._placed = start, round(self.scroll_y)

    def on_resize(self, event: events.Resize) -> None:
        self._arrange()
        self.call_after_refresh(lambda: self._follow(middle=True, again=True))

    def on_click(self, event: events.Click) -> None:
        line = round(self.scroll_y) + event.y - 1
        if event.y > 0 and 0 <= line < self._height():
            self.go(self._lines[line].first if self.flowing else line)

    # ------------------------------------------------------------------ layout

    @property
    def _donors(self) -> bool:
        """Is there a third side?"""
        return bool(self.content.titles[2]) and not self.flowing

    @property
    def _half(self) -> int:
        """Columns of one side."""
        sides = 3 if self._donors else 2
        room = self.size.width - MARGIN - 3 * (sides - 1) - (0 if self.flowing else GAP + 1)
        return max(4, room // sides)

    def _arrange(self) -> None:
        if self.flowing:
            self._lines = flow(self.content, self._half - 2)
            rows = np.zeros(len(self.content.alignment), dtype=np.int64)
            for number, line in enumerate(self._lines):
                rows[line.first : line.last] = number
            self._line_of = rows
        self.virtual_size = Size(self.size.width, self._height() + 1)

    # ------------------------------------------------------------------ drawing

    def _style(self, name: str) -> Style:
        return self.get_component_rich_style(f"tokens--{name}")

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        if y == 0:
            style = self._style("header")
            titles = [fit(title, self._half, middle=True) for title in self.content.titles[: 3 if self._donors else 2]]
            tail = "" if self.flowing else "  " + render(message("tui.gap_nats", "gap, nats"))
            drafts = "d" if len(self.content.trace) else " "
            head = f"  {fit(render(FIELDS['token']), 6)} {drafts} {' │ '.join(titles)}{tail}"
            return Strip([Segment(head, style)]).adjust_cell_length(width, style)
        line = round(self.scroll_y) + y - 1
        if not 0 <= line < self._height():
            return Strip.blank(width, self.rich_style)
        strip = self._flowing_line(line) if self.flowing else self._token_line(line)
        return strip.adjust_cell_length(width, self.rich_style).simplify()

    def _margin(self, first: int, last: int, position: int) -> Segment:
        """Cursor, `!` where a finding is (`=` where a copy begins), position, kind of difference, draft."""
        content = self.content
        rows = [j for j in content.alignment.right[first:last].tolist() if j >= 0]
        found = any(j in content.found for j in rows)
        if content.lost and not found:
            found = any(i in content.lost for i in content.alignment.left[first:last].tolist())
        copy = any(j in content.copies[:-1] for j in rows) if content.copies else False
        ops = set(content.alignment.op[first:last].tolist()) - {EQUAL}
        mark = MARKS[ops.pop()] if len(ops) == 1 else "*" if ops else " "
        here = first <= self.cursor < last
        number = str(position) if position >= 0 else ""
        draft = content.trace[rows[0]] if not self.flowing and rows and rows[0] < len(content.trace) else " "
        text = f"{'>' if here else ' '}{'=' if copy else '!' if found else ' '}{number:>5} {mark}{draft}"
        return Segment(fit(text, MARGIN), self._style("cursor") if here else self._style("dim"))

    def _token_line(self, row: int) -> Strip:
        content, alignment = self.content, self.content.alignment
        i, j, op = int(alignment.left[row]), int(alignment.right[row]), int(alignment.op[row])
        here = row == self.cursor
        base = self._style("cursor") if here else self.rich_style
        copy = content.copy_number(j)
        shaded = base if here or copy is None or copy % 2 else base + self._style("copy")
        segments = [self._margin(row, row + 1, j if j >= 0 else i)]
        for index, pieces, separator, style in (
            (i, content.left, " │ ", base),
            (j, content.right, " │ " if self._donors else " ", shaded),
        ):
            side = Side(self._half)
            if index >= 0:
                side.add(_shown(pieces[index]), self._mixed(style, op, pieces[index], here))
            segments += [*side.done(style), Segment(separator, base)]
        if self._donors:
            side = Side(self._half)
            if j in content.donor:
                piece, same = content.donor[j]
                side.add("=" if same else " ", base)
                side.add(_shown(piece), base + self._style("donor") if same and not here else base)
            segments += [*side.done(base), Segment(" ", base)]
        gap = float(content.gaps[j]) if content.gaps is not None and 0 <= j < len(content.gaps) else None
        if gap is not None and gap == gap:
            style = base if gap <= content.tolerance else base + Style(color=self._style("gap").color, bold=True)
            over = "!" if gap > content.tolerance else " "
            segments.append(Segment(f"{nats(gap):>6}{over}{bar(gap / FULL_BAR, 6)}", style))
        return Strip(segments).adjust_cell_length(self.size.width, base)

    def _flowing_line(self, number: int) -> Strip:
        line, alignment = self._lines[number], self.content.alignment
        ours = alignment.right[line.first : line.last]
        known = ours[ours >= 0]
        segments = [self._margin(line.first, line.last, int(known[0]) if len(known) else -1)]
        plain = self.rich_style
        for indices, pieces, separator, candidate in (
            (alignment.left, self.content.flowing[0], " │ ", False),
            (alignment.right, self.content.flowing[1], "", True),
        ):
            side = Side(self._half)
            for row in range(line.first, line.last):
                op = int(alignment.op[row])
                differs = op != EQUAL
                before = row > 0 and int(alignment.op[row - 1]) != EQUAL
                after = row + 1 < len(alignment) and int(alignment.op[row + 1]) != EQUAL
                index = int(indices[row])
                here = row == self.cursor
                if differs and not before:
                    side.add(OPENS, self._style("dim"))
                if index >= 0:
                    style = self._style("cursor") if here else plain
                    if not here:
                        style = style + (self._heat(index) if candidate else self._gone(index))
                    side.add(pieces[index].text, self._mixed(style, op, pieces[index], here))
                if differs and not after:
                    side.add(CLOSES, self._style("dim"))
            segments += [*side.done(plain), Segment(separator, plain)]
        return Strip(segments)

    def _heat(self, at: int) -> Style:
        """Of a candidate's token in flowing text: its gap, whether a finding covers it, whose token it is."""
        content, style = self.content, Style()
        copy = content.copy_number(at)
        if copy is not None and copy % 2 == 0:
            style = style + self._style("copy")
        gap = float(content.gaps[at]) if content.gaps is not None and at < len(content.gaps) else 0.0
        if gap > content.tolerance:
            style = style + Style(bgcolor=self._style("hot").bgcolor)
        elif gap > WARM * content.tolerance:
            style = style + Style(bgcolor=self._style("warm").bgcolor)
        if at in content.donor and content.donor[at][1] and at in content.found:
            style = style + Style(color=self._style("donor").color)
        return style + Style(underline=True) if at in content.found else style

    def _gone(self, at: int) -> Style:
        """Of a baseline's token: whether a finding says that it was lost."""
        return Style(underline=True) if at in self.content.lost else Style()

    def _mixed(self, base: Style, op: int, piece: Piece, here: bool) -> Style:
        style = base
        if _STYLES[op] and not here:
            style = style + self._style(_STYLES[op])
        elif _STYLES[op]:
            style = style + Style(underline=True, bold=True)
        if piece.odd:
            style = style + Style(italic=True)
            if not here and op == EQUAL:
                style = style + Style(color=self._style("odd").color)
        return style


def _shown(piece: Piece) -> str:
    return piece.text if piece.odd else spaced(piece.text)
