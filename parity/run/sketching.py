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
    sketch_lines,
    sketches_path,
)
from parity.messages import message
from parity.plan import Plan
from parity.run.appending import Appender
from parity.run.beside import SketchesAllowed, no_header
from parity.run.continued import kept_bytes
from parity.run.messages import ProtocolError, line_of


class SketchesFile:
    """The sketches beside a capture (or a scores file); those of an interrupted run are added to."""

    def __init__(self, capture: Path, plan: Plan, *, resumed: bool) -> None:
        """Raises RefusedFile where those that are there are none that an arm of this plan may send."""
        self._path, self._asked = sketches_path(capture), bool(plan.sketch)
        self._file: Appender | None = None
        self._taken = _Taken(plan)
        self._keep = 0
        if resumed and self._asked:
            earlier = _Taken(plan)
            self._keep = kept_bytes(self._path, sketch_lines, lambda line, size: earlier.take(line, line.replica, size))

    def add(self, said: SketchesLine, replica: int) -> None:
        """Raises ProtocolError where nobody asked for sketches, ValueError and KeyError for a damaged line."""
        if not self._asked:
            raise ProtocolError(message("run.unasked_sketches", "sketches that nobody asked for"))
        line = line_of(msgspec.structs.replace(said, replica=replica))
        self._taken.take(said, replica, len(line))
        if self._file is None:
            self._file = Appender(self._path, keep_bytes=self._keep)
        self._file.add(line)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


class _Taken:
    """The sketches of an arm as they come, each line checked."""

    def __init__(self, plan: Plan) -> None:
        self._headers: dict[int, SketchesHeader] = {}
        self._widths: dict[int, dict[str, int]] = {}
        """By replica."""
        self._allowed = SketchesAllowed(plan)

    def take(self, said: SketchesLine, replica: int, size: int) -> None:
        """Raises ProtocolError, ValueError, KeyError, TypeError for what is too much, and for a damaged line."""
        header = self._headers.get(replica)
        self._allowed.take(said, header, size)
        if isinstance(said, SketchesHeader):
            check_sketches_header(said)
            self._headers[replica], self._widths[replica] = said, {}
        elif isinstance(said, SketchesBlock):
            if header is None:
                raise no_header()
            sketch_block(said, header, self._widths[replica])
