"""What the screen of a finding says above its tokens."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from parity.language import render
from parity.messages import message
from parity.records import Key
from parity.store import FindingRow
from parity.tui.drawing import Drawing
from parity.tui.format import nats, plain
from parity.tui.names import FIELDS, severity_name, state_name
from parity.tui.screens.seeking import READING
from parity.tui.view import place

NO_FINDING = message("tui.no_finding", "no finding")


def title(arm: str, key: Key, finding: FindingRow | None) -> Text | str:
    """Which finding, where, and what was decided about it."""
    where = f"{plain(arm)}  {place(key)}"
    if finding is None:
        return f"{render(NO_FINDING)}  {where}"
    span = "" if finding.position is None else f"  {render(FIELDS['token'])} {finding.position}"
    span += f"+{finding.length}" if finding.length else ""
    state = f"{state_name(finding.state).upper()}{f' {plain(finding.label)}' if finding.label else ''}"
    what = f"  {severity_name(finding.severity)} {plain(finding.kind)}  {where}{span}"
    return Text.assemble((f" {state} ", "reverse"), what)


def why(finding: FindingRow, drawing: Drawing | None, *, planted: bool) -> Iterator[str]:
    """Sentences: what was found, how wide the gap is, what else there is in the completion."""
    said = plain(render(finding.why)).rstrip(".。")
    if said:
        said = said[:1].upper() + said[1:]
        yield render(
            message("tui.why_control", "In a positive control: {why}.", why=said)
            if planted
            else message("tui.why", "{why}.", why=said)
        )
    if drawing is None:
        yield render(READING)
        return
    if finding.gap is not None:
        gap, tolerance = nats(finding.gap), nats(drawing.view.tolerance)
        yield render(message("tui.gap_is", "Gap {gap} nats, tolerance {tolerance}.", gap=gap, tolerance=tolerance))
    if len(drawing.view.others) > 1:
        count = len(drawing.view.others)
        yield render(message("tui.in_completion", "{count} findings in this completion (f next).", count=count))
    if drawing.decoder.problem is not None:
        yield render(message("tui.note", "Note: {problem}.", problem=drawing.decoder.problem))
