"""How far a run of another process is, read off the capture files that it is writing."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import msgspec

from parity.files import is_file, open_regular
from parity.messages import Message, message, verbatim
from parity.store import ArmRow, RunRow, RunStatus

CHUNK = 4 * 1024 * 1024
"""Bytes of a file counted at a time; the rest is counted at the next look."""


RATE_SECONDS = 60.0
"""Speed is that of the last minute."""
LOG_BYTES = 64 * 1024
"""Of a log's end."""


@dataclass(frozen=True, slots=True)
class ArmProgress:
    """`done` of `total` completions. `status`: of the arm, once it has ended; `words`: where a count says nothing."""

    arm: str
    done: int
    total: int
    status: str = ""
    words: Message | None = None
    tokens_per_second: float | None = None
    completions_per_second: float | None = None
    acceptance: float | None = None
    """Accepted over proposed draft tokens, between 0 and 1."""
    at_work: bool = False
    """Its engine starts or answers: it has a log or a capture, and has not ended."""


class _Spec(msgspec.Struct):
    accepted: list[int] = []
    drafted: list[int] = []


class _Line(msgspec.Struct):
    """What of a line of a capture is counted."""

    record: str = ""
    token_ids: list[int] = []
    spec: _Spec | None = None


class _Sample(NamedTuple):
    at: float
    completions: int
    tokens: int


@dataclass(slots=True)
class _Counted:
    """What was read of a file so far."""

    offset: int = 0
    rest: bytes = b""
    """Of a line that is being written."""
    records: int = 0
    scores: int = 0
    tokens: int = 0
    accepted: int = 0
    drafted: int = 0
    samples: deque[_Sample] = field(default_factory=deque)

    def add(self, chunk: bytes) -> None:
        self.offset += len(chunk)
        *lines, self.rest = (self.rest + chunk).split(b"\n")
        self.records += len(lines)
        for line in lines:
            try:
                one = _DECODER.decode(line)
            except (msgspec.DecodeError, RecursionError):  # the comparison says what is wrong with it
                continue
            self.scores += one.record == "score"
            if one.record == "completion":
                self.tokens += len(one.token_ids)
                if one.spec is not None:
                    self.accepted += sum(one.spec.accepted)
                    self.drafted += sum(one.spec.drafted)

    def sampled(self) -> tuple[float | None, float | None]:
        """Completions and tokens per second, of the last minute; None before anything came."""
        now = time.monotonic()
        self.samples.append(_Sample(now, self.records, self.tokens))
        while now - self.samples[0].at > RATE_SECONDS and len(self.samples) > 2:
            self.samples.popleft()
        first = self.samples[0]
        seconds = now - first.at
        if seconds <= 0 or self.records == first.completions:
            return None, None
        return (self.records - first.completions) / seconds, (self.tokens - first.tokens) / seconds


_DECODER = msgspec.json.Decoder(_Line)


class Progress:
    """Remembers how far each file was counted, so that a look costs what was written since the last."""

    def __init__(self) -> None:
        self._counted: dict[Path, _Counted] = {}

    def look(self, run: RunRow, arms: Sequence[ArmRow], requests: int) -> list[ArmProgress]:
        """One entry per arm, and one for the scores once there are any. `requests` is the plan's number of them."""
        from parity.pipeline.directory import RunDirectory  # late: it takes long to import

        total = requests * (run.plan.rounds or 1) * run.plan.sampling.n
        found = []
        directory = RunDirectory(Path(run.directory)) if run.directory else None
        for arm in arms:
            if arm.status != "pending" or directory is None:
                done = total if arm.status != "failed" else 0
                speed, rate = arm.tokens_per_second, arm.acceptance_rate
                found.append(ArmProgress(arm.name, done, total, arm.status, None, speed, None, rate))
                continue
            capture = directory.capture(arm.name)
            answers, begun = is_file(capture), is_file(directory.log(arm.name))
            words = None if answers else _before(begun)
            counted = self._read(capture)
            completions, tokens = counted.sampled()
            rate = counted.accepted / counted.drafted if counted.drafted else None
            done = min(max(0, counted.records - 1), total)  # a header comes first
            at_work = answers or begun
            found.append(ArmProgress(arm.name, done, total, "", words, tokens, completions, rate, at_work))
        if directory is not None and is_file(directory.scores):
            count = self._read(directory.scores).scores
            if run.status is RunStatus.RUNNING:
                words = message("view.scores_so_far", "{count:,} so far", count=count)
            else:
                words = verbatim(f"{count:,}")
            found.append(ArmProgress("scores", 0, 0, words=words))
        return found

    def _read(self, path: Path) -> _Counted:
        counted = self._counted.setdefault(path, _Counted())
        try:
            with open_regular(path) as file:
                if os.fstat(file.fileno()).st_size < counted.offset:  # started anew
                    counted = self._counted[path] = _Counted()
                file.seek(counted.offset)
                counted.add(file.read(CHUNK))
        except OSError:
            self._counted[path] = _Counted()  # not begun
        return self._counted[path]


def seconds_left(found: Sequence[ArmProgress]) -> float | None:
    """Until all completions are there, at the speed of the arm that is at work; engine starts come on top. None where
    nothing has come while it was looked at."""
    speeds = [one.completions_per_second for one in found if one.completions_per_second and one.done < one.total]
    if not speeds:
        return None
    return sum(one.total - one.done for one in found if not one.status) / speeds[-1]


def log_tail(run: RunRow, arm: str, lines: int) -> list[str]:
    """The last lines of an arm's log; none where there is no log."""
    from parity.pipeline.directory import RunDirectory

    if not run.directory:
        return []
    try:
        with open_regular(RunDirectory(Path(run.directory)).log(arm)) as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - LOG_BYTES))
            text = file.read(LOG_BYTES).decode("utf-8", errors="backslashreplace")
    except OSError:
        return []
    return text.splitlines()[-lines:]


def _before(begun: bool) -> Message:
    return message("view.engine_starts", "the engine starts") if begun else message("view.arm_waits", "waits")
