"""Getting about in a completion: text, token ids, numbers; taking things to the clipboard; heat in flowing text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from driving import Person, drive

from parity.tui.screens.finding import FindingScreen
from parity.view.completion import CompletionView


def test_search_go_to_and_copy(database: Path) -> None:
    async def task(person: Person) -> None:
        await person.press("enter", "enter")
        await person.sees("emitted again")
        await person.press("colon")
        await person.sees("Go to token")
        await person.type("3")
        await person.press("enter")
        await person.until(lambda: person.row.split()[1] == "3", "token 3")
        await person.press("slash")
        await person.type("cities")
        await person.press("enter")
        await person.until(lambda: "cities" in person.row, "the word")
        first = person.row.split()[1]
        await person.press("slash", "enter")
        await person.until(lambda: "cities" in person.row and person.row.split()[1] != first, "the next one")
        screen = person.app.screen
        assert isinstance(screen, FindingScreen)
        assert screen.drawing is not None
        at = screen.tokens.position[1]
        number = int(screen.drawing.view.right[at])
        await person.press("Y")
        await person.sees("Copy", "the command that prints this", "the candidate's token", "the fingerprint")
        await person.press("j", "enter")
        await person.told("copied, where the terminal allows it: the candidate's token")
        assert person.app.clipboard.startswith(f"{at}: {number} ")
        await person.press("slash", *["backspace"] * 6)
        for key in ("number_sign", *str(number)):
            await person.pilot.press(key)
        await person.press("enter")
        await person.told(" of ")
        assert int(screen.drawing.view.right[screen.tokens.position[1]]) == number or (
            int(screen.drawing.view.left[screen.tokens.position[0]]) == number
        )

    drive(database, task)


def test_flowing_text_shows_gap_and_extent(database: Path) -> None:
    """What is over the tolerance has another background, what the finding covers is underlined."""

    async def task(person: Person) -> None:
        await person.press("enter", "enter", "m")
        await person.sees("▸")
        await person.settles()
        screen = person.app.screen
        assert isinstance(screen, FindingScreen)
        tokens = screen.tokens
        assert tokens._heat(64).bgcolor is not None
        assert all(tokens._heat(at).underline for at in range(64, 69))
        assert not tokens._heat(70).underline
        assert tokens._heat(65).bgcolor is None

    drive(database, task)


def test_another_finding_of_the_same_completion_reads_and_aligns_nothing(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    read, aligned = CompletionView.read, CompletionView.aligned

    def reading(*given: Any) -> CompletionView:
        done.append("read")
        return read(*given)

    def aligning(view: CompletionView) -> CompletionView:
        done.append("aligned")
        return aligned(view)

    monkeypatch.setattr(CompletionView, "read", reading)
    monkeypatch.setattr(CompletionView, "aligned", aligning)

    async def task(person: Person) -> None:
        await person.press("enter", "z")
        await person.sees("/27 of 27")
        await person.press("enter")
        await person.sees("2 findings in this completion", "gap, nats")
        await person.settles()
        assert {"read", "aligned"} <= set(done)
        done.clear()
        before = person.row
        await person.press("f")
        await person.until(lambda: person.row != before, "the other finding")
        assert done == []

    drive(database, task)


@pytest.mark.parametrize("first", [(80, 24), (150, 24), (80, 40)])
def test_the_cursor_stands_where_the_size_puts_it(database: Path, first: tuple[int, int]) -> None:
    """Whatever sizes the tokens had on the way: a slow machine lays out more of them."""
    seen: list[str] = []

    async def look(person: Person) -> None:
        await person.sees("bbbb")
        await person.press("j", "enter", *"jjjj", "enter")
        await person.sees("token 42")
        await person.settles()
        await person.pilot.resize_terminal(150, 40)
        await person.settles()
        seen.append(person.screen)

    for size in (first, (150, 40)):
        drive(database, look, size=size)
    assert seen[0] == seen[1]
