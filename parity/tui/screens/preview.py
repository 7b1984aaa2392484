"""A finding as one looks at it beside the list: both texts with the fault marked, its gaps, the donor."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from rich.style import Style
from rich.text import Text

from parity.language import render
from parity.messages import Message, message
from parity.tui.format import BLOCKS, FULL_BAR, add_runs, plain
from parity.tui.names import severity_name, state_name
from parity.tui.tokens import Decoder
from parity.tui.view import place
from parity.tui.widgets.paneltext import Palette
from parity.view.alignment import EQUAL
from parity.view.completion import CompletionView, whole


def preview(view: CompletionView, rows: range, decoder: Decoder, palette: Palette) -> Text:
    """What the finding is, and the rows around it as text."""
    text, finding = Text(), view.finding
    if finding is None:
        return text
    text.append(f"{severity_name(finding.severity)} {plain(finding.kind)}  {plain(finding.arm)}  ", palette.title)
    text.append(f"{place(finding.key)}  {state_name(finding.state)}\n", palette.title)
    text.append(plain(render(finding.why)) + "\n\n")
    if view.gaps is not None:
        text.append(render(message("tui.preview.gaps", "gap of each token")) + "\n", palette.dim)
        text.append_text(_heat(view, rows, palette))
        text.append("\n\n")
    for title, ours in ((plain(view.run.baseline), False), (plain(view.arm), True)):
        text.append(title + "\n", palette.title)
        text.append_text(_side(view, rows, decoder, palette, candidate=ours))
        text.append("\n\n")
    for line in _donor(view, decoder, palette):
        text.append_text(line)
    if finding.label:
        text.append(plain(finding.label) + "\n", palette.chosen)
    return text


def _heat(view: CompletionView, rows: range, palette: Palette) -> Text:
    """A block for each candidate token of these rows; above the tolerance in the colour of what is wrong."""
    text, drawn = Text(), []
    assert view.gaps is not None
    for position in view.alignment.right[rows.start : rows.stop].tolist():
        gap = float(view.gaps[position]) if 0 <= position < len(view.gaps) else float("nan")
        level = 0 if np.isnan(gap) else 1 + round(7 * min(1.0, (max(0.0, gap) / FULL_BAR) ** 0.5))
        drawn.append((BLOCKS[level], palette.high if gap > view.tolerance else palette.bar))
    add_runs(text, drawn)
    return text


def _side(view: CompletionView, rows: range, decoder: Decoder, palette: Palette, *, candidate: bool) -> Text:
    """One side as flowing text: what differs between ▸ and ◂, what a finding covers underlined."""
    alignment, text = view.alignment, Text()
    places = (alignment.right if candidate else alignment.left)[rows.start : rows.stop].tolist()
    stream = view.right if candidate else view.left
    known = [at for at in places if at >= 0]
    pieces = dict(zip(known, decoder.pieces(stream[known]), strict=True)) if known else {}
    covered = view.covered if candidate else view.lost
    runs: list[tuple[str, Style]] = [("…", palette.dim)] if known and known[0] > 0 else []
    before = True
    for row, at in zip(rows, places, strict=True):
        same = int(alignment.op[row]) == EQUAL
        if before != same:
            runs.append(("◂" if same else "▸", palette.dim))
        before = same
        if at in pieces:
            style = palette.dim if same else palette.high
            runs.append((pieces[at].text, style + Style(underline=True) if at in covered else style))
    if not before:
        runs.append(("◂", palette.dim))
    if known and known[-1] + 1 < len(stream):
        runs.append(("…", palette.dim))
    add_runs(text, runs)
    return text


def _donor(view: CompletionView, decoder: Decoder, palette: Palette) -> Iterator[Text]:
    leak, stream = view.leak, view.donor_tokens
    if leak is None or stream is None:
        return
    first, last = max(0, whole(leak.donor_start)), max(0, whole(leak.donor_end))
    said: Message = message("tui.donor", "donor {request}", request=plain(leak.donor))
    yield Text(render(said) + f" {first}+{last - first}\n", palette.title)
    head, tail = decoder.text(stream[max(0, first - 12) : first]), decoder.text(stream[last : last + 12])
    yield Text.assemble(
        (head, palette.dim), (f">>{decoder.text(stream[first:last])}<<", palette.span), (tail + "\n\n", palette.dim)
    )
