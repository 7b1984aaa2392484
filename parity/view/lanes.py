"""The step timeline as text: rows of the batch as lanes, a column for each step, the token's step in the middle."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from string import ascii_lowercase, ascii_uppercase
from typing import Final, Literal

from msgspec import Struct

from parity.explain.invariants import INVARIANTS
from parity.messages import Message, message
from parity.view.timeline import Cell, Timeline, name_of

COLUMN: Final = 3
"""Characters of a step: the request's letter, what it did, a sign."""
LABEL: Final = 5
OWN: Final = "A"
NAMELESS: Final = "?"
LETTERS: Final = ascii_lowercase[1:] + ascii_uppercase[1:]
MOST_ROWS: Final = 24
"""Rows that are drawn: of a larger batch those nearest to the completion's and to what broke."""
LISTED: Final = 6
"""Violations that are listed."""

LEGEND: Final = message(
    "steps.lanes.legend",
    "{own} this completion; 1 2 3 tokens emitted, - a draft rejected; p prompt, . part of a prompt; > moved, ! broken, "
    "v the token's step",
    own=OWN,
)

Role = Literal["broken", "own", "other"]


class Lanes(Struct, frozen=True):
    """`heads`: step numbers; `marks`: the mark over the token's step; both as wide as a lane with its label."""

    heads: str
    marks: str
    numbers: tuple[int, ...]
    """Of the rows that are drawn, rising."""
    rows: tuple[tuple[tuple[str, Role], ...], ...]
    """Of each of them, the signs of each step, COLUMN characters wide, and whose they are."""
    broken: tuple[Message, ...]
    """The violations of these steps: step, row, request, both numbers, who had the row before."""
    names: tuple[tuple[str, str], ...]
    """(letter, request); one without a letter of its own is not named."""

    @property
    def labelled(self) -> Iterator[tuple[str, tuple[tuple[str, Role], ...]]]:
        """What stands before each row, and the row."""
        return ((str(number), cells) for number, cells in zip(self.numbers, self.rows, strict=True))

    @property
    def lines(self) -> list[str]:
        """The drawing without colours, the violations and the legend left out."""
        lanes = (f"{row:<{LABEL}}{''.join(signs for signs, _ in cells)}" for row, cells in self.labelled)
        return [line.rstrip() for line in (self.heads, self.marks, *lanes)]


def lanes_of(timeline: Timeline, position: int, width: int) -> Lanes:
    """Around the output token at `position`, at most `width` characters wide."""
    place = timeline.place_of(max(0, position))
    shown = timeline.window(place, max(1, (width - LABEL) // COLUMN))
    rows = _rows(timeline, shown)
    letters = _letters(timeline, shown, rows)
    heads, marks = _heads(timeline, shown, place)
    return Lanes(
        heads,
        marks,
        tuple(rows),
        tuple(tuple(_cell(timeline, at, row, letters) for at in shown) for row in rows),
        tuple(_broken(timeline, shown)),
        tuple((letter, timeline.name(number)) for number, letter in letters.items() if letter != NAMELESS),
    )


def _rows(timeline: Timeline, shown: range) -> list[int]:
    """The rows to draw: all where they are few, else those nearest to where the completion is and to what broke."""
    rows = range(max(len(timeline.row(at)) for at in shown))
    if len(rows) <= MOST_ROWS:
        return list(rows)
    places = {
        row
        for at in shown
        for row, cell in enumerate(timeline.row(at))
        if cell.number == timeline.own or cell.violations
    }
    near = sorted(rows, key=lambda row: (min((abs(row - place) for place in places), default=row), row))
    return sorted(near[:MOST_ROWS])


def _letters(timeline: Timeline, shown: range, rows: Sequence[int]) -> dict[int, str]:
    """A letter for each request in these rows; A is the completion itself, ? what there are no letters left for."""
    found = {timeline.own: OWN}
    for at in shown:
        cells = timeline.row(at)
        for cell in (cells[row] for row in rows if row < len(cells)):
            if cell.number not in found:
                found[cell.number] = LETTERS[len(found) - 1] if len(found) <= len(LETTERS) else NAMELESS
    return found


def _heads(timeline: Timeline, shown: range, place: int) -> tuple[str, str]:
    """Step numbers where there is room for them, and the mark over the token's step."""
    width = LABEL + COLUMN * len(shown)
    line, marks = [" "] * width, [" "] * width
    for offset in range(0, len(shown), 4):
        number = str(int(timeline.steps[shown[offset]]))
        line[LABEL + COLUMN * offset : LABEL + COLUMN * offset + len(number)] = number
    if place in shown:
        marks[LABEL + COLUMN * (place - shown.start)] = "v"
    return "".join(line)[:width], "".join(marks)


def _cell(timeline: Timeline, step: int, row: int, letters: dict[int, str]) -> tuple[str, Role]:
    cells = timeline.row(step)
    if row >= len(cells):
        return " " * COLUMN, "other"
    cell = cells[row]
    role: Role = "broken" if cell.violations else "own" if cell.number == timeline.own else "other"
    return f"{letters[cell.number]}{_did(cell)}{_sign(cell)}", role


def _did(cell: Cell) -> str:
    return "." if not cell.emitted else "p" if cell.prefill else str(min(cell.emitted, 9))


def _sign(cell: Cell) -> str:
    return "!" if cell.violations else ">" if cell.moved else "-" if cell.rejected > 0 and not cell.prefill else " "


def _broken(timeline: Timeline, shown: range) -> Iterator[Message]:
    """Those of the completion itself first."""
    cells = sorted((cell for at in shown for cell in timeline.row(at)), key=lambda cell: cell.number != timeline.own)
    found = [one for cell in cells for one in cell.violations]
    for one in found[:LISTED]:
        before = "" if one.row_before is None else name_of(one.row_before)
        invariant = next(row for row in INVARIANTS if row.name == one.invariant)
        had, due = invariant.in_words(one.found, one.expected)
        yield message(
            "steps.lanes.broken",
            "step {step}, row {row}, {request}: {invariant} is {found}, should be {expected}{before}",
            step=one.step,
            row=one.row,
            request=name_of(one.request),
            invariant=one.invariant,
            found=had,
            expected=due,
            before=message("steps.lanes.before", "; the row was {request}'s", request=before) if before else "",
        )
    if len(found) > LISTED:
        yield message("steps.lanes.more", "{more} more in these steps", more=len(found) - LISTED)
