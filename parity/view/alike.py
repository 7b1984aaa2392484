"""Findings that are alike: what one of them is likely to be, the others are too."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from parity.messages import Message, message
from parity.records.signs import Sign, signs
from parity.store import FindingRow, TriageState


@dataclass(frozen=True, slots=True)
class Alike:
    """Kind, arm, and what the evidence says beyond them."""

    kind: str
    arm: str
    signs: tuple[Sign, ...] = ()

    def said(self) -> list[Message]:
        return [sign_said(name, value) for name, value in self.signs]


@dataclass(slots=True)
class Group:
    """Findings that are alike, in the order that they came in; `first` is the first of them."""

    alike: Alike
    first: FindingRow
    ids: list[int] = field(default_factory=list)
    new: int = 0
    """Those that nobody has decided about."""
    requests: set[str] = field(default_factory=set)
    runs: set[str] = field(default_factory=set)


def alike(row: FindingRow) -> Alike:
    return Alike(row.kind, row.arm, tuple(signs(row.kind, row.position, row.length, row.facts)))


def groups(rows: Iterable[FindingRow]) -> list[Group]:
    """The largest first; of groups of one size the one whose first finding came first."""
    found: dict[Alike, Group] = {}
    for row in rows:
        key = alike(row)
        group = found.setdefault(key, Group(key, row))
        group.ids.append(row.id)
        group.requests.add(row.request)
        group.runs.add(row.run)
        group.new += row.state is TriageState.NEW
    return sorted(found.values(), key=lambda one: -len(one.ids))


def sign_said(name: str, value: str) -> Message:
    """In words; the name itself where there are none."""
    if name == "donor":
        from parity.comparator.detect.leak import PART_NAMES  # it brings the comparison along

        return message("tui.alike.donor", "from the {part} of another request", part=PART_NAMES.get(value, value))
    if name == "offset":
        return message("tui.alike.offset", "donor at {offset} tokens", offset=value)
    if name == "period":
        return message("tui.alike.period", "period {period}", period=value)
    if name == "length":
        return message("tui.alike.length", "length {length}", length=value)
    return message("tui.alike.other", "{name} {value}", name=name, value=value)
