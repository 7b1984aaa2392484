"""Triage: what a person decided about a finding, with a history that can be undone step by step."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

import orjson

from parity.store.connection import to_text
from parity.store.rows import Triage, TriageChange, TriageState
from parity.store.write import Writer, now


class Triager(Writer):
    """Reading, setting and undoing triage. The history is append-only: an undo is one more entry."""

    def triage(self, fingerprint: str) -> Triage:
        """The current state; `Triage()` (new, no note) for a finding nobody has looked at."""
        rows = self._read("SELECT * FROM triage WHERE fingerprint = ?", (fingerprint,))
        if not rows:
            return Triage()
        row = rows[0]
        return Triage(TriageState(row["state"]), row["note"], row["link"], row["duplicate_of"], row["label"])

    def set_triage(self, fingerprints: Sequence[str], triage: Triage) -> int:
        """Give all these findings one triage, as one step that can be undone. Returns the step."""
        with self._write() as conn:
            batch = _next_batch(conn)
            for fingerprint in dict.fromkeys(fingerprints):
                _record(conn, batch, fingerprint, _current(conn, fingerprint), triage, None)
            return batch

    def undo_triage(self) -> list[TriageChange]:
        """Undo the newest step that was not undone yet; the changes made, empty if there is none."""
        with self._write() as conn:
            row = conn.execute(
                "SELECT max(batch) FROM triage_history AS step WHERE undoes IS NULL AND NOT EXISTS"
                " (SELECT 1 FROM triage_history AS undo WHERE undo.undoes = step.batch)"
            ).fetchone()
            if row is None or row[0] is None:
                return []
            undone = int(row[0])
            batch = _next_batch(conn)
            steps = conn.execute(
                "SELECT fingerprint, before FROM triage_history WHERE batch = ? ORDER BY id", (undone,)
            ).fetchall()
            return [
                _record(conn, batch, fingerprint, _current(conn, fingerprint), _load(before), undone)
                for fingerprint, before in steps
            ]

    def triage_history(self, fingerprint: str | None = None, *, limit: int = 100) -> list[TriageChange]:
        """The newest changes, of one finding or of all, newest first."""
        where, values = ("WHERE fingerprint = ?", [fingerprint]) if fingerprint else ("", [])
        rows = self._read(f"SELECT * FROM triage_history {where} ORDER BY id DESC LIMIT ?", [*values, limit])
        return [
            TriageChange(
                row["batch"],
                row["at"],
                row["fingerprint"],
                _load(row["before"]),
                _load(row["after"]),
                row["undoes"],
            )
            for row in rows
        ]


def _next_batch(conn: sqlite3.Connection) -> int:
    return int(conn.execute("SELECT coalesce(max(batch), 0) + 1 FROM triage_history").fetchone()[0])


def _load(text: str | None) -> Triage | None:
    return None if text is None else Triage.from_json(orjson.loads(text))


def _current(conn: sqlite3.Connection, fingerprint: str) -> Triage | None:
    row = conn.execute(
        "SELECT state, note, link, duplicate_of, label FROM triage WHERE fingerprint = ?", (fingerprint,)
    ).fetchone()
    return None if row is None else Triage(TriageState(row[0]), *row[1:])


def _record(
    conn: sqlite3.Connection,
    batch: int,
    fingerprint: str,
    before: Triage | None,
    after: Triage | None,
    undoes: int | None,
) -> TriageChange:
    at = now()
    conn.execute(
        "INSERT INTO triage_history (batch, at, fingerprint, before, after, undoes) VALUES (?, ?, ?, ?, ?, ?)",
        (
            batch,
            at,
            fingerprint,
            None if before is None else to_text(before.to_json()),
            None if after is None else to_text(after.to_json()),
            undoes,
        ),
    )
    if after is None:
        conn.execute("DELETE FROM triage WHERE fingerprint = ?", (fingerprint,))
    else:
        conn.execute(
            "INSERT OR REPLACE INTO triage (fingerprint, state, duplicate_of, note, link, label, updated)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            (fingerprint, str(after.state), after.duplicate_of, after.note, after.link, after.label, at),
        )
    state = TriageState.NEW if after is None else after.state
    conn.execute("UPDATE findings SET state = ? WHERE fingerprint = ?", (str(state), fingerprint))
    return TriageChange(batch, at, fingerprint, before, after, undoes)
