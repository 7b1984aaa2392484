"""Thin drawings: the gap over a whole completion, and the summary above the findings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from rich.cells import cell_len
from rich.text import Text
from textual import events
from textual.geometry import Region
from textual.message import Message
from textual.widget import Widget

from parity.language import render
from parity.messages import message
from parity.tui.format import BLOCKS, FULL_BAR, add_runs, bar, fit, plain, sparkline
from parity.tui.names import FIELDS

LEGEND = message("tui.legend", "gap per token; ^ cursor  ! finding  | first that differs")


class GapStrip(Widget):
    """Two lines over the whole completion: the largest gap of each stretch, and what lies where.

    Heights are square roots of the gap, so that a near-tie is seen beside a gap of ten nats. Below: `^` the
    cursor, `!` a finding, `|` the first token that differs.
    """

    COMPONENT_CLASSES: ClassVar[set[str]] = {"strip--high", "strip--low"}

    class Jumped(Message):
        def __init__(self, position: int) -> None:
            super().__init__()
            self.position = position

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.length = 0
        self.gaps: npt.NDArray[np.float64] | None = None
        self.tolerance = 0.25
        self.found: Sequence[int] = ()
        self.differs: int | None = None
        self.cursor = 0
        self.loading = False

    def show(
        self,
        length: int,
        gaps: npt.NDArray[np.float64] | None,
        tolerance: float,
        found: Sequence[int],
        differs: int | None,
        *,
        loading: bool = False,
    ) -> None:
        """`loading`: gaps may come yet."""
        self.loading = loading
        self.length, self.gaps, self.tolerance, self.found, self.differs = length, gaps, tolerance, found, differs
        self.refresh()

    def move(self, position: int) -> None:
        if self._column(position) != self._column(self.cursor):
            self.refresh(Region(0, 1, self.size.width, 1))  # the heights stay as they are
        self.cursor = position

    @property
    def _each(self) -> int:
        """Columns per token; 1 where several tokens share one."""
        return max(1, min(4, self.size.width // max(1, self.length)))

    def _column(self, position: int) -> int:
        width = max(1, self.size.width)
        if self.length <= width:
            return min(max(0, position) * self._each, width - 1)
        return min(width - 1, max(0, position) * width // self.length)

    def render(self) -> Text:
        width = self.size.width
        marks = [" "] * width
        for position in self.found:
            marks[self._column(position)] = "!"
        if self.differs is not None and self.differs >= 0:
            column = self._column(self.differs)
            marks[column] = "|" if marks[column] == " " else marks[column]
        marks[self._column(self.cursor)] = "^"
        text = Text(no_wrap=True, overflow="crop")
        text.append_text(self._heights(width))
        text.append("\n")
        line = "".join(marks).rstrip()
        text.append(line)
        legend = render(LEGEND)
        room = width - len(line) - cell_len(legend)
        if room > 1:
            text.append(" " * room + legend, style="dim")
        return text

    def _heights(self, width: int) -> Text:
        if self.gaps is None or not len(self.gaps):
            said = message("tui.no_scores", "no scores at hand: no gap per token")
            if not self.length:
                said = message("tui.no_tokens", "no tokens: no gap per token")
            if self.loading:
                said = message("tui.reading_gaps", "reading the gaps …")
            return Text(fit(render(said), width), style="dim italic")
        used = min(width, self.length * self._each)
        top = np.full(width, -1.0)
        positions = np.arange(len(self.gaps))
        columns = positions * self._each if self.length <= width else positions * width // self.length
        np.maximum.at(top, np.minimum(columns, width - 1), np.nan_to_num(self.gaps, nan=-1.0))
        if self._each > 1:
            top[:used] = np.repeat(top[: used : self._each], self._each)[:used]
        levels = 1 + np.rint(7 * np.minimum(1.0, np.sqrt(np.maximum(top, 0.0) / FULL_BAR))).astype(int)
        high = self.get_component_rich_style("strip--high")
        low = self.get_component_rich_style("strip--low")
        text = Text()
        drawn = zip(top.tolist(), levels.tolist(), strict=True)
        add_runs(
            text, ((BLOCKS[n] if value >= 0 else " ", high if value > self.tolerance else low) for value, n in drawn)
        )
        return text

    def on_click(self, event: events.Click) -> None:
        width = max(1, self.size.width)
        position = event.x // self._each if self.length <= width else event.x * self.length // width
        self.post_message(self.Jumped(min(position, max(0, self.length - 1))))


class SummaryStrip(Widget):
    """Bars by kind and where in the output the findings are, for what passes the filter."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"strip--high", "strip--low", "strip--mid"}

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.kinds: Sequence[tuple[str, str, int]] = ()
        self.filtered = False
        self.positions: Sequence[int] = ()
        self.last = 0

    def show_kinds(self, kinds: Sequence[tuple[str, str, int]], *, filtered: bool) -> None:
        """`kinds`: (kind, severity, findings), the most frequent first. `filtered`: somebody chose what to see."""
        if (kinds, filtered) != (self.kinds, self.filtered):
            self.kinds, self.filtered = kinds, filtered
            self.refresh()

    def show_positions(self, positions: Sequence[int], last: int) -> None:
        self.positions, self.last = positions, last
        self.refresh()

    def render(self) -> Text:
        width = self.size.width
        text = Text(no_wrap=True, overflow="crop")
        most = max((count for _, _, count in self.kinds), default=0)
        used = 0
        for kind, severity, count in self.kinds:
            part = f"{plain(kind)} {count:,} "
            drawn = bar(count / most, 6) + "  "
            if used + len(part) + len(drawn) > width:
                text.append("…")
                break
            text.append(part)
            text.append(
                drawn, style=self.get_component_rich_style(f"strip--{'high' if severity == 'corrupt' else 'low'}")
            )
            used += len(part) + len(drawn)
        if self.filtered and not self.kinds:
            text.append(render(message("tui.nothing_passes", "nothing passes the filter")), style="dim")
        text.append("\n")
        if self.positions:
            text.append(f"{render(FIELDS['token'])} 0 ", style="dim")
            text.append(sparkline(self.positions), style=self.get_component_rich_style("strip--mid"))
            text.append(f" {self.last:,}", style="dim")
        return text
