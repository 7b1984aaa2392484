"""How far a run of another process is, read off the capture files that it is writing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.text import Text

from parity.store import ArmRow, RunRow
from parity.tui.format import bar, fit, plain

CHUNK = 4 * 1024 * 1024
"""Bytes of a file counted at a time; the rest is counted at the next look."""
BAR = 20
NAME = 30


@dataclass(frozen=True, slots=True)
class ArmProgress:
    """`done` of `total` completions; `words` where a count says nothing."""

    arm: str
    done: int
    total: int
    words: str = ""


class Progress:
    """Remembers how far each file was counted, so that a look costs what was written since the last."""

    def __init__(self) -> None:
        self._counted: dict[Path, tuple[int, int]] = {}

    def look(self, run: RunRow, arms: Sequence[ArmRow], requests: int) -> list[ArmProgress]:
        """One entry per arm, and one for the scores once there are any. `requests` is the plan's number of them."""
        from parity.pipeline import RunDirectory  # late: it takes long to import

        total = requests * (run.plan.rounds or 1) * run.plan.sampling.n
        found = []
        directory = RunDirectory(Path(run.directory)) if run.directory else None
        for arm in arms:
            if arm.status != "pending" or directory is None:
                found.append(ArmProgress(arm.name, total if arm.status != "failed" else 0, total, arm.status))
                continue
            capture = directory.capture(arm.name)
            done = self._records(capture)
            begun = "the engine starts" if directory.log(arm.name).exists() else "waits"
            words = "" if capture.exists() else begun
            found.append(ArmProgress(arm.name, min(done, total), total, words))
        if directory is not None and directory.scores.exists():
            found.append(ArmProgress("scores", 0, 0, f"{self._records(directory.scores):,} so far"))
        return found

    def _records(self, path: Path) -> int:
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


def _whole(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 1


def drawn(found: Sequence[ArmProgress]) -> Text:
    """A line per arm: name, bar, count."""
    text = Text()
    for one in found:
        text.append(fit(plain(one.arm), NAME, middle=True))
        if one.total:
            filled = bar(one.done / one.total, BAR)
            text.append(f" {fit(filled, BAR)} ", "bold")
        text.append(f" {plain(one.words)}" if one.words else f"{one.done:,} of {one.total:,}")
        text.append("\n")
    return text
