"""Whole files at once."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

from parity.capture.assemble import Assembler
from parity.capture.lines import lines_of, no_cycle_search
from parity.capture.problems import CaptureError
from parity.records import Capture, Header, Scores


@no_cycle_search()
def read_capture(path: str | Path, *, partial: bool = False) -> Capture:
    """Read a capture file (`.jsonl` or `.jsonl.gz`).

    With `partial`, a cut-off last line and a missing footer are accepted: what was captured so far.
    Raises CaptureError naming the first bad line.
    """
    path = Path(path)

    def fail(line: int | None, message: str) -> NoReturn:
        hint = "`parity capture check` lists everything that is wrong with it"
        if "cut off" in message or "no footer" in message:
            hint = "finish it with `parity run --resume`, or compare what is there with --partial"
        raise CaptureError(str(path), line, message, hint=hint)

    def tolerate(line: int | None, message: str) -> None:
        if "cut off" not in message:
            fail(line, message)

    report = tolerate if partial else fail
    assembler = Assembler(fail, source=str(path))
    line = 0
    for line, record in lines_of(path, report):
        assembler.add(line, record)
    if not partial or assembler.header is None:
        assembler.finish(line)
    return assembler.capture()


@no_cycle_search()
def read_scores(path: str | Path) -> Scores:
    """The score records of a capture file, or of a file that holds score records only."""
    path = Path(path)

    def fail(line: int | None, message: str) -> NoReturn:
        raise CaptureError(str(path), line, message, hint="a scores file holds `score` records, see docs/capture.md")

    assembler = Assembler(fail, source=str(path))
    assembler.header = Header("", "", "", "")  # a file of its own may do without one
    for line, record in lines_of(path, fail):
        if isinstance(record, dict) and record.get("record") == "header":
            continue
        assembler.add(line, record)
    if not assembler.scores and assembler.footer_line is None:
        fail(None, "no score records")
    return assembler.scores
