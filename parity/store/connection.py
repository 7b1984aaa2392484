"""One SQLite connection: opened, migrated, guarded by a lock, its errors in words with a remedy.

The connection may be used from several threads of a process (a lock serialises them) and the file from
several processes at once (WAL, BEGIN IMMEDIATE, a busy timeout).
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import orjson

from parity.errors import ParityError
from parity.messages import message
from parity.paths import default_database, expanded, make_private
from parity.records import Json
from parity.store.guard import guard, remember_whole

if TYPE_CHECKING:
    from sqlite_utils import Database

BUSY_SECONDS = 30.0
"""How long a writer waits for another one; the longest transaction is one arm's completions."""


def explain(error: sqlite3.Error, path: Path) -> ParityError:
    """An sqlite3 error as a message that says which database, and what to do about it."""
    text = str(error)
    name = getattr(error, "sqlite_errorname", None) or ""
    elsewhere = "or name another database with --db PATH (or another home with PARITY_HOME)"
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")) or "locked" in text:
        return ParityError(
            message(
                "store.database_locked_another",
                "the database {path} is locked by another process ({busy_seconds:g} s waited)",
                path=str(path),
                busy_seconds=BUSY_SECONDS,
            ),
            hint=message(
                "store.wait_other_parity",
                "wait for the other parity to finish its write, {elsewhere}",
                elsewhere=elsewhere,
            ),
        )
    if name.startswith("SQLITE_FULL") or "disk is full" in text:
        return ParityError(
            message(
                "store.disk_holds_database",
                "the disk that holds the database {path} is full; nothing of this step was stored",
                path=str(path),
            ),
            hint=message("store.free_some_space", "free some space and try again, {elsewhere}", elsewhere=elsewhere),
        )
    if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")) or "unable to open" in text:
        return ParityError(
            message(
                "store.database_cannot_opened",
                "the database {path} cannot be opened for writing: {text}",
                path=str(path),
                text=text,
            ),
            hint=message(
                "store.make_file_directory",
                "make the file and its directory writable for this user, {elsewhere}",
                elsewhere=elsewhere,
            ),
        )
    if name.startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT")) or "not a database" in text:
        return ParityError(
            message(
                "store.not_readable_database", "{path} is not a readable database: {text}", path=str(path), text=text
            ),
            hint=message(
                "store.restore_backup_move",
                "restore it from a backup or move it away, {elsewhere}",
                elsewhere=elsewhere,
            ),
        )
    return ParityError(
        message(
            "store.database_failed",
            "the database {path} failed: {text}",
            path=str(path),
            text=f"{text} ({name})" if name else text,
        ),
        hint=message("store.check_disk", "check the disk, {elsewhere}", elsewhere=elsewhere),
    )


