"""The captures of a run, as many in memory as fit into a budget, the others read again when they are asked for."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from parity.capture import read_capture
from parity.records import Capture

BUDGET: Final = 50_000
"""Completions held at a time, the baseline's not counted: of 64 tokens each they take about 100 MB."""


class HeldCaptures(Mapping[str, Capture]):
    """Captures by arm. Memory does not grow with the number of arms: of those that were not asked for lately only the
    path is kept. The baseline is asked for with every other one, so it stays."""

    def __init__(self, baseline: str, budget: int = BUDGET) -> None:
        self._baseline = baseline
        self._budget = budget
        self._paths: dict[str, Path] = {}
        self._held: OrderedDict[str, Capture] = OrderedDict()

    def add(self, arm: str, capture: Capture, path: Path) -> None:
        self._paths[arm] = path
        self._keep(arm, capture)

    def __getitem__(self, arm: str) -> Capture:
        path = self._paths[arm]
        if arm not in self._held:
            self._keep(arm, read_capture(path))
        self._held.move_to_end(arm)
        return self._held[arm]

    def _keep(self, arm: str, capture: Capture) -> None:
        self._held[arm] = capture
        self._held.move_to_end(arm)
        others = [name for name in self._held if name not in (arm, self._baseline)]
        room = self._budget - len(capture.completions)
        for name in reversed(others):  # the latest first
            room -= len(self._held[name].completions)
            if room < 0:
                del self._held[name]

    def __contains__(self, arm: object) -> bool:
        return arm in self._paths

    def __iter__(self) -> Iterator[str]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)
