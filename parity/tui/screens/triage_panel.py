"""What was decided about a finding, by whom, by which rule, and what came of it in other runs."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from parity.language import render
from parity.messages import message
from parity.store import Occurrence, Rule, Triage, TriageChange
from parity.tui.format import moment, plain
from parity.tui.names import FIELDS, named, state_name
from parity.tui.screens.history import history_text
from parity.tui.widgets.paneltext import Palette
from parity.view.known import asked


def triage(
    said: Triage,
    changes: Sequence[TriageChange],
    fingerprint: str,
    palette: Palette,
    seen: Sequence[Occurrence] = (),
    rule: Rule | None = None,
) -> Text:
    """`seen`: what came of it in the runs that asked the same, the newest first; `rule`: the one that it fits."""
    text = Text()
    text.append(state_name(said.state), palette.title)
    for name, value in (
        ("label", said.label),
        ("note", said.note),
        ("link", said.link),
        ("original", said.duplicate_of),
    ):
        if value:
            text.append("\n" + named(FIELDS[name], value))
    text.append(f"\n{render(message('tui.fingerprint', 'fingerprint'))} {plain(fingerprint)}\n", palette.dim)
    nobody = message("tui.nobody_decided", "nobody has decided yet: c, b, t")
    text.append_text(history_text(changes) if changes else Text(render(nobody) + "\n"))
    if rule is not None:
        fits = message("tui.fits_rule", "fits the rule of a known bug: {kind}", kind=plain(rule.kind))
        words = ", ".join(plain(render(one)) for one in asked(rule))
        text.append(f"{render(fits)} {words}".rstrip() + f"  {plain(rule.link)}\n")
    if len(seen) > 1:
        found = sum(one.finding is not None for one in seen)
        head = message("tui.in_runs_of", "in {found} of the {count} newest runs", found=found, count=len(seen))
        text.append(render(head) + "\n", palette.title)
        for one in seen:
            text.append(f"{moment(one.created)}  {plain(one.run)}  ")
            if one.finding is None or one.state is None:
                text.append(render(message("tui.not_found", "not found")) + "\n", palette.dim)
            else:
                at = "" if one.position is None else f"{render(FIELDS['token'])} {one.position}  "
                text.append(f"{at}{state_name(one.state)}\n")
    return text
