"""Everything that is wrong with a file, not only the first."""

from __future__ import annotations

from pathlib import Path

from parity.capture.assemble import Assembler
from parity.capture.lines import lines_of
from parity.capture.problems import Problem
from parity.records import Key


def check_capture(path: str | Path) -> list[Problem]:
    """Everything that is wrong with a capture file, in file order; empty when nothing is.

    Stricter than reading: also what a comparison would report about the engine (logprobs that are not as
    long as the tokens) is listed.
    """
    path = Path(path)
    problems: list[Problem] = []

    def note(line: int | None, message: str) -> None:
        problems.append(Problem(line, message))

    assembler = Assembler(note, source=str(path))
    line = 0
    for line, record in lines_of(path, note):
        assembler.add(line, record)
    cut = any("cut off" in problem.message for problem in problems)
    if not (cut and assembler.header is not None):
        assembler.finish(line)
    for completion in assembler.completions.values():
        expected = len(completion.token_ids)
        if completion.logprobs is not None and len(completion.logprobs) != expected:
            note(
                completion.line,
                f"completion {completion.key}: {len(completion.logprobs)} logprobs for {expected} tokens",
            )
    arm = assembler.header.arm if assembler.header else ""
    for key, score in assembler.scores.items():
        scored = assembler.completions.get(Key(*key[1:])) if key.arm == arm else None
        if scored is not None and len(score) != len(scored.token_ids):
            note(
                assembler.score_lines[key],
                f"score of {Key(*key[1:])}: {len(score)} entries for {len(scored.token_ids)} tokens",
            )
    return sorted(problems, key=lambda problem: problem.line or 0)
