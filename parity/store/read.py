"""Reading: runs, arms, completions, and any page of any filter of a run's findings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from parity.errors import ParityError
from parity.messages import message
from parity.records import Key
from parity.records.first_faults import FOLLOWS
from parity.records.gaps import KeptGaps
from parity.store.decode import arm_row, completion_row, finding_row, gaps_row, request_row, run_row
from parity.store.rows import (
    ArmRow,
    CompletionRow,
    FindingFilter,
    FindingRow,
    FindingSort,
    KindCount,
    RequestRow,
    RunRow,
)
from parity.store.run_list import RunLister

_FINDING = """
    SELECT findings.*, runs.id AS run_id, arms.name AS arm_name, coalesce(triage.label, '') AS label
    FROM findings JOIN runs ON runs.number = findings.run JOIN arms ON arms.id = findings.arm
    LEFT JOIN triage ON triage.fingerprint = findings.fingerprint
"""


# What people wrote by hand is the small table: it is walked once. Values: run, text, text.
TRIAGED_WITH_TEXT = (
    "SELECT f.id FROM triage CROSS JOIN findings AS f ON f.fingerprint = triage.fingerprint"
    " WHERE (triage.label <> '' OR triage.note <> '') AND f.run = ?"
    " AND (instr(lower(triage.label), ?) OR instr(lower(triage.note), ?))"
)


class Reader(RunLister):
    """The half of the store that never writes."""

    def compared_with_plan(self, plan_hash: str) -> list[str]:
        """Ids of the runs of a plan that came to a verdict, oldest first."""
        rows = self._read(
            "SELECT id FROM runs WHERE plan_hash = ? AND verdict IS NOT NULL ORDER BY created, number", (plan_hash,)
        )
        return [str(row["id"]) for row in rows]

    def run(self, run_id: str | None = None) -> RunRow:
        """The run whose id is, or uniquely starts with, `run_id`; without one the newest.

        Raises ParityError when there is none or several.
        """
        if run_id is None:
            newest = self.runs(limit=1)
            if not newest:
                raise ParityError(
                    message("store.there_no_runs", "there are no runs in {path}", path=str(self.path)),
                    hint=message("store.start_one", "start one with `parity run --backends cpu`"),
                )
            return newest[0]
        rows = self._read("SELECT * FROM runs WHERE id = ?", (run_id,)) or self._read(
            "SELECT * FROM runs WHERE substr(id, 1, ?) = ? ORDER BY created DESC LIMIT 20",
            (len(run_id), run_id),
        )
        if not rows or not run_id:
            raise ParityError(
                message(
                    "store.there_no_run", 'there is no run "{run_id}" in {path}', run_id=run_id, path=str(self.path)
                ),
                hint=message("store.shows_those_there", "`parity runs list` shows those there are"),
            )
        if len(rows) > 1:
            raise ParityError(
                message(
                    "store.could_any",
                    '"{run_id}" could be any of {rows}',
                    run_id=run_id,
                    rows=[row["id"] for row in rows],
                ),
                hint=message("store.write_more_runs", "write more of the run's id"),
            )
        return run_row(rows[0])

    def arms(self, run_id: str) -> list[ArmRow]:
        """The arms of a run, the baseline first, then in the plan's order."""
        rows = self._read(
            "SELECT arms.*, runs.id AS run_id FROM arms JOIN runs ON runs.number = arms.run"
            " WHERE runs.id = ? ORDER BY is_baseline DESC, arms.id",
            (run_id,),
        )
        return [arm_row(row) for row in rows]

    def requests(self, run_id: str) -> list[RequestRow]:
        """The run's requests in the plan's order."""
        rows = self._read(
            "SELECT requests.* FROM requests JOIN runs ON runs.number = requests.run"
            " WHERE runs.id = ? ORDER BY ordinal",
            (run_id,),
        )
        return [request_row(row) for row in rows]

    def request(self, run_id: str, name: str) -> RequestRow | None:
        rows = self._read(
            "SELECT requests.* FROM requests JOIN runs ON runs.number = requests.run"
            " WHERE runs.id = ? AND requests.name = ?",
            (run_id, name),
        )
        return request_row(rows[0]) if rows else None

    def completion(self, run_id: str, arm: str, key: Key) -> CompletionRow | None:
        """One completion of one arm, or None where the arm has none for this key."""
        rows = self._read(
            "SELECT completions.*, arms.name AS arm_name FROM completions"
            " JOIN arms ON arms.id = completions.arm JOIN runs ON runs.number = arms.run"
            " WHERE runs.id = ? AND arms.name = ? AND request = ? AND round = ? AND sample = ?",
            (run_id, arm, *key),
        )
        return completion_row(rows[0]) if rows else None

    def token_gaps(self, run_id: str, arm: str, key: Key) -> KeptGaps | None:
        """The gap of each token of a completion, as the comparison of its arm computed it.

        None where it was not scored, or stored by a parity that kept no gaps.
        """
        rows = self._read(
            "SELECT gaps.tokens FROM gaps JOIN completions ON completions.id = gaps.completion"
            " JOIN arms ON arms.id = completions.arm JOIN runs ON runs.number = arms.run"
            " WHERE runs.id = ? AND arms.name = ? AND request = ? AND round = ? AND sample = ?",
            (run_id, arm, *key),
        )
        return gaps_row(rows[0]) if rows else None

    def completions(self, run_id: str, arm: str, *, limit: int = -1, offset: int = 0) -> list[CompletionRow]:
        """Completions of an arm in the order of its capture."""
        rows = self._read(
            "SELECT completions.*, arms.name AS arm_name FROM completions"
            " JOIN arms ON arms.id = completions.arm JOIN runs ON runs.number = arms.run"
            " WHERE runs.id = ? AND arms.name = ? ORDER BY completions.id LIMIT ? OFFSET ?",
            (run_id, arm, limit, offset),
        )
        return [completion_row(row) for row in rows]

    def count_classes(self, run_id: str, arm: str) -> dict[str, int]:
        """Completions of an arm by class; those not compared (the baseline's) under ""."""
        rows = self._read(
            "SELECT coalesce(class, '') AS class, count(*) AS n FROM completions"
            " JOIN arms ON arms.id = completions.arm JOIN runs ON runs.number = arms.run"
            " WHERE runs.id = ? AND arms.name = ? GROUP BY 1 ORDER BY 1",
            (run_id, arm),
        )
        return {row["class"]: row["n"] for row in rows}

    def finding(self, finding_id: int) -> FindingRow | None:
        rows = self._read(f"{_FINDING} WHERE findings.id = ?", (finding_id,))
        return finding_row(rows[0]) if rows else None

    def findings_of_completion(self, run_id: str, arm: str, key: Key) -> list[FindingRow]:
        """All findings of one completion, by position."""
        rows = self._read(
            f"{_FINDING} WHERE findings.run = (SELECT number FROM runs WHERE id = ?)"
            " AND findings.ordinal = (SELECT ordinal FROM requests WHERE run = findings.run AND name = ?)"
            " AND arms.name = ? AND findings.round = ? AND findings.sample = ?"
            " ORDER BY findings.position, findings.id",
            (run_id, key.request, arm, key.round, key.sample),
        )
        return [finding_row(row) for row in rows]

    def count_findings(self, run_id: str, where: FindingFilter | None = None) -> int:
        condition, values = self._condition(run_id, where)
        sql = f"SELECT count(*) FROM findings INDEXED BY findings_by_weight WHERE {condition}"
        return int(self._read(sql, values)[0][0])

    def counts_by_kind(self, run_id: str, where: FindingFilter | None = None) -> list[KindCount]:
        """Findings per kind and severity, the most frequent first."""
        condition, values = self._condition(run_id, where)
        rows = self._read(
            "SELECT kind, count(*) AS n, sum(severity = 'corrupt') AS corrupt"
            f" FROM findings INDEXED BY findings_by_kind WHERE {condition} GROUP BY kind",
            values,
        )
        counts = [
            KindCount(row["kind"], severity, n)
            for row in rows
            for severity, n in (("corrupt", row["corrupt"]), ("benign", row["n"] - row["corrupt"]))
            if n
        ]
        return sorted(counts, key=lambda count: (-count.findings, count.kind, count.severity))

    def page_findings(
        self,
        run_id: str,
        where: FindingFilter | None = None,
        *,
        sort: FindingSort = FindingSort.WORST,
        descending: bool = False,
        offset: int = 0,
        limit: int = 100,
    ) -> list[FindingRow]:
        """Rows `offset` to `offset + limit` of the findings that pass the filter, in this order.

        Ascending WORST puts the heaviest findings first, all corrupt ones before all others. Each order reads one
        covering index from its start, so the cost grows with `offset` (about 30 ns an entry) and not with the size of
        the evidence.
        """
        condition, values = self._condition(run_id, where)
        rows = self._read(
            f"SELECT id FROM findings INDEXED BY findings_by_{sort.value} WHERE {condition}"
            f" ORDER BY {_order(sort, descending)} LIMIT ? OFFSET ?",
            (*values, limit, offset),
        )
        return self._findings_by_id([row["id"] for row in rows])

    def index_of_finding(
        self,
        run_id: str,
        finding_id: int,
        where: FindingFilter | None = None,
        *,
        sort: FindingSort = FindingSort.WORST,
        descending: bool = False,
    ) -> int | None:
        """The offset at which `page_findings` shows this finding, or None where the filter hides it."""
        condition, values = self._condition(run_id, where)
        here = self._read(
            f"SELECT {sort.value} AS value FROM findings WHERE id = ? AND {condition}", (finding_id, *values)
        )
        if not here:
            return None
        value = here[0]["value"]
        # Ascending order puts NULL first. WORST counts the other way round: the heaviest first.
        less = ">" if descending != (sort is FindingSort.WORST) else "<"
        if less == "<":
            before = f"({sort.value} < ? OR ({sort.value} IS NULL AND ? IS NOT NULL))"
        else:
            before = f"({sort.value} > ? OR (? IS NULL AND {sort.value} IS NOT NULL))"
        tie = ">" if descending else "<"
        rows = self._read(
            f"SELECT count(*) FROM findings INDEXED BY findings_by_{sort.value} WHERE {condition}"
            f" AND ({before} OR ({sort.value} IS ? AND id {tie} ?))",
            (*values, value, value, value, finding_id),
        )
        return int(rows[0][0])

    def _findings_by_id(self, ids: Sequence[int]) -> list[FindingRow]:
        found: dict[int, FindingRow] = {}
        for start in range(0, len(ids), 500):
            chunk = ids[start : start + 500]
            marks = ",".join("?" * len(chunk))
            for row in self._read(f"{_FINDING} WHERE findings.id IN ({marks})", chunk):
                found[row["id"]] = finding_row(row)
        return [found[finding_id] for finding_id in ids if finding_id in found]

    def _condition(self, run_id: str, where: FindingFilter | None) -> tuple[str, list[Any]]:
        """The WHERE clause and its values. Everything in it can be answered from any sort index."""
        numbers = self._read("SELECT number FROM runs WHERE id = ?", (run_id,))
        run = numbers[0]["number"] if numbers else -1
        arms = {row["name"]: row["id"] for row in self._read("SELECT id, name FROM arms WHERE run = ?", (run,))}
        wanted = sorted(arms.values())
        parts = ["run = ?"]
        values: list[Any] = [run]
        if where is not None and where.arms:
            wanted = sorted(arms[name] for name in where.arms if name in arms)
        # Always there: it makes the index by arm usable, whose first column it is.
        parts.append(f"arm IN ({','.join('?' * len(wanted))})")
        values += wanted
        if where is not None:
            for column, allowed in (
                ("kind", where.kinds),
                ("severity", where.severities),
                ("state", where.states),
            ):
                if allowed:
                    parts.append(f"+{column} IN ({','.join('?' * len(allowed))})")
                    values += sorted(str(value) for value in allowed)
            if not where.follow_ups:
                parts.append(f"+followed <> {FOLLOWS}")
            if where.text:
                parts.append(
                    "(+ordinal IN (SELECT ordinal FROM requests WHERE run = ?"
                    " AND (instr(lower(name), ?) OR instr(lower(coalesce(prompt, '')), ?)))"
                    f" OR +id IN ({TRIAGED_WITH_TEXT}))"
                )
                values += [run, *[where.text.lower()] * 2] * 2
        return " AND ".join(parts), values


def _order(sort: FindingSort, descending: bool) -> str:
    if sort is FindingSort.WORST:
        return "weight ASC, id DESC" if descending else "weight DESC, id ASC"
    direction = "DESC" if descending else "ASC"
    return f"{sort.value} {direction}, id {direction}"
