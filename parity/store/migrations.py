"""The schema, as an append-only list of migrations: never edit one that was released, add another.

Tables are STRICT. `findings` carries its filter columns inside every sort index (covering indexes), so
that any page of any filter over 1,000,000 findings is read from one index without touching the rows.
"""

from __future__ import annotations

from typing import Final

import orjson
from sqlite_utils import Database, Migrations

from parity.records import RUN, Kind, Severity, evidence_from_json
from parity.records.first_faults import Fault, followed
from parity.records.weight import CORRUPT, weight_of

migrations: Final = Migrations("parity")


def known_migrations() -> frozenset[str]:
    """Names of the migrations this version knows; a database with another one is newer than we are."""
    return frozenset(migration.name for migration in migrations._migrations)


@migrations()
def m001_first_tables(db: Database) -> None:
    for statement in (
        """
        CREATE TABLE runs (
            number INTEGER PRIMARY KEY,
            id TEXT NOT NULL UNIQUE,
            source TEXT NOT NULL CHECK (source IN ('run', 'compare')),
            created TEXT NOT NULL,
            finished TEXT,
            status TEXT NOT NULL CHECK (status IN ('running', 'finished', 'failed', 'interrupted')),
            verdict TEXT CHECK (verdict IN ('PASS', 'DIVERGED', 'INCONCLUSIVE', 'ERROR')),
            reasons TEXT NOT NULL DEFAULT '[]',
            message TEXT,
            model TEXT NOT NULL,
            baseline TEXT NOT NULL,
            plan TEXT NOT NULL,
            plan_hash TEXT NOT NULL,
            command TEXT NOT NULL,
            versions TEXT NOT NULL DEFAULT '{}',
            directory TEXT,
            duration REAL
        ) STRICT
        """,
        "CREATE INDEX runs_by_created ON runs (created)",
        """
        CREATE TABLE requests (
            run INTEGER NOT NULL REFERENCES runs (number) ON DELETE CASCADE,
            ordinal INTEGER NOT NULL,
            name TEXT NOT NULL,
            prompt TEXT,
            prompt_tokens BLOB NOT NULL,
            PRIMARY KEY (run, ordinal)
        ) STRICT, WITHOUT ROWID
        """,
        "CREATE UNIQUE INDEX requests_by_name ON requests (run, name)",
        """
        CREATE TABLE arms (
            id INTEGER PRIMARY KEY,
            run INTEGER NOT NULL REFERENCES runs (number) ON DELETE CASCADE,
            name TEXT NOT NULL,
            backend TEXT NOT NULL,
            variant TEXT NOT NULL,
            is_baseline INTEGER NOT NULL CHECK (is_baseline IN (0, 1)),
            status TEXT NOT NULL CHECK (status IN ('pending', 'captured', 'compared', 'failed')),
            message TEXT,
            capture TEXT,
            engine TEXT NOT NULL DEFAULT '{}',
            environment TEXT NOT NULL DEFAULT '{}',
            counters TEXT,
            verdict TEXT CHECK (verdict IN ('PASS', 'DIVERGED', 'INCONCLUSIVE', 'ERROR')),
            reasons TEXT NOT NULL DEFAULT '[]',
            counts TEXT NOT NULL DEFAULT '{}',
            stats TEXT NOT NULL DEFAULT '{}',
            tokens_per_second REAL,
            acceptance_rate REAL,
            acceptance_length REAL,
            UNIQUE (run, name)
        ) STRICT
        """,
        """
        CREATE TABLE completions (
            id INTEGER PRIMARY KEY,
            arm INTEGER NOT NULL REFERENCES arms (id) ON DELETE CASCADE,
            request TEXT NOT NULL,
            round INTEGER NOT NULL,
            sample INTEGER NOT NULL,
            n_tokens INTEGER NOT NULL,
            finish_reason TEXT,
            stop_reason TEXT,
            class TEXT,
            first_divergence INTEGER,
            text TEXT,
            tokens BLOB NOT NULL,
            UNIQUE (arm, request, round, sample)
        ) STRICT
        """,
        """
        CREATE TABLE findings (
            id INTEGER PRIMARY KEY,
            run INTEGER NOT NULL REFERENCES runs (number) ON DELETE CASCADE,
            arm INTEGER NOT NULL REFERENCES arms (id) ON DELETE CASCADE,
            ordinal INTEGER NOT NULL,
            request TEXT NOT NULL,
            round INTEGER NOT NULL,
            sample INTEGER NOT NULL,
            kind TEXT NOT NULL,
            severity TEXT NOT NULL CHECK (severity IN ('benign', 'corrupt')),
            position INTEGER,
            length INTEGER,
            gap REAL,
            state TEXT NOT NULL DEFAULT 'new',
            evidence TEXT NOT NULL,
            fingerprint TEXT NOT NULL
        ) STRICT
        """,
        "CREATE INDEX findings_by_severity ON findings (run, severity DESC, id, kind, arm, state, ordinal)",
        "CREATE INDEX findings_by_kind ON findings (run, kind, id, severity, arm, state, ordinal)",
        "CREATE INDEX findings_by_ordinal ON findings (run, ordinal, id, severity, kind, arm, state)",
        "CREATE INDEX findings_by_position ON findings (run, position, id, severity, kind, arm, state, ordinal)",
        "CREATE INDEX findings_by_gap ON findings (run, gap, id, severity, kind, arm, state, ordinal)",
        "CREATE INDEX findings_by_state ON findings (run, state, id, severity, kind, arm, ordinal)",
        "CREATE INDEX findings_by_arm ON findings (arm, id, run, severity, kind, state, ordinal)",
        "CREATE INDEX findings_by_fingerprint ON findings (fingerprint)",
        """
        CREATE TABLE triage (
            fingerprint TEXT PRIMARY KEY,
            state TEXT NOT NULL
                CHECK (state IN ('new', 'confirmed', 'benign', 'duplicate', 'reported', 'fixed')),
            duplicate_of TEXT,
            note TEXT NOT NULL DEFAULT '',
            link TEXT NOT NULL DEFAULT '',
            updated TEXT NOT NULL
        ) STRICT, WITHOUT ROWID
        """,
        """
        CREATE TABLE triage_history (
            id INTEGER PRIMARY KEY,
            batch INTEGER NOT NULL,
            at TEXT NOT NULL,
            fingerprint TEXT NOT NULL,
            before TEXT,
            after TEXT,
            undoes INTEGER
        ) STRICT
        """,
        "CREATE INDEX triage_history_by_fingerprint ON triage_history (fingerprint, id)",
        "CREATE INDEX triage_history_by_batch ON triage_history (batch)",
        "CREATE INDEX triage_history_by_undoes ON triage_history (undoes) WHERE undoes IS NOT NULL",
    ):
        db.conn.execute(statement)


