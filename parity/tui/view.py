"""What of a run's findings is shown, in which order and in which columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from parity.messages import Message, message
from parity.records import Key
from parity.records.kinds import Kind, kinds
from parity.store import ArmRow, FindingFilter, FindingRow, FindingSort
from parity.store.browse import Facet
from parity.tui.format import nats, plain
from parity.tui.names import FIELDS, severity_name, state_name, status_name
from parity.tui.widgets.table import Column
from parity.view.lines import counts_of

GROUPS = ("kind", "severity", "arm", "state")


@dataclass(frozen=True, slots=True)
class View:
    """What of a run is shown, and in which order."""

    near_ties: bool = False
    follow_ups: bool = False
    """Faults that come after the first one of their completion."""
    chosen: frozenset[tuple[str, str]] = frozenset()
    """(group, value) pairs; a group without any does not restrict."""
    text: str = ""
    sort: FindingSort = FindingSort.WORST
    descending: bool = False

    @property
    def down(self) -> bool:
        """The order that the store is asked for: the widest gap comes first, unless it is reversed."""
        return self.descending != (self.sort is FindingSort.GAP)

    def values(self, group: str) -> frozenset[str]:
        return frozenset(value for name, value in self.chosen if name == group)

    def filter(self) -> FindingFilter:
        chosen = kinds_shown = self.values("kind")
        if not chosen and not self.near_ties:
            kinds_shown = frozenset(str(kind) for kind in kinds() if kind is not Kind.NEAR_TIE)
        return FindingFilter(
            arms=self.values("arm"),
            kinds=kinds_shown,
            severities=self.values("severity"),
            states=self.values("state"),
            text=self.text,
            follow_ups=self.follow_ups or bool(chosen),
        )

    def counted(self, arm: ArmRow) -> int:
        """Findings of an arm that are shown, where nothing is chosen: as they were counted when they were found."""
        counts = counts_of(arm, follow_ups=self.follow_ups)
        return sum(n for kind, n in counts.items() if self.near_ties or kind != Kind.NEAR_TIE)

    def lets(self, facet: Facet) -> bool:
        where = self.filter()
        if facet.follows and not where.follow_ups:
            return False
        return all(
            not allowed or value in allowed
            for allowed, value in (
                (where.arms, facet.arm),
                (where.kinds, facet.kind),
                (where.severities, facet.severity),
                (where.states, facet.state),
            )
        )


@dataclass(frozen=True, slots=True)
class Hidden:
    """How many findings are not shown although nothing was chosen that they do not pass."""

    near_ties: int = 0
    follow_ups: int = 0

    @staticmethod
    def of(view: View, facets: Sequence[Facet]) -> Hidden:
        where = view.filter()
        if view.values("kind"):
            return Hidden()
        return Hidden(
            0 if view.near_ties else sum(one.findings for one in facets if one.kind == Kind.NEAR_TIE),
            0 if where.follow_ups else sum(one.findings for one in facets if one.follows),
        )

    def said(self) -> list[Message]:
        found = []
        if self.near_ties:
            found.append(message("tui.hidden.near_ties", "{count:,} near-ties hidden, z shows", count=self.near_ties))
        if self.follow_ups:
            found.append(message("tui.hidden.follow_ups", "{count:,} that follow, Z shows", count=self.follow_ups))
        return found


def place(key: Key) -> str:
    """A request by its name; round and sample only where there are several."""
    name = plain(key.request)
    return name if key.round == 0 and key.sample == 0 else f"{name} r{key.round} s{key.sample}"


def badge(word: str) -> tuple[str, str]:
    """A verdict or a status, and the style that it stands out in."""
    return f" {status_name(word)} ", _BADGES.get(word, "reverse")


_BADGES = {
    "PASS": "bold #ffffff on #1a7f37",
    "DIVERGED": "bold #ffffff on #b3261e",
    "ERROR": "bold #ffffff on #b3261e",
    "INCONCLUSIVE": "bold #1f1300 on #e3b341",
}


_STATE = {"new": "", "confirmed": "corrupt", "benign": "good", "fixed": "good"}


def _severity(row: FindingRow) -> str:
    return "corrupt" if row.severity == "corrupt" else "dim"


def _state(row: FindingRow) -> tuple[str, str]:
    return state_name(row.state), _STATE.get(str(row.state), "warning")


def _then(row: FindingRow) -> tuple[str, str]:
    return ("↳" if row.follows else f"+{row.followed:,}" if row.followed else "", "dim")


WIDE = 110
ROOMY = 72
"""Columns: below, beside a preview, length and what follows give way to the state, which a decision changes."""

COLUMNS: list[Column[FindingRow]] = [
    # In a narrow table a sign says it: `!` corrupt, `·` benign.
    Column("!", 2, lambda f: ("!" if f.severity == "corrupt" else "·", _severity(f)), "severity", below_width=WIDE),
    Column(FIELDS["severity"], 9, lambda f: (severity_name(f.severity), _severity(f)), "severity", from_width=WIDE),
    Column(FIELDS["kind"], 13, lambda f: (plain(f.kind), _severity(f)), "kind", below_width=WIDE),
    Column(FIELDS["kind"], 20, lambda f: (plain(f.kind), _severity(f)), "kind", from_width=WIDE),
    Column(FIELDS["request"], 0, lambda f: (place(f.key), ""), "ordinal", least=9, middle=True),
    Column(FIELDS["arm"], 0, lambda f: (plain(f.arm), ""), "arm", least=12, middle=True),
    Column(FIELDS["token"], 6, lambda f: ("" if f.position is None else str(f.position), ""), "position", right=True),
    Column(
        FIELDS["length"], 4, lambda f: ("" if f.length is None else str(f.length), ""), right=True, from_width=ROOMY
    ),
    # What comes after it in the same completion; a fault that does is marked itself.
    Column(FIELDS["then"], 4, _then, right=True, from_width=ROOMY),
    Column(FIELDS["gap"], 6, lambda f: (nats(f.gap), ""), "gap", right=True),
    Column(FIELDS["state"], 9, _state, "state"),
    Column(FIELDS["label"], 0, lambda f: (plain(f.label), ""), from_width=WIDE + 20),
]

SORT_NAMES = {
    FindingSort.WORST: FIELDS["severity"],
    FindingSort.KIND: FIELDS["kind"],
    FindingSort.REQUEST: FIELDS["request"],
    FindingSort.POSITION: FIELDS["token"],
    FindingSort.GAP: FIELDS["gap"],
    FindingSort.STATE: FIELDS["state"],
    FindingSort.ARM: FIELDS["arm"],
}
