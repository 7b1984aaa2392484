"""Words and figures for the screen. Everything that came from a file goes through `plain`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from parity.errors import ParityError
from parity.text import visible

BLOCKS: Final = " ▁▂▃▄▅▆▇█"


def plain(value: object, *, keep: str = "") -> str:
    """Text from outside, made harmless; never parsed as markup afterwards."""
    return visible(str(value), keep=keep)


def fit(text: str, columns: int, *, right: bool = False) -> str:
    """`text` in exactly `columns` columns: padded, or cut with an ellipsis."""
    if columns <= 0:
        return ""
    width = cell_len(text)
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
    text = Text(plain(error.message))
    if error.hint:
        text.append(f"\n{plain(error.hint)}", style="italic")
    return text