@migrations()
def m002_triage_labels(db: Database) -> None:
    db.conn.execute("ALTER TABLE triage ADD COLUMN label TEXT NOT NULL DEFAULT ''")


@migrations()
def m003_gaps(db: Database) -> None:
    """The gap of each token of scored completions, as the comparison computed it: a table of its own, so that
    whoever pages through completions does not read them. Runs of before have none."""
    db.conn.execute(
        """
        CREATE TABLE gaps (
            completion INTEGER PRIMARY KEY REFERENCES completions (id) ON DELETE CASCADE,
            tokens BLOB NOT NULL
        ) STRICT
        """
    )


@migrations()
def m004_weight(db: Database) -> None:
    """The weight of each finding's evidence, by which the worst come first: in its own index, and in that by kind."""
    db.conn.create_function("parity_weight", 5, _weight, deterministic=True)
    for statement in (
        "ALTER TABLE findings ADD COLUMN weight REAL NOT NULL DEFAULT 0",
        "UPDATE findings SET weight = parity_weight(kind, severity, request, length, evidence)",
        "DROP INDEX findings_by_severity",
        "DROP INDEX findings_by_kind",
        "CREATE INDEX findings_by_weight ON findings (run, weight DESC, id, severity, kind, arm, state, ordinal)",
        "CREATE INDEX findings_by_kind ON findings (run, kind, id, severity, arm, state, ordinal, weight)",
    ):
        db.conn.execute(statement)


