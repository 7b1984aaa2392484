"""Triage: what a person decided about a finding, with a history that can be undone and redone step by step."""

from __future__ import annotations

import getpass
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeVar

import orjson
from msgspec.structs import replace

from parity.store.connection import to_text
from parity.store.rows import Triage, TriageChange, TriageState, TriageStep
from parity.store.write import Writer, now

Item = TypeVar("Item")

FIRST, AT_ONCE = 50, 1000
"""Findings of the first transaction of a long change, and of the largest: others may write between two of them."""
SECONDS_AT_ONCE = 0.2
"""That a transaction of a long change is to take: so soon it ends when somebody stops it."""

# Steps of a run: those made on its screen; of a time when nobody wrote that down, those of its findings.
_OF_RUN = (
    "(:run IS NULL OR step.run = :run OR (step.run IS NULL AND EXISTS (SELECT 1 FROM findings AS f"
    " WHERE f.fingerprint = step.fingerprint AND f.run = (SELECT number FROM runs WHERE id = :run))))"
)
# A change that no later step has undone: where one was stopped midway, some are left. The + has it looked up by its
# fingerprint: by the step it would take the square of its findings.
_LEFT = (
    "NOT EXISTS (SELECT 1 FROM triage_history AS later WHERE +later.{link} = step.batch"
    " AND later.fingerprint = step.fingerprint)"
)
_UNDOABLE = (
    f"SELECT batch FROM triage_history AS step WHERE undoes IS NULL AND {_LEFT.format(link='undoes')} AND {_OF_RUN}"
    " ORDER BY batch DESC LIMIT 1"
)
# An undo that nothing was decided after.
_REDOABLE = (
    "SELECT batch FROM triage_history AS step WHERE undoes IS NOT NULL"
    f" AND {_LEFT.format(link='redoes')} AND {_OF_RUN}"
    " AND batch > coalesce((SELECT max(batch) FROM triage_history AS step"
    f" WHERE undoes IS NULL AND redoes IS NULL AND {_OF_RUN}), 0) ORDER BY batch DESC LIMIT 1"
)


def pieces(items: Iterable[Item]) -> Iterator[list[Item]]:
    """As many at once as keep whoever takes them busy for `SECONDS_AT_ONCE`."""
    rest, size = iter(items), min(FIRST, AT_ONCE)
    while piece := list(islice(rest, size)):
        started = time.monotonic()
        yield piece
        speed = len(piece) / max(1e-6, time.monotonic() - started)
        size = max(1, min(AT_ONCE, int(speed * SECONDS_AT_ONCE)))


class Triager(Writer):
    """Reading, setting and undoing triage. The history is append-only: an undo is one more entry."""

    def triage(self, fingerprint: str) -> Triage:
        """The current state; `Triage()` (new, no note) for a finding nobody has looked at and no rule fits."""
        rows = self._read("SELECT * FROM triage WHERE fingerprint = ?", (fingerprint,))
        if not rows:
            with self._lock:
                return _ruled(self._db.conn, [fingerprint]).get(fingerprint, Triage())
        row = rows[0]
        return Triage(TriageState(row["state"]), row["note"], row["link"], row["duplicate_of"], row["label"])

    def set_triage(self, fingerprints: Sequence[str], triage: Triage, *, run: str | None = None) -> int:
        """Give all these findings one triage, as one step that can be undone. Returns the step."""
        return self._step(fingerprints, lambda before: triage, run=run, all_of_them=True)

    def amend(
        self,
        fingerprints: Iterable[str],
        *,
        run: str | None = None,
        going_on: Callable[[int], bool] = lambda done: True,
        **changes: Any,
    ) -> int:
        """Change these fields of `Triage` for all these findings as one step, the others as each has them.

        `fingerprints` are taken as they are needed. `going_on` is called with how many are done and may end it early;
        what is done by then stays, and is one step. Returns the step, 0 where there is nothing to change.
        """
        return self._step(fingerprints, lambda before: replace(before, **changes), run=run, going_on=going_on)

    def _step(
        self,
        fingerprints: Iterable[str],
        then: Callable[[Triage], Triage],
        *,
        run: str | None,
        all_of_them: bool = False,
        going_on: Callable[[int], bool] = lambda done: True,
    ) -> int:
        """`all_of_them`: those too that it leaves as they are."""
        batch, begun, author, done = 0, False, user(), 0
        for chunk in pieces(_once(fingerprints)):
            with self._write() as conn:
                batch = batch if begun else _next_batch(conn)
                known = _current(conn, chunk)
                held = _ruled(conn, chunk) | known
                made = [(name, known.get(name), then(held.get(name, Triage()))) for name in chunk]
                changed = [one for one in made if all_of_them or one[2] != held.get(one[0], Triage())]
                _record(conn, changed, batch=batch, author=author, run=run)
                begun = begun or bool(changed)
            done += len(chunk)
            if not going_on(done):
                break
        return batch

    def next_undo(self, run: str | None = None) -> TriageStep | None:
        """What `undo_triage` would undo."""
        rows = self._read(_UNDOABLE, {"run": run})
        return self._described(rows[0]["batch"]) if rows else None

    def next_redo(self, run: str | None = None) -> TriageStep | None:
        """What `redo_triage` would bring back: an undo, whose `before` is what comes again."""
        rows = self._read(_REDOABLE, {"run": run})
        return self._described(rows[0]["batch"]) if rows else None

    def _described(self, batch: int) -> TriageStep:
        (count,) = self._read("SELECT count(*) AS n FROM triage_history WHERE batch = ?", (batch,))
        (row,) = self._read("SELECT * FROM triage_history WHERE batch = ? ORDER BY id LIMIT 1", (batch,))
        before, after = _load(row["before"]) or Triage(), _load(row["after"]) or Triage()
        return TriageStep(batch, row["at"], row["author"], count["n"], row["fingerprint"], before, after)

    def undo_triage(
        self, run: str | None = None, *, batch: int | None = None, going_on: Callable[[int], bool] = lambda done: True
    ) -> list[TriageChange]:
        """Undo the newest step that was not undone yet, of those made on this run's screen where one is given; the
        changes made, empty if there is none. With `batch` only if it is that one still. `going_on` as in `amend`: what
        is left is undone the next time."""
        return self._again(_UNDOABLE, run, batch, "undoes", going_on)

    def redo_triage(
        self, run: str | None = None, *, batch: int | None = None, going_on: Callable[[int], bool] = lambda done: True
    ) -> list[TriageChange]:
        """Undo the newest undo, unless something was decided after it. The rest as in `undo_triage`."""
        return self._again(_REDOABLE, run, batch, "redoes", going_on)

    def _again(
        self, which: str, run: str | None, expected: int | None, link: str, going_on: Callable[[int], bool]
    ) -> list[TriageChange]:
        """Each finding of a step as it was before the step."""
        made: list[TriageChange] = []
        with self._write() as conn:
            row = conn.execute(which, {"run": run}).fetchone()
            if row is None or expected not in (None, row[0]):
                return []
            left = conn.execute(
                "SELECT fingerprint, before FROM triage_history AS step"
                f" WHERE batch = ? AND {_LEFT.format(link=link)} ORDER BY id",
                row,
            ).fetchall()
        for piece in pieces(left):
            with self._write() as conn:
                batch = made[0].batch if made else _next_batch(conn)
                known = _current(conn, [name for name, _ in piece])
                changes = [(name, known.get(name), _load(before)) for name, before in piece]
                made += _record(conn, changes, batch=batch, author=user(), run=run, **{link: int(row[0])})
            if not going_on(len(made)):
                break
        return made

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
                row["author"],
                row["run"],
            )
            for row in rows
        ]


