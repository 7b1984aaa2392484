"""Records put together to a capture, and what is wrong with their order and number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from parity.capture.columns import Columns
from parity.capture.fields import shown, take
from parity.capture.lines import Report
from parity.capture.packing import Packing, Part
from parity.capture.parse import FooterRecord, RoundRecord, parse_completion, parse_header, parse_score
from parity.capture.problems import Malformed
from parity.capture.score_columns import PackedScores
from parity.messages import Message, Parameter, message
from parity.records import Capture, Completion, Header, Json, Key, ScoreKey, TopLogprobs
from parity.records.counters import sane
from parity.records.shard_counters import added

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
    first one lists logprobs of other tokens too: checks look at those several times, which takes three times as long
    when they are packed."""
    packed_scores: PackedScores | None = None
    """For a reader of many scores: they go there, and which is there twice is asked at the end."""
    shard_begins: bool = False
    """The next record is the header of a further file."""
    before: tuple[int, int] = (0, 0)
    """Completions and scores in the shards before this one."""

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
        if (kind == "header") != self._header_due and not self.bad_header:
            self.report(
                line,
                message("capture.second_header", "a second header")
                if kind == "header"
                else message("capture.first_record_must", "the first record must be the header"),
            )
        try:
            if kind == "header":
                self._header(line, parse_header(record))
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

    def _header(self, line: int, found: Header) -> None:
        self.shard_begins = False
        first = self.header or found
        apart = [one.name for one in fields(Header) if getattr(first, one.name) != getattr(found, one.name)]
        if apart:
            self.report(line, other_header(apart, first.arm, found.arm))
        self.header = first

    def next_shard(self) -> None:
        """What comes now is another file, which begins with the same header and ends with a footer of its own."""
        self.next_file()
        self.shard_begins = True

    def next_file(self) -> None:
        """What comes now is another file, with a footer of its own or none."""
        self.before, self.footer_line = self._counts(), None

    @property
    def _header_due(self) -> bool:
        return self.header is None or self.shard_begins

    def _counts(self) -> tuple[int, int]:
        return len(self.completions if self.packing is None else self.packing), self.score_count()

    def _completion(self, line: int, completion: Completion) -> None:
        if self.packing is not None and not self.packing.takes(completion):
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
        if self.packed_scores is not None:
            self.packed_scores.add(key, logprobs, line)
            return
        if key in self.scores:
            self.report(line, score_given_twice(key, self.score_lines[key]))
            return
        self.scores[key] = logprobs
        self.score_lines[key] = line

    def score_count(self) -> int:
        return len(self.scores if self.packed_scores is None else self.packed_scores)

    def _footer(self, line: int, record: Mapping[str, Any]) -> None:
        self.footer_line = line
        footer = take(FooterRecord, record)
        self.counters = added(self.counters or {}, sane(footer.counters or {}))
        completions, scores = (now - before for now, before in zip(self._counts(), self.before, strict=True))
        for name, said, found in (
            ("completions", footer.completions, completions),
            ("scores", footer.scores, scores),
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
        if self._header_due and not self.bad_header:
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


def other_header(names: Sequence[str], arm: str, other: str) -> Message:
    """A shard is not of the capture that the first one is of. `names`: of fields that differ."""
    return message(
        "capture.other_header",
        "its header is not that of the first shard ({arm}): {names} differ ({other})",
        names=list(names),
        arm=arm,
        other=other,
    )


def given_twice(key: Key, first: int) -> Message:
    """`first`: the line where it stands first."""
    return message(
        "capture.completion_given_twice", "completion {key} given twice (first on line {line})", key=key, line=first
    )


def score_given_twice(key: ScoreKey, first: int) -> Message:
    """`first`: the line where it stands first."""
    return message(
        "capture.score_given_twice",
        "score of {arm} {key} given twice (first on line {key_2})",
        arm=key.arm,
        key=Key(*key[1:]),
        key_2=first,
    )


def is_score_given_twice(what: Message) -> bool:
    return what.id == "capture.score_given_twice"


def is_given_twice(what: Message) -> bool:
    return what.id == "capture.completion_given_twice"


def given_twice_in(key: Parameter, file: str, first: int) -> Message:
    """As `given_twice`, where it may stand first in another shard."""
    return message(
        "capture.completion_in_two_shards",
        "completion {key} given twice (first in {file}, line {line}): is a shard there twice, or of another split?",
        key=key,
        file=file,
        line=first,
    )


def score_given_twice_in(arm: Parameter, key: Parameter, file: str, first: int) -> Message:
    """As `score_given_twice`, where it may stand first in another shard."""
    return message(
        "capture.score_in_two_shards",
        "score of {arm} {key} given twice (first in {file}, line {line}): is a shard there twice, or of another split?",
        arm=arm,
        key=key,
        file=file,
        line=first,
    )
