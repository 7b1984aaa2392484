"""Words and figures for the screen. Everything that came from a file goes through `plain`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Final

from rich.cells import cell_len, set_cell_size
from rich.style import Style
from rich.text import Text

from parity.errors import ParityError
from parity.language import render
from parity.text import visible

BLOCKS: Final = " ▁▂▃▄▅▆▇█"
FULL_BAR: Final = 8.0
"""Nats that fill the bar of a gap: one token in three thousand."""


def plain(value: object, *, keep: str = "") -> str:
    """Text from outside, made harmless; never parsed as markup afterwards."""
    return visible(str(value), keep=keep)


def fit(text: str, columns: int, *, right: bool = False, middle: bool = False) -> str:
    """`text` in exactly `columns` columns: padded, or cut with an ellipsis at the end or in the middle."""
    if columns <= 0:
        return ""
    width = cell_len(text)
    if width > columns and middle and columns >= 8:
        tail, room = "", columns - 1 - columns // 3
        for char in reversed(text):
            if cell_len(char) + cell_len(tail) > room:
                break
            tail = char + tail
        return fit(set_cell_size(text, columns // 3) + "…" + tail, columns)
    if width > columns:
        return set_cell_size(text, columns - 1) + "…"
    pad = " " * (columns - width)
    return pad + text if right else text + pad


def seconds(value: float | None) -> str:
    """A duration in seconds, short."""
    if value is None:
        return "-"
    if value < 60:
        return f"{value:.0f} s"
    if value < 3600:
        return f"{int(value // 60)}m{int(value % 60):02d}"
    return f"{int(value // 3600)}h{int(value % 3600 // 60):02d}"


def short_path(path: str | Path) -> str:
    """A path, harmless, with the home directory as `~`."""
    text, home = str(path), str(Path.home())
    return plain("~" + text[len(home) :] if home != "/" and text.startswith(home + "/") else text)


def moment(iso: str | None) -> str:
    """An ISO time as local date and time to the minute; as it stands where it is none."""
    if not iso:
        return "-"
    try:
        return datetime.fromisoformat(iso).astimezone().strftime("%Y-%m-%d %H:%M")
    except ValueError:
        return plain(iso)


def nats(value: float | None) -> str:
    return "" if value is None or math.isnan(value) else f"{value:.2f}"


def sparkline(values: Sequence[float]) -> str:
    """One character per value, in eighths of the largest; anything above zero shows."""
    top = max(values, default=0)
    if top <= 0:
        return " " * len(values)
    return "".join(BLOCKS[min(8, math.ceil(8 * value / top))] if value > 0 else " " for value in values)


def bar(share: float, columns: int) -> str:
    """A horizontal bar of at most `columns` columns for a share between 0 and 1."""
    if not share > 0 or columns <= 0:
        return ""
    eighths = max(1, round(min(1.0, share) * columns * 8))
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()


def error_text(error: ParityError) -> Text:
    """An error with its remedy, for a notification or the middle of a screen."""
    text = Text(plain(render(error.message)))
    if error.hint:
        text.append(f"\n{plain(render(error.hint))}", style="italic")
    return text


def add_runs(text: Text, pieces: Iterable[tuple[str, Style]]) -> None:
    """Append these with their styles, neighbours of one style as one: each change of style costs bytes over ssh."""
    for style, same in groupby(pieces, key=itemgetter(1)):
        text.append("".join(words for words, _ in same), style)
