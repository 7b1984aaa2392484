"""Keys that come faster than they are dealt with: text typed after `/` is text, never a command.

Enter on a list that is being read opens its first line."""

from __future__ import annotations

import time
from collections import deque
from typing import Any, Final

from textual import events
from textual.app import App
from textual.message_pump import MessagePump
from textual.timer import Timer

LEAVING: Final = frozenset({"q", "escape", "question_mark", "f1", "ctrl+c", "ctrl+l", "ctrl+q", "ctrl+x"})
"""Keys that wait for no list; what was typed before them and waits is forgotten."""
PATIENCE = 5.0
"""Seconds that a key waits for a list: one that cannot be read must not hold up the keys for good."""
LOOK_AGAIN = 0.02
"""Seconds."""


class TypedAheadApp(App[None]):
    """Forwards a key once what the one before it did is done, the window that it opened and its focus included.

    Textual forwards each as it comes, to what has the focus then: of `/cold` typed at once, the list took `c` as
    the command to confirm, for the line of text was not there yet. Nor is a key for a list that is still being read:
    a screen whose `reading` is true gets those that leave it, and the others once it is not.
    """

    def __init__(self) -> None:
        super().__init__()
        self._ahead: deque[events.Key | events.Paste] = deque()
        self._at: MessagePump | None = None
        """Where the key is that was forwarded and is not dealt with."""
        self._waiting: Timer | None = None
        """Looks again whether the list is there that the next key is for."""
        self._waits_until = time.monotonic() + PATIENCE

    async def on_event(self, event: events.Event) -> None:
        if not isinstance(event, events.Key | events.Paste) or event.is_forwarded:
            await super().on_event(event)
            return
        if self._waiting is not None and not _leaves(event):
            self._ahead.append(event)
            return
        if self._waiting is not None:
            self._ahead.clear()
        self._ahead.append(event)
        if self._at is None or not self._at.is_running:  # a widget that went away took its key with it
            await self._next_key()

    async def _forward(self, event: events.Key | events.Paste) -> None:
        before = self.screen
        at = self.focused or before
        self._at = at
        await super().on_event(event)
        self._follow(at, before)

    def _follow(self, at: MessagePump, before: Any) -> None:
        """Go after the key, which goes from a widget to its parent until it is taken: in each after it."""
        self._at = at
        if at is self:
            self.call_later(self._dealt_with, before)
        elif not at.call_later(self._follow_on, at, before):
            self.call_later(self._dealt_with, before)  # the widget is gone, and the key with it

    def _follow_on(self, at: MessagePump, before: Any) -> None:
        self._follow(at._parent or self, before)

    def _dealt_with(self, before: Any) -> None:
        if self.screen is before or not self.screen.call_after_refresh(self.call_later, self._next_key):
            self.call_later(self._next_key)  # after the focus that was asked for

    async def _next_key(self) -> None:
        self._at = None
        if self._waiting is not None:
            self._waiting.stop()
            self._waiting = None
        if not self._ahead:
            return
        if self.reading and not _leaves(self._ahead[0]) and time.monotonic() < self._waits_until:
            self._waiting = self.set_timer(LOOK_AGAIN, self._next_key)
            return
        await self._forward(self._ahead.popleft())
        self._waits_until = time.monotonic() + PATIENCE

    @property
    def reading(self) -> bool:
        """Is the list that keys are for not there yet? At first there is Textual's own blank screen alone."""
        return len(self.screen_stack) < 2 or getattr(self.screen, "reading", False)


def _leaves(event: events.Key | events.Paste) -> bool:
    return isinstance(event, events.Key) and event.key in LEAVING
