"""What the interface cannot do itself, handed in by the command that starts it.

Reports, reduces and bisects are neighbours of this package, which imports none of them.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from parity.messages import Message
from parity.store import FindingRow, RunRow


@dataclass(frozen=True, slots=True)
class FollowUp:
    """A command of parity that goes on from here; `arguments` without the word `parity`."""

    title: Message
    arguments: tuple[str, ...]
    detail: Message | None = None
    ask: Message | None = None
    """What a person has to add, in words; put after the arguments."""
    cannot: Message | None = None
    """Why it would be for nothing here; it is shown, and not started."""

    @property
    def line(self) -> str:
        """For a shell, ready to paste."""
        return shlex.join(["parity", *self.arguments])


def _no_follow_ups(database: Path, run: RunRow, finding: FindingRow | None) -> Sequence[FollowUp]:
    return ()


@dataclass(frozen=True, slots=True)
class Outside:
    """Callables may raise ParityError; it is shown."""

    report: Callable[[Path, FindingRow], str] | None = None
    """The bug report of a finding as Markdown; reads the database at that path."""
    follow_ups: Callable[[Path, RunRow, FindingRow | None], Sequence[FollowUp]] = _no_follow_ups
    """Commands for a run, or for one of its findings."""