def user() -> str:
    """Who works here, as the system knows them; "" where it does not."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return ""


def _once(names: Iterable[str]) -> Iterator[str]:
    """Each where it comes first."""
    seen: set[str] = set()
    for name in names:
        if name not in seen:
            seen.add(name)
            yield name


def _next_batch(conn: sqlite3.Connection) -> int:
    return int(conn.execute("SELECT coalesce(max(batch), 0) + 1 FROM triage_history").fetchone()[0])


def _load(text: str | None) -> Triage | None:
    return None if text is None else Triage.from_json(orjson.loads(text))


def _dump(triage: Triage | None) -> str | None:
    return None if triage is None else to_text(triage.to_json())


def _current(conn: sqlite3.Connection, fingerprints: Sequence[str]) -> dict[str, Triage]:
    """What is said of these findings; those that nobody has looked at are left out."""
    found: dict[str, Triage] = {}
    for start in range(0, len(fingerprints), 500):
        chunk = fingerprints[start : start + 500]
        rows = conn.execute(
            "SELECT fingerprint, state, note, link, duplicate_of, label FROM triage"
            f" WHERE fingerprint IN ({','.join('?' * len(chunk))})",
            list(chunk),
        )
        found |= {row[0]: Triage(TriageState(row[1]), *row[2:]) for row in rows}
    return found


def _ruled(conn: sqlite3.Connection, fingerprints: Sequence[str]) -> dict[str, Triage]:
    """Those of these findings that a rule fits, as the rule has them."""
    found: dict[str, Triage] = {}
    for start in range(0, len(fingerprints), 500):
        chunk = fingerprints[start : start + 500]
        rows = conn.execute(
            "SELECT f.fingerprint, rules.link FROM findings AS f JOIN rules ON rules.id = f.rule"
            f" WHERE f.fingerprint IN ({','.join('?' * len(chunk))})",
            list(chunk),
        )
        found |= {name: Triage(TriageState.KNOWN, link=link) for name, link in rows}
    return found


def _record(
    conn: sqlite3.Connection,
    changes: Sequence[tuple[str, Triage | None, Triage | None]],
    *,
    batch: int,
    author: str,
    run: str | None,
    undoes: int | None = None,
    redoes: int | None = None,
) -> list[TriageChange]:
    """Write down (fingerprint, before, after) of each, and what holds from now on."""
    at = now()
    conn.executemany(
        "INSERT INTO triage_history (batch, at, fingerprint, before, after, undoes, author, run, redoes)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            (batch, at, name, _dump(before), _dump(after), undoes, author, run, redoes)
            for name, before, after in changes
        ),
    )
    conn.executemany(
        "DELETE FROM triage WHERE fingerprint = ?", ((name,) for name, _, after in changes if after is None)
    )
    conn.executemany(
        "INSERT OR REPLACE INTO triage (fingerprint, state, duplicate_of, note, link, label, updated)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            (name, str(after.state), after.duplicate_of, after.note, after.link, after.label, at)
            for name, _, after in changes
            if after is not None
        ),
    )
    conn.executemany(
        # What nobody says anything of any more is as the rule has it that fits.
        "UPDATE findings SET state = coalesce(?1, CASE WHEN rule IS NULL THEN 'new' ELSE 'known' END)"
        " WHERE fingerprint = ?2 AND state <> coalesce(?1, CASE WHEN rule IS NULL THEN 'new' ELSE 'known' END)",
        ((str(after.state) if after else None, name) for name, _, after in changes),
    )
    return [TriageChange(batch, at, name, before, after, undoes, author, run) for name, before, after in changes]
