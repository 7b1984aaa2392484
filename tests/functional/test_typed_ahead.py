"""Keys that come faster than the screen can answer: all at once, as a fast hand or a paste sends them."""

from __future__ import annotations

import asyncio
import re
import threading
from pathlib import Path
from typing import Any

import pytest
import real_run
from driving import PATIENCE, Person, drive
from textual.events import Key

from parity.store import Store, TriageState
from parity.store.browse import Browser
from parity.tui.app import ParityApp


def at_once(person: Person, *keys: str) -> None:
    driver = person.app._driver
    assert driver is not None
    for key in keys:
        event = Key({"/": "slash", ":": "colon"}.get(key, key), key if len(key) == 1 else None)
        event.set_sender(person.app)
        driver.send_message(event)


def test_what_is_typed_after_the_key_of_a_search_is_text_and_no_command(tmp_path: Path) -> None:
    database = real_run.store_run(tmp_path, "20261121-110000-bbbb", real_run.MANY)

    async def task(person: Person) -> None:
        await person.press("enter")
        await person.sees("of 32")
        at_once(person, *"/bcx", "enter")
        await person.sees('text "bcx"', "No finding passes the filter")
        at_once(person, "escape", "down", "down", "enter")
        await person.sees("gap, nats")

    drive(database, task)
    with Store.open(database) as store:
        rows = store.page_findings("20261121-110000-bbbb", limit=-1)
    assert {row.state for row in rows} == {TriageState.NEW}


def test_what_is_typed_after_the_key_of_a_window_is_its_text(tmp_path: Path) -> None:
    database = real_run.store_run(tmp_path, "20261121-110000-bbbb", real_run.NEEDLE)

    async def task(person: Person) -> None:
        await person.press("enter")
        await person.sees("1/1 of 27")
        at_once(person, "B", *"bug7", "enter")
        await person.told("marked known")
        at_once(person, "enter", *":66", "enter")
        await person.until(lambda: re.search(r"^>.? +66 ", person.screen, re.MULTILINE), "the cursor on token 66")

    drive(database, task)
    with Store.open(database) as store:
        rows = store.page_findings("20261121-110000-bbbb", limit=-1)
        said = [store.triage(row.fingerprint) for row in rows if row.state is TriageState.KNOWN]
    assert [one.link for one in said] == ["bug7"]


class Gate:
    """A reading of the store that goes on once somebody opens it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        read, self.asked, self.open = getattr(Browser, name), threading.Event(), threading.Event()

        def waiting(*args: Any, **options: Any) -> Any:
            self.asked.set()
            assert self.open.wait(PATIENCE)
            return read(*args, **options)

        monkeypatch.setattr(Browser, name, waiting)


def test_keys_wait_for_the_list_that_they_are_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = real_run.store_run(tmp_path, "20261121-110000-bbbb", real_run.MANY)
    gate = Gate(monkeypatch, "completion_lines")

    async def task(person: Person) -> None:
        await person.sees("DIVERGED")
        at_once(person, "C", "enter")
        await person.until(gate.asked.is_set, "the completions being read")
        await person.sees("Reading the completions")
        gate.open.set()
        await person.sees("gap, nats")

    drive(database, task)


def test_what_leaves_a_list_waits_for_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = real_run.store_run(tmp_path, "20261121-110000-bbbb", real_run.MANY)
    gate = Gate(monkeypatch, "completion_lines")

    async def task(person: Person) -> None:
        at_once(person, "C", "enter")
        await person.until(gate.asked.is_set, "the completions being read")
        at_once(person, "q")
        await person.sees("runs in")
        gate.open.set()
        await person.settles()
        assert "runs in" in person.screen

    drive(database, task)


def test_keys_typed_before_the_runs_are_there_are_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = real_run.store_run(tmp_path, "20261121-110000-bbbb", real_run.MANY)
    gate = Gate(monkeypatch, "open")

    async def session() -> None:
        app = ParityApp(database)
        async with app.run_test(size=(80, 24)) as pilot:
            person = Person(app, pilot)
            at_once(person, "enter")
            await person.sees("opening the database")
            gate.open.set()
            await person.sees("of 32")

    asyncio.run(session())
