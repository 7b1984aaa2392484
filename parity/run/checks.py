"""What `parity doctor` found: one check for each thing looked at."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from parity.messages import Message
from parity.records import Json


class State(StrEnum):
    """How a check went."""

    OK = "ok"
    NOTE = "note"
    """Worth knowing; nothing is wrong."""
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at. A problem has a remedy."""

    name: Message | str
    state: State
    found: Message | str
    remedy: Message | str | None = None

    def to_json(self) -> dict[str, Json]:
        return {
            "name": str(self.name),
            "state": str(self.state),
            "found": str(self.found),
            "remedy": None if self.remedy is None else str(self.remedy),
        }
