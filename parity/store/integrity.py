"""Whether a database is what parity made: whole pages, rows that belong together, its own tables, columns that read."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from typing import Final

import orjson
from sqlite_utils import Database

from parity.messages import Message, message
from parity.records.objects import object_of
from parity.store.connection import Connection, explain
from parity.store.migrations import migrations

SAID: Final = 10
"""Problems that are named, of each sort."""

_JSON: Final = {
    "runs": ("id", ("reasons", "plan", "versions")),
    "arms": ("name", ("engine", "environment", "counters", "reasons", "counts", "stats")),
    "findings": ("id", ("evidence",)),
}
"""Columns of JSON, and the column that names a row."""


def problems(store: Connection) -> list[Message]:
    """Everything that is wrong with the database itself. Raises ParityError where it cannot be read at all."""
    with store._lock:
        try:
            return [*_pages(store), *_strangers(store), *_schema(store), *_unreadable(store)]
        except sqlite3.Error as error:
            raise explain(error, store.path) from error


def _pages(store: Connection) -> Iterator[Message]:
    for (said,) in store._db.conn.execute(f"PRAGMA integrity_check({SAID})"):
        if said != "ok":
            yield message("store.check.pages", "it is damaged: {what}", what=" ".join(str(said).split())[:200])


def _strangers(store: Connection) -> Iterator[Message]:
    found = store._db.conn.execute("PRAGMA foreign_key_check").fetchall()
    for table in sorted({str(row[0]) for row in found}):
        yield message(
            "store.check.strangers",
            "{count} row of {table} belongs to nothing",
            plural="{count} rows of {table} belong to nothing",
            count=sum(row[0] == table for row in found),
            table=table,
        )


def _tables(conn: sqlite3.Connection) -> dict[str, str]:
    rows = conn.execute("SELECT type || ' ' || name, coalesce(sql, '') FROM sqlite_master").fetchall()
    return {str(name): " ".join(str(sql).split()) for name, sql in rows if " sqlite_" not in str(name)}


def _schema(store: Connection) -> Iterator[Message]:
    fresh = Database(memory=True, execute_plugins=False)
    migrations.apply(fresh)
    wanted, there = _tables(fresh.conn), _tables(store._db.conn)
    fresh.close()
    for name in sorted(wanted.keys() | there.keys()):
        if name not in there:
            yield message("store.check.lacks", "it lacks the {name}", name=name)
        elif name not in wanted:
            yield message("store.check.stranger", "it holds the {name}, which parity never makes", name=name)
        elif wanted[name] != there[name]:
            yield message("store.check.other", "its {name} is not as parity makes it", name=name)


def _columns(conn: sqlite3.Connection, table: str) -> set[str]:
    return {str(row[1]) for row in conn.execute(f"PRAGMA table_info({table})")}


def _unreadable(store: Connection) -> Iterator[Message]:
    conn = store._db.conn
    for table, (named, columns) in _JSON.items():
        for column in [one for one in columns if one in _columns(conn, table)]:
            rows = conn.execute(
                f"SELECT {named} FROM {table} WHERE {column} IS NOT NULL AND NOT json_valid({column}) LIMIT {SAID}"
            )
            for (row,) in rows:
                yield message(
                    "store.check.json",
                    "{column} of {table} {row} is damaged",
                    column=column,
                    table=table,
                    row=str(row)[:80],
                )


def miscounted(store: Connection, run_id: str) -> Mapping[str, tuple[Mapping[str, int], Mapping[str, int]]]:
    """Arms whose counts of findings are not those that there are: (said, found), by kind."""
    rows = store._read(
        "SELECT arms.name AS arm, arms.counts AS said, findings.kind AS kind, count(findings.id) AS n FROM arms"
        " JOIN runs ON runs.number = arms.run LEFT JOIN findings ON findings.arm = arms.id"
        " WHERE runs.id = ? AND json_valid(arms.counts) GROUP BY arms.id, findings.kind",
        (run_id,),
    )
    said: dict[str, dict[str, int]] = {}
    found: dict[str, dict[str, int]] = {}
    for row in rows:
        said.setdefault(row["arm"], _counts(row["said"]))
        found.setdefault(row["arm"], {})
        if row["kind"] is not None:
            found[row["arm"]][row["kind"]] = row["n"]
    return {arm: (said[arm], found[arm]) for arm in said if said[arm] != found[arm]}


def _counts(text: str) -> dict[str, int]:
    return {str(kind): count for kind, count in object_of(orjson.loads(text)).items() if count}
