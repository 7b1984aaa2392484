"""How far the arms of a run are, as lines."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from parity.language import render
from parity.messages import message
from parity.tui.format import bar, fit, plain
from parity.tui.names import status_name
from parity.view.progress import ArmProgress

BAR = 20
NAME = 30


def drawn(found: Sequence[ArmProgress]) -> Text:
    """A line per arm: name, bar, count."""
    text = Text()
    for one in found:
        text.append(fit(plain(one.arm), NAME, middle=True))
        if one.total:
            filled = bar(one.done / one.total, BAR)
            text.append(f" {fit(filled, BAR)} ", "bold")
        if one.words is not None:
            text.append(f" {plain(render(one.words))}")
        elif one.status:
            text.append(f" {status_name(one.status)}")
        else:
            text.append(render(message("tui.of_total", "{done:,} of {total:,}", done=one.done, total=one.total)))
        text.append("\n")
    return text
