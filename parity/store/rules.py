"""Known bugs as rules: what fits one is known in every run, whenever it was stored, unless somebody decided."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from msgspec.structs import replace

from parity.store.connection import to_text
from parity.store.decode import rule_row
from parity.store.fitting import ArmFacts, arm_facts, fits_arm, rules_in, taken
from parity.store.rows import Rule, RuleUse
from parity.store.triage import AT_ONCE, Triager, pieces, user
from parity.store.write import now


class RuleBook(Triager):
    """Rules of known bugs. A finding's own triage goes before any rule."""

    def arm_facts(self, run_id: str, arm: str) -> ArmFacts | None:
        """What a rule may ask of an arm; None where the run has none of that name."""
        rows = self._read(
            "SELECT arms.id FROM arms JOIN runs ON runs.number = arms.run WHERE runs.id = ? AND arms.name = ?",
            (run_id, arm),
        )
        with self._lock:
            return arm_facts(self._db.conn, rows[0]["id"]) if rows else None

    def rules(self) -> list[RuleUse]:
        """All rules, the newest first, with what each has taken."""
        uses = {
            row["rule"]: row
            for row in self._read(
                "SELECT rule, count(*) AS n, count(DISTINCT run) AS runs, max(run) AS newest"
                " FROM findings INDEXED BY findings_by_rule WHERE rule IS NOT NULL GROUP BY rule"
            )
        }
        names = {row["number"]: row["id"] for row in self._read("SELECT number, id FROM runs")} if uses else {}
        found = []
        for row in self._read("SELECT * FROM rules ORDER BY id DESC"):
            rule, use = rule_row(row), uses.get(row["id"])
            found.append(
                RuleUse(rule, 0, 0, None)
                if use is None
                else RuleUse(rule, use["n"], use["runs"], names.get(use["newest"]))
            )
        return found

    def rule(self, number: int) -> Rule | None:
        rows = self._read("SELECT * FROM rules WHERE id = ?", (number,))
        return rule_row(rows[0]) if rows else None

    def add_rule(self, rule: Rule, *, going_on: Callable[[int], bool] = lambda done: True) -> int:
        """Keep a rule, and let it take what it fits in the runs that are stored. Returns how many findings it took.

        A rule that asks for the same as one that there is takes its place. `going_on` is called with how many findings
        were taken, and may end that early; the rule stays.
        """
        with self._write() as conn:
            same = next((one for one in rules_in(conn) if _asks(one) == _asks(rule)), None)
            if same is not None:
                conn.execute("UPDATE rules SET link = ? WHERE id = ?", (rule.link, same.id))
                number = same.id
            else:
                made = conn.execute(
                    "INSERT INTO rules (link, kind, signs, conditions, versions, model, author, created)"
                    " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                    (
                        rule.link,
                        rule.kind,
                        to_text(dict(rule.signs)),
                        to_text(list(rule.conditions)),
                        to_text(dict(rule.versions)),
                        rule.model,
                        user(),
                        now(),
                    ),
                )
                number = int(made.lastrowid or 0)
        return self._take(replace(rule, id=number), going_on)

    def _take(self, rule: Rule, going_on: Callable[[int], bool] = lambda done: True) -> int:
        count = 0
        for row in self._read("SELECT id, run FROM arms WHERE NOT is_baseline ORDER BY run DESC, id"):
            with self._lock:
                fitting = fits_arm(rule, arm_facts(self._db.conn, row["id"]))
            ids = [
                one["id"]
                for one in self._read(
                    "SELECT id FROM findings INDEXED BY findings_by_kind"
                    " WHERE run = ? AND kind = ? AND arm = ? AND rule IS NULL",
                    (row["run"], rule.kind, row["id"]),
                )
                if fitting
            ]
            for piece in pieces(ids):
                with self._write() as conn:
                    chosen = taken(conn, rule, piece)
                    _give(conn, chosen, rule.id, "known")
                count += len(chosen)
                if not going_on(count):
                    return count
        return count

    def remove_rule(self, number: int) -> int:
        """Forget a rule: what it took is new again, unless another one fits or somebody decided about it. Returns how
        many findings it had."""
        count = 0
        while True:
            with self._write() as conn:
                ids = [
                    row[0]
                    for row in conn.execute(
                        "SELECT id FROM findings WHERE rule = ? LIMIT ?", (number, AT_ONCE)
                    ).fetchall()
                ]
                _give(conn, ids, None, "new")
                if not ids:
                    kinds = [row[0] for row in conn.execute("SELECT kind FROM rules WHERE id = ?", (number,))]
                    conn.execute("DELETE FROM rules WHERE id = ?", (number,))
                    rest = [one for one in rules_in(conn) if one.kind in kinds]
            count += len(ids)
            if not ids:
                break
        for one in rest:
            self._take(one)
        return count


def _asks(rule: Rule) -> Rule:
    """Without what is said of it."""
    return replace(rule, id=0, author="", created="", link="", conditions=tuple(sorted(rule.conditions)))


def _give(conn: sqlite3.Connection, ids: list[int], rule: int | None, state: str) -> None:
    """`rule` takes these findings, or lets go of them; `state` is theirs unless somebody decided."""
    conn.executemany(
        "UPDATE findings SET rule = ?, state = CASE WHEN EXISTS"
        " (SELECT 1 FROM triage WHERE triage.fingerprint = findings.fingerprint) THEN state ELSE ? END WHERE id = ?",
        ((rule, state, number) for number in ids),
    )
