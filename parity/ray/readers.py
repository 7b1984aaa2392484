"""Large captures read by the nodes of a Ray cluster, which see the same files.

What a node does not read, because it was lost more often than Ray tries again, this process reads itself: the result is
the same. What no node can do at all (there is no parity, the files are not there) is an error.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from types import TracebackType
from typing import Any, Final

from parity import __version__
from parity.capture.crew import exactly, reap
from parity.capture.remote import Place
from parity.capture.stretch import Span, Stretch, in_order, loaded
from parity.errors import ParityError
from parity.messages import Message, message
from parity.ray.launcher import unreachable
from parity.ray.read_child import LOST, MISSING

AHEAD: Final = 2
"""Stretches for each core of the cluster that are asked for before they are needed; each is some 2.5 MB."""


class RayReaders:
    """As `parity.capture.stretch.Readers`, by a process that speaks to Ray (`read_child.py`). Use it with `with`."""

    def __init__(self) -> None:
        self._asked = self._answered = 0
        self._wanted: set[int] = set()
        """Requests whose answers somebody waits for: others are dropped when they come."""
        self._early: dict[int, tuple[dict[str, Any], bytearray]] = {}
        """Answers that came while another was waited for."""

    def __enter__(self) -> RayReaders:
        """Raises ParityError where there is no Ray, or no cluster."""
        if find_spec("ray") is None:
            raise ParityError(
                message("ray.not_installed", "Ray is not installed beside parity"),
                hint=message("ray.install", "in the version of the cluster: `pip install 'parity-mtp[ray]'`"),
            )
        address = os.environ.get("RAY_ADDRESS") or "auto"
        if (why := unreachable(address)) is not None:
            raise no_cluster(why)
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "parity.ray.read_child", address],
            env=env, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        try:
            said, _ = self._said()
        except (OSError, EOFError):
            reap(self._process)
            raise no_cluster(f"Ray ended ({self._process.returncode})") from None
        except BaseException:  # Ctrl-C
            reap(self._process)
            raise
        if "why" in said:
            reap(self._process)
            raise no_cluster(said["why"])
        self._cores = int(said["cores"])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        reap(self._process)

    def stretches(self, spans: Iterator[Span]) -> Iterator[tuple[Span, Stretch | None]]:
        """Raises ParityError for what no node can do."""
        mine: list[int] = []

        def ask(span: Span) -> tuple[Span, int]:
            asked = self._ask(span)
            mine.append(asked[1])
            return asked

        try:
            yield from in_order(spans, ask, self._answer, self._cores * AHEAD + 1)
        finally:
            for number in mine:
                self._wanted.discard(number)
                self._early.pop(number, None)

    def _ask(self, span: Span) -> tuple[Span, int]:
        assert self._process.stdin is not None
        number, self._asked = self._asked, self._asked + 1
        self._wanted.add(number)
        wanted = json.dumps([str(span.path.absolute()), span.begin, span.end, __version__])
        with suppress(OSError):  # nor does it answer
            self._process.stdin.write(wanted.encode() + b"\n")
        return span, number

    def _answer(self, asked: tuple[Span, int]) -> Stretch | None:
        span, number = asked
        try:
            said, data = self._answer_to(number)
        except (OSError, EOFError):
            return None  # read here
        why = said.get("no")
        if why == MISSING:
            raise not_there(span.path)
        if why == LOST:
            return None
        if why is not None:
            raise ParityError(
                message("ray.cannot_read", "a node of the Ray cluster cannot read: {why}", why=said["why"]),
                hint=message("ray.same_parity", "install this parity ({version}) on each node", version=__version__),
            )
        return loaded(data) if data else None

    def _answer_to(self, number: int) -> tuple[dict[str, Any], bytearray]:
        while number not in self._early:
            answer = self._said()
            if self._answered in self._wanted:
                self._early[self._answered] = answer
            self._answered += 1
        self._wanted.discard(number)
        return self._early.pop(number)

    def _said(self) -> tuple[dict[str, Any], bytearray]:
        """Raises OSError, EOFError."""
        line = bytearray()
        while not line.endswith(b"\n"):
            line += exactly(self._process, 1)
        said: dict[str, Any] = json.loads(line)
        return said, exactly(self._process, said["size"])


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
