"""Where parity keeps its things: one data directory, movable with the environment variable PARITY_HOME."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from parity.errors import ParityError
from parity.messages import message


def expanded(path: str | Path) -> Path:
    """`~` and `~user` as shells have them. Raises ParityError where nobody is called so."""
    found = os.path.expanduser(path)
    name = Path(path).parts[:1]
    if name and name[0].startswith("~") and str(found) == str(path):
        raise ParityError(
            message(
                "paths.nobody", "{path}: there is no user {name!r} on this machine", path=str(path), name=name[0][1:]
            ),
            hint=message(
                "paths.home", "name the directory itself; `~/` is your own, and `./~…` a file that is called so"
            ),
        )
    return Path(found)


def data_dir() -> Path:
    """The data directory: $PARITY_HOME, or the platform's per-user data directory for "parity"."""
    home = os.environ.get("PARITY_HOME")
    if home:
        return Path(home).expanduser().absolute()  # the command line says what of PARITY_HOME is wrong
    import platformdirs

    return Path(platformdirs.user_data_dir("parity", appauthor=False))


def default_database() -> Path:
    return data_dir() / "parity.db"


def elsewhere(database: Path) -> str:
    """The absolute path of a database that commands do not use by themselves; "" for the one that they do."""
    path = expanded(database).absolute()
    return "" if path == default_database().absolute() else str(path)


def named_in(run: str, database: str) -> str:
    """`run` with the option that names this database; "" is the one that commands use by themselves."""
    return f"{run} --db {shlex.quote(database)}" if database else run


def runs_dir() -> Path:
    return data_dir() / "runs"


def make_private(directory: Path) -> None:
    """Make a directory that nobody else may look into, and what lacks above it. Raises OSError."""
    if not directory.is_dir():
        make_private(directory.parent)
        directory.mkdir(mode=0o700, exist_ok=True)
