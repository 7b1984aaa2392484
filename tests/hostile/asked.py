"""What a campaign is asked to try."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Asked:
    """`short`: what CI runs. `first` and `count` (0: all) cut a piece out of a long form, so that it can go on."""

    short: bool = False
    first: int = 0
    count: int = 0
    engine: str = "fake"
    keep: Path | None = None

    def piece(self, every: Sequence[T]) -> list[T]:
        return list(every[self.first : self.first + self.count if self.count else None])