class Connection:
    """Base of the store: how it opens, reads and writes. Use `Store.open`."""

    def __init__(self, path: Path, db: Database) -> None:
        self.path = path
        self._db = db
        self._lock = threading.RLock()
        self._identity = _identity(path)
        self._whole_at: int | None = None
        """The version of a database from elsewhere that was whole when it was opened."""

    @classmethod
    def open(cls, path: str | Path | None = None, *, create: bool = True) -> Self:
        """Open the database at `path` (default: see parity.paths), creating and migrating as needed.

        With `create` false a missing file is an error. Raises ParityError for a database that is newer
        than this parity, locked, unwritable, or not a database.
        """
        where = expanded(path).absolute() if path is not None else default_database()
        if where.is_dir():
            raise ParityError(
                message("store.database_directory", "the database {where} is a directory", where=str(where)),
                hint=message("store.name_file_db", "name a file with --db PATH"),
            )
        if not where.exists() and not create:
            raise ParityError(
                message("store.there_no_database", "there is no database at {where}", where=str(where)),
                hint=message("store.creates_one_name", "`parity run` creates one; name another with --db PATH"),
            )
        try:
            make_private(where.parent)
        except OSError as error:
            raise ParityError(
                message(
                    "store.directory_database_cannot",
                    "the directory of the database, {parent}, cannot be created: {strerror}",
                    parent=str(where.parent),
                    strerror=error.strerror,
                ),
                hint=message(
                    "store.name_database_writable",
                    "name a database in a writable directory with --db PATH or PARITY_HOME",
                ),
            ) from error
        new = not where.exists()
        try:
            # One that is there is not opened here: closing it would let go of the locks that SQLite holds on it for
            # other connections of this process, and the next program to close it would delete the log they write into.
            with contextlib.suppress(OSError):  # SQLite says what is wrong
                os.close(os.open(os.path.realpath(where), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
            raw = sqlite3.connect(where, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        except sqlite3.Error as error:
            raise explain(error, where) from error
        from sqlite_utils import Database  # what opens no store need not wait for it

        store = cls(where, Database(raw, execute_plugins=False))
        try:
            before = store.data_version()  # what somebody writes while it is looked through counts as later
            remembered = guard(raw, where, new=new)
            store._prepare()
            if remembered:
                store._whole_at = store.data_version() if new else before
        except sqlite3.Error as error:
            raw.close()
            raise explain(error, where) from error
        except ParityError:
            raw.close()
            raise
        return store

    def _prepare(self) -> None:
        from parity.store.migrations import known_migrations, migrations

        conn = self._db.conn
        conn.execute("PRAGMA foreign_keys = ON")
        conn.execute("PRAGMA synchronous = NORMAL")  # WAL: safe against a crash of the process
        conn.execute("PRAGMA cache_size = -65536")  # 64 MiB: an index of 1,000,000 findings stays in memory
        applied = {migration.name for migration in migrations.applied(self._db)}
        newer = sorted(applied - known_migrations())
        if newer:
            raise ParityError(
                message(
                    "store.database_written_newer",
                    "the database {path} was written by a newer parity (it knows {newer})",
                    path=str(self.path),
                    newer=newer,
                ),
                hint=message("store.upgrade_parity_name", "upgrade parity, or name another database with --db PATH"),
            )
        if applied == known_migrations():
            return
        if not applied and self._db.table_names():
            raise ParityError(
                message(
                    "store.database_something_else",
                    "{path} is a database of something else: it holds the tables {table_names}",
                    path=str(self.path),
                    table_names=sorted(self._db.table_names())[:5],
                ),
                hint=message("store.name_another_file", "name another file with --db PATH"),
            )
        self._enable_wal()
        with self._write():  # one process migrates, a second one waits and finds nothing to do
            migrations.apply(self._db)

    def _enable_wal(self) -> None:
        # SQLite does not call the busy handler for this switch, so two processes that create the same
        # database at the same moment need a loop here.
        deadline = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                self._db.conn.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > deadline:
                    raise
                time.sleep(0.02)
            else:
                return

    def is_in_place(self) -> bool:
        """Is the file at its path still the one that was opened? What is written to another is lost."""
        return self._identity == _identity(self.path)

    def close(self) -> None:
        with self._lock:
            ours = self._changed_by_nobody_else()
            self._whole_at = None
            self._db.close()
        if ours:
            remember_whole(self.path)

    def _changed_by_nobody_else(self) -> bool:
        try:
            return self._whole_at is not None and self._whole_at == self.data_version()
        except ParityError:
            return False

    def data_version(self) -> int:
        """A number that differs after another connection, of any process, has changed the database."""
        return int(self._read("PRAGMA data_version")[0][0])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @contextlib.contextmanager
    def _write(self) -> Iterator[sqlite3.Connection]:
        """Everything in the block or nothing. IMMEDIATE: a writer waits at the start, never fails midway."""
        with self._lock:
            conn = self._db.conn
            try:
                conn.execute("BEGIN IMMEDIATE")
                with self._db.atomic():
                    yield conn
                conn.execute("COMMIT")
            except sqlite3.Error as error:
                self._db.rollback()
                raise explain(error, self.path) from error
            except BaseException:
                self._db.rollback()
                raise

    def _read(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> list[sqlite3.Row]:
        with self._lock:
            cursor = self._db.conn.cursor()
            cursor.row_factory = sqlite3.Row
            try:
                return cursor.execute(sql, parameters).fetchall()
            except sqlite3.Error as error:
                raise explain(error, self.path) from error


def _identity(path: Path) -> tuple[int, int] | None:
    """Which file it is; None where there is none."""
    try:
        stat = os.stat(path)
    except OSError:
        return None
    return stat.st_dev, stat.st_ino


def to_text(value: Json) -> str:
    """Compact JSON; NaN and infinities become null, numpy values are written as numbers."""
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS, default=_plain).decode()


def _plain(value: object) -> Json:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    if isinstance(value, (Path, np.generic)):
        return value.item() if isinstance(value, np.generic) else str(value)
    raise TypeError(f"cannot store a {type(value).__name__} as JSON")
