"""Records put together to a capture, and what is wrong with their order and number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from parity.capture.columns import Columns
from parity.capture.fields import shown, take
from parity.capture.lines import Report
from parity.capture.packing import Packing, Part
from parity.capture.parse import FooterRecord, RoundRecord, parse_completion, parse_header, parse_score
from parity.capture.problems import Malformed
from parity.messages import Message, message
from parity.records import Capture, Completion, Header, Json, Key, ScoreKey, TopLogprobs
from parity.records.counters import sane

NO_FOOTER = message("capture.no_footer_after", "no footer after this line: the capture is incomplete")


@dataclass
class Assembler:
    """Puts records together and says what is wrong; `report` raises or collects."""

    report: Report
    source: str = ""
    header: Header | None = None
    bad_header: bool = False
    completions: dict[Key, Completion] = field(default_factory=dict)
    scores: dict[ScoreKey, TopLogprobs] = field(default_factory=dict)
    score_lines: dict[ScoreKey, int] = field(default_factory=dict)
    counters: Mapping[str, Json] | None = None
    footer_line: int | None = None
    columns: Columns | None = None
    """For a reader that wants a whole capture: until then, completions have no tokens."""
    packing: Packing | None = None
    """For a reader of a large one: completions go there, and who is there twice is asked at the end. Not where the
    first one has logprobs: checks look at those several times, which takes three times as long when they are packed."""

    def add(self, line: int, record: Any) -> None:
        if not isinstance(record, dict):
            self.report(
                line,
                message("capture.record_must_json", "a record must be a JSON object, got {shown}", shown=shown(record)),
            )
            return
        kind = record.get("record")
        if self.footer_line is not None:
            self.report(
                line,
                message(
                    "capture.record_after_footer",
                    "a record after the footer (line {footer_line})",
                    footer_line=self.footer_line,
                ),
            )
        if (kind == "header") != (self.header is None) and not self.bad_header:
            self.report(
                line,
                message("capture.second_header", "a second header")
                if kind == "header"
                else message("capture.first_record_must", "the first record must be the header"),
            )
        try:
            if kind == "header":
                self.header = parse_header(record)
            elif kind == "completion":
                self._completion(line, parse_completion(record, line))
            elif kind == "score":
                self.score(line, record)
            elif kind == "round":
                take(RoundRecord, record)
            elif kind == "footer":
                self._footer(line, record)
            else:
                self.report(
                    line,
                    message(
                        "capture.unknown_record_known",
                        "unknown record {shown}; known: header, completion, score, round, footer",
                        shown=shown(kind),
                    ),
                )
        except Malformed as error:
            self.bad_header |= kind == "header"
            self.report(line, message("capture.malformed", "{record}: {what}", record=str(kind), what=error.said))

    def _completion(self, line: int, completion: Completion) -> None:
        if self.packing is not None and completion.logprobs is not None and not len(self.packing):
            self.packing = None
        if self.packing is not None:
            self.packing.add(completion)
            return
        if self.columns is not None:
            self.columns.share(completion)
        first = self.completions.setdefault(completion.key, completion)
        if first is completion and self.columns is not None:
            self.completions[completion.key] = self.columns.take(completion)
        elif first is not completion:
            self.report(line, given_twice(completion.key, first.line))

    @property
    def packs(self) -> bool:
        """Whether many completions may be added at once, after at least one."""
        return bool(self.packing) and self.footer_line is None

    def join(self, part: Part, line: int) -> None:
        """Take many completions in; `line`: the one before the first line of the part."""
        assert self.packing is not None
        self.packing.join(part, line)

    def score(self, line: int, record: Mapping[str, Any]) -> None:
        """Take a score record in. Raises Malformed."""
        key, logprobs = parse_score(record)
        if key in self.scores:
            self.report(
                line,
                message(
                    "capture.score_given_twice",
                    "score of {arm} {key} given twice (first on line {key_2})",
                    arm=key.arm,
                    key=Key(*key[1:]),
                    key_2=self.score_lines[key],
                ),
            )
            return
        self.scores[key] = logprobs
        self.score_lines[key] = line

    def score_count(self) -> int:
        return len(self.scores)

    def _footer(self, line: int, record: Mapping[str, Any]) -> None:
        self.footer_line = line
        footer = take(FooterRecord, record)
        self.counters = sane(footer.counters or {})
        for name, said, found in (
            ("completions", footer.completions, len(self.completions if self.packing is None else self.packing)),
            ("scores", footer.scores, self.score_count()),
        ):
            if said not in (None, found):
                self.report(
                    line,
                    message(
                        "capture.footer_says_file",
                        "the footer says {said} {name}, the file has {found}",
                        said=said,
                        name=name,
                        found=found,
                    ),
                )

    def finish(self, last_line: int) -> None:
        if self.header is None and not self.bad_header:
            self.report(
                None if last_line == 0 else 1,
                message("capture.no_header_not", "no header: this is not a capture, or it is empty"),
            )
        elif self.footer_line is None:
            self.report(last_line, NO_FOOTER)

    def capture(self) -> Capture:
        assert self.header is not None
        capture = Capture(self.header, self.completions, self.scores, self.counters, self.source)
        if self.packing is not None:
            return self.packing.capture_of(capture)
        if self.columns is not None:
            self.columns.give(capture)
        return capture


def given_twice(key: Key, first: int) -> Message:
    """`first`: the line where it stands first."""
    return message(
        "capture.completion_given_twice", "completion {key} given twice (first on line {line})", key=key, line=first
    )
