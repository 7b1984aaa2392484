"""Of what Textual draws, only the cells that change are sent, as curses does: over ssh each byte costs.

Textual paints whole lines and sets every colour anew for every piece of them (8.2, `textual/_compositor.py`). Here a
copy of what the terminal shows is kept; an update is read into cells, and what is equal stays. Whatever is not an
update of the kind that the compositor writes goes out as it came, and all that was known of the screen is forgotten.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection
from functools import cache
from typing import NamedTuple, Protocol, runtime_checkable

from rich.cells import get_character_cell_size

TOKENS = re.compile(r"\x1b\[(\d+);(\d+)H|\x1b\[([\d;]*)m|(\n)|([^\x00-\x1f\x7f\x1b]+)")
HARMLESS = re.compile(
    r"(?:\x07|\x1b\[\?(?:25|100[0-6]|1015|1016|2004|2026|2048)(?:[hl]|\$p)|\x1b\](?:22|52);[^\x07\x1b]*(?:\x07|\x1b\\))+"
)
"""What leaves the cells as they are: bell, modes of cursor, mouse, paste and updates, the pointer, the clipboard."""
MOVE_COSTS = 8
"""Bytes of a cursor's move: equal cells between two changes that are fewer are sent again."""
ENDS = {"1": "22", "2": "22", "3": "23", "4": "24", "7": "27", "9": "29"}
"""What ends an attribute alone; bold and dim end together."""
SHOWN_ON_BLANKS = {"4", "7", "9", "21", "53"}
"""Lines under, through and over a cell, and swapped colours: these show on a blank, and with them its colour."""


class Look(NamedTuple):
    """How a cell is drawn: parameters of `CSI … m` (ECMA-48 8.3.117), "" for the terminal's own colour."""

    attributes: frozenset[str] = frozenset()
    fore: str = ""
    back: str = ""

    def after(self, before: Look) -> str:
        """What turns `before` into this."""
        if self == before:
            return ""
        lost, ended = before.attributes - self.attributes, before.attributes
        if not self.attributes and not self.fore and not self.back:
            return "\x1b[0m"
        if lost <= ENDS.keys() and not (before.fore and not self.fore) and not (before.back and not self.back):
            codes = sorted({ENDS[code] for code in lost})
            ended = frozenset(code for code in before.attributes if ENDS.get(code) not in codes)
        else:
            codes, ended, before = ["0"], frozenset(), PLAIN
        codes += sorted(self.attributes - ended)
        codes += [now for now, was in ((self.fore, before.fore), (self.back, before.back)) if now != was]
        return f"\x1b[{';'.join(codes)}m"


PLAIN = Look()


class Cell(NamedTuple):
    """`text` is "" in the right half of a wide character."""

    text: str
    look: Look


@cache
def look_of(parameters: str, before: Look) -> Look:
    """`before` with the parameters of one `CSI … m` applied.

    Raises ValueError for a parameter that Textual does not write.
    """
    attributes, fore, back = before
    rest = iter(parameters.split(";"))
    for code in rest:
        if code in ("", "0"):
            attributes, fore, back = PLAIN
        elif code in ("38", "48"):
            kind = next(rest, "")
            count = {"2": 3, "5": 1}.get(kind)
            if count is None:
                raise ValueError(f"CSI {parameters} m")
            colour = ";".join([code, kind, *(next(rest, "") for _ in range(count))])
            fore, back = (colour, back) if code == "38" else (fore, colour)
        elif re.fullmatch(r"(?:3|9)[0-7]", code):
            fore = code
        elif re.fullmatch(r"(?:4|10)[0-7]", code):
            back = code
        elif code == "39":
            fore = ""
        elif code == "49":
            back = ""
        elif re.fullmatch(r"[1-9]|21|5[1-3]", code):
            attributes = attributes | {code}
        else:
            raise ValueError(f"CSI {parameters} m")
    return Look(attributes, fore, back)


@cache
def width(character: str) -> int:
    """Cells of a character; 0 where terminals differ: what joins or combines, and pictures."""
    category = unicodedata.category(character)
    if category[0] in "CM" or unicodedata.combining(character):
        return 0
    cells = get_character_cell_size(character)
    return 0 if category == "So" and cells != 1 else cells


