"""The application: opens the database, holds the connections, and what every screen shares."""

from __future__ import annotations

import asyncio
import shlex
import signal
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from textual import work
from textual.app import App, SuspendNotSupported, SystemCommand
from textual.notifications import SeverityLevel
from textual.screen import Screen
from textual.worker import get_current_worker

from parity.errors import ParityError
from parity.language import render
from parity.messages import Message, message
from parity.paths import default_database
from parity.store import FindingRow, RunRow
from parity.store.browse import Browser
from parity.tui.bindings import APP, GROUPS
from parity.tui.command import bindings
from parity.tui.format import error_text, plain, short_path
from parity.tui.outside import FollowUp, Outside
from parity.tui.screens.base import ParityScreen
from parity.tui.screens.dialogs import AskText, Choose, Confirm, Reading
from parity.tui.screens.help import Help
from parity.tui.screens.runs import RunsScreen
from parity.tui.suspended import run_in_terminal
from parity.tui.themes import DARK, LIGHT
from parity.tui.widgets.keybar import KeyBar

Value = TypeVar("Value")
TERMINATED = 143
"""128 + SIGTERM, as shells report it."""

SAY_SECONDS = 1.0
"""Between two words on how far a change of many findings is."""
HOLD_SECONDS = 0.4
PATIENT = 2.0
"""Seconds that a change may take before it is said that it waits."""

POLL_SECONDS = 1.5
"""How often to ask whether another process has changed the database: one pragma."""


WARM_UP = 0.2
"""Seconds after the list of runs is there."""


