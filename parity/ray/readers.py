"""Large captures read by the nodes of a Ray cluster, which see the same files.

What a node does not read, because it was lost more often than Ray tries again, this process reads itself: the result is
the same. What no node can do at all (there is no parity, the files are not there) is an error.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from types import TracebackType
from typing import Any, Final

from parity import __version__
from parity.capture.remote import Place, place_of
from parity.capture.stretch import Span, Stretch, dumped, in_order, loaded, stretch_of
from parity.errors import ParityError
from parity.messages import Message, message
from parity.ray.launcher import unreachable

TRIES: Final = 5
"""Times that Ray begins again what a lost node was doing."""

AHEAD: Final = 2
"""Stretches for each core of the cluster that are asked for before they are needed; each is some 2.5 MB."""


class RayReaders:
    """As `parity.capture.stretch.Readers`. Use it with `with`."""

    def __enter__(self) -> RayReaders:
        """Raises ParityError where there is no Ray, or no cluster."""
        try:
            import ray
        except ImportError:
            raise ParityError(
                message("ray.not_installed", "Ray is not installed beside parity"),
                hint=message("ray.install", "in the version of the cluster: `pip install 'parity-mtp[ray]'`"),
            ) from None
        address = os.environ.get("RAY_ADDRESS") or "auto"
        if (why := unreachable(address)) is not None:
            raise no_cluster(why)
        try:
            ray.init(address, log_to_driver=False, logging_level="ERROR")
        except Exception as error:  # noqa: BLE001 - whatever it is, there is no cluster to read on
            raise no_cluster(_last_line(error)) from None
        self._ray: Any = ray
        # Ray prints what it knows of a lost node, on stdout, which is for results.
        self._aside = redirect_stdout(sys.stderr)
        self._aside.__enter__()
        self._task = ray.remote(num_cpus=1, max_retries=TRIES)(read_there)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ray.shutdown()
        self._aside.__exit__(kind, error, trace)

    def stretches(self, spans: Iterator[Span]) -> Iterator[tuple[Span, Stretch | None]]:
        """Raises ParityError for what no node can do."""
        cores = int(self._ray.cluster_resources().get("CPU", 1))
        return in_order(spans, self._ask, self._answer, cores * AHEAD + 1)

    def _ask(self, span: Span) -> tuple[Span, Any]:
        return span, self._task.remote(str(span.path.absolute()), span.begin, span.end, __version__)

    def _answer(self, asked: tuple[Span, Any]) -> Stretch | None:
        span, reference = asked
        errors = self._ray.exceptions
        try:
            data = self._ray.get(reference)
        except errors.RayTaskError as error:
            if isinstance(error, FileNotFoundError):
                raise not_there(span.path) from None
            raise ParityError(
                message("ray.cannot_read", "a node of the Ray cluster cannot read: {why}", why=_last_line(error)),
                hint=message("ray.same_parity", "install this parity ({version}) on each node", version=__version__),
            ) from None
        except errors.RayError:
            return None  # read here
        return loaded(data) if data else None


def read_there(path: str, begin: int, end: int, version: str) -> bytes:
    """On a node. Raises FileNotFoundError where it does not see the file, RuntimeError for another parity."""
    if version != __version__:
        raise RuntimeError(f"parity {__version__}")
    place = place_of(path)
    if not place.is_file():
        raise FileNotFoundError(path)
    try:
        found = stretch_of(place, begin, end)
    except (OSError, ParityError):
        return b""  # the one that asks meets it as well, or does not
    return b"" if found is None else dumped(found)


def no_cluster(why: str) -> ParityError:
    said: Message = message("ray.no_cluster", "no Ray cluster: {why}", why=why)
    return ParityError(
        said, hint=message("ray.start_or_name", "start one (`ray start --head`), or name it: `RAY_ADDRESS=HOST:PORT`")
    )


def not_there(path: Place) -> ParityError:
    return ParityError(
        message("ray.not_there", "a node of the Ray cluster does not see {path}", path=str(path.absolute())),
        hint=message("ray.share", "put the captures on a file system that all nodes have at the same place"),
    )


def _last_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[-1][:300]
