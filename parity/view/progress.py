"""How far a run of another process is, read off the capture files that it is writing."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from parity.files import is_file, open_regular
from parity.messages import Message, message
from parity.store import ArmRow, RunRow

CHUNK = 4 * 1024 * 1024
"""Bytes of a file counted at a time; the rest is counted at the next look."""


@dataclass(frozen=True, slots=True)
class ArmProgress:
    """`done` of `total` completions. `status`: of the arm, once it has ended; `words`: where a count says nothing."""

    arm: str
    done: int
    total: int
    status: str = ""
    words: Message | None = None


class Progress:
    """Remembers how far each file was counted, so that a look costs what was written since the last."""

    def __init__(self) -> None:
        self._counted: dict[Path, tuple[int, int]] = {}

    def look(self, run: RunRow, arms: Sequence[ArmRow], requests: int) -> list[ArmProgress]:
        """One entry per arm, and one for the scores once there are any. `requests` is the plan's number of them."""
        from parity.pipeline.directory import RunDirectory  # late: it takes long to import

        total = requests * (run.plan.rounds or 1) * run.plan.sampling.n
        found = []
        directory = RunDirectory(Path(run.directory)) if run.directory else None
        for arm in arms:
            if arm.status != "pending" or directory is None:
                found.append(ArmProgress(arm.name, total if arm.status != "failed" else 0, total, arm.status))
                continue
            capture = directory.capture(arm.name)
            words = None if is_file(capture) else _before(is_file(directory.log(arm.name)))
            found.append(ArmProgress(arm.name, min(self._records(capture), total), total, words=words))
        if directory is not None and is_file(directory.scores):
            words = message("view.scores_so_far", "{count:,} so far", count=self._records(directory.scores))
            found.append(ArmProgress("scores", 0, 0, words=words))
        return found

    def _records(self, path: Path) -> int:
        """Lines of a capture but its header."""
        offset, lines = self._counted.get(path, (0, 0))
        try:
            with open_regular(path) as file:
                if os.fstat(file.fileno()).st_size < offset:  # started anew
                    offset, lines = 0, 0
                file.seek(offset)
                chunk = file.read(CHUNK)
        except OSError:
            return 0  # not begun
        self._counted[path] = (offset + len(chunk), lines + chunk.count(b"\n"))
        return max(0, self._counted[path][1] - 1)


def _before(begun: bool) -> Message:
    return message("view.engine_starts", "the engine starts") if begun else message("view.arm_waits", "waits")