class ParityApp(App[None]):
    """`database`: the file; `run`: open this run at once; `outside`: what other parts of parity do for it."""

    CSS_PATH = "app.tcss"
    TITLE = "parity"
    BINDINGS: ClassVar[list[Any]] = [*bindings(APP)]
    ENABLE_COMMAND_PALETTE = True

    def __init__(self, database: Path | None = None, run: str | None = None, *, outside: Outside | None = None) -> None:
        super().__init__()
        self.database = (database or default_database()).expanduser().absolute()
        self.wanted_run = run
        self.outside = outside or Outside()
        self.original: FindingRow | None = None
        """The finding that others are marked as duplicates of."""
        self._stopped = threading.Event()
        self._said_at = 0.0
        self.holding = False
        """Screens are laid out and not drawn."""
        self.known_link = ""
        """The link of the known bug that was named last."""
        self.store: Browser | None = None
        self.not_opened: ParityError | None = None
        """Why there is no store."""
        self._writer: Browser | None = None
        self._background: Browser | None = None
        self._opening = threading.Lock()
        self._version = 0
        self._told = ""

    # ------------------------------------------------------------------ connections

    def on_mount(self) -> None:
        # A kill leaves the terminal as it was; not in a thread of tests, which cannot have signals.
        with suppress(NotImplementedError, RuntimeError, ValueError):
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, partial(self.exit, return_code=TERMINATED))
        for theme in (DARK, LIGHT):
            self.register_theme(theme)
        self.theme = DARK.name
        self.push_screen(RunsScreen())
        self.open_database()
        self.set_interval(POLL_SECONDS, self._poll)

    @work(thread=True, group="warm up")
    def warm_up(self) -> None:
        """Import what the first finding needs while a person reads the list of runs."""
        import_module("parity.tui.screens.finding")

    @work(thread=True, exclusive=True, group="open")
    def open_database(self) -> None:
        """Open, and migrate an older schema. In a thread: another process may hold the lock for a while."""
        try:
            store = Browser.open(self.database, create=False)
        except ParityError as error:
            self.hand_over(None, self._not_opened, error)
            return
        if get_current_worker().is_cancelled:
            store.close()
            return
        self.call_from_thread(self._opened, store)

    def _opened(self, store: Browser) -> None:
        if self.store is not None:
            self.store.close()
        self.store, self.not_opened = store, None
        self._version = self.attempt(store.data_version, 0)
        self._reload_screens()
        self.set_timer(WARM_UP, self.warm_up)  # not before the list is painted: both need the interpreter
        if self.wanted_run is not None:
            wanted, self.wanted_run = self.wanted_run, None
            run = self.attempt(lambda: store.run(wanted), None)
            if run is not None and isinstance(self.screen, RunsScreen):
                self.screen.open_run(run)

    def _not_opened(self, error: ParityError) -> None:
        self.not_opened = error
        self._reload_screens()

    def on_unmount(self) -> None:
        for store in (self.store, self._writer, self._background):
            if store is not None:
                store.close()

    def background(self) -> Browser:
        """A connection of its own for long reads in threads, so that they do not hold up the screen."""
        with self._opening:
            if self._background is None:
                self._background = Browser.open(self.database, create=False)
            return self._background

    def hand_over(self, to: Screen[Any] | None, then: Callable[..., object], *found: Any) -> None:
        """From a thread: call `then` in the application, unless `to` is on its way out. None: the application.

        Asked where it is called: between a thread's look and its turn the screen may have lost its widgets.
        """

        def deliver() -> None:
            if self.is_running and (to is None or (to.is_attached and to.display)):  # display: not while it is removed
                then(*found)

        self.call_from_thread(deliver)

    def _poll(self) -> None:
        if self.store is None:
            return
        try:
            version = self.store.data_version()
        except ParityError as error:
            self.complain(error)
            return
        if not self.store.is_in_place():
            replaced = message("tui.replaced", "the database {path} was deleted or replaced", path=str(self.database))
            self.complain(ParityError(replaced, hint=message("tui.read_anew", "what is there now is read")))
            self._replaced()
            return
        self._told = ""
        if version != self._version:
            self._version = version
            self._reload_screens()
        elif isinstance(self.screen, RunsScreen):
            self.screen.tick()

    def _reload_screens(self) -> None:
        for screen in self.screen_stack:
            if isinstance(screen, ParityScreen) and screen.is_mounted:  # else it reads when it is
                screen.reload()

    # ------------------------------------------------------------------ what screens call

    def complain(self, error: ParityError) -> None:
        """Say what went wrong, once while it lasts."""
        if str(error) != self._told:
            self._told = str(error)
            self.notify(error_text(error).plain, severity="error", timeout=15, markup=False)

    def attempt(self, read: Callable[[], Value], otherwise: Value) -> Value:
        """What `read` gives, or `otherwise` after saying why it failed."""
        try:
            return read()
        except ParityError as error:
            self.complain(error)
            return otherwise

    @work(thread=True, group="write")
    def change(self, write: Callable[[Browser], Message], then: Callable[[], object] = lambda: None) -> None:
        """Write in a thread and say what `write` returns; a locked database does not stop the screen.

        `then` is called once it is stored: what a person has selected stays selected where it failed.
        """
        self._stopped.clear()
        self._said_at = time.monotonic()
        waiting = self.call_from_thread(self.set_timer, PATIENT, self._waits)
        try:
            if self.store is not None and not self.store.is_in_place():
                self.hand_over(None, self._replaced)
                raise ParityError(
                    message("tui.replaced", "the database {path} was deleted or replaced", path=str(self.database)),
                    hint=message("tui.look_again", "look at what is there now, and decide again"),
                )
            if self._writer is None:
                self._writer = Browser.open(self.database, create=False)
            said = write(self._writer)
        except ParityError as error:
            self.hand_over(None, self._change_failed, error)
            return
        finally:
            self.call_from_thread(waiting.stop)
        self.hand_over(None, self._changed, said, then)

    def hold(self) -> None:
        """Draw nothing until `release`, or for a moment: a screen that fills up in steps is drawn once."""
        self.holding = True
        self.set_timer(HOLD_SECONDS, self.release)

    def release(self) -> None:
        if self.holding and self.screen_stack:  # not while the application ends
            self.holding = False
            self.screen.refresh()

    def action_stop_writing(self) -> None:
        self._stopped.set()

    def going_on(self, done: int, total: int) -> bool:
        """From the thread that writes: say now and then how far it is. False: somebody wants it to stop."""
        if time.monotonic() - self._said_at > SAY_SECONDS and done < total:
            self._said_at = time.monotonic()
            said = message("tui.so_far", "{done:,} of {total:,} so far; ctrl+x stops", done=done, total=total)
            self.hand_over(None, self.tell, said)
        return not self._stopped.is_set()

    def _waits(self) -> None:
        self.tell(message("tui.still_writing", "still writing: another process may hold the database"), timeout=4)

    def _replaced(self) -> None:
        """Let go of a file that is no longer in its place, and open what is there."""
        for store in (self.store, self._writer, self._background):
            if store is not None:
                store.close()
        self.store = self._writer = self._background = None
        self.open_database()

    def _changed(self, said: Message, then: Callable[[], object]) -> None:
        then()
        self.notify(plain(render(said)), timeout=2.5, markup=False)
        if self.store is not None:
            self._version = self.attempt(self.store.data_version, 0)
        self._reload_screens()

    def _change_failed(self, error: ParityError) -> None:
        self._told = ""
        self.complain(
            ParityError(
                message("tui.nothing_changed", "nothing was changed: {problem}", problem=error.message), hint=error.hint
            )
        )

    def tell(self, said: Message, *, severity: SeverityLevel = "information", timeout: float | None = None) -> None:
        """A word in the corner, for a moment."""
        self.notify(render(said), severity=severity, timeout=timeout, markup=False)

    def copy(self, text: str) -> None:
        """To the clipboard where the terminal allows it (OSC 52); on the screen in any case."""
        self.copy_to_clipboard(text)
        self.push_screen(Reading(message("tui.copied", "Copied, where the terminal allows it"), text))

    def start(self, run: RunRow, finding: FindingRow | None) -> None:
        """Offer the commands that go on from here."""
        nothing: Sequence[FollowUp] = ()
        choices = self.attempt(lambda: self.outside.follow_ups(self.database, run, finding), nothing)
        if not choices:
            self.tell(
                message("tui.nothing_to_start", "nothing can be started from here: y copies the command of the run")
            )
            return

        def chosen(answer: tuple[str, FollowUp] | None) -> None:
            if answer is not None and answer[0] == "copy":
                self.copy(answer[1].line)
            elif answer is not None and answer[1].ask:
                self._ask_and_start(answer[1])
            elif answer is not None:
                self._start(answer[1])

        self.push_screen(Choose(message("tui.go_on", "Go on with"), choices), chosen)

    def _ask_and_start(self, choice: FollowUp) -> None:
        def answered(words: str | None) -> None:
            if words:
                try:
                    more = shlex.split(words)
                except ValueError as error:
                    self.complain(
                        ParityError(
                            message("tui.not_words", "not words for a command line: {said}", said=str(error)),
                            hint=message("tui.close_quotes", "close the quotes"),
                        )
                    )
                    return
                self._start(replace(choice, arguments=(*choice.arguments, *more), ask=None))

        if choice.ask is not None:
            self.push_screen(AskText(choice.ask, "", choice.line), answered)

    def _start(self, choice: FollowUp) -> None:
        try:
            with self.suspend():
                run_in_terminal(choice)
        except SuspendNotSupported:  # in a browser, or on a platform without job control
            self.copy_to_clipboard(choice.line)
            self.push_screen(
                Reading(
                    message(
                        "tui.other_terminal", "Start it in another terminal; it was copied where the browser allows it"
                    ),
                    choice.line,
                )
            )
        else:
            self._reload_screens()

    @work(thread=True, exclusive=True, group="report")
    def report(self, finding: FindingRow) -> None:
        """Make the bug report of a finding, in a thread since it reads the captures, then ask where to put it."""
        if self.outside.report is None:
            self.call_from_thread(self.tell, message("tui.no_reports", "no reports from here: e exports the finding"))
            return
        try:
            text = self.outside.report(self.database, finding)
        except ParityError as error:
            self.hand_over(None, self.complain, error)
            return
        name = f"report-{finding.run}-{finding.id}.md"
        heading, then = (
            message("tui.report_to", "Write the bug report to"),
            message("tui.then", "R marks it as reported"),
        )
        self.call_from_thread(self.save_as, heading, name, lambda: text, then)

    def save_as(self, heading: Message, name: str, make: Callable[[], str], then: Message | None = None) -> None:
        """Ask for a file, `name` at first, and write what `make` gives; never over a file without asking."""

        def write(path: Path) -> None:
            try:
                path.write_text(make(), encoding="utf-8")
            except OSError as error:
                raise ParityError(
                    message(
                        "tui.cannot_write", "{path} cannot be written: {said}", path=str(path), said=str(error.strerror)
                    ),
                    hint=message("tui.name_another_file", "name another file"),
                ) from error
            said = message("tui.written", "written to {path}", path=plain(path))
            self.tell(
                said if then is None else message("tui.and_then", "{said}; {then}", said=said, then=then), timeout=6
            )

        place = message("tui.in_here", "in {place}, or name another place", place=short_path(Path.cwd()))

        def named(answer: str | None) -> None:
            if not answer:
                return
            path = Path(answer).expanduser().absolute()
            if path.exists():
                self.push_screen(
                    Confirm(message("tui.overwrite", "Overwrite {path}?", path=plain(path))),
                    lambda yes: self.attempt(lambda: write(path), None) if yes else None,
                )
            else:
                self.attempt(lambda: write(path), None)

        self.push_screen(AskText(heading, name, render(place)), named)

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
            self._reload_screens()

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
            if not command.moves:
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
