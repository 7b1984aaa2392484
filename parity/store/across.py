"""Findings across runs: where one occurred before, and what nobody has decided about yet."""

from __future__ import annotations

from parity.records import Kind
from parity.records.control import CONTROL
from parity.records.first_faults import FOLLOWS
from parity.store import FindingRow, Occurrence, Store, TriageState


class AcrossRuns(Store):
    """Questions about many runs at once."""

    def occurrences(self, row: FindingRow, *, limit: int = 20) -> list[Occurrence]:
        """What came of this kind in the same completion of the newest runs that asked the same prompt of an arm of this
        name, whatever else their plans hold: the finding nearest to its place, or none."""
        rows = self._read(
            "SELECT runs.id, runs.created, f.id AS finding, f.position, f.state,"
            " row_number() OVER (PARTITION BY runs.number"
            " ORDER BY abs(coalesce(f.position, 0) - :position), f.id) AS nearest"
            " FROM runs AS own JOIN requests AS mine ON mine.run = own.number AND mine.name = :request"
            " CROSS JOIN runs ON runs.model = own.model CROSS JOIN requests AS r ON r.run = runs.number"
            " AND r.name = mine.name AND r.prompt_tokens = mine.prompt_tokens"
            " JOIN arms ON arms.run = runs.number AND arms.name = :arm AND arms.status = 'compared'"
            " LEFT JOIN findings AS f INDEXED BY findings_by_ordinal ON f.run = runs.number AND f.ordinal = r.ordinal"
            " AND +f.arm = arms.id AND +f.round = :round AND +f.sample = :sample AND +f.kind = :kind"
            " WHERE own.id = :run ORDER BY runs.created DESC, runs.number DESC",
            {
                "run": row.run,
                "request": row.request,
                "arm": row.arm,
                "round": row.round,
                "sample": row.sample,
                "kind": row.kind,
                "position": row.position or 0,
            },
        )
        return [
            Occurrence(
                one["id"],
                one["created"],
                one["finding"],
                one["position"],
                None if one["state"] is None else TriageState(one["state"]),
            )
            for one in rows
            if one["nearest"] == 1
        ][:limit]

    def inbox(self, *, limit: int) -> list[int]:
        """Ids of the findings that nobody has decided about and no rule fits, those of the newest run first, near-ties,
        what follows a first fault and what was planted left out; at most `limit`."""
        rows = self._read(
            "SELECT f.id FROM runs CROSS JOIN findings AS f INDEXED BY findings_open ON f.run = runs.number"
            f" AND f.state = 'new' AND f.kind <> '{Kind.NEAR_TIE}' AND f.followed <> {FOLLOWS}"
            f" JOIN arms ON arms.id = f.arm AND instr(arms.variant, '{CONTROL}') = 0"
            " ORDER BY runs.number DESC LIMIT ?",
            (limit,),
        )
        return [row["id"] for row in rows]
