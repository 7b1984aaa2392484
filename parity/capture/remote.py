"""Captures on other file systems, by URL: `s3://bucket/run/base.jsonl`, or a directory of shards there.

fsspec reaches them (`pip install 'parity-mtp[remote]'`, and the package of the file system, such as s3fs), with the
credentials that this package finds by itself.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import IO, Any, Concatenate, Final, NamedTuple, ParamSpec, TypeAlias, TypeVar

from parity.errors import ParityError, cannot_read
from parity.files import READ_AT_ONCE
from parity.messages import Message, message

SIGN: Final = "://"


class Size(NamedTuple):
    """As much of `os.stat_result` as captures need."""

    st_size: int


class Remote:
    """What captures ask of a Path, of a URL. All that goes wrong there is an OSError that says so."""

    def __init__(self, url: str) -> None:
        """Raises ParityError where nothing here can reach it."""
        self._url = url.rstrip("/")
        try:
            self._system, self._path = import_module("fsspec").core.url_to_fs(self._url)
        except ImportError as error:
            raise ParityError(
                message("capture.no_such_package", "{url} needs a package: {why}", url=url, why=str(error)),
                hint=message("capture.install_remote", "`pip install 'parity-mtp[remote]'`, and s3fs for s3://, …"),
            ) from None
        except Exception as error:  # noqa: BLE001 - each file system has errors of its own
            raise ParityError(
                message("capture.bad_url", "{url} is no place of a file: {why}", url=url, why=str(error)),
                hint=message("capture.url_like", "name it as s3://BUCKET/PATH"),
            ) from None

    def __str__(self) -> str:
        return self._url

    @property
    def name(self) -> str:
        return self._url.rpartition("/")[2]

    @property
    def suffix(self) -> str:
        return Path(self.name).suffix

    def __truediv__(self, name: str) -> Remote:
        return Remote(f"{self._url}/{name}")

    def with_name(self, name: str) -> Remote:
        return Remote(f"{self._url.rpartition('/')[0]}/{name}")

    def absolute(self) -> Remote:
        return self

    def is_dir(self) -> bool:
        with _said(self._url):
            return bool(self._system.isdir(self._path))

    def is_file(self) -> bool:
        with _said(self._url):
            return bool(self._system.isfile(self._path))

    def exists(self) -> bool:
        return self.is_file()

    def iterdir(self) -> Iterator[Remote]:
        with _said(self._url):
            found = self._system.ls(self._path, detail=False)
        return (self / str(one).rstrip("/").rpartition("/")[2] for one in found)

    def stat(self) -> Size:
        with _said(self._url):
            return Size(int(self._system.info(self._path)["size"]))

    def identity(self) -> tuple[int, int]:
        """Bytes, and a number that is another one once the file is another."""
        with _said(self._url):
            return self.stat().st_size, int(self._system.checksum(self._path)) & (1 << 62) - 1

    def open(self, mode: str = "rb") -> IO[bytes]:
        """For reading bytes."""
        with _said(self._url):
            return io.BufferedReader(_File(self._system.open(self._path, mode), self._url), READ_AT_ONCE)


class _File(io.RawIOBase):
    """An open file of another file system, whose errors are OSErrors of its URL."""

    def __init__(self, file: Any, url: str) -> None:
        self._file, self._url = file, url

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, into: Any, /) -> int:
        with _said(self._url):
            data = self._file.read(len(into))
        into[: len(data)] = data
        return len(data)

    def seek(self, to: int, whence: int = os.SEEK_SET, /) -> int:
        with _said(self._url):
            return int(self._file.seek(to, whence))

    def tell(self) -> int:
        return int(self._file.tell())

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


@contextmanager
def _said(url: str) -> Iterator[None]:
    """Inside, what goes wrong is an OSError of this URL."""
    try:
        yield
    except OSError as error:
        raise type(error)(error.errno, error.strerror or str(error), url) from None
    except Exception as error:  # noqa: BLE001 - each file system has errors of its own
        raise OSError(None, f"{type(error).__name__}: {error}"[:300], url) from None


Place: TypeAlias = Path | Remote
"""Where a capture is."""


def how_to_reach(place: Place) -> Message | None:
    """A hint where a place cannot be read: nothing to say of a file of this machine."""
    if not isinstance(place, Remote):
        return None
    return message(
        "capture.reach_remote",
        "credentials and the address of the service are found by the package of the file system: for s3:// in "
        "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_ENDPOINT_URL, or ~/.aws",
    )


def place_of(name: str | Place) -> Place:
    """Raises ParityError for a URL that nothing here can reach."""
    if isinstance(name, str):
        return Remote(name) if SIGN in name else Path(name)
    return name


Rest = ParamSpec("Rest")
R = TypeVar("R")


def reading_a_place(
    read: Callable[Concatenate[str | Place, Rest], R],
) -> Callable[Concatenate[str | Place, Rest], R]:
    """`read`, of which what its place refuses in the middle is a ParityError as well: a service that goes away, a disk
    that fails."""

    @wraps(read)
    def reads(path: str | Place, /, *rest: Rest.args, **named: Rest.kwargs) -> R:
        try:
            return read(path, *rest, **named)
        except OSError as error:
            raise cannot_read(str(path), error, how_to_reach(place_of(path))) from error

    return reads


def identity_of(place: Place, file: Any) -> tuple[int, int]:
    """Bytes, and when it was changed last, of a file that is being read: another one may have its name by now. Its
    numbers in the file system are others on another machine."""
    if isinstance(place, Remote):
        return place.identity()
    found = os.fstat(file.fileno())
    return found.st_size, found.st_mtime_ns
