"""What is said of a file that is not what docs/capture.md says."""

from __future__ import annotations

from dataclasses import dataclass

from parity.errors import ParityError


class CaptureError(ParityError):
    """A capture file is not what docs/capture.md says. `line` counts from 1."""

    def __init__(self, path: str, line: int | None, message: str, *, hint: str | None = None) -> None:
        where = path if line is None else f"{path}, line {line}"
        super().__init__(f"{where}: {message}", hint=hint)
        self.line = line


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with a capture file."""

    line: int | None
    message: str


class Malformed(Exception):
    """A field is not what it should be; the caller knows the line."""
