"""What is sent of an update leaves the same on the screen as the whole of it: pyte, a terminal, shows both."""

from __future__ import annotations

import re

import pyte
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parity.tui.sparing import Shown

WIDTH, HEIGHT = 24, 4
LOOKS = ["", "1", "3;4", "7", "38;2;1;2;3", "1;38;5;9;48;2;0;0;9", "48;2;0;0;9", "4;31;42", "2;9;97;100"]
PIECES = st.tuples(st.sampled_from(LOOKS), st.text(st.sampled_from("ab  1│▸中文"), max_size=6))
UPDATES = st.lists(st.tuples(st.integers(0, HEIGHT - 1), st.lists(PIECES, max_size=8)), min_size=1, max_size=HEIGHT)


def drawn(look: str, text: str) -> str:
    return f"\x1b[{look}m{text}\x1b[0m" if look else text


def cells(text: str) -> int:
    return sum(2 if character in "中文🚀" else 1 for character in text)


def update(lines: list[tuple[int, list[tuple[str, str]]]]) -> str:
    """Whole lines, as Textual's compositor writes them: each is filled to its end."""
    out = []
    for row, pieces in lines:
        line, left = "", WIDTH
        for look, text in pieces:
            while cells(text) > left:
                text = text[:-1]
            line, left = line + drawn(look, text), left - cells(text)
        out.append(f"\x1b[{row + 1};1H{line}{' ' * left}")
    return "".join(out) + "\x1b[1;1H"


class Terminal:
    def __init__(self) -> None:
        self.screen = pyte.Screen(WIDTH, HEIGHT)
        self.stream = pyte.Stream(self.screen)

    def feed(self, data: str) -> None:
        self.stream.feed(data)

    def shows(self) -> list[list[object]]:
        """Each cell; of a blank no colour of its own, nor bold or italics."""

        def cell(row: int, column: int) -> object:
            found = self.screen.buffer[row][column]
            if found.data == " " and not (found.underscore or found.reverse or found.strikethrough):
                return " ", found.bg
            return tuple(found)

        return [[cell(row, column) for column in range(WIDTH)] for row in range(HEIGHT)]


@given(st.lists(UPDATES, min_size=1, max_size=5))
def test_less_is_sent_and_the_screen_is_the_same(updates: list[list[tuple[int, list[tuple[str, str]]]]]) -> None:
    whole, sparing, shown = Terminal(), Terminal(), Shown()
    for lines in updates:
        data = update(lines)
        whole.feed(data)
        sparing.feed(shown.sparingly(data))
        assert sparing.shows() == whole.shows()
        assert sparing.screen.cursor.y == whole.screen.cursor.y
        assert sparing.screen.cursor.x == whole.screen.cursor.x


def test_the_same_again_sends_no_text() -> None:
    shown, data = Shown(), update([(0, [("1", "abc")]), (2, [("", "中 文")])])
    assert "abc" in shown.sparingly(data)
    assert re.sub(r"\x1b\[[\d;]*[Hm]", "", shown.sparingly(data)) == ""


def test_one_cell_changes_and_one_cell_is_sent() -> None:
    shown = Shown()
    shown.sparingly(update([(1, [("38;2;1;2;3;48;2;0;0;9", "p10 token 4")])]))
    sent = shown.sparingly(update([(1, [("38;2;1;2;3;48;2;0;0;9", "p10 token 5")])]))
    assert sent == "\x1b[2;11H\x1b[38;2;1;2;3;48;2;0;0;9m5\x1b[0m\x1b[1;1H"


@pytest.mark.parametrize(
    "other",
    [
        "\x1b[?1049h",
        "\x1b[2J",
        "\x1b]8;;https://example.org\x1b\\a link\x1b]8;;\x1b\\",
        "\x1b[1;1Hrocket 🚀\x1b[1;1H",
        "\x1b[1;1He\u0301\x1b[1;1H",
        "\x1b[1;1H\x1b[58;2;1;2;3mcoloured underline\x1b[0m\x1b[1;1H",
        "text at no place",
        "\x1b[1;1H\x1b[1mnever ended",
    ],
)
def test_what_is_no_plain_update_goes_out_as_it_came_and_all_is_forgotten(other: str) -> None:
    shown, data = Shown(), update([(0, [("", "abc")])])
    first = shown.sparingly(data)
    assert shown.sparingly(other) == other
    assert shown.sparingly(data) == first


@pytest.mark.parametrize("harmless", ["\x07", "\x1b[?2026h", "\x1b[?25l\x1b[?1004h", "\x1b]52;c;YWJj\x07"])
def test_what_leaves_the_cells_alone_forgets_nothing(harmless: str) -> None:
    shown, data = Shown(), update([(0, [("", "abc")])])
    shown.sparingly(data)
    assert shown.sparingly(harmless) == harmless
    assert "abc" not in shown.sparingly(data)


def test_half_of_a_wide_character_painted_over_is_not_known() -> None:
    shown = Shown()
    shown.sparingly("\x1b[1;1H中文\x1b[1;1H")
    shown.sparingly("\x1b[1;2Hx\x1b[1;1H")
    assert "中" in shown.sparingly("\x1b[1;1H中\x1b[1;1H")
    shown.sparingly("\x1b[1;3Hy\x1b[1;1H")
    assert " " in shown.sparingly("\x1b[1;4H \x1b[1;1H")
