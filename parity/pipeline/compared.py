"""What comparing each arm gave, as the run's result: kept in a file, for an experiment has many arms and findings."""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import orjson

from parity.comparator import Comparison
from parity.comparator.stats import FirstFault, Numerics, Stats
from parity.errors import writing
from parity.messages import Message, message
from parity.records import Finding, Json, Key, Verdict
from parity.records.long_json import blocks
from parity.records.many_findings import ManyFindings, gathered
from parity.records.next_steps import steps_from


@dataclass(frozen=True, slots=True)
class _Kept:
    """What is asked for often, and where the rest is in the file: (begin, size) in bytes."""

    verdict: Verdict
    reasons: tuple[Message, ...]
    against_baseline: bool
    numerics: Numerics | None
    faults_at: tuple[FirstFault, ...]
    recorded: tuple[str, str] | None
    said: tuple[int, int]
    classes: tuple[int, int]
    many: Sequence[Finding] | None
    """The findings, where they are too many to stand in what was said."""


_MAKE_ROOM = message("pipeline.make_room_then_captures", "make room, then `parity run --resume`: the captures are kept")


class Compared(Mapping[str, Comparison]):
    """Comparisons by candidate arm. Each is read again when it is asked for; only verdicts and reasons are in memory.

    Files have no names and go with this object. Values come back as JSON has them: no NaN, names as strings.
    """

    def __init__(self, directory: Path) -> None:
        """Raises ParityError where nothing can be written in `directory`."""
        self._kept: dict[str, _Kept] = {}
        with writing(directory, _MAKE_ROOM):
            self._file: IO[bytes] = tempfile.TemporaryFile(dir=directory)  # noqa: SIM115 - it lives as long as this
        weakref.finalize(self, self._file.close)
        self._directory = directory

    def add(self, arm: str, comparison: Comparison) -> None:
        """Raises ParityError where the disk is full."""
        classes = [(*key, str(kind)) for key, kind in comparison.classes.items()]
        many = gathered(iter(comparison.findings)) if isinstance(comparison.findings, ManyFindings) else None
        value = comparison.to_json() if many is None else _without_findings(comparison)
        with writing(self._directory, _MAKE_ROOM):
            said = self._append(dumped(value))
            self._kept[arm] = _Kept(
                comparison.verdict,
                comparison.reasons,
                comparison.stats.baseline_at_fault,
                comparison.stats.numerics or None,
                comparison.stats.faults_at,
                comparison.stats.recorded or None,
                said,
                self._append(orjson.dumps(classes)),
                many,
            )

    def verdicts(self) -> dict[str, Verdict]:
        return {arm: kept.verdict for arm, kept in self._kept.items()}

    def against_baseline(self) -> list[str]:
        """Arms that an arbiter supports, and not the baseline."""
        return [arm for arm, kept in self._kept.items() if kept.against_baseline]

    def numerics(self) -> dict[str, Numerics]:
        """Of the arms that have any."""
        return {arm: kept.numerics for arm, kept in self._kept.items() if kept.numerics is not None}

    def faults_at(self) -> dict[str, tuple[FirstFault, ...]]:
        return {arm: kept.faults_at for arm, kept in self._kept.items()}

    def recorded(self) -> dict[str, tuple[str, str]]:
        return {arm: kept.recorded for arm, kept in self._kept.items() if kept.recorded is not None}

    def reasons(self, arm: str) -> tuple[Message, ...]:
        return self._kept[arm].reasons

    def json_pieces(self, arm: str) -> Iterator[bytes]:
        """`Comparison.to_json` as indented JSON."""
        kept = self._kept[arm]
        said = self._read(kept.said)
        if kept.many is None:
            yield said
            return
        findings = (one.to_json() for one in kept.many)
        for number, block in enumerate(blocks(orjson.loads(said), "findings", findings, _text)):
            yield (b"\n" if number else b"") + block.encode()

    def __getitem__(self, arm: str) -> Comparison:
        kept = self._kept[arm]
        said: dict[str, Any] = orjson.loads(self._read(kept.said))
        return Comparison(
            baseline=said["baseline"],
            candidate=said["candidate"],
            verdict=Verdict(said["verdict"]),
            reasons=_messages(said["messages"]["reasons"]),
            findings=tuple(map(Finding.from_json, said["findings"])) if kept.many is None else kept.many,
            classes={Key(*row[:3]): row[3] for row in orjson.loads(self._read(kept.classes))},
            stats=Stats.from_json(said["stats"]),
            notes=_messages(said["messages"]["notes"]),
            next_steps=steps_from(said["next_steps"]),
        )

    def __contains__(self, arm: object) -> bool:
        return arm in self._kept

    def __iter__(self) -> Iterator[str]:
        return iter(self._kept)

    def __len__(self) -> int:
        return len(self._kept)

    def _append(self, data: bytes) -> tuple[int, int]:
        begin = self._file.seek(0, 2)
        self._file.write(data)
        self._file.flush()
        return begin, len(data)

    def _read(self, place: tuple[int, int]) -> bytes:
        begin, size = place
        self._file.seek(begin)
        return self._file.read(size)


def dumped(value: Json) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY)


def _text(value: Json) -> str:
    return dumped(value).decode()


def _without_findings(comparison: Comparison) -> dict[str, Json]:
    return {**replace(comparison, findings=()).to_json(), "counts": comparison.counts}


def _messages(values: list[Any]) -> tuple[Message, ...]:
    return tuple(Message.from_json(value) for value in values)
