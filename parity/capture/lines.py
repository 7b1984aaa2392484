"""A capture file as lines of JSON: bounded, whole ones only, `.gz` or not."""

from __future__ import annotations

import codecs
import gzip
import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any, TypeGuard

import orjson

from parity.capture.checksum import Seals
from parity.capture.quick import QuickReader
from parity.capture.remote import Place, Remote, how_to_reach, identity_of
from parity.errors import ParityError, cannot_read
from parity.files import open_regular
from parity.messages import Message, message
from parity.records import Json

Report = Callable[[int | None, Message], None]
"""Takes what is wrong in which line; raises or collects."""

CUT_OFF = message("capture.line_cut_off", "the line is cut off: the writer was interrupted")

MAX_LINE_BYTES = 64 * 1024 * 1024
"""A record longer than this is refused, in a file and on the way from a worker: a completion of 100,000 tokens with 20
logprobs each is 40 MB, and captures come from other hosts."""

MAX_RATIO = 200
SMALL_BYTES = 32 * 1024 * 1024
"""A compressed file may hold MAX_RATIO times its own size and SMALL_BYTES more. Captures of real runs come to 5 to 20
times their size, those of one token repeated to some 100."""

MAX_BLANK_LINES = 1000
"""In a row; no writer makes any."""

LEAST_OF_LIST = 4
LEAST_OF_OBJECT = 64
LOOKED_AT_FROM = 1024 * 1024
"""Bytes of a record for each list and object in it, where it has more than LOOKED_AT_FROM bytes: `[]` takes two bytes
in the file and 64 in memory. A token with its logprob has 5 or more."""


def open_capture(path: Place) -> IO[bytes]:
    try:
        file = path.open() if isinstance(path, Remote) else open_regular(path)
        return gzip.open(file, "rb") if path.suffix == ".gz" else file  # type: ignore[return-value]
    except FileNotFoundError:
        raise no_such_capture(path) from None
    except OSError as error:
        raise cannot_read(str(path), error, how_to_reach(path)) from None


def no_such_capture(path: Place) -> ParityError:
    return ParityError(
        message("capture.no_such_capture", "no such capture: {path}", path=str(path)),
        hint=message("capture.check_path_names", "check the path; `parity runs list` names runs"),
    )


Seen = Callable[[int], None]
"""Is given the bytes of a file that were read so far, now and then."""

SEEN_EVERY = 1 << 20
"""Bytes (unpacked) between two calls of a `Seen`."""


class Lines:
    """The lines of a file, in order. What somebody else has read of it may be passed over."""

    def __init__(self, path: Place, report: Report, seen: Seen | None = None, begin: int = 0) -> None:
        """`begin`: the byte where the first of them begins, in a file that is not packed."""
        self.path, self._report, self._seen = path, report, seen
        self.number, self.begin = 0, begin
        """Lines so far, and the byte after them (unpacked)."""
        self.seals = Seals()
        self._file: IO[bytes] | None = None
        self._blank = 0

    def __iter__(self) -> Iterator[tuple[int, int, bytes]]:
        """As `raw_lines`."""
        due = 0
        with open_capture(self.path) as file:
            self._file = file
            if self.begin:
                file.seek(self.begin)
            most = SMALL_BYTES + MAX_RATIO * self.path.stat().st_size
            try:
                while raw := file.readline(MAX_LINE_BYTES + 1):
                    self.number += 1
                    if len(raw) > MAX_LINE_BYTES:
                        self._report(self.number, _TOO_LONG)
                        return
                    begin, self.begin = self.begin, self.begin + len(raw)
                    self._blank = self._blank + 1 if raw.isspace() else 0
                    wrong = self.seals.problem(raw) if self._blank == 0 else None
                    if wrong is not None:
                        self._report(self.number, wrong)
                    elif self._blank == 0:
                        yield self.number, begin, raw
                    if self._seen is not None and self.begin >= due:
                        due = self.begin + SEEN_EVERY
                        self._seen(getattr(file, "fileobj", file).tell())
                    if self.begin > most or self._blank > MAX_BLANK_LINES:
                        self._report(self.number, _TOO_MUCH if self.begin > most else _BLANK)
                        return
            except (OSError, EOFError, zlib.error) as error:
                said = message("capture.cannot_read_further", "cannot be read further: {said}", said=str(error))
                self._report(self.number, said)

    def parsed(self) -> Iterator[tuple[int, Any]]:
        """As `lines_of`."""
        reader = QuickReader()
        for number, _, raw in self:
            parsed = parsed_or_none(number, raw, self._report, reader)
            if parsed is not None:
                yield number, parsed[0]

    def skip(self, lines: int, size: int, *, owes: bool) -> None:
        """Go on after so many more lines of `size` bytes together, the last one not empty. While a line is looked at.
        `owes`: whether one of them has a checksum."""
        assert self._file is not None
        self.number, self.begin, self._blank = self.number + lines, self.begin + size, 0
        self.seals.owed |= owes
        self._file.seek(self.begin)
        if self._seen is not None:
            self._seen(self.begin)

    @property
    def identity(self) -> tuple[int, int]:
        """Of the file that is being read (`remote.identity_of`)."""
        assert self._file is not None
        return identity_of(self.path, self._file)


