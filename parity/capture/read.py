"""Whole files at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NoReturn

from parity.capture.assemble import NO_FOOTER, Assembler, given_twice, score_given_twice
from parity.capture.checksum import hint_for
from parity.capture.columns import Columns
from parity.capture.lines import CUT_OFF, Lines, Seen, is_record
from parity.capture.numbers import Numbers
from parity.capture.packing import Packing, Part
from parity.capture.problems import CaptureError
from parity.capture.remote import Place, place_of, reading_a_place
from parity.capture.rows import Packed
from parity.capture.score_columns import PackedScores, ScorePart
from parity.capture.shards import files_of
from parity.capture.stretch import Ahead, Readers, Stretch, is_plain
from parity.cycles import no_cycle_search
from parity.messages import Message, message
from parity.records import Capture, Header, Scores

PACKED_FROM: Final = 96 << 20
"""Bytes of a file from which on its completions are kept as columns (`rows.py`): about a third of the memory, and each
look at one takes some microseconds."""

LISTS_PACKED_FROM: Final = 256 << 20
"""The same where they list other tokens as well: a fifth of the memory, and a third more time, for the lists are read
from a file at each look."""


@reading_a_place
@no_cycle_search()
def read_capture(
    path: str | Place,
    *,
    partial: bool = False,
    beside: Capture | None = None,
    seen: Seen | None = None,
    readers: Readers | None = None,
) -> Capture:
    """Read a capture file (`.jsonl` or `.jsonl.gz`), or a directory of shards (`parity.capture.shards`).

    With `partial`, a cut-off last line and a missing footer are accepted: what was captured so far. `beside`: a capture
    with which it will be compared; what is equal in both takes memory once (arrays are shared: change none in place).
    `seen`: is given the bytes read so far, now and then. `readers`: help where the capture is kept as columns
    (`parity.capture.crew.Crew`); what is read is the same.
    Raises CaptureError naming the first bad line.
    """
    path = place_of(path)
    files = files_of(path)
    packing, numbers = _packing(files, beside), Numbers(files)

    def of_whole(line: int | None, what: Message) -> NoReturn:
        check_keys()
        refuse(*numbers.here(line), numbers.said(what))

    def of_file(line: int | None, what: Message) -> NoReturn:
        check_keys()
        refuse(numbers.file, line, what)

    def refuse(file: Place, line: int | None, what: Message) -> NoReturn:
        if what.id in (CUT_OFF.id, NO_FOOTER.id):
            hint = message(
                "capture.finish_it", "finish it with `parity run --resume`, or compare what is there with --partial"
            )
        else:
            lists = message("capture.check_lists", "`parity capture check` lists everything that is wrong with it")
            hint = hint_for(what, lists)
        raise CaptureError(str(file), line, what, hint=hint)

    def check_keys() -> None:
        twice = None if packing is None else packing.repeated()
        if twice is not None:
            refuse(*numbers.place(twice[0]), numbers.said(given_twice(*twice[1:])))

    def tolerate(line: int | None, what: Message) -> None:
        if what.id != CUT_OFF.id:
            of_file(line, what)

    plain = beside is not None and not isinstance(beside.completions, Packed)
    assembler = Assembler(of_whole, source=str(path), columns=Columns(beside if plain else None), packing=packing)
    before = 0
    ahead = None if readers is None else Ahead(readers, files)
    for file in files:
        numbers.begin(assembler)
        tells = None if seen is None else partial_of(seen, before)
        line = _read(file, Lines(file, tolerate if partial else of_file, tells), assembler, numbers, ahead)
        if not partial or assembler.header is None:
            assembler.finish(numbers.base + line if line else 0)
        numbers.end(line, footer=assembler.footer_line is not None)
        before += file.stat().st_size
    check_keys()
    return assembler.capture()


def partial_of(seen: Seen, before: int) -> Seen:
    """What tells of the bytes of one file after others."""
    return lambda read: seen(before + read)


def _read(file: Place, lines: Lines, assembler: Assembler, numbers: Numbers, ahead: Ahead | None) -> int:
    """All of one file; its last line that is a record."""
    line = 0
    for line, record in lines.parsed():
        assembler.add(numbers.base + line, record)
        if ahead is not None and is_plain(file):
            while assembler.packs and (found := _next_of(ahead, file, lines)) is not None:
                if not isinstance(found.part, Part):
                    break
                assembler.join(found.part, numbers.base + lines.number)
                lines.skip(found.lines, found.size, owes=found.owes)
                line = lines.number
    return line


def _next_of(ahead: Ahead, file: Place, lines: Lines) -> Stretch | None:
    """What others have read of the lines that come next, where it is what would be read here."""
    found = ahead.at(file, lines.begin)
    if found is None or found.identity != lines.identity:
        return None
    return None if lines.seals.owed and not found.sealed else found


def _packing(files: Sequence[Place], beside: Capture | None) -> Packing | None:
    """None for a small capture that is beside no large one: its completions are kept as they are."""
    other = None if beside is None else beside.completions
    size = sum(path.stat().st_size for path in files if path.is_file())
    if not isinstance(other, Packed):
        return Packing(lists=size >= LISTS_PACKED_FROM) if size >= PACKED_FROM else None
    return Packing(other, lists=size >= LISTS_PACKED_FROM)


@reading_a_place
@no_cycle_search()
def read_scores(path: str | Place, *, seen: Seen | None = None, readers: Readers | None = None) -> Scores:
    """The score records of a capture file, or of a file that holds score records only, or of a directory of shards of
    one; `seen` and `readers` as in `read_capture`.

    Raises CaptureError naming the first bad line.
    """
    path = place_of(path)
    files = files_of(path)
    numbers = Numbers(files, of_scores=True)
    many = PackedScores() if sum(one.stat().st_size for one in files if one.is_file()) >= PACKED_FROM else None

    def fail(line: int | None, what: Message) -> NoReturn:
        check_keys()
        refuse(*numbers.here(line), numbers.said(what))

    def of_file(line: int | None, what: Message) -> NoReturn:
        check_keys()
        refuse(numbers.file, line, what)

    def refuse(file: Place, line: int | None, what: Message) -> NoReturn:
        holds = message("capture.scores_file_holds", "a scores file holds `score` records, see docs/capture.md")
        raise CaptureError(str(file), line, what, hint=hint_for(what, holds))

    def check_keys() -> None:
        twice = None if many is None else many.repeated()
        if twice is not None:
            refuse(*numbers.place(twice[0]), numbers.said(score_given_twice(*twice[1:])))

    assembler = Assembler(fail, source=str(path), packed_scores=many)
    assembler.header = Header("", "", "", "")  # a file of its own may do without one
    ahead = Ahead(readers, files) if readers is not None and many is not None else None
    before = count = 0
    for file in files:
        numbers.begin(assembler)
        tells = None if seen is None else partial_of(seen, before)
        line = _read_scores(file, Lines(file, of_file, tells), assembler, numbers, ahead)
        if assembler.score_count() == count and assembler.footer_line is None:
            of_file(None, message("capture.no_score_records", "no score records"))
        count = assembler.score_count()
        numbers.end(line, footer=assembler.footer_line is not None)
        before += file.stat().st_size
    check_keys()
    return assembler.scores if many is None else many.whole()


def _read_scores(file: Place, lines: Lines, assembler: Assembler, numbers: Numbers, ahead: Ahead | None) -> int:
    """All scores of one file; its last line that is a record."""
    many, line = assembler.packed_scores, 0
    for line, record in lines.parsed():
        if not is_record(record, "header"):
            assembler.add(numbers.base + line, record)
        while ahead is not None and many and is_plain(file) and assembler.footer_line is None:
            found = _next_of(ahead, file, lines)
            if found is None or not isinstance(found.part, ScorePart):
                break
            many.join(found.part, numbers.base + lines.number)
            lines.skip(found.lines, found.size, owes=found.owes)
            line = lines.number
    return line
