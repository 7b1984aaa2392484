"""How far the arms of a run are, as lines."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from rich.text import Text

from parity.language import render
from parity.messages import message
from parity.store import RunRow
from parity.tui.format import bar, fit, plain, seconds
from parity.tui.names import status_name
from parity.view.progress import ArmProgress, seconds_left

BAR = 12
NAME = 24


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
        if one.tokens_per_second is not None:
            speed = message("tui.per_second", "{speed:,.0f} tokens/s", speed=one.tokens_per_second)
            text.append(f"  {render(speed)}")
        if one.acceptance is not None:
            accepted = message("tui.accepted_share", "{share:.0%} accepted", share=one.acceptance)
            text.append(f"  {render(accepted)}")
        text.append("\n")
    return text


def times(run: RunRow, found: Sequence[ArmProgress]) -> str:
    """How long it has been at work, and how long it will be."""
    try:
        elapsed = (datetime.now(UTC) - datetime.fromisoformat(run.created)).total_seconds()
    except (ValueError, TypeError):
        return ""
    said = message("tui.elapsed", "{elapsed} so far", elapsed=seconds(max(0.0, elapsed)))
    left = seconds_left(found)
    if left is None:
        return render(said)
    return render(message("tui.left", "{so_far}, about {left} to go", so_far=said, left=seconds(left)))
