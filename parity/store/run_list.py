"""Runs: which there are, in which order, and how much of each nobody has decided about."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

from parity.records.control import CONTROL
from parity.store.connection import Connection
from parity.store.decode import run_row
from parity.store.rows import RunFilter, RunRow, RunSort

_FINDINGS: Final = (
    "(SELECT count(*) FROM arms CROSS JOIN findings AS f INDEXED BY findings_open ON f.run = arms.run"
    " AND f.arm = arms.id AND f.kind <> 'near_tie'{}"
    f" WHERE arms.run = runs.number AND instr(arms.variant, '{CONTROL}') = 0)"
)
_ORDERS: Final[Mapping[RunSort, str]] = {
    RunSort.DATE: "created",
    RunSort.VERDICT: "coalesce(verdict, status)",
    RunSort.NEW: _FINDINGS.format(" AND f.state = 'new'"),
    RunSort.FOUND: _FINDINGS.format(""),
    RunSort.TIME: "coalesce(duration, 0)",
    RunSort.MODEL: "model",
    RunSort.NAME: "name",
}
_TEXT: Final = (
    "instr(lower(id || ' ' || name || ' ' || tags || ' ' || model || ' ' || command || ' '"
    " || coalesce(verdict, status)), ?)"
)


class RunLister(Connection):
    """The half of reading that is about runs as a whole."""

    def runs(
        self,
        *,
        limit: int | None = None,
        offset: int = 0,
        where: RunFilter | None = None,
        sort: RunSort = RunSort.DATE,
        descending: bool = True,
    ) -> list[RunRow]:
        """Runs, the newest first unless another order is asked for."""
        condition, values = _condition(where)
        direction = "DESC" if descending else "ASC"
        rows = self._read(
            f"SELECT * FROM runs WHERE {condition} ORDER BY {_ORDERS[sort]} {direction}, created DESC, number DESC"
            " LIMIT ? OFFSET ?",
            (*values, -1 if limit is None else limit, offset),
        )
        return [run_row(row) for row in rows]

    def count_runs(self, where: RunFilter | None = None) -> int:
        condition, values = _condition(where)
        return int(self._read(f"SELECT count(*) FROM runs WHERE {condition}", values)[0][0])

    def run_values(self) -> list[tuple[str, str, int]]:
        """(verdict, model or tag, its value, runs that have it): what there is to filter by."""
        rows = self._read("SELECT coalesce(verdict, status) AS verdict, model, tags FROM runs")
        found: Counter[tuple[str, str]] = Counter()
        for row in rows:
            found.update([("verdict", row["verdict"]), ("model", row["model"])])
            found.update(("tag", tag) for tag in str(row["tags"]).split())
        return [(group, value, count) for (group, value), count in found.items()]

    def states_of(self, runs: Sequence[str]) -> Mapping[str, Mapping[tuple[str, str], int]]:
        """Of each of these runs its findings but near-ties, by arm and state of triage."""
        found: defaultdict[str, dict[tuple[str, str], int]] = defaultdict(dict)
        for start in range(0, len(runs), 500):
            chunk = runs[start : start + 500]
            rows = self._read(
                "SELECT runs.id, arms.name, f.state, count(*) AS n FROM runs CROSS JOIN findings AS f"
                " INDEXED BY findings_open ON f.run = runs.number AND f.kind <> 'near_tie'"
                f" JOIN arms ON arms.id = f.arm WHERE runs.id IN ({','.join('?' * len(chunk))})"
                " GROUP BY f.run, f.state, f.arm",
                list(chunk),
            )
            for row in rows:
                found[row["id"]][row["name"], row["state"]] = row["n"]
        return found


def _condition(where: RunFilter | None) -> tuple[str, list[Any]]:
    parts, values = ["1"], list[Any]()
    if where is not None:
        if where.text:
            parts.append(_TEXT)
            values.append(where.text.lower())
        for column, allowed in (("coalesce(verdict, status)", where.verdicts), ("model", where.models)):
            if allowed:
                parts.append(f"{column} IN ({','.join('?' * len(allowed))})")
                values += sorted(allowed)
        if where.tags:
            parts.append("(" + " OR ".join(["instr(' ' || tags || ' ', ?)"] * len(where.tags)) + ")")
            values += [f" {tag} " for tag in sorted(where.tags)]
    return " AND ".join(parts), values
