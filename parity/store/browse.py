"""Queries for going through findings by hand: what there is to filter by, where it lies, what is selected."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from parity.records import Key, Kind
from parity.records.first_faults import FOLLOWS
from parity.store import FindingFilter, FindingRow, FindingSort
from parity.store.across import AcrossRuns
from parity.store.read import TRIAGED_WITH_TEXT

CACHE_KIB = 8 * 1024
"""Page cache of one connection. Someone who looks at a page at a time does not need the default 64 MiB,
and an interface holds several connections."""


FEW = 64
"""Requests up to which their findings are looked up one request after the other."""


class Facet(Struct, frozen=True):
    """How many findings of a run share these values."""

    arm: str
    kind: str
    severity: str
    state: str
    findings: int
    follows: bool = False
    """After another fault of the same completion."""


class CompletionLine(Struct, frozen=True):
    """A completion of a candidate arm without its tokens. `cls`: "missing" where only the baseline has it, "" where
    nothing was compared."""

    arm: str
    key: Key
    ordinal: int
    cls: str
    first_divergence: int | None
    n_tokens: int
    finish_reason: str | None
    findings: int = 0


class FaultLine(Struct, frozen=True):
    """A finding without its evidence."""

    id: int
    arm: str
    key: Key
    kind: str
    position: int | None
    length: int | None
    weight: float


# Of a candidate arm, and those that the baseline has and the arm has not. Before any candidate: the baseline's.
_LINES = (
    "WITH mine AS (SELECT arms.id, arms.name, arms.is_baseline FROM arms JOIN runs ON runs.number = arms.run"
    " WHERE runs.id = :run), found AS (SELECT arm, ordinal, round, sample, count(*) AS n FROM findings"
    " WHERE run = (SELECT number FROM runs WHERE id = :run) GROUP BY 1, 2, 3, 4)"
    " SELECT mine.name AS arm, c.request, c.round, c.sample, r.ordinal, coalesce(c.class, '') AS class,"
    " c.first_divergence, c.n_tokens, c.finish_reason, coalesce(found.n, 0) AS findings"
    " FROM mine JOIN completions AS c ON c.arm = mine.id"
    " JOIN requests AS r ON r.run = (SELECT number FROM runs WHERE id = :run) AND r.name = c.request"
    " LEFT JOIN found ON found.arm = c.arm AND found.ordinal = r.ordinal AND found.round = c.round"
    " AND found.sample = c.sample WHERE NOT mine.is_baseline OR NOT EXISTS"
    " (SELECT 1 FROM completions JOIN mine AS other ON other.id = completions.arm WHERE NOT other.is_baseline)"
    " UNION ALL SELECT mine.name, c.request, c.round, c.sample, r.ordinal, 'missing', NULL, 0, NULL, 0"
    " FROM mine JOIN mine AS base ON base.is_baseline JOIN completions AS c ON c.arm = base.id"
    " JOIN requests AS r ON r.run = (SELECT number FROM runs WHERE id = :run) AND r.name = c.request"
    " WHERE NOT mine.is_baseline AND EXISTS (SELECT 1 FROM completions WHERE arm = mine.id) AND NOT EXISTS"
    " (SELECT 1 FROM completions AS own WHERE own.arm = mine.id AND own.request = c.request"
    " AND own.round = c.round AND own.sample = c.sample)"
)


class Browser(AcrossRuns):
    """A store for a person who looks around. Open it with `Browser.open(path)`."""

    def _prepare(self) -> None:
        super()._prepare()
        self._db.conn.execute(f"PRAGMA cache_size = -{CACHE_KIB}")

    def facets(self, run_id: str) -> list[Facet]:
        """Every combination of arm, kind, severity, state and place after a first fault that occurs: one pass over one
        index.

        Any count by any filter of these is a sum of this, so filtering need not count again.
        """
        rows = self._read(
            "SELECT arms.name AS arm, f.kind, f.severity, f.state, f.n, f.follows FROM ("
            " SELECT kind, severity, arm, state, followed = ? AS follows, count(*) AS n"
            " FROM findings INDEXED BY findings_by_kind"
            " WHERE run = (SELECT number FROM runs WHERE id = ?) GROUP BY kind, severity, arm, state, follows"
            ") AS f JOIN arms ON arms.id = f.arm",
            (FOLLOWS, run_id),
        )
        return [
            Facet(row["arm"], row["kind"], row["severity"], row["state"], row["n"], bool(row["follows"]))
            for row in rows
        ]

    def positions(self, run_id: str, where: FindingFilter | None, buckets: int) -> tuple[list[int], int]:
        """How many findings begin in each of `buckets` equal stretches of the output, and the last position.

        Findings about a completion as a whole have no position and are left out.
        """
        condition, values = self._condition(run_id, where)
        # The last position of the run, whatever the filter: the first entry of the index from its end.
        last_row = self._read(
            "SELECT max(position) AS last FROM findings INDEXED BY findings_by_position"
            " WHERE run = (SELECT number FROM runs WHERE id = ?)",
            (run_id,),
        )
        last = last_row[0]["last"]
        counts = [0] * buckets
        if last is None:
            return counts, 0
        rows = self._read(
            f"SELECT position * ? / ? AS bucket, count(*) AS n FROM findings INDEXED BY findings_by_position"
            f" WHERE {condition} AND position IS NOT NULL GROUP BY bucket",
            (buckets, last + 1, *values),
        )
        for row in rows:
            counts[min(max(row["bucket"], 0), buckets - 1)] += row["n"]
        return counts, int(last)

    def finding_ids(
        self,
        run_id: str,
        where: FindingFilter | None = None,
        *,
        sort: FindingSort = FindingSort.WORST,
        descending: bool = False,
        offset: int = 0,
        limit: int = -1,
    ) -> list[int]:
        """Like `page_findings`, the ids alone: a whole selection costs no evidence."""
        direction = "DESC" if descending != (sort is FindingSort.WORST) else "ASC"
        narrow = self._narrow(run_id, where)
        if narrow is not None:
            source, values = narrow
            rows = self._read(
                f"SELECT id FROM ({source}) ORDER BY {sort.value} {direction}, id {'DESC' if descending else 'ASC'}"
                " LIMIT ? OFFSET ?",
                (*values, limit, offset),
            )
            return [row["id"] for row in rows]
        condition, values = self._condition(run_id, where)
        index = sort.value
        if sort is FindingSort.WORST and descending and where is not None and where.kinds:
            # Benign first, but of chosen kinds: the index by weight would walk through all near-ties.
            # That by kind holds the weight too, finds the chosen kinds at once and sorts only them.
            index, condition = "kind", condition.replace("+kind IN", "kind IN")
        rows = self._read(
            f"SELECT id FROM findings INDEXED BY findings_by_{index} WHERE {condition}"
            f" ORDER BY {sort.value} {direction}, id {'DESC' if descending else 'ASC'} LIMIT ? OFFSET ?",
            (*values, limit, offset),
        )
        return [row["id"] for row in rows]

    def count_findings(self, run_id: str, where: FindingFilter | None = None) -> int:
        """As in `Store`; few requests are counted by request."""
        narrow = self._narrow(run_id, where)
        if narrow is None:
            return super().count_findings(run_id, where)
        source, values = narrow
        return int(self._read(f"SELECT count(*) FROM ({source})", values)[0][0])

    def _narrow(self, run_id: str, where: FindingFilter | None) -> tuple[str, list[Any]] | None:
        """A query of the findings that pass, and its values, where the text leaves few requests.

        An index in the order of the table would be walked to its end for them: a million entries for a page.
        """
        if where is None or not where.text:
            return None
        text = where.text.lower()
        ordinals = self._read(
            "SELECT ordinal FROM requests WHERE run = (SELECT number FROM runs WHERE id = ?)"
            " AND (instr(lower(name), ?) OR instr(lower(coalesce(prompt, '')), ?)) LIMIT ?",
            (run_id, text, text, FEW + 1),
        )
        if len(ordinals) > FEW:
            return None
        condition, values = self._condition(run_id, replace(where, text=""))
        columns = ", ".join(["id", *sorted({sort.value for sort in FindingSort})])
        places = ",".join("?" * len(ordinals))
        return (
            f"SELECT {columns} FROM findings INDEXED BY findings_by_ordinal WHERE {condition} AND ordinal IN ({places})"
            f" UNION SELECT {columns} FROM findings WHERE {condition} AND id IN ({TRIAGED_WITH_TEXT})",
            [*values, *(row["ordinal"] for row in ordinals), *values, values[0], text, text],
        )

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
        """As in `Store`, by the index that suits the filter."""
        ids = self.finding_ids(run_id, where, sort=sort, descending=descending, offset=offset, limit=limit)
        return self._findings_by_id(ids)

    def findings(self, ids: Sequence[int]) -> list[FindingRow]:
        """These findings in this order; those deleted meanwhile are left out."""
        return self._findings_by_id(ids)

    def findings_of_completion(self, run_id: str, arm: str, key: Key) -> list[FindingRow]:
        """All findings of one completion, by position: one stretch of the index by request."""
        rows = self._read(
            "SELECT id FROM findings INDEXED BY findings_by_ordinal"
            " WHERE run = (SELECT number FROM runs WHERE id = :run)"
            " AND ordinal = (SELECT ordinal FROM requests"
            " WHERE run = (SELECT number FROM runs WHERE id = :run) AND name = :name)"
            " AND +arm = :arm AND +round = :round AND +sample = :sample ORDER BY +position, +id",
            {
                "run": run_id,
                "name": key.request,
                "arm": self._arm_number(run_id, arm),
                "round": key.round,
                "sample": key.sample,
            },
        )
        return self._findings_by_id([row["id"] for row in rows])

    def fingerprints(self, ids: Sequence[int]) -> Iterator[str]:
        """The names that triage belongs to, in the order of `ids`, read as they are taken."""
        for start in range(0, len(ids), 500):
            chunk = ids[start : start + 500]
            marks = ",".join("?" * len(chunk))
            rows = self._read(f"SELECT id, fingerprint FROM findings WHERE id IN ({marks})", chunk)
            found = {row["id"]: row["fingerprint"] for row in rows}
            yield from (found[i] for i in chunk if i in found)

    def completion_lines(self, run_id: str) -> list[CompletionLine]:
        """All completions of the candidate arms, the missing ones too; of a run that has none yet, the baseline's."""
        return [
            CompletionLine(
                row["arm"],
                Key(row["request"], row["round"], row["sample"]),
                row["ordinal"],
                row["class"],
                row["first_divergence"],
                row["n_tokens"],
                row["finish_reason"],
                row["findings"],
            )
            for row in self._read(_LINES, {"run": run_id})
        ]

    def fault_lines(self, run_id: str) -> list[FaultLine]:
        """All findings of a run but near-ties, by their place."""
        rows = self._read(
            "SELECT f.id, arms.name AS arm, f.request, f.round, f.sample, f.kind, f.position, f.length, f.weight"
            " FROM findings AS f JOIN arms ON arms.id = f.arm"
            " WHERE f.run = (SELECT number FROM runs WHERE id = ?) AND f.kind <> ? ORDER BY f.position, f.id",
            (run_id, str(Kind.NEAR_TIE)),
        )
        return [
            FaultLine(
                row["id"],
                row["arm"],
                Key(row["request"], row["round"], row["sample"]),
                row["kind"],
                row["position"],
                row["length"],
                row["weight"],
            )
            for row in rows
        ]

    def finding_of(self, run_id: str, fingerprint: str) -> FindingRow | None:
        """The finding of a run that has this name."""
        rows = self._read(
            "SELECT id FROM findings WHERE fingerprint = ? AND run = (SELECT number FROM runs WHERE id = ?)",
            (fingerprint, run_id),
        )
        return next(iter(self._findings_by_id([row["id"] for row in rows[:1]])), None)

    def passing(self, run_id: str, ids: Collection[int], where: FindingFilter | None) -> set[int]:
        """Those of these findings that pass the filter."""
        return set(ids).intersection(self.finding_ids(run_id, where))

    def has_run(self, run_id: str) -> bool:
        return bool(self._read("SELECT 1 FROM runs WHERE id = ?", (run_id,)))

    def count_requests(self, run_id: str) -> int:
        rows = self._read("SELECT count(*) FROM requests WHERE run = (SELECT number FROM runs WHERE id = ?)", (run_id,))
        return int(rows[0][0])

    def neighbour(self, run_id: str, arm: str, key: Key, step: int) -> Key | None:
        """The completion `step` places further in the arm's capture, which is the order of the batch."""
        direction, order = (">", "ASC") if step > 0 else ("<", "DESC")
        rows = self._read(
            f"SELECT request, round, sample FROM completions WHERE arm = :arm AND id {direction}"
            " (SELECT id FROM completions WHERE arm = :arm AND request = :request AND round = :round"
            f" AND sample = :sample) ORDER BY id {order} LIMIT 1 OFFSET :skip",
            {
                "arm": self._arm_number(run_id, arm),
                "request": key.request,
                "round": key.round,
                "sample": key.sample,
                "skip": abs(step) - 1,
            },
        )
        return Key(rows[0]["request"], rows[0]["round"], rows[0]["sample"]) if rows else None

    def _arm_number(self, run_id: str, arm: str) -> int:
        rows = self._read(
            "SELECT arms.id FROM arms JOIN runs ON runs.number = arms.run WHERE runs.id = ? AND arms.name = ?",
            (run_id, arm),
        )
        return int(rows[0]["id"]) if rows else -1
