"""The captures of a run: small ones in memory, of large ones the baseline and one candidate at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from parity.capture import read_capture
from parity.records import Capture

BUDGET: Final = 8 * 1024 * 1024
"""Bytes of capture files whose candidates stay in memory, where they take about twice as much."""


class HeldCaptures(Mapping[str, Capture]):
    """Captures by arm. Memory does not grow with the number of arms: beside the baseline, which is asked for with every
    other one, and what fits into the budget, only the one that was asked for last is held. The others are read again;
    whoever asks for one after the other must let go of each before the next."""

    def __init__(self, baseline: str, budget: int = BUDGET) -> None:
        self._always = baseline
        self._room = budget
        self._paths: dict[str, Path] = {}
        self._held: dict[str, Capture] = {}
        self._last: tuple[str, Capture] | None = None

    def add(self, arm: str, capture: Capture, path: Path) -> None:
        self._paths[arm] = path
        size = 0 if arm == self._always else path.stat().st_size
        if size <= self._room:
            self._room -= size
            self._held[arm] = capture

    def __getitem__(self, arm: str) -> Capture:
        path = self._paths[arm]
        if arm in self._held:
            return self._held[arm]
        if self._last is None or self._last[0] != arm:
            self._last = None  # before reading: never two large ones at a time
            self._last = (arm, read_capture(path, beside=self._held.get(self._always)))
        return self._last[1]

    def __contains__(self, arm: object) -> bool:
        return arm in self._paths

    def __iter__(self) -> Iterator[str]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)
