"""Textual's driver of a terminal, which sends only the cells that change."""

from __future__ import annotations

from typing import Any

from textual.app import App
from textual.drivers.linux_driver import LinuxDriver

from parity.tui.sparing import Showing, Shown


class SparingDriver(LinuxDriver):
    """Takes what `LinuxDriver` takes; what the terminal shows is the application's to know and to forget."""

    def __init__(self, app: App[Any], **options: Any) -> None:
        super().__init__(app, **options)
        self._shown = app.shown if isinstance(app, Showing) else Shown()

    def write(self, data: str) -> None:
        if sent := self._shown.sparingly(data):
            super().write(sent)
