"""A database from elsewhere is looked through before it is used: nothing in it runs, and it is whole.

Its schema is looked at each time. Looking for damage reads the whole file (seconds, of a million findings), so what was
found whole is remembered in the data directory by the identity of the file and of its write-ahead log: where neither
has changed since, or parity alone has changed it, it is not read again. The change time (ctime) is part of it, which no
program can set.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from parity.errors import ParityError
from parity.messages import Message, message
from parity.paths import data_dir, make_private
from parity.trust import lies_below_trusted

CHECK_SECONDS: Final = 60.0
"""For looking through a database from elsewhere."""
PROGRESS_STEPS: Final = 100_000
"""Steps of SQLite's machine between two looks at the clock."""
LONGEST_CELL: Final = 512 << 20
"""Bytes of any value in a database from elsewhere, computed ones too; the plan of a large run has some 300 MB."""
REMEMBERED: Final = 64
"""Databases that were found whole."""


def guard(conn: sqlite3.Connection, path: Path, *, new: bool) -> bool:
    """Nothing in the file runs: no function, trigger or view of its schema, and no query without end.

    A file that is neither new, nor in the data directory, nor in a directory that the user trusts is looked through.
    Gives whether it is to be remembered as whole when it is closed. Raises ParityError, sqlite3.Error.
    """
    conn.execute("PRAGMA trusted_schema = OFF")
    if path.resolve().is_relative_to(data_dir().resolve()) or lies_below_trusted(path):
        return False
    if new:
        return True
    conn.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_CELL)
    until = time.monotonic() + CHECK_SECONDS
    conn.set_progress_handler(lambda: int(time.monotonic() > until), PROGRESS_STEPS)
    try:
        _check_schema(conn, path)
        identity = _identity(path)
        if identity != _known(path):
            _check_damage(conn, path)
            _remember(path, identity)
        return True
    except sqlite3.OperationalError as error:
        if "interrupted" not in str(error):
            raise
        said = message("store.without_end", "looking through it takes more than {seconds:g} s", seconds=CHECK_SECONDS)
        hint = message(
            "store.trust_it", "where it is your own: `parity trust {directory}`", directory=str(path.resolve().parent)
        )
        raise _not_taken(path, said, hint) from error
    finally:
        conn.set_progress_handler(None, 0)


def _check_schema(conn: sqlite3.Connection, path: Path) -> None:
    odd = conn.execute("SELECT type, name FROM sqlite_master WHERE type NOT IN ('table', 'index')").fetchall()
    odd += conn.execute(
        "SELECT 'virtual table', name FROM sqlite_master WHERE type = 'table' AND sql LIKE 'CREATE VIRTUAL%'"
    ).fetchall()
    odd += conn.execute(  # computed when they are read, as large as they like: parity makes none
        "SELECT 'generated column', x.name FROM sqlite_master AS m, pragma_table_xinfo(m.name) AS x "
        "WHERE m.type = 'table' AND x.hidden IN (2, 3)"
    ).fetchall()
    odd += conn.execute(
        "SELECT 'index of an expression', m.name FROM sqlite_master AS m, pragma_index_xinfo(m.name) AS x "
        "WHERE m.type = 'index' AND x.cid = -2"
    ).fetchall()
    if odd:
        named = [f"{kind} {name}"[:80] for kind, name in odd[:3]]
        raise _not_taken(path, message("store.has_programs", "it holds {what}, which parity never makes", what=named))


def _check_damage(conn: sqlite3.Connection, path: Path) -> None:
    wrong = [str(row[0]) for row in conn.execute("PRAGMA quick_check(3)")]
    if wrong != ["ok"]:
        raise _not_taken(path, message("store.damaged", "it is damaged: {what}", what=" ".join(wrong[0].split())[:200]))


def _not_taken(path: Path, why: Message, hint: Message | None = None) -> ParityError:
    return ParityError(
        message("store.not_taken", "the database {path} is not taken: {why}", path=str(path), why=why),
        hint=hint or message("store.from_whom", "ask for it again where it came from, or name another with --db PATH"),
    )


# ------------------------------------------------------------------ what was found whole


def remember_whole(path: Path) -> None:
    """It was whole when it was opened, nobody but this process has written into it since, and it is closed now."""
    identity = _identity(path)
    if identity != _known(path):
        _remember(path, identity)


def _identity(path: Path) -> str:
    """Of the file and its write-ahead log, which is part of the database; an empty one is none."""
    found = []
    for part in (path, path.with_name(f"{path.name}-wal")):
        with suppress(FileNotFoundError):
            stat = os.stat(part)
            if stat.st_size:
                found.append((stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns))
    return json.dumps(found)


def _known(path: Path) -> str:
    with suppress(OSError, ValueError):
        return _place(path).read_text(encoding="utf-8")
    return ""


def _remember(path: Path, identity: str) -> None:
    """Keep it, and forget the oldest of many; where that cannot be kept it is looked through again."""
    with suppress(OSError):
        place = _place(path)
        make_private(place.parent)
        place.write_text(identity, encoding="utf-8")
        ages = sorted(place.parent.glob("*.json"), key=lambda one: one.stat().st_mtime_ns, reverse=True)
        for old in ages[REMEMBERED:]:
            old.unlink(missing_ok=True)


def _place(path: Path) -> Path:
    name = hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:32]
    return data_dir() / "databases" / f"{name}.json"
