"""Help that is searched, rows that say what came, and lines drawn only where they changed."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from driving import Person, drive
from rich.text import Text

from parity.tui.widgets.lines import LinesView


def test_help_is_searched_and_scrolled(database: Path) -> None:
    async def task(person: Person) -> None:
        await person.sees("bbbb")
        await person.press("question_mark")
        await person.sees("Show the findings of the run", "/ searches")
        await person.press("G")
        await person.no_longer_sees("Show the findings of the run")
        await person.press("slash")
        await person.type("inbox")
        screen = await person.sees("Inbox: findings of all runs")
        assert "Show the findings of the run" not in screen
        await person.type("xyz")
        await person.sees("No key does that.")
        await person.press("enter", "escape")
        await person.no_longer_sees("No key does that.")

    drive(database, task)


def test_each_row_says_what_stood_there_and_what_came(database: Path) -> None:
    async def task(person: Person) -> None:
        await person.press("down", "enter")
        await person.sees("repetition")
        await person.press("P")
        await person.settles()
        await person.until(lambda: " → " in person.screen or "+ " in person.screen, "a row with its tokens")
        screen = person.screen
        assert any("row_leak" in line and "and" in line for line in screen.splitlines()), "the leaked tokens"

    drive(database, task, size=(200, 40))


def test_text_mode_shows_the_text_of_the_capture_where_there_is_no_tokenizer(database: Path) -> None:
    with sqlite3.connect(database) as raw:
        raw.execute("UPDATE runs SET plan = json_set(plan, '$.model.path', '/nowhere'), model = 'gone'")
        raw.execute("UPDATE completions SET text = 'once upon a time there was a text of the capture that went on'")
    raw.close()

    async def task(person: Person) -> None:
        await person.press("enter", "enter")
        await person.sees("the model's tokenizer is not on this machine")
        assert "once upon" not in person.screen
        await person.press("m", "g")
        await person.sees("once upon a time")

    drive(database, task, size=(120, 40))


def test_only_lines_that_changed_are_drawn(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def task(person: Person) -> None:
        await person.sees("bbbb")
        view = LinesView()
        await person.app.screen.mount(view)
        view.styles.width, view.styles.height = 20, 5
        await person.settles()
        drawn: list[int] = []
        monkeypatch.setattr(view, "refresh", lambda *regions, **_: drawn.extend(region.y for region in regions))
        view.show(Text("one\ntwo words that are wrapped\nthree"))
        assert drawn == [0, 1, 2, 3]
        drawn.clear()
        view.show(Text("one\ntwo words that are dropped\nthree"))
        assert drawn == [2]
        drawn.clear()
        view.show(Text("one"))
        assert drawn == [1, 2, 3]

    drive(database, task)
