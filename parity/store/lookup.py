"""Questions that no screen asks: findings by fingerprint, what was triaged."""

from __future__ import annotations

from collections.abc import Mapping

from parity.store import FindingRow, Store, Triage, TriageState


def by_fingerprint(store: Store, beginning: str) -> list[FindingRow]:
    """Findings whose fingerprint begins with `beginning` (hex digits), those of the newest run first."""
    rows = store._read(
        "SELECT findings.id AS id FROM findings JOIN runs ON runs.number = findings.run"
        " WHERE fingerprint >= ? AND fingerprint < ? ORDER BY runs.created DESC, findings.id LIMIT 100",
        (beginning, beginning + "g"),  # the first letter after the hex digits
    )
    found = (store.finding(row["id"]) for row in rows)
    return [finding for finding in found if finding is not None]


def triaged(store: Store, states: frozenset[TriageState]) -> Mapping[str, Triage]:
    """Every finding that somebody, or a rule, gave one of these states, by fingerprint."""
    names = sorted(str(state) for state in states)
    marks = ",".join("?" * len(names))
    rows = store._read(
        f"SELECT fingerprint FROM triage WHERE state IN ({marks})"
        f" UNION SELECT fingerprint FROM findings WHERE rule IS NOT NULL AND state IN ({marks})",
        [*names, *names],
    )
    return {row["fingerprint"]: store.triage(row["fingerprint"]) for row in rows}
