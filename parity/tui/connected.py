"""The application's connections to the database: reading, writing in a thread, and noticing what others change."""

from __future__ import annotations

import threading
import time
from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from textual import work
from textual.notifications import SeverityLevel
from textual.screen import Screen
from textual.worker import get_current_worker

from parity.errors import ParityError
from parity.language import render
from parity.messages import Message, message
from parity.paths import default_database, expanded
from parity.store.browse import Browser
from parity.tui.format import error_text, plain
from parity.tui.typed_ahead import TypedAheadApp

Value = TypeVar("Value")

SAY_SECONDS = 1.0
"""Between two words on how far a change of many findings is."""
HOLD_SECONDS = 0.4
PATIENT = 2.0
"""Seconds that a change may take before it is said that it waits."""

POLL_SECONDS = 1.5
"""How often to ask whether another process has changed the database: one pragma."""


class ConnectedApp(TypedAheadApp):
    """Holds one connection to read, one to write and one for threads, and says what goes wrong with them."""

    def __init__(self, database: Path | None = None) -> None:
        super().__init__()
        self.database = expanded(database or default_database()).absolute()
        self.store: Browser | None = None
        self.not_opened: ParityError | None = None
        """Why there is no store."""
        self.holding = False
        """Screens are laid out and not drawn."""
        self._writer: Browser | None = None
        self._background: Browser | None = None
        self._opening = threading.Lock()
        self._version = 0
        self._told = ""
        self._stopped = threading.Event()
        self._said_at = 0.0
        self._writing = False
        self._counting = threading.Lock()

    @abstractmethod
    def store_opened(self) -> None:
        """Called when there is a store, after the screens have read it."""

    @abstractmethod
    def time_passed(self) -> None:
        """Called now and then while nothing changes."""

    @abstractmethod
    def reload_screens(self) -> None:
        """Have all screens read again."""

    # ------------------------------------------------------------------ opening and closing

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
        self.reload_screens()
        self.store_opened()

    def _not_opened(self, error: ParityError) -> None:
        self.not_opened = error
        self.reload_screens()

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

    def in_turn(self, read: Callable[[Browser], Value]) -> Value | None:
        """From a thread: what `read` counts, one at a time; None where nobody waits for it any more."""
        with self._counting:
            return None if get_current_worker().is_cancelled else read(self.background())

    def hand_over(self, to: Screen[Any] | None, then: Callable[..., object], *found: Any) -> None:
        """From a thread: call `then` in the application, unless `to` is on its way out. None: the application.

        Asked where it is called: between a thread's look and its turn the screen may have lost its widgets.
        """

        def deliver() -> None:
            if self.is_running and (to is None or (to.is_attached and to.display)):  # display: not while it is removed
                then(*found)

        self.call_from_thread(deliver)

    def poll(self) -> None:
        """Has another process changed the database, or put another in its place?"""
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
        if (
            version != self._version and not self._writing
        ):  # what is read anew after each of a thousand pieces is no help
            self._version = version
            self.reload_screens()
        else:
            self.time_passed()

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
        self._said_at, self._writing = time.monotonic(), True
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
            self._writing = False
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
        self.reload_screens()

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