@migrations()
def m005_first_faults(db: Database) -> None:
    """How many faults come after each finding in its completion, or that it is one of them, in every sort index: what
    follows a first fault can be left out of any page."""
    db.conn.execute("ALTER TABLE findings ADD COLUMN followed INTEGER NOT NULL DEFAULT 0")
    rows = db.conn.execute(
        "SELECT id, arm, request, round, sample, kind, position FROM findings WHERE severity = ? AND request <> ?"
        " ORDER BY id",
        (str(Severity.CORRUPT), RUN),
    ).fetchall()
    places = followed([Fault(tuple(row[1:5]), Kind(row[5]), row[6]) for row in rows])
    db.conn.executemany(
        "UPDATE findings SET followed = ? WHERE id = ?",
        ((place, row[0]) for place, row in zip(places, rows, strict=True) if place),
    )
    for column, rest in (
        ("weight DESC", "severity, kind, arm, state, ordinal"),
        ("kind", "severity, arm, state, ordinal, weight"),
        ("ordinal", "severity, kind, arm, state"),
        ("position", "severity, kind, arm, state, ordinal"),
        ("gap", "severity, kind, arm, state, ordinal"),
        ("state", "severity, kind, arm, ordinal"),
    ):
        name = f"findings_by_{column.partition(' ')[0]}"
        db.conn.execute(f"DROP INDEX {name}")
        db.conn.execute(f"CREATE INDEX {name} ON findings (run, {column}, id, {rest}, followed)")
    db.conn.execute("DROP INDEX findings_by_arm")
    db.conn.execute("CREATE INDEX findings_by_arm ON findings (arm, id, run, severity, kind, state, ordinal, followed)")


@migrations()
def m006_steps_of_triage(db: Database) -> None:
    """Who decided, on which run, and what a redo brought back; the state `known`. Older steps have no run."""
    for statement in (
        "ALTER TABLE triage_history ADD COLUMN author TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE triage_history ADD COLUMN run TEXT",
        "ALTER TABLE triage_history ADD COLUMN redoes INTEGER",
        "CREATE INDEX triage_history_by_run ON triage_history (run, batch)",
        "ALTER TABLE triage RENAME TO triage_before",
        """
        CREATE TABLE triage (
            fingerprint TEXT PRIMARY KEY,
            state TEXT NOT NULL
                CHECK (state IN ('new', 'confirmed', 'benign', 'duplicate', 'reported', 'fixed', 'known')),
            duplicate_of TEXT,
            note TEXT NOT NULL DEFAULT '',
            link TEXT NOT NULL DEFAULT '',
            updated TEXT NOT NULL,
            label TEXT NOT NULL DEFAULT ''
        ) STRICT, WITHOUT ROWID
        """,
        "INSERT INTO triage (fingerprint, state, duplicate_of, note, link, updated, label)"
        " SELECT fingerprint, state, duplicate_of, note, link, updated, label FROM triage_before",
        "DROP TABLE triage_before",
    ):
        db.conn.execute(statement)


@migrations()
def m007_rules_of_known_bugs(db: Database) -> None:
    """Rules by which later findings are known, which rule took a finding, an index of what is not a near-tie by state;
    names and tags of runs."""
    for statement in (
        """
        CREATE TABLE rules (
            id INTEGER PRIMARY KEY,
            link TEXT NOT NULL,
            kind TEXT NOT NULL,
            signs TEXT NOT NULL DEFAULT '{}',
            conditions TEXT NOT NULL DEFAULT '[]',
            versions TEXT NOT NULL DEFAULT '{}',
            model TEXT NOT NULL DEFAULT '',
            author TEXT NOT NULL DEFAULT '',
            created TEXT NOT NULL
        ) STRICT
        """,
        "ALTER TABLE findings ADD COLUMN rule INTEGER REFERENCES rules (id)",
        "CREATE INDEX findings_by_rule ON findings (rule, run, arm) WHERE rule IS NOT NULL",
        "CREATE INDEX findings_open ON findings (run, state, arm, followed, id) WHERE kind <> 'near_tie'",
        "ALTER TABLE runs ADD COLUMN name TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE runs ADD COLUMN tags TEXT NOT NULL DEFAULT ''",
    ):
        db.conn.execute(statement)


def _weight(kind: str, severity: str, request: str, length: int | None, evidence: str) -> float:
    try:
        facts = evidence_from_json(kind, request, orjson.loads(evidence))
    except (ValueError, KeyError, TypeError, AttributeError):  # damaged: reading the finding says so
        return CORRUPT if severity == Severity.CORRUPT else 0.0
    return weight_of(Kind(kind), severity, length, facts)
