"""The history of a finding's triage as text."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from parity.language import render
from parity.messages import message
from parity.store import Triage, TriageChange
from parity.tui.format import moment, plain
from parity.tui.names import FIELDS, named, state_name


def history_text(changes: Sequence[TriageChange]) -> Text:
    """The history of a finding's triage, the newest change first."""
    text = Text()
    for change in changes:
        before, after = change.before or Triage(), change.after or Triage()
        text.append(f"{moment(change.at)}  {state_name(before.state)} → {state_name(after.state)}")
        if change.undoes is not None:
            text.append("  " + render(message("tui.undone", "(undone)")))
        for name, value in (
            ("label", after.label),
            ("note", after.note),
            ("link", after.link),
            ("original", after.duplicate_of),
        ):
            if value:
                text.append("  " + named(FIELDS[name], value))
        if change.author:
            text.append("  " + render(message("tui.by_author", "by {author}", author=plain(change.author))))
        text.append("\n")
    return text
