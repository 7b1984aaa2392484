"""The finding under the cursor beside the list."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text
from textual import work
from textual.timer import Timer

from parity.errors import ParityError
from parity.store import FindingRow, RunRow
from parity.tui.screens.selecting import SelectingScreen
from parity.tui.widgets.lines import LinesView

if TYPE_CHECKING:
    from parity.view.completion import CompletionView

REST = 0.1
"""Seconds that the cursor rests before a finding is read."""
FROM_WIDTH = 120


class PreviewingScreen(SelectingScreen):
    """A list with a look at the finding under its cursor, where there is room."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (FROM_WIDTH, "-preview")]  # noqa: RUF012 - declared so by Textual

    def __init__(self, run: RunRow) -> None:
        super().__init__(run)
        self._soon: Timer | None = None

    def action_preview(self) -> None:
        self.toggle_class("-alone")
        self.preview_soon()

    def preview_soon(self) -> None:
        if self._soon is not None:
            self._soon.stop()
        self._soon = self.set_timer(REST, self._preview)

    def _preview(self) -> None:
        row = self.table.current
        shown = self.query_one("#preview", LinesView)
        if not shown.display:
            return
        if row is None:
            shown.show(Text())
        else:
            self.read_preview(row)

    @work(thread=True, exclusive=True, group="preview")
    def read_preview(self, row: FindingRow) -> None:
        from parity.view.completion import CompletionView  # no list waits for what a finding needs
        from parity.view.nearby import nearby

        try:
            view = CompletionView.read(self.parity.background(), self.run, row.arm, row.key, row)
            placed, rows = nearby(view)
        except ParityError as error:
            self.parity.hand_over(None, self.parity.complain, error)
            return
        self.parity.hand_over(self, self._preview_is, row, placed, rows)

    def _preview_is(self, row: FindingRow, view: CompletionView, rows: range) -> None:
        from parity.tui.drawing import decoder_of
        from parity.tui.screens.preview import preview

        current = self.table.current
        if current is not None and current.id == row.id:
            shown = self.query_one("#preview", LinesView)
            shown.show(preview(view, rows, decoder_of(self.run), shown.palette))
