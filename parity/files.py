"""Files of other people, opened for reading: regular ones only, and whole ones up to a size.

A named pipe waits for ever and a device never ends, so a path that leads to one is an error as any other.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import IO, Final, TextIO

MAX_BYTES: Final = 1 << 30
"""Of a file that is read whole, where nothing smaller is asked for: a plan of 100,000 prompts has some 300 MB."""


READ_AT_ONCE = 1 << 18
"""Bytes asked of the system at once: records of some 50 KB are put together of many pieces otherwise."""


def open_regular(path: Path) -> IO[bytes]:
    """The file at `path`, open for reading bytes. Raises OSError, for what is no regular file as well."""
    if "\0" in str(path):  # of a database, or of JSON
        raise OSError(errno.EINVAL, "no system takes such a name", str(path))
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        mode = os.fstat(handle).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "it is a pipe or a device, no file", str(path))
        return os.fdopen(handle, "rb", READ_AT_ONCE)
    except BaseException:
        os.close(handle)
        raise


def is_file(path: Path) -> bool:
    """Whether there is a regular file that may be looked at; a path from elsewhere may be none that a system takes."""
    return os.path.isfile(path)


def leads_to(path: Path) -> Path | None:
    """Where a path from elsewhere leads; None where no system takes its name, or its links go in a circle."""
    try:
        return path.resolve()
    except (OSError, ValueError, RuntimeError):
        return None


def read_whole(path: Path, most: int = MAX_BYTES) -> bytes:
    """The content of a regular file of at most `most` bytes. Raises OSError."""
    with open_regular(path) as file:
        large = os.fstat(file.fileno()).st_size > most
        data = b"" if large else file.read(most + 1)
    if large or len(data) > most:
        raise OSError(errno.EFBIG, f"it is larger than {most >> 20} MiB", str(path))
    return data


def print_talk(text: str, stream: TextIO) -> None:
    """A line of talk. On a full disk it is lost, and all that follows on stderr; results and exit codes are not.

    Raises BrokenPipeError where nobody reads any longer.
    """
    try:
        print(text, file=stream, flush=True)
    except BrokenPipeError:
        raise
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
