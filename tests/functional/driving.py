"""A person at the interface: presses keys, waits until something stands on the screen, reads it."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from textual.pilot import Pilot

from parity.tui.app import ParityApp

PATIENCE = 20.0
"""Seconds to wait for what should be there at once: the machine may be busy."""


class Person:
    def __init__(self, app: ParityApp, pilot: Pilot[Any]) -> None:
        self.app, self.pilot = app, pilot
        self.heard = [str(one.message) for one in app._notifications]
        """Every notification so far: on the screen each is there for a few seconds only."""
        notify = app.notify

        def listening(message: str, **options: Any) -> None:
            self.heard.append(message)
            notify(message, **options)

        app.notify = listening  # type: ignore[method-assign]

    @property
    def screen(self) -> str:
        """The text that is on the screen, a line a row."""
        return "\n".join(strip.text.rstrip() for strip in self.app.screen._compositor.render_strips())

    async def press(self, *keys: str) -> None:
        """Each key waits by itself until nothing moves, twice; what the last one leads to is drawn as well."""
        for key in keys:
            await self.pilot.press(key)
        await self.pilot.pause()

    async def type(self, text: str) -> None:
        for char in text:
            await self.pilot.press({" ": "space", "/": "slash", ".": "full_stop"}.get(char, char))
        await self.pilot.pause()

    async def sees(self, *wanted: str) -> str:
        """Wait until all of `wanted` stand on the screen, over line ends too; gives the screen."""

        def there() -> bool:
            screen = self.screen
            words = " ".join(screen.split())
            return all(one in screen or one in words for one in wanted)

        await self.until(there, f"the words {wanted}")
        return self.screen

    async def no_longer_sees(self, unwanted: str) -> str:
        await self.until(lambda: unwanted not in self.screen, f"the screen without {unwanted!r}")
        return self.screen

    async def told(self, wanted: str) -> str:
        """Wait for a notification with these words."""
        return await self.until(lambda: next((t for t in self.heard if wanted in t), ""), f"being told {wanted!r}")

    async def until(self, ready: Callable[[], Any], what: str, *, patience: float = PATIENCE) -> Any:
        deadline = time.monotonic() + patience
        while True:
            await self.pilot.pause()
            if value := ready():
                return value
            assert time.monotonic() < deadline, f"waited in vain for {what}; the screen:\n{self.screen}"
            await asyncio.sleep(0.01)

    async def settles(self) -> None:
        """Wait until nothing runs in the background and the screen is drawn."""
        await self.app.workers.wait_for_complete()
        await self.pilot.pause()
        await self.pilot.pause()

    @property
    def row(self) -> str:
        """The line with the cursor of a table or of the tokens."""
        return next(line for line in self.screen.splitlines() if line.startswith(">"))


def drive(
    database: Path,
    task: Callable[[Person], Awaitable[None]],
    *,
    size: tuple[int, int] = (80, 24),
    run: str | None = None,
    **options: Any,
) -> None:
    """Open the interface on `database` without a terminal and do `task` in it."""

    async def session() -> None:
        app = ParityApp(database, run, **options)
        async with app.run_test(size=size) as pilot:
            person = Person(app, pilot)
            # Keys pressed before the list is there would be for nothing.
            await person.until(lambda: app.store is not None or app.not_opened is not None, "the database")
            await task(person)

    asyncio.run(session())


def squeezed(text: str) -> str:
    """Runs of blanks as one, for looking for words in columns."""
    return re.sub(r" +", " ", text)
