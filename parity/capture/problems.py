"""What is said of a file that is not what docs/capture.md says."""

from __future__ import annotations

from msgspec import Struct

from parity.errors import ParityError
from parity.messages import Message, as_message, message


class CaptureError(ParityError):
    """A capture file is not what docs/capture.md says. `line` counts from 1."""

    def __init__(self, path: str, line: int | None, what: Message | str, *, hint: Message | None = None) -> None:
        super().__init__(Problem(line, as_message(what)).found_in(path), hint=hint)
        self.line = line


class Problem(Struct, frozen=True):
    """One thing wrong with a capture file."""

    line: int | None
    message: Message

    def found_in(self, path: str) -> Message:
        """The problem with its place."""
        if self.line is None:
            return message("capture.file", "{path}: {what}", path=path, what=self.message)
        return message("capture.line", "{path}, line {line}: {what}", path=path, line=self.line, what=self.message)


class Malformed(Exception):
    """A field is not what it should be; the caller knows the line."""

    def __init__(self, said: Message) -> None:
        super().__init__(said)
        self.said = said
