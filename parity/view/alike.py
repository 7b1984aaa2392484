"""Findings that are alike: what one of them is likely to be, the others are too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from parity.messages import Message, message
from parity.records import Kind
from parity.records.evidence import LeakEvidence, LocatedEvidence, RuleEvidence, TokensEvidence, ViolationEvidence
from parity.records.kinds import Stretch
from parity.store import FindingRow, TriageState

Sign = tuple[str, str]
"""What is the same of all of them, and its value."""


@dataclass(frozen=True, slots=True)
class Alike:
    """Kind, arm, and what the evidence says beyond them."""

    kind: str
    arm: str
    signs: tuple[Sign, ...] = ()

    def said(self) -> list[Message]:
        return [_said(name, value) for name, value in self.signs]


@dataclass(slots=True)
class Group:
    """Findings that are alike, in the order that they came in; `first` is the first of them."""

    alike: Alike
    first: FindingRow
    ids: list[int] = field(default_factory=list)
    new: int = 0
    """Those that nobody has decided about."""
    requests: set[str] = field(default_factory=set)


def alike(row: FindingRow) -> Alike:
    return Alike(row.kind, row.arm, tuple(_signs(row)))


def groups(rows: Iterable[FindingRow]) -> list[Group]:
    """The largest first; of groups of one size the one whose first finding came first."""
    found: dict[Alike, Group] = {}
    for row in rows:
        key = alike(row)
        group = found.setdefault(key, Group(key, row))
        group.ids.append(row.id)
        group.requests.add(row.request)
        group.new += row.state is TriageState.NEW
    return sorted(found.values(), key=lambda one: -len(one.ids))


def _signs(row: FindingRow) -> Iterator[Sign]:
    facts = row.facts
    if isinstance(facts, LeakEvidence):
        yield "donor", facts.donor_part
        if row.position is not None and isinstance(facts.donor_start, int):
            yield "offset", f"{facts.donor_start - row.position:+}"
    elif isinstance(facts, ViolationEvidence):
        yield "invariant", facts.invariant
    elif isinstance(facts, LocatedEvidence):
        yield "module", facts.module
    elif isinstance(facts, RuleEvidence):
        yield "rule", facts.rule
    elif Kind(row.kind).row.stretch is Stretch.LOST or row.kind == Kind.DUPLICATION:
        yield "length", str(row.length)
    elif isinstance(facts, TokensEvidence) and facts.period:
        yield "period", str(facts.period)


def _said(name: str, value: str) -> Message:
    """In words; the name itself where there are none."""
    if name == "donor":
        return message("tui.alike.donor", "from the {part} of another request", part=value)
    if name == "offset":
        return message("tui.alike.offset", "donor at {offset} tokens", offset=value)
    if name == "period":
        return message("tui.alike.period", "period {period}", period=value)
    if name == "length":
        return message("tui.alike.length", "length {length}", length=value)
    return message("tui.alike.other", "{name} {value}", name=name, value=value)
