"""Baseline and candidate side by side, aligned token by token; drawn line by line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final

import numpy as np
import numpy.typing as npt
from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from parity.tui.alignment import DELETED, EQUAL, INSERTED, MARKS, SUBSTITUTED, Alignment
from parity.tui.format import bar, fit, nats
from parity.tui.tokens import Piece, spaced

MARGIN: Final = 10
"""Columns before the text: cursor, finding, position, kind of difference."""
GAP: Final = 14
"""Columns of the gap and its bar in the view of tokens."""
OPENS, CLOSES = "▸", "◂"
"""Around a stretch that differs, in flowing text; seen without colours."""
FULL_BAR: Final = 8.0
"""Nats that fill the bar: one token in three thousand."""

_STYLES: Final = {EQUAL: "", SUBSTITUTED: "substituted", INSERTED: "inserted", DELETED: "deleted"}


@dataclass
class Content:
    """What to draw. Pieces go with tokens, `gaps` (nats) and the positions with candidate tokens."""

    alignment: Alignment
    left: Sequence[Piece]
    right: Sequence[Piece]
    gaps: npt.NDArray[np.float64] | None = None
    tolerance: float = 0.25
    found: frozenset[int] = frozenset()
    """Candidate positions that a finding covers."""
    periods: frozenset[int] = frozenset()
    """Candidate positions at which a copy of a repeated pattern begins."""
    titles: tuple[str, str] = ("baseline", "candidate")


@dataclass(frozen=True, slots=True)
class _Line:
    """Rows [first, last) of the alignment that stand on one line of flowing text."""

    first: int
    last: int


@dataclass
class _Side:
    width: int
    segments: list[Segment] = field(default_factory=list)
    used: int = 0

    def add(self, text: str, style: Style) -> None:
        room = self.width - self.used
        size = cell_len(text)
        if size > room:
            text, size = fit(text, room), room
        if text:
            self.segments.append(Segment(text, style))
            self.used += size

    def done(self, style: Style) -> list[Segment]:
        return [*self.segments, Segment(" " * (self.width - self.used), style)]


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
    }

    class Moved(Message):
        """The cursor is on another row of the alignment."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        nothing = np.empty(0, dtype=np.int64)
        self.content = Content(Alignment(nothing, nothing, np.empty(0, dtype=np.uint8)), (), ())
        self.cursor = 0
        self.flowing = False
        self._lines: list[_Line] = []
        self._line_of = nothing

    # ------------------------------------------------------------------ content and moving

    def show(self, content: Content, row: int) -> None:
        self.content = content
        self.cursor = min(max(0, row), max(0, len(content.alignment) - 1))
        self._arrange()
        self._follow(middle=True)
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
            self.cursor = row
            self._follow(middle=middle)
            self.refresh()
            self.post_message(self.Moved())

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

    def _follow(self, *, middle: bool = False) -> None:
        line = self.cursor
        if self.flowing:
            line = int(self._line_of[self.cursor]) if len(self._line_of) else 0
        top = round(self.scroll_y)
        if middle and not top + 2 <= line < top + self.text_height - 2:
            top = line - self.text_height // 2
        elif line < top:
            top = line
        elif line >= top + self.text_height:
            top = line - self.text_height + 1
        self.scroll_to(y=max(0, top), animate=False, force=True, immediate=True)

    def on_resize(self, event: events.Resize) -> None:
        self._arrange()
        self.call_after_refresh(lambda: self._follow(middle=True))

    def on_click(self, event: events.Click) -> None:
        line = round(self.scroll_y) + event.y - 1
        if event.y > 0 and 0 <= line < self._height():
            self.go(self._lines[line].first if self.flowing else line)

    # ------------------------------------------------------------------ layout

    @property
    def _half(self) -> int:
        """Columns of one side."""
        room = self.size.width - MARGIN - 3 - (0 if self.flowing else GAP)
        return max(4, room // 2)

    def _arrange(self) -> None:
        if self.flowing:
            self._lines = self._flow()
            rows = np.zeros(len(self.content.alignment), dtype=np.int64)
            for number, line in enumerate(self._lines):
                rows[line.first : line.last] = number
            self._line_of = rows
        self.virtual_size = Size(self.size.width, self._height() + 1)

    def _flow(self) -> list[_Line]:
        """Break the rows into lines such that both sides fit, after a newline on either side."""
        alignment, width = self.content.alignment, self._half - 2  # room for the marks around a difference
        lines: list[_Line] = []
        first = used_left = used_right = 0
        previous = EQUAL
        left, right, ops = alignment.left.tolist(), alignment.right.tolist(), alignment.op.tolist()
        for row, (i, j, op) in enumerate(zip(left, right, ops, strict=True)):
            one = self.content.left[i] if i >= 0 else None
            other = self.content.right[j] if j >= 0 else None
            mark = int((op != EQUAL) != (previous != EQUAL))
            size_left = mark + (cell_len(one.text) if one else 0)
            size_right = mark + (cell_len(other.text) if other else 0)
            if row > first and (used_left + size_left > width or used_right + size_right > width):
                lines.append(_Line(first, row))
                first, used_left, used_right = row, 0, 0
            used_left += size_left
            used_right += size_right
            previous = op
            if (one and one.breaks) or (other and other.breaks):
                lines.append(_Line(first, row + 1))
                first, used_left, used_right = row + 1, 0, 0
        if first < len(alignment):
            lines.append(_Line(first, len(alignment)))
        return lines

    # ------------------------------------------------------------------ drawing

    def _style(self, name: str) -> Style:
        return self.get_component_rich_style(f"tokens--{name}")

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        if y == 0:
            style = self._style("header")
            titles = [fit(title, self._half) for title in self.content.titles]
            tail = "" if self.flowing else "  gap, nats"
            return Strip([Segment(f"    token {titles[0]} │ {titles[1]}{tail}", style)]).adjust_cell_length(
                width, style
            )
        line = round(self.scroll_y) + y - 1
        if not 0 <= line < self._height():
            return Strip.blank(width, self.rich_style)
        strip = self._flowing_line(line) if self.flowing else self._token_line(line)
        return strip.adjust_cell_length(width, self.rich_style)

    def _margin(self, first: int, last: int, position: int) -> Segment:
        """Cursor, `!` where a finding is (`=` where a copy begins), position, kinds of difference."""
        rows = self.content.alignment.right[first:last].tolist()
        found = any(j in self.content.found for j in rows if j >= 0)
        copy = any(j in self.content.periods for j in rows if j >= 0)
        ops = set(self.content.alignment.op[first:last].tolist()) - {EQUAL}
        mark = MARKS[ops.pop()] if len(ops) == 1 else "*" if ops else " "
        here = first <= self.cursor < last
        number = str(position) if position >= 0 else ""
        text = f"{'>' if here else ' '}{'=' if copy else '!' if found else ' '}{number:>5} {mark}"
        return Segment(fit(text, MARGIN), self._style("cursor") if here else self._style("dim"))

    def _token_line(self, row: int) -> Strip:
        alignment = self.content.alignment
        i, j, op = int(alignment.left[row]), int(alignment.right[row]), int(alignment.op[row])
        here = row == self.cursor
        base = self._style("cursor") if here else self.rich_style
        segments = [self._margin(row, row + 1, j if j >= 0 else i)]
        for index, pieces, separator in ((i, self.content.left, " │ "), (j, self.content.right, " ")):
            side = _Side(self._half)
            if index >= 0:
                piece = pieces[index]
                text = piece.text if piece.odd else spaced(piece.text)
                side.add(text, self._mixed(base, op, piece, here))
            segments += [*side.done(base), Segment(separator, base)]
        gap = float(self.content.gaps[j]) if self.content.gaps is not None and 0 <= j < len(self.content.gaps) else None
        if gap is not None and gap == gap:
            style = base if gap <= self.content.tolerance else base + Style(color=self._style("gap").color, bold=True)
            over = "!" if gap > self.content.tolerance else " "
            segments.append(Segment(f"{nats(gap):>6}{over}{bar(gap / FULL_BAR, 6)}", style))
        return Strip(segments).adjust_cell_length(self.size.width, base)

    def _flowing_line(self, number: int) -> Strip:
        line, alignment = self._lines[number], self.content.alignment
        ours = alignment.right[line.first : line.last]
        known = ours[ours >= 0]
        segments = [self._margin(line.first, line.last, int(known[0]) if len(known) else -1)]
        plain = self.rich_style
        for indices, pieces, separator in (
            (alignment.left, self.content.left, " │ "),
            (alignment.right, self.content.right, ""),
        ):
            side = _Side(self._half)
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
                    side.add(pieces[index].text, self._mixed(style, op, pieces[index], here))
                if differs and not after:
                    side.add(CLOSES, self._style("dim"))
            segments += [*side.done(plain), Segment(separator, plain)]
        return Strip(segments)

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
