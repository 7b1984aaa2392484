"""Whose files may say what runs on this machine: those that parity wrote here, and those that its user trusts.

As git does (`safe.directory`), a directory is trusted by its name with all below it; as direnv does, a file by its
content. An entry is a file of its own, so that two processes never write the same one.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from parity.errors import writing
from parity.messages import message
from parity.paths import data_dir, runs_dir


class Trust(Enum):
    """How far a file is trusted."""

    OWN = "own"
    """parity wrote it on this machine, and nobody has changed it."""
    GIVEN = "given"
    """It lies in a directory that the user has named."""
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Entry:
    """What is trusted. `digest`: the content that a file must have (SHA-256); None for a directory."""

    path: Path
    digest: str | None = None


def trust_in(path: Path) -> Trust:
    """How far the file at `path` may say what runs."""
    path = path.resolve()
    known = {entry.path: entry for entry in entries()}
    if path.is_relative_to(runs_dir().resolve()) or (path in known and known[path].digest == _digest(path)):
        return Trust.OWN
    return Trust.GIVEN if lies_below_trusted(path) else Trust.NONE


def lies_below_trusted(path: Path) -> bool:
    """Whether the user has named a directory above it."""
    named = {entry.path for entry in entries() if entry.digest is None}
    return not named.isdisjoint(path.resolve().parents)


def trust(path: Path) -> Entry:
    """Take what lies below a directory, or this one file as it is now. Raises ParityError where that cannot be kept."""
    with writing(_home(), message("trust.home", "make it writable, or name another home with PARITY_HOME")):
        return _keep(path.resolve())


def forget(path: Path) -> bool:
    """Trust it no longer; whether it was trusted."""
    place = _place(path.resolve())
    found = place.exists()
    with writing(place):
        place.unlink(missing_ok=True)
    return found


def remember(*written: Path) -> None:
    """Files that parity has just written: it may read them again. What lies among its own runs needs no entry."""
    own = runs_dir().resolve()
    for path in written:
        if not path.resolve().is_relative_to(own):
            with suppress(OSError, ValueError):  # then the user is asked to trust them
                _keep(path.resolve())


def entries() -> list[Entry]:
    """Everything that is trusted, by path."""
    found = []
    for place in sorted(_home().glob("*.json")):
        with suppress(OSError, ValueError, KeyError, TypeError):
            value: dict[str, Any] = json.loads(place.read_text(encoding="utf-8"))
            found.append(Entry(Path(value["path"]), value["digest"]))
    return sorted(found, key=lambda entry: str(entry.path))


def _keep(path: Path) -> Entry:
    entry = Entry(path, _digest(path))
    _home().mkdir(parents=True, exist_ok=True, mode=0o700)
    _place(path).write_text(json.dumps({"path": str(path), "digest": entry.digest}), encoding="utf-8")
    return entry


def _home() -> Path:
    return data_dir() / "trusted"


def _place(path: Path) -> Path:
    return _home() / f"{hashlib.sha256(os.fsencode(path)).hexdigest()[:32]}.json"


def _digest(path: Path) -> str | None:
    """SHA-256 of a regular file; None for anything else."""
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
