"""The step timeline on the screen: the lanes of `parity.view.lanes` with their colours."""

from __future__ import annotations

from typing import Final

from rich.text import Text

from parity.language import render
from parity.messages import Message, message
from parity.tui.format import fit, plain
from parity.tui.widgets.paneltext import Palette
from parity.view.lanes import LABEL, LEGEND, lanes_of
from parity.view.timeline import Timeline

SILENT: Final[Message] = message("tui.steps.none", "The engine's steps were not recorded (`parity run --record`).")


def steps_panel(timeline: Timeline | None, position: int, width: int, palette: Palette) -> Text:
    """`position`: of the output token in question. Every sign is a character, colours repeat them."""
    if timeline is None:
        return Text(render(SILENT))
    lanes = lanes_of(timeline, position, width)
    styles = {"broken": palette.high, "own": palette.chosen, "other": palette.dim}
    text = Text()
    text.append(lanes.heads.rstrip() + "\n", style=palette.title)
    text.append(lanes.marks.rstrip() + "\n", style=palette.chosen)
    for row, cells in lanes.labelled:
        text.append(fit(row, LABEL - 1) + " ", style=palette.dim)
        for signs, role in cells:
            text.append(signs, style=styles[role])
        text.append("\n")
    for line in lanes.broken:
        text.append("! " + plain(render(line)) + "\n", style=palette.high)
    text.append(render(LEGEND) + "\n", style=palette.dim)
    text.append("  ".join(f"{letter} {plain(name)}" for letter, name in lanes.names) + "\n", style=palette.dim)
    return text
