"""The lines of a capture of several files, numbered as those of one."""

from __future__ import annotations

from collections.abc import Sequence

from parity.capture.assemble import (
    Assembler,
    given_twice_in,
    is_given_twice,
    is_score_given_twice,
    score_given_twice_in,
)
from parity.capture.remote import Place
from parity.messages import Message


class Numbers:
    """Headers but the first, and footers but the last, have no number in the whole; of scores all lines have one, for
    these may do without."""

    def __init__(self, files: Sequence[Place], *, of_scores: bool = False) -> None:
        self._files, self._of_scores = files, of_scores
        self._bases: list[int] = []
        self._next = 0

    @property
    def base(self) -> int:
        """Lines of the whole before those of the file that is being read."""
        return self._bases[-1]

    @property
    def file(self) -> Place:
        """The one that is being read."""
        return self._files[len(self._bases) - 1]

    def begin(self, assembler: Assembler) -> None:
        """The next file."""
        if self._bases and self._of_scores:
            assembler.next_file()
        elif self._bases:
            assembler.next_shard()
        self._bases.append(self._next)

    def end(self, line: int, *, footer: bool) -> None:
        """That was the last line of the file."""
        self._next = self.base + (line if self._of_scores else max(line - 1 - footer, 0))

    def here(self, line: int | None) -> tuple[Place, int | None]:
        """A line of the whole, in the file that is being read."""
        return self.file, None if line is None else line - self.base

    def place(self, line: int) -> tuple[Place, int]:
        """Where a completion or score of the whole stands: its file, and the line there."""
        header = 0 if self._of_scores else 1
        number = max((number for number, base in enumerate(self._bases) if base + header < line), default=0)
        return self._files[number], line - self._bases[number]

    def said(self, what: Message) -> Message:
        """What is wrong, where other lines are named by their file as well."""
        if len(self._files) == 1:
            return what
        if is_given_twice(what):
            file, line = self.place(int(str(what.parameters["line"])))
            return given_twice_in(what.parameters["key"], file.name, line)
        if is_score_given_twice(what):
            file, line = self.place(int(str(what.parameters["key_2"])))
            return score_given_twice_in(what.parameters["arm"], what.parameters["key"], file.name, line)
        return what