def blank(look: Look) -> Look:
    """A blank has no colour of its own."""
    return look if look.attributes & SHOWN_ON_BLANKS else Look(look.attributes - {"1", "2", "3"}, "", look.back)


class Shown:
    """What the terminal shows: row and column to a cell; what is not there is not known."""

    def __init__(self) -> None:
        self._cells: dict[tuple[int, int], Cell] = {}

    def forget(self) -> None:
        self._cells = {}

    def sparingly(self, data: str) -> str:
        """`data`, or less of it that leaves the same on the screen."""
        if not data or HARMLESS.fullmatch(data):
            return data
        read = self._read(data)
        if read is None:
            self.forget()
            return data
        painted, cursor = read
        changed = sorted(place for place, cell in painted.items() if self._cells.get(place) != cell)
        self._cells.update(painted)
        self._forget_halves(painted)
        sent = self._paint(changed)
        row, column = cursor
        return f"{sent}\x1b[{row + 1};{column + 1}H"

    def _read(self, data: str) -> tuple[dict[tuple[int, int], Cell], tuple[int, int]] | None:
        """Cells of an update and where it leaves the cursor; None if it holds anything but moves, looks and text."""
        painted: dict[tuple[int, int], Cell] = {}
        row = column = -1
        look, at = PLAIN, 0
        while at < len(data):
            token = TOKENS.match(data, at)
            if token is None:
                return None
            at = token.end()
            line, place, parameters, feed, text = token.groups()
            if line is not None:
                row, column = int(line) - 1, int(place) - 1
            elif parameters is not None:
                try:
                    look = look_of(parameters, look)
                except ValueError:
                    return None
            elif row < 0:
                return None
            elif feed is not None:
                row, column = row + 1, 0
            else:
                for character in text:
                    cells = 1 if character.isascii() else width(character)
                    if not cells:
                        return None
                    painted[row, column] = Cell(character, blank(look) if character == " " else look)
                    if cells == 2:
                        painted[row, column + 1] = Cell("", look)
                    column += cells
        return (painted, (row, column)) if look == PLAIN and row >= 0 else None

    def _paint(self, changed: list[tuple[int, int]]) -> str:
        sent: list[str] = []
        look, row, column = PLAIN, -1, -1
        for line, place in changed:
            if line == row and place < column:
                continue
            if line != row or place - column >= MOVE_COSTS or not self._known(line, column, place):
                place = self._start(line, place)
                sent.append(f"\x1b[{line + 1};{place + 1}H")
                column = place
            row = line
            while column <= place or not self._starts(line, column):
                cell = self._cells[line, column]
                if cell.text:
                    wanted = cell.look
                    if cell.text == " " and not (wanted.attributes | look.attributes) & SHOWN_ON_BLANKS:
                        # The colour that is set does not show on a blank: not worth a change.
                        wanted = Look(look.attributes, look.fore, wanted.back)
                    sent.append(wanted.after(look) + cell.text)
                    look = wanted
                column += 1
        sent.append(PLAIN.after(look))
        return "".join(sent)

    def _forget_halves(self, painted: Collection[tuple[int, int]]) -> None:
        """Of a wide character of which one half was painted over, terminals leave the other as they like."""
        for row, column in painted:
            here = self._cells[row, column].text
            left, right = self._cells.get((row, column - 1)), self._cells.get((row, column + 1))
            if here and left is not None and (row, column - 1) not in painted and width(left.text or " ") == 2:
                del self._cells[row, column - 1]
            if width(here or " ") != 2 and right is not None and not right.text and (row, column + 1) not in painted:
                del self._cells[row, column + 1]

    def _start(self, row: int, column: int) -> int:
        """The cell that a character begins in."""
        cell = self._cells.get((row, column))
        return column - 1 if cell is not None and not cell.text and (row, column - 1) in self._cells else column

    def _starts(self, row: int, column: int) -> bool:
        cell = self._cells.get((row, column))
        return cell is None or bool(cell.text)

    def _known(self, row: int, first: int, last: int) -> bool:
        return all((row, column) in self._cells for column in range(first, last))


@runtime_checkable
class Showing(Protocol):
    """An application that knows when the terminal may show something else than what was sent."""

    shown: Shown
