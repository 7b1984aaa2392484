"""The archive that a kit sends back, read as what it is: somebody else's.

Only regular files of wanted names come out, each once and up to its size. Headers, members and all that is unpacked are
bounded as well, since a megabyte of gzip can hold a gigabyte.
"""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from parity.files import open_regular

MOST_BYTES: Final = 2 * 1024**3
"""Unpacked, of all files together; more is no kit's."""
MOST_AT_ONCE: Final = 4 * 1024**2
"""In one read: headers of tar (long names, extended ones) are read whole, and are no larger in a kit."""
MOST_MEMBERS: Final = 10_000


class TooLarge(tarfile.TarError):
    """Beyond what a kit writes."""


class _Bounded(io.RawIOBase):
    """What gzip unpacks, as far as it is bounded."""

    def __init__(self, unpacked: gzip.GzipFile) -> None:
        self._unpacked = unpacked

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= MOST_AT_ONCE:
            raise TooLarge("a header is too large")
        self._check(self._unpacked.tell() + size)
        return self._unpacked.read(size)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence == io.SEEK_SET:
            self._check(offset)
        return self._unpacked.seek(offset, whence)

    def tell(self) -> int:
        return self._unpacked.tell()

    def _check(self, position: int) -> None:
        if position > MOST_BYTES + MOST_AT_ONCE:
            raise TooLarge(f"it holds more than {MOST_BYTES >> 20} MiB")


@contextmanager
def _opened(path: Path) -> Iterator[tarfile.TarFile]:
    with (
        open_regular(path) as file,
        gzip.GzipFile(fileobj=file) as unpacked,
        tarfile.open(fileobj=_Bounded(unpacked), mode="r:") as archive,
    ):
        yield archive


def first_name(path: Path) -> str | None:
    """The name of the first member; None where it is no such archive."""
    try:
        with _opened(path) as archive:
            first = archive.next()
            return None if first is None else first.name
    except (OSError, tarfile.TarError, EOFError, ValueError):
        return None


def members(path: Path, wanted: Mapping[str, int]) -> Iterator[tuple[str, IO[bytes]]]:
    """The files of these names, each up to so many bytes. Raises OSError, tarfile.TarError and EOFError for an archive
    that is cut off, damaged or too large."""
    with _opened(path) as archive:
        left = dict(wanted)
        for number, member in enumerate(archive):
            if number >= MOST_MEMBERS:
                raise TooLarge(f"it holds more than {MOST_MEMBERS} files")
            most = left.pop(member.name, None) if member.isreg() and not member.issparse() else None
            if most is None:
                continue
            if member.size > most:
                raise TooLarge(f"{member.name} is larger than {most >> 20} MiB")
            file = archive.extractfile(member)
            assert file is not None
            yield member.name, file