def raw_lines(path: Place, report: Report, seen: Seen | None = None) -> Iterator[tuple[int, int, bytes]]:
    """(line number, its first byte's place in the file, the line) of each line that is not empty and whose checksum, if
    it has one, is right."""
    return iter(Lines(path, report, seen))


def lines_of(path: Place, report: Report, seen: Seen | None = None) -> Iterator[tuple[int, Any]]:
    """(line number, parsed JSON) of each whole line; what is not JSON goes to `report`. Long lists of numbers may be
    arrays already (`quick.py`)."""
    return Lines(path, report, seen).parsed()


_TOO_LONG = message(
    "capture.record_longer_than", "a record longer than {max_line_bytes} MiB", max_line_bytes=MAX_LINE_BYTES >> 20
)
_TOO_MUCH = message("capture.unpacks_too_much", "it unpacks to more than {ratio} times its size", ratio=MAX_RATIO)
_MARKED = message(
    "capture.byte_order_mark", "it begins with a byte order mark, which is no JSON: save the file as UTF-8 without one"
)
_BLANK = message("capture.blank_lines", "{most} empty lines in a row", most=MAX_BLANK_LINES)


def is_too_dense(raw: bytes) -> bool:
    """Whether a record would take many times its size in memory."""
    if len(raw) < LOOKED_AT_FROM:
        return False
    return raw.count(b"[") * LEAST_OF_LIST > len(raw) or raw.count(b"{") * LEAST_OF_OBJECT > len(raw)


def is_record(value: Json, kind: str) -> TypeGuard[dict[str, Json]]:
    """Is this a record of that kind?"""
    return isinstance(value, dict) and value.get("record") == kind


def parsed_or_none(number: int, raw: bytes, report: Report, reader: QuickReader | None = None) -> tuple[Any] | None:
    """The parsed JSON of a line, in a tuple; None where it is not JSON, which goes to `report`."""
    if is_too_dense(raw):
        report(number, message("capture.too_dense", "a record of lists in lists: no completion"))
        return None
    if reader is not None and (record := reader.record(raw)) is not None:
        return (record,)
    try:
        return (loads(raw),)
    except (ValueError, RecursionError):
        if raw.startswith(codecs.BOM_UTF8):
            report(number, _MARKED)
        else:
            report(number, CUT_OFF if not raw.endswith(b"\n") else message("capture.not_valid_json", "not valid JSON"))
        return None


def loads(raw: bytes) -> Any:
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        # orjson refuses NaN and Infinity, which Python's own writer makes of broken logprobs, and half a
        # character (a lone surrogate), which it makes of broken text and nothing after this could write again.
        value = json.loads(raw.decode("utf-8"))
        return _mended(value) if b"\\ud" in raw.lower() else value


def _mended(value: Any) -> Any:
    """With U+FFFD for each lone surrogate in its strings."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_mended(item) for item in value]
    if isinstance(value, dict):
        return {_mended(name): _mended(item) for name, item in value.items()}
    return value


def dump_line(record: Mapping[str, Json]) -> bytes:
    """One record as a line; NaN and infinities become null."""
    return orjson.dumps(record, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE)
