"""How far a run of another process is, read off the capture files that it is writing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from parity.pipeline import RunDirectory
from parity.store import ArmRow, RunRow
from parity.tui.format import plain

CHUNK = 4 * 1024 * 1024
"""Bytes of a file counted at a time; the rest is counted at the next look."""


class Progress:
    """Remembers how far each file was counted, so that a look costs what was written since the last."""

    def __init__(self) -> None:
        self._counted: dict[Path, tuple[int, int]] = {}

    def describe(self, run: RunRow, arms: Sequence[ArmRow]) -> str:
        """One line such as `cpu/base compared, cpu/mtp 12 completions`."""
        parts = []
        for arm in arms:
            if arm.status == "pending" and run.directory:
                done = self._completions(RunDirectory(Path(run.directory)).capture(arm.name))
                parts.append(f"{plain(arm.name)} {f'{done:,} completions' if done else 'pending'}")
            else:
                parts.append(f"{plain(arm.name)} {plain(arm.status)}")
        return ", ".join(parts)

    def _completions(self, path: Path) -> int:
        """Lines of a capture but its header."""
        offset, lines = self._counted.get(path, (0, 0))
        try:
            with path.open("rb") as file:
                if path.stat().st_size < offset:  # started anew
                    offset, lines = 0, 0
                file.seek(offset)
                chunk = file.read(CHUNK)
        except OSError:
            return 0  # not begun
        self._counted[path] = (offset + len(chunk), lines + chunk.count(b"\n"))
        return max(0, self._counted[path][1] - 1)
