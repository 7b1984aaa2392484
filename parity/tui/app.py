"""The application: its screens, keys and commands."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from textual import constants, work
from textual.app import SystemCommand
from textual.driver import Driver
from textual.screen import Screen

from parity.language import render
from parity.messages import message
from parity.store import FindingRow
from parity.tui.bindings import APP, GROUPS
from parity.tui.command import bindings
from parity.tui.connected import POLL_SECONDS
from parity.tui.handing_on import HandingOnApp
from parity.tui.outside import Outside
from parity.tui.screens.base import ParityScreen
from parity.tui.screens.help import Help
from parity.tui.screens.runs import RunsScreen
from parity.tui.sparing import Shown
from parity.tui.themes import DARK, LIGHT
from parity.tui.widgets.keybar import KeyBar

WINDOWS = sys.platform == "win32"
TERMINATED = 143
"""128 + SIGTERM, as shells report it."""

WARM_UP = 0.2
"""Seconds after the list of runs is there."""


class ParityApp(HandingOnApp):
    """`database`: the file; `run`: open this run at once; `outside`: what other parts of parity do for it."""

    CSS_PATH = "app.tcss"
    TITLE = "parity"
    BINDINGS: ClassVar[list[Any]] = [*bindings(APP)]
    ENABLE_COMMAND_PALETTE = True

    def __init__(self, database: Path | None = None, run: str | None = None, *, outside: Outside | None = None) -> None:
        self.shown = Shown()
        super().__init__(database, outside)
        self.wanted_run = run
        self.original: FindingRow | None = None
        """The finding that others are marked as duplicates of."""
        self.known_link = ""
        """The link of the known bug that was named last."""

    def get_driver_class(self) -> type[Driver]:
        if WINDOWS or constants.DRIVER is not None:
            return super().get_driver_class()
        from parity.tui.driver import SparingDriver  # its parent does not import on Windows

        return SparingDriver

    def on_resize(self) -> None:
        self.shown.forget()  # a terminal of another size lays out anew what it showed

    def on_mount(self) -> None:
        # A kill leaves the terminal as it was; not in a thread of tests, which cannot have signals.
        with suppress(NotImplementedError, RuntimeError, ValueError):
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, partial(self.exit, return_code=TERMINATED))
        for theme in (DARK, LIGHT):
            self.register_theme(theme)
        self.theme = DARK.name
        self.push_screen(RunsScreen())
        self.open_database()
        self.set_interval(POLL_SECONDS, self.poll)

    @work(thread=True, group="warm up")
    def warm_up(self) -> None:
        """Import what the first finding needs while a person reads the list of runs."""
        import_module("parity.tui.screens.finding")

    def store_opened(self) -> None:
        self.set_timer(WARM_UP, self.warm_up)  # not before the list is painted: both need the interpreter
        store, wanted = self.store, self.wanted_run
        if wanted is not None and store is not None:
            self.wanted_run = None
            run = self.attempt(lambda: store.run(wanted), None)
            if run is not None and isinstance(self.screen, RunsScreen):
                self.screen.open_run(run)

    def time_passed(self) -> None:
        if isinstance(self.screen, RunsScreen):
            self.screen.tick()

    def reload_screens(self) -> None:
        for screen in self.screen_stack:
            if isinstance(screen, ParityScreen) and screen.is_mounted:  # else it reads when it is
                screen.reload()

    # ------------------------------------------------------------------ actions

    def on_key_bar_pressed(self, event: KeyBar.Pressed) -> None:
        self._runner(self.screen, event.action)()

    def action_help(self) -> None:
        screen = self.screen
        if not isinstance(screen, Help):
            self.push_screen(Help(screen.group if isinstance(screen, ParityScreen) else None))

    def action_toggle_theme(self) -> None:
        self.theme = LIGHT.name if self.current_theme.dark else DARK.name

    def action_reload(self) -> None:
        if self.store is None:
            self.open_database()
        else:
            self.reload_screens()

    async def action_back(self) -> None:
        # The bottom of the stack is Textual's own blank screen.
        if len(self.screen_stack) <= 2:
            self.exit()
        else:
            self.pop_screen()

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """The command palette: everything of the registry that makes sense here."""
        here = list(APP)
        if isinstance(screen, ParityScreen):
            here = [*GROUPS[screen.group][1], *APP]
        for command in here:
            if not command.moves and screen.check_action(command.action.split("(")[0], ()):
                keys = message("tui.key_is", "key {keys}", keys=command.shown_keys)
                yield SystemCommand(render(command.title), render(keys), self._runner(screen, command.action))
        theme = message("tui.choose_theme", "Choose a theme")
        preview = message("tui.theme_preview", "Every theme of Textual, with a preview")
        yield SystemCommand(render(theme), render(preview), self.action_change_theme)

    def _runner(self, screen: Screen[Any], action: str) -> Callable[[], None]:
        async def run() -> None:
            target = screen if hasattr(screen, f"action_{action.split('(')[0]}") else self
            await self.run_action(action, default_namespace=target)

        def later() -> None:
            self.call_later(run)

        return later
