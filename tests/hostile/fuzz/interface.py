"""The interface without a terminal, opened once: any run of its database is shown, walked through and left again."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from textual.events import Key
from textual.worker import WorkerCancelled

from parity.text import visible
from parity.tui.app import ParityApp
from parity.tui.screens.finding import FindingScreen
from parity.tui.screens.findings import FindingsScreen
from parity.tui.stop import Stop

PANELS: Final = ("1", "3", "5", "m")
SIZE: Final = (100, 30)


class Interface:
    """Stays until the process ends."""

    def __init__(self, database: Path) -> None:
        self._loop = asyncio.new_event_loop()
        self._app = ParityApp(database)
        self._wanted: asyncio.Queue[tuple[asyncio.Future[None], int] | None] = asyncio.Queue()
        self.walks = 0
        self._life = self._loop.create_task(self._lives())

    async def _lives(self) -> None:
        """One task from the first to the last, as Textual keeps what is open in its context."""
        self._app.animation_level = "none"
        async with self._app.run_test(size=SIZE) as self._pilot:
            while self._app.store is None:
                assert self._app.not_opened is None, self._app.not_opened
                await self._pilot.pause(0.01)
            while (wanted := await self._wanted.get()) is not None:
                done, draw = wanted
                try:
                    await self._walk(draw)
                    done.set_result(None)
                except Exception as error:  # noqa: BLE001 - it is raised where it was asked for
                    done.set_exception(error)

    def show(self, draw: int) -> None:
        """The findings, one of them by `draw`, its panels.

        Raises what ended the interface, which shows nothing more then, and AssertionError where something moves a cursor."""
        done = self._loop.create_future()
        self.walks += 1
        self._wanted.put_nowait((done, draw))
        self._loop.run_until_complete(asyncio.wait([done, self._life], return_when=asyncio.FIRST_COMPLETED))
        (self._life if self._life.done() else done).result()

    def close(self) -> None:
        if self._loop.is_closed():
            return
        self._wanted.put_nowait(None)
        if self._app._exception is None:
            self._loop.run_until_complete(self._life)
            self._loop.close()

    async def _settles(self) -> None:
        """Until workers have ended and every widget has seen its messages.

        Not `Pilot.pause`: it waits until the process is idle, up to a second each time while it is not.
        """
        while True:
            try:
                await self._app.workers.wait_for_complete()
                break
            except WorkerCancelled:  # a newer one took its place
                continue
        await self._pilot._wait_for_screen()
        if self._app._exception is not None:  # of a widget: Textual ends the interface, and says so when it is left
            raise self._app._exception
        self._app.screen._on_timer_update()

    async def _presses(self, key: str) -> None:
        self._app.post_message(Key(key, key))
        await self._settles()

    async def _walk(self, draw: int) -> None:
        store = self._app.store
        assert store is not None
        run = store.run("r")
        await self._app.push_screen(FindingsScreen(run))
        await self._check()
        if rows := store.page_findings("r", limit=8):
            await self._app.push_screen(FindingScreen(run, Stop.at(rows[draw % len(rows)])))
            await self._check()
            for key in PANELS:
                await self._presses(key)
                await self._check()
            await self._app.pop_screen()
        await self._app.pop_screen()
        await self._settles()

    async def _check(self) -> None:
        await self._settles()
        shown = "\n".join(strip.text for strip in self._app.screen._compositor.render_strips())
        assert visible(shown, keep="\n") == shown
