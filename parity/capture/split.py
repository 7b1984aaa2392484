"""A capture written as a directory of shards."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NoReturn

import msgspec

from parity.capture.checksum import seal_of
from parity.capture.lines import Lines, dump_line, parsed_or_none
from parity.capture.problems import CaptureError
from parity.capture.sealing import sealed
from parity.capture.shards import INDEX, SCHEMA, Index, Listed, look
from parity.errors import ParityError, writing
from parity.messages import Message, message


class _Splitting:
    """Writes shards, each until it is large enough."""

    def __init__(self, folder: Path, size: int, header: bytes) -> None:
        self._folder, self._size, self._header = folder, size, header
        self._sealed = seal_of(header) is not None
        self._file: IO[bytes] | None = None
        self._counts = {"completion": 0, "score": 0}
        self.totals = dict(self._counts)
        self.names: list[str] = []

    def add(self, kind: str, line: bytes) -> None:
        if self._file is not None and self._file.tell() >= self._size:
            self.close({})
        file = self._file or self._begin()
        file.write(line if line.endswith(b"\n") else line + b"\n")
        self._sealed = seal_of(line) is not None
        if kind in self._counts:
            self._counts[kind] += 1
            self.totals[kind] += 1

    def _begin(self) -> IO[bytes]:
        self.names.append(f"{len(self.names) + 1:05d}.jsonl")
        self._file = (self._folder / self.names[-1]).open("xb")
        self._file.write(self._header)
        return self._file

    def close(self, counters: Any) -> None:
        """End a shard with its footer."""
        file = self._file or self._begin()
        said = {"completions": self._counts["completion"], "scores": self._counts["score"], "counters": counters}
        line = dump_line({"record": "footer", **said})
        file.write(sealed(line) if self._sealed else line)
        file.close()
        self._file, self._counts = None, {"completion": 0, "score": 0}


def split(path: Path, folder: Path, size: int) -> list[str]:
    """Write a whole capture as shards of some `size` bytes, and their index, to a directory that is not there yet; the
    names of the shards. Its lines are copied as they are. Raises ParityError; then the directory is not there."""
    hint = message("capture.other_place", "name another directory, or make room there")
    if folder.exists():
        raise ParityError(
            message("capture.split_there", "{path} is there already", path=str(folder)),
            hint=message(
                "capture.split_elsewhere", "name a directory that is not there: -o {path}-2", path=str(folder)
            ),
        )
    unfinished = folder.with_name(folder.name + ".unfinished")
    with writing(str(folder), hint):
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        try:
            names = _split(path, unfinished, size)
            listed = [Listed(name, *look(unfinished / name)) for name in names]
            (unfinished / INDEX).write_bytes(msgspec.json.format(msgspec.json.encode(Index(SCHEMA, listed))) + b"\n")
            unfinished.rename(folder)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    return names


def _split(path: Path, folder: Path, size: int) -> list[str]:
    shards: _Splitting | None = None
    footer: dict[str, Any] | None = None
    for kind, record, line in _records(path):
        if footer is not None:
            _not_whole(path)
        if shards is None:
            shards = _Splitting(folder, size, line)
        elif kind == "footer":
            footer = record
        else:
            shards.add(kind, line)
    if shards is None or footer is None:
        _not_whole(path)
    for name, kind in (("completions", "completion"), ("scores", "score")):
        if footer.get(name) not in (None, shards.totals[kind]):
            _not_whole(path)
    shards.close(footer.get("counters") or {})
    return shards.names


def _not_whole(path: Path) -> NoReturn:
    said = message("capture.not_whole", "it is no whole capture")
    hint = message(
        "capture.check_whole", "see what is wrong: `parity capture check {path}`", path=shlex.quote(str(path))
    )
    raise CaptureError(str(path), None, said, hint=hint)


def _records(path: Path) -> Iterator[tuple[str, dict[str, Any], bytes]]:
    """Kind, record and line of each. Raises CaptureError."""

    def fail(line: int | None, what: Message) -> NoReturn:
        hint = message(
            "capture.check_whole", "see what is wrong: `parity capture check {path}`", path=shlex.quote(str(path))
        )
        raise CaptureError(str(path), line, what, hint=hint)

    for number, _, raw in Lines(path, fail):
        parsed = parsed_or_none(number, raw, fail)
        record = parsed[0] if parsed and isinstance(parsed[0], dict) else {}
        kind = record.get("record")
        if (number == 1) != (kind == "header") or not isinstance(kind, str):
            fail(number, message("capture.not_whole", "it is no whole capture"))
        yield kind, record, raw
