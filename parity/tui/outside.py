"""What the interface cannot do itself, handed in by the command that starts it.

Reports, reduces and bisects are neighbours of this package, which imports none of them.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from parity.store import FindingRow, RunRow


@dataclass(frozen=True, slots=True)
class FollowUp:
    """A command that goes on from here. `arguments` are run as they are, without a shell."""

    title: str
    arguments: tuple[str, ...]
    detail: str = ""

    @property
    def line(self) -> str:
        """For a shell, ready to paste."""
        return shlex.join(self.arguments)


def _no_follow_ups(database: Path, run: RunRow, finding: FindingRow | None) -> Sequence[FollowUp]:
    return ()


@dataclass(frozen=True, slots=True)
class Outside:
    """Callables may raise ParityError; it is shown."""

    write_report: Callable[[Path, RunRow, FindingRow], Path] | None = None
    """Writes the bug report of a finding; (database, run, finding) to the file written."""
    follow_ups: Callable[[Path, RunRow, FindingRow | None], Sequence[FollowUp]] = _no_follow_ups
    """Commands for a run, or for one of its findings."""
