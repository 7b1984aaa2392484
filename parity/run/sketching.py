"""Sketches that a worker sends, into the file beside its capture or beside the scores."""

from __future__ import annotations

from pathlib import Path

import msgspec

from parity.capture.sketches import (
    SketchesBlock,
    SketchesHeader,
    SketchesLine,
    check_sketches_header,
    sketch_block,
    sketches_path,
    unpacked_bytes,
)
from parity.messages import message
from parity.plan import Plan
from parity.run.appending import Appender
from parity.run.beside import no_header, sketches_allowed
from parity.run.messages import ProtocolError, line_of


class SketchesFile:
    """The sketches beside a capture (or a scores file); those of an interrupted run are added to."""

    def __init__(self, capture: Path, plan: Plan, *, resumed: bool) -> None:
        self._path, self._asked, self._resumed = sketches_path(capture), bool(plan.sketch), resumed
        self._file: Appender | None = None
        self._headers: dict[int, SketchesHeader] = {}
        self._widths: dict[int, dict[str, int]] = {}
        """By replica."""
        self._allowed = sketches_allowed(plan)

    def add(self, said: SketchesLine, replica: int) -> None:
        """Raises ProtocolError where nobody asked for sketches, ValueError and KeyError for a damaged line."""
        if not self._asked:
            raise ProtocolError(message("run.unasked_sketches", "sketches that nobody asked for"))
        line, header = line_of(msgspec.structs.replace(said, replica=replica)), self._headers.get(replica)
        unpacked = unpacked_bytes(said, header) if isinstance(said, SketchesBlock) and header is not None else 0
        self._allowed.take(line, unpacked, said.tokens if isinstance(said, SketchesBlock) else 0)
        if isinstance(said, SketchesHeader):
            check_sketches_header(said)
            self._headers[replica], self._widths[replica] = said, {}
        elif isinstance(said, SketchesBlock):
            if header is None:
                raise no_header()
            sketch_block(said, header, self._widths[replica])
        if self._file is None:
            self._file = Appender(self._path, keep_bytes=whole_lines(self._path) if self._resumed else 0)
        self._file.add(line)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def whole_lines(path: Path) -> int:
    """Bytes of a file up to the end of its last whole line; 0 where there is none."""
    if not path.exists():
        return 0
    end = 0
    with path.open("rb") as file:
        for line in file:
            end += len(line) if line.endswith(b"\n") else 0
    return end
