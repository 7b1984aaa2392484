"""The step timeline: rows of the batch as lanes, one column a step, the finding's step in the middle."""

from __future__ import annotations

from collections.abc import Iterator
from string import ascii_lowercase
from typing import Final

from rich.text import Text

from parity.language import render
from parity.messages import Message, message
from parity.tui.format import fit, plain
from parity.tui.widgets.paneltext import Palette
from parity.view.timeline import Cell, Timeline, name_of

COLUMN: Final = 3
"""Columns of a step: the request's letter, what it did, a sign."""
LABEL: Final = 5
OWN: Final = "A"
LETTERS: Final = ascii_lowercase[1:]
LISTED: Final = 6
"""Violations that are listed."""

LEGEND: Final = message(
    "tui.steps.legend",
    "{own} this completion; 1 2 3 tokens emitted, - a draft rejected; p prompt, . part of a prompt; > moved, ! broken, "
    "v the token's step",
    own=OWN,
)
SILENT: Final = message("tui.steps.none", "The engine's steps were not recorded (`parity run --record`).")


def steps_panel(timeline: Timeline | None, position: int, width: int, palette: Palette) -> Text:
    """`position`: of the output token in question. Every sign is a character, colours repeat them."""
    if timeline is None:
        return Text(render(SILENT))
    place = timeline.place_of(max(0, position))
    shown = timeline.window(place, max(1, (width - LABEL) // COLUMN))
    letters = _letters(timeline, shown)
    text = Text()
    text.append_text(_heads(timeline, shown, place, palette))
    for row in range(max(len(timeline.row(at)) for at in shown)):
        text.append(fit(f"{row}", LABEL - 1) + " ", style=palette.dim)
        for at in shown:
            cells = timeline.row(at)
            if row < len(cells):
                text.append_text(_cell(cells[row], letters, timeline.own, palette))
            else:
                text.append(" " * COLUMN)
        text.append("\n")
    for line in _broken(timeline, shown):
        text.append("! " + plain(render(line)) + "\n", style=palette.high)
    text.append(render(LEGEND) + "\n", style=palette.dim)
    names = (f"{letter} {plain(timeline.name(number))}" for number, letter in letters.items())
    text.append("  ".join(names) + "\n", style=palette.dim)
    return text


def _letters(timeline: Timeline, shown: range) -> dict[int, str]:
    """A letter for each request in these steps; A is the completion itself, ? what there are no letters left for."""
    found = {timeline.own: OWN}
    for at in shown:
        for cell in timeline.row(at):
            if cell.number not in found:
                found[cell.number] = LETTERS[len(found) - 1] if len(found) <= len(LETTERS) else "?"
    return found


def _heads(timeline: Timeline, shown: range, place: int, palette: Palette) -> Text:
    """Step numbers where there is room for them, and the mark over the token's step."""
    line = [" "] * (LABEL + COLUMN * len(shown))
    for offset in range(0, len(shown), 4):
        number = str(int(timeline.steps[shown[offset]]))
        line[LABEL + COLUMN * offset : LABEL + COLUMN * offset + len(number)] = number
    marks = [" "] * len(line)
    if place in shown:
        marks[LABEL + COLUMN * (place - shown.start)] = "v"
    width = LABEL + COLUMN * len(shown)
    head = Text("".join(line)[:width].rstrip() + "\n", style=palette.title)
    return head.append("".join(marks).rstrip() + "\n", style=palette.chosen)


def _cell(cell: Cell, letters: dict[int, str], own: int, palette: Palette) -> Text:
    did = "." if not cell.emitted else "p" if cell.prefill else str(min(cell.emitted, 9))
    sign = "!" if cell.violations else ">" if cell.moved else "-" if cell.rejected > 0 and not cell.prefill else " "
    style = palette.high if cell.violations else palette.chosen if cell.number == own else palette.dim
    return Text(letters[cell.number] + did + sign, style=style)


def _broken(timeline: Timeline, shown: range) -> Iterator[Message]:
    """The violations of these steps: step, row, request, both numbers, who had the row before."""
    found = [one for at in shown for cell in timeline.row(at) for one in cell.violations]
    for one in found[:LISTED]:
        before = "" if one.row_before is None else name_of(one.row_before)
        shared = {"step": one.step, "row": one.row, "request": name_of(one.request),
                  "invariant": one.invariant, "found": _value(one.found), "expected": _value(one.expected)}  # fmt: skip
        yield message(
            "tui.steps.broken",
            "step {step}, row {row}, {request}: {invariant} is {found}, should be {expected}{before}",
            before=message("tui.steps.before", "; the row was {request}'s", request=before) if before else "",
            **shared,  # type: ignore[arg-type]
        )
    if len(found) > LISTED:
        yield message("tui.steps.more", "{more} more in these steps", more=len(found) - LISTED)


def _value(value: object) -> str:
    return str(list(value) if isinstance(value, tuple) else value)
