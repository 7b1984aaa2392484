"""The scores of an experiment, arm by arm: many arms' scores together may be larger than memory."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from parity.capture.assemble import Assembler
from parity.capture.checksum import hint_for
from parity.capture.fields import take
from parity.capture.lines import is_record, open_capture, parsed_or_none, raw_lines
from parity.capture.parse import ScoreName
from parity.capture.problems import CaptureError
from parity.cycles import no_cycle_search
from parity.messages import Message, message
from parity.records import Header, ScoreKey, TopLogprobs

_USUAL = b'{"record":"score","arm":"'
"""How parity's worker begins a score: the arm is known without parsing what may be a thousand numbers."""


@dataclass
class _Places:
    """Where the scores of an arm are: the number of each line and its first byte's place."""

    lines: array[int] = field(default_factory=lambda: array("q"))
    begins: array[int] = field(default_factory=lambda: array("q"))


class ScoreFile:
    """The score records of a file (of its own, not compressed), read when an arm's are asked for.

    Opening it looks at all lines: raises CaptureError for what is no scores file, or not a whole one. What is wrong
    with a score is said when the scores of its arm are asked for.
    """

    @no_cycle_search()
    def __init__(self, path: Path) -> None:
        self.path = path
        self._places: dict[str, _Places] = {}
        rest = _Rest(self._fail, str(path))
        rest.header = Header("", "", "", "")  # a file of its own may do without one
        for number, begin, raw in raw_lines(path, self._fail):
            arm = _arm_at_a_glance(raw)
            if arm is None or rest.footer_line is not None:
                parsed = parsed_or_none(number, raw, self._fail)
                record = parsed[0] if parsed is not None else None
                if is_record(record, "header"):
                    continue
                rest.arm = None
                rest.add(number, record)
                arm = rest.arm
            else:
                rest.found += 1
            if arm is not None:
                places = self._places.setdefault(arm, _Places())
                places.lines.append(number)
                places.begins.append(begin)
        if not self._places and rest.footer_line is None:
            self._fail(None, message("capture.no_score_records", "no score records"))

    @no_cycle_search()
    def of(self, arms: Collection[str]) -> dict[ScoreKey, TopLogprobs]:
        """The scores of these arms' completions, in the order of the file. Raises CaptureError."""
        assembler = Assembler(self._fail, source=str(self.path))
        assembler.header = Header("", "", "", "")
        for number, raw in self._lines(arms):
            parsed = parsed_or_none(number, raw, self._fail)
            assembler.add(number, parsed[0] if parsed is not None else None)
        return assembler.scores

    def _lines(self, arms: Collection[str]) -> Iterator[tuple[int, bytes]]:
        wanted = sorted(
            place
            for arm in set(arms) & self._places.keys()
            for place in zip(self._places[arm].begins, self._places[arm].lines, strict=True)
        )
        if not wanted:
            return
        with open_capture(self.path) as file:
            try:
                for begin, number in wanted:
                    if file.tell() != begin:
                        file.seek(begin)
                    yield number, file.readline()
            except OSError as error:
                self._fail(
                    number, message("capture.cannot_read_further", "cannot be read further: {said}", said=str(error))
                )

    def _fail(self, line: int | None, what: Message) -> NoReturn:
        holds = message("capture.scores_file_holds", "a scores file holds `score` records, see docs/capture.md")
        raise CaptureError(str(self.path), line, what, hint=hint_for(what, holds))


@dataclass
class _Rest(Assembler):
    """Checks all but the scores themselves, of which it says whose they are and counts them."""

    arm: str | None = None
    found: int = 0

    def score(self, line: int, record: Mapping[str, Any]) -> None:
        self.arm = take(ScoreName, record).arm
        self.found += 1

    def score_count(self) -> int:
        return self.found


def _arm_at_a_glance(raw: bytes) -> str | None:
    """Whose score a line is, where it is written as parity writes it; None: it has to be parsed."""
    if not raw.startswith(_USUAL) or not raw.endswith(b"}\n"):
        return None
    arm, quote, _ = raw[len(_USUAL) : len(_USUAL) + 400].partition(b'"')
    if not quote or b"\\" in arm:
        return None
    try:
        return arm.decode()
    except UnicodeDecodeError:
        return None
