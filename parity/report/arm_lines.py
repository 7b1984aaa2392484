"""A table with a row for each arm, at any width: the numbers give way, never the arm's name."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from parity.text import cell_width

SHORTEST_COLUMN = 12
"""Columns that a folded name needs at least; below, names stand on lines of their own."""

ArmRow = tuple[str, Sequence[str]]
"""The arm's name, and what stands in its columns."""


def print_arms(console: Console, arm: str, names: Sequence[str], rows: Sequence[ArmRow]) -> None:
    """`arm` and `names` head the columns; `rows` are in visible form already."""
    header, *lines = arm_lines(arm, names, rows, console.width - 1)
    console.print(Text(header, style="bold"), soft_wrap=True)
    for line in lines:
        console.print(Text(line), soft_wrap=True)


def arm_lines(arm: str, names: Sequence[str], rows: Sequence[ArmRow], width: int) -> list[str]:
    """The header and the rows. Where a line is wider than `width`: smaller gaps, folded names, names above."""
    cells = [list(names), *(list(row) for _, row in rows)]
    widths = [max(cell_width(line[at]) for line in cells) for at in range(len(names))]
    longest = max(cell_width(name) for name in (arm, *(name for name, _ in rows)))
    gap = 2 if longest + sum(widths) + 2 * len(widths) <= width else 1
    room = width - sum(widths) - gap * len(widths)
    folded = {name: fold(name, room) if room >= SHORTEST_COLUMN else [name] for name, _ in rows}
    above = any(cell_width(line) > room for lines in folded.values() for line in lines)
    column = 0 if above else max(cell_width(line) for lines in ([arm], *folded.values()) for line in lines)

    def line(name: str, row: Sequence[str]) -> str:
        text = name + " " * (column - cell_width(name))
        for cell, size in zip(row, widths, strict=True):
            text += " " * (gap + size - cell_width(cell)) + cell
        return text.rstrip()

    if above:
        return [line("", names), *(text for name, row in rows for text in (name, line("", row)))]
    made = [line(arm, names)]
    for name, row in rows:
        first, *others = folded[name]
        made += [line(first, row), *others]
    return made


def fold(name: str, width: int) -> list[str]:
    """An arm's name over several lines, broken before a `+` or a `-` where it is long."""
    lines = [""]
    for piece in re.split(r"(?=[+-])", name):
        if lines[-1] and cell_width(lines[-1]) + cell_width(piece) > width:
            lines.append(piece)
        else:
            lines[-1] += piece
    return lines
