"""Requests by positions: where the findings of a run lie, before anybody reads one of them."""

from __future__ import annotations

from collections import Counter
from typing import Final

from markupsafe import Markup

from parity.report.escape import markup
from parity.report.texts import Texts
from parity.text import clip
from parity.view import RunView

ROWS: Final = 40
"""Requests shown, those with the most findings first."""
COLUMNS: Final = 48
CELL: Final = 14
"""Pixels."""
LABEL: Final = 190


def overview(view: RunView, texts: Texts) -> Markup | None:
    """A heat map of the corrupt findings as SVG; None where fewer than two have a place."""
    placed = [(one.request, one.position) for one in view.corrupt if one.position is not None and not one.of_run]
    if len(placed) < 2:
        return None
    width = max(1, -(-(max(at for _, at in placed) + 1) // COLUMNS))
    cells = Counter((request, at // width) for request, at in placed)
    rows = [name for name, _ in Counter(request for request, _ in placed).most_common(ROWS)]
    columns = max(column for _, column in cells) + 1
    most = max(cells.values())
    title = texts("html.overview", shown=len(rows), total=len({request for request, _ in placed}), tokens=width)
    parts = [
        f'<svg class="map" role="img" width="{LABEL + (columns + 2) * CELL}" height="{(len(rows) + 2) * CELL}" '
        f'viewBox="0 0 {LABEL + (columns + 2) * CELL} {(len(rows) + 2) * CELL}"><title>{markup(title)}</title>'
    ]
    for row, name in enumerate(rows):
        top = row * CELL
        parts.append(f'<text x="{LABEL - 6}" y="{top + 11}" text-anchor="end">{markup(clip(name, 26))}</text>')
        for column in range(columns):
            found = cells.get((name, column), 0)
            if found:
                place = f"{column * width}" if width == 1 else f"{column * width}–{column * width + width - 1}"
                said = markup(f"{name}, {texts('column.token')} {place}: {found}")
                opacity = 0.35 + 0.65 * found / most
                parts.append(
                    f'<rect x="{LABEL + column * CELL}" y="{top}" width="{CELL - 1}" height="{CELL - 1}" '
                    f'fill-opacity="{opacity:.2f}"><title>{said}</title></rect>'
                )
    end = (len(rows) + 1) * CELL
    for column in range(0, columns, max(1, columns // 6)):
        parts.append(f'<text x="{LABEL + column * CELL}" y="{end}">{column * width}</text>')
    return Markup(
        f'<figure class="wide"><figcaption class="quiet">{markup(title)}</figcaption>{"".join(parts)}</svg></figure>'
    )
