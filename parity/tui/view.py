"""What of a run's findings is shown, in which order and in which columns."""

from __future__ import annotations

from dataclasses import dataclass

from parity.records import Key
from parity.records.kinds import Kind, kinds
from parity.store import FindingFilter, FindingRow, FindingSort, RunRow
from parity.store.browse import Facet
from parity.tui.format import nats, plain
from parity.tui.widgets.table import Column

GROUPS = ("kind", "severity", "arm", "state")


def controls(run: RunRow) -> dict[str, str]:
    """The arms in which a fault was planted on purpose, and which: what is found there is no news."""
    return {arm.name: arm.control for arm in run.plan.arms if arm.control}


@dataclass(frozen=True, slots=True)
class View:
    """What of a run is shown, and in which order."""

    near_ties: bool = False
    chosen: frozenset[tuple[str, str]] = frozenset()
    """(group, value) pairs; a group without any does not restrict."""
    text: str = ""
    sort: FindingSort = FindingSort.WORST
    descending: bool = False

    def values(self, group: str) -> frozenset[str]:
        return frozenset(value for name, value in self.chosen if name == group)

    def filter(self) -> FindingFilter:
        chosen = self.values("kind")
        if not chosen and not self.near_ties:
            chosen = frozenset(str(kind) for kind in kinds() if kind is not Kind.NEAR_TIE)
        return FindingFilter(
            arms=self.values("arm"),
            kinds=chosen,
            severities=self.values("severity"),
            states=self.values("state"),
            text=self.text,
        )

    def lets(self, facet: Facet) -> bool:
        where = self.filter()
        return all(
            not allowed or value in allowed
            for allowed, value in (
                (where.arms, facet.arm),
                (where.kinds, facet.kind),
                (where.severities, facet.severity),
                (where.states, facet.state),
            )
        )


def place(key: Key) -> str:
    """A request by its name; round and sample only where there are several."""
    name = plain(key.request)
    return name if key.round == 0 and key.sample == 0 else f"{name} r{key.round} s{key.sample}"


def badge(word: str) -> tuple[str, str]:
    """A verdict or a status, and the style that it stands out in."""
    return f" {plain(word)} ", _BADGES.get(word, "reverse")


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
    return str(row.state), _STATE.get(str(row.state), "warning")


WIDE = 110

COLUMNS: list[Column[FindingRow]] = [
    # In a narrow table a sign says it: `!` corrupt, `·` benign.
    Column("!", 2, lambda f: ("!" if f.severity == "corrupt" else "·", _severity(f)), "severity", below_width=WIDE),
    Column("severity", 9, lambda f: (plain(f.severity), _severity(f)), "severity", from_width=WIDE),
    Column("kind", 13, lambda f: (plain(f.kind), _severity(f)), "kind", below_width=WIDE),
    Column("kind", 20, lambda f: (plain(f.kind), _severity(f)), "kind", from_width=WIDE),
    Column("request", 0, lambda f: (place(f.key), ""), "ordinal", least=9, middle=True),
    Column("arm", 0, lambda f: (plain(f.arm), ""), "arm", least=12, middle=True),
    Column("token", 6, lambda f: ("" if f.position is None else str(f.position), ""), "position", right=True),
    Column("len", 4, lambda f: ("" if f.length is None else str(f.length), ""), right=True),
    Column("gap", 6, lambda f: (nats(f.gap), ""), "gap", right=True),
    Column("state", 9, _state, "state"),
    Column("label", 0, lambda f: (plain(f.label), ""), from_width=WIDE + 20),
]

SORT_NAMES = {
    FindingSort.WORST: "severity",
    FindingSort.KIND: "kind",
    FindingSort.REQUEST: "request",
    FindingSort.POSITION: "token",
    FindingSort.GAP: "gap",
    FindingSort.STATE: "state",
    FindingSort.ARM: "arm",
}
