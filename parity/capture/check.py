"""Everything that is wrong with a file, not only the first."""

from __future__ import annotations

from msgspec import Struct

from parity.capture.assemble import NO_FOOTER, Assembler
from parity.capture.lines import CUT_OFF, lines_of
from parity.capture.problems import Problem
from parity.capture.remote import Place, place_of
from parity.messages import Message, message
from parity.records import Header, Key

UNFINISHED = frozenset({CUT_OFF.id, NO_FOOTER.id})
"""What an interrupted run leaves, and a resumed one mends."""


class Looked(Struct, frozen=True):
    """What a capture file holds, and everything that is wrong with it, in file order."""

    header: Header | None
    completions: int
    problems: list[Problem]


def check_capture(path: str | Place) -> list[Problem]:
    """Everything that is wrong with a capture file, in file order; empty when nothing is.

    Stricter than reading: also what a comparison would report about the engine (logprobs that are not as
    long as the tokens) is listed.
    """
    return look_at(path).problems


def look_at(path: str | Place) -> Looked:
    """A capture file read to its end, whatever is wrong with it. Raises ParityError where it cannot be opened."""
    path = place_of(path)
    problems: list[Problem] = []

    def note(line: int | None, what: Message) -> None:
        problems.append(Problem(line, what))

    assembler = Assembler(note, source=str(path))
    line = 0
    for line, record in lines_of(path, note):
        assembler.add(line, record)
    cut = any(problem.message.id == CUT_OFF.id for problem in problems)
    if not (cut and assembler.header is not None):
        assembler.finish(line)
    for completion in assembler.completions.values():
        expected = len(completion.token_ids)
        if completion.logprobs is not None and len(completion.logprobs) != expected:
            note(
                completion.line,
                message(
                    "capture.completion_logprobs_tokens",
                    "completion {key}: {count} logprobs for {expected} tokens",
                    key=completion.key,
                    count=len(completion.logprobs),
                    expected=expected,
                ),
            )
    arm = assembler.header.arm if assembler.header else ""
    for key, score in assembler.scores.items():
        scored = assembler.completions.get(Key(*key[1:])) if key.arm == arm else None
        if scored is not None and len(score) != len(scored.token_ids):
            note(
                assembler.score_lines[key],
                message(
                    "capture.score_entries_tokens",
                    "score of {key}: {count} entries for {token_ids_count} tokens",
                    key=Key(*key[1:]),
                    count=len(score),
                    token_ids_count=len(scored.token_ids),
                ),
            )
    in_order = sorted(problems, key=lambda problem: problem.line or 0)
    return Looked(assembler.header, len(assembler.completions), in_order)
