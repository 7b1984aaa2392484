"""A file that grows by whole lines, written by one process at a time."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO

from parity.capture.sealing import sealed
from parity.errors import ParityError, cannot_write, writing
from parity.locks import lock_now
from parity.messages import message
from parity.paths import make_private


def _private(name: str, flags: int) -> int:
    return os.open(name, flags, 0o600)


class Appender:
    """A capture file being written: whole lines, flushed one by one, by one process at a time."""

    def __init__(self, path: Path, *, keep_bytes: int) -> None:
        """Open `path` and cut it to its first `keep_bytes` bytes. Raises ParityError."""
        self.path = path
        with writing(path, message("run.choose_another_place", "choose another place")):
            make_private(path.parent)
            self._file: IO[bytes] = open(path, "ab", buffering=0, opener=_private)  # noqa: SIM115 - it stays open
        if not lock_now(self._file.fileno()):
            self._file.close()
            raise ParityError(
                message("run.another_parity_writing", "another parity is writing to {path}", path=str(path)),
                hint=message("run.wait_end", "wait for it, or end it"),
            )
        self._file.truncate(keep_bytes)
        self._end = keep_bytes

    def add(self, line: bytes) -> None:
        """Append a record's line, with its checksum. Raises ParityError when it cannot be written (a full disk)."""
        data = memoryview(sealed(line))
        whole = self._end + len(data)
        try:
            while data:
                data = data[self._file.write(data) :]
        except OSError as error:
            self._file.truncate(self._end)
            hint = message(
                "run.make_room_continue", "make room and continue with --resume: whole records up to here are kept"
            )
            raise cannot_write(self.path, error, hint) from error
        self._end = whole

    @property
    def end(self) -> int:
        """Bytes in the file."""
        return self._end

    def cut(self, keep_bytes: int) -> None:
        """Cut the file to its first `keep_bytes` bytes. Raises ParityError."""
        try:
            self._file.truncate(keep_bytes)
        except OSError as error:
            raise cannot_write(self.path, error) from error
        self._end = keep_bytes

    def sync(self) -> None:
        """What was added is on the disk, whatever happens to this machine. Raises ParityError."""
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            raise cannot_write(self.path, error) from error

    def close(self) -> None:
        """To disk, and done. Raises ParityError when the disk does not take it."""
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            raise cannot_write(self.path, error) from error
        finally:
            self._file.close()
