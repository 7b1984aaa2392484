"""What fields and their values are called on the screen. Kinds, verdicts and arms have names of their own, the same in
every language."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from parity.language import render
from parity.messages import Message, message
from parity.store import RunStatus, TriageState
from parity.tui.format import plain

FIELDS: Final[Mapping[str, Message]] = {
    "severity": message("tui.field.severity", "severity"),
    "kind": message("tui.field.kind", "kind"),
    "request": message("tui.field.request", "request"),
    "arm": message("tui.field.arm", "arm"),
    "token": message("tui.field.token", "token"),
    "length": message("tui.field.length", "len"),
    "then": message("tui.field.then", "then"),
    "gap": message("tui.field.gap", "gap"),
    "state": message("tui.field.state", "state"),
    "label": message("tui.field.label", "label"),
    "note": message("tui.field.note", "note"),
    "link": message("tui.field.link", "link"),
    "text": message("tui.field.text", "text"),
    "class": message("tui.field.class", "class"),
    "differs": message("tui.field.differs", "differs"),
    "new": message("tui.field.new", "new"),
    "findings": message("tui.field.findings", "findings"),
    "verdict": message("runs.verdict", "verdict"),
    "model": message("runs.model", "model"),
    "tag": message("tui.field.tag", "tag"),
    "name": message("tui.field.name", "name"),
    "date": message("tui.column.date", "date"),
    "found": message("tui.column.found", "found"),
    "time": message("tui.column.time", "time"),
    "known": message("tui.field.known", "known"),
    "original": message("tui.field.original", "duplicate of"),
}

_STATES: Final[Mapping[str, Message]] = {
    TriageState.NEW: message("tui.state.new", "new"),
    TriageState.CONFIRMED: message("tui.state.confirmed", "confirmed"),
    TriageState.BENIGN: message("tui.state.benign", "benign"),
    TriageState.DUPLICATE: message("tui.state.duplicate", "duplicate"),
    TriageState.REPORTED: message("tui.state.reported", "reported"),
    TriageState.FIXED: message("tui.state.fixed", "fixed"),
    TriageState.KNOWN: message("tui.state.known", "known"),
}

_SEVERITIES: Final[Mapping[str, Message]] = {
    "corrupt": message("tui.severity.corrupt", "corrupt"),
    "benign": message("tui.severity.benign", "benign"),
}

_STATUS: Final[Mapping[str, Message]] = {
    RunStatus.RUNNING: message("tui.status.running", "running"),
    RunStatus.FINISHED: message("tui.status.finished", "finished"),
    RunStatus.FAILED: message("tui.status.failed", "failed"),
    RunStatus.INTERRUPTED: message("tui.status.interrupted", "interrupted"),
    "pending": message("tui.status.pending", "pending"),
    "captured": message("tui.status.captured", "captured"),
    "compared": message("tui.status.compared", "compared"),
}
"""Of a run and of an arm."""

CLASS_NAMES: Final[Mapping[str, Message]] = {
    "corrupt": message("tui.cls.corrupt", "corrupt"),
    "missing": message("tui.cls.missing", "missing"),
    "unjudged": message("tui.cls.unjudged", "unjudged"),
    "near_tie": message("tui.cls.near_tie", "near-tie"),
    "": message("tui.cls.none", "not compared"),
    "identical": message("tui.cls.identical", "identical"),
}
"""Of completions, the worst first."""

_CLASSES: Final[Mapping[str, Message]] = {
    "identical": message("tui.class.identical", "This completion is identical."),
    "near_tie": message("tui.class.near_tie", "This completion parts at near-ties only."),
    "corrupt": message("tui.class.corrupt", "This completion is corrupt."),
    "unjudged": message("tui.class.unjudged", "This completion is unjudged."),
    "missing": message("tui.class.missing", "This completion is missing."),
}


def state_name(state: str) -> str:
    return _named(_STATES, state)


def state_message(state: TriageState) -> Message:
    return _STATES[state]


def severity_name(severity: str) -> str:
    return _named(_SEVERITIES, severity)


def status_name(status: str) -> str:
    """Of a run or an arm; a verdict is its own name."""
    return _named(_STATUS, status)


def class_said(cls: str | None) -> Message:
    """Of which class a completion is, as a sentence."""
    return _CLASSES.get(cls or "", message("tui.class.none", "This completion is not judged."))


def class_name(cls: str) -> str:
    return _named(CLASS_NAMES, cls)


def class_counts(counts: Mapping[str, int]) -> Message:
    """ "64 completions: 41 identical, 23 unjudged"."""
    total = sum(counts.values())
    parts: list[Message | str] = []
    for cls, name in CLASS_NAMES.items():
        if counts.get(cls):
            parts.append(message("tui.cls.count", "{count:,} {cls}", count=counts[cls], cls=name))
    return message(
        "tui.cls.counts",
        "{total:,} completion: {counts}",
        plural="{total:,} completions: {counts}",
        total=total,
        counts=parts,
    )


def value_name(field: str, value: str) -> str:
    """A value of a field that findings are filtered by."""
    return _named(
        {"severity": _SEVERITIES, "state": _STATES, "class": CLASS_NAMES, "verdict": _STATUS}.get(field, {}), value
    )


def named(name: Message, value: object) -> str:
    """ "note: seen twice"."""
    return render(message("tui.named", "{name}: {value}", name=name, value=plain(value)))


def findings(count: int) -> Message:
    """ "1 finding", "2 findings"."""
    return message("tui.findings", "{count:,} finding", plural="{count:,} findings", count=count)


def tokens(count: int) -> Message:
    """ "1 token", "2 tokens"."""
    return message("tui.tokens", "{count:,} token", plural="{count:,} tokens", count=count)


def _named(names: Mapping[str, Message], value: str) -> str:
    known = names.get(value)
    return plain(value) if known is None else render(known)
