"""Answers about the parts of something, by several processes that begin as copies of this one.

They see what this one sees, so that only answers are sent. One that is lost, or cannot be started, costs time alone:
its parts are looked at here. None outlives this process by more than the part that it is at.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, Final, NamedTuple, TypeVar

P = TypeVar("P")
R = TypeVar("R")

CAN_FORK: Final = sys.platform == "linux"
"""On macOS a copy of a process that uses system libraries is not safe; Windows makes none."""

MOST: Final = 8
"""Processes, where nobody says how many: the one that joins their answers has no time for more."""


def usable_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Forked:
    """`parity.comparator.Spread` over processes of this machine."""

    def __init__(self, jobs: int | None = None) -> None:
        """`jobs`: how many, by default one for each core that this process may use, up to MOST. With one, all is looked
        at here."""
        self._jobs = (min(usable_cores(), MOST) if jobs is None else jobs) if CAN_FORK else 1

    def __call__(self, parts: Sequence[P], work: Callable[[P], R], about: object = None, /) -> Iterator[R]:
        """`work` of each part, in their order. What it changes is changed in a copy, or here."""
        jobs = min(self._jobs, len(parts))
        if jobs < 2:
            yield from map(work, parts)
            return
        children: list[_Child] = []
        try:
            for number in range(jobs):
                children.append(_Child(work, parts, range(number, len(parts), jobs), children))
            for number, part in enumerate(parts):
                answer = children[number % jobs].answer()
                yield work(part) if answer is None else answer.value
        finally:
            for child in children:
                child.end()


class _Answer(NamedTuple):
    value: Any


class _Child:
    """One process, and the parts that it answers for."""

    def __init__(
        self, work: Callable[[Any], Any], parts: Sequence[Any], which: range, earlier: Sequence[_Child]
    ) -> None:
        context = multiprocessing.get_context("fork")
        self._answers: Connection | None
        self._answers, there = context.Pipe(duplex=False)
        not_its = [self._answers, *(child._answers for child in earlier if child._answers is not None)]
        self._process = context.Process(target=_answer, args=(work, parts, which, there, not_its), daemon=True)
        try:
            self._process.start()
        except OSError:  # too little memory, too many processes
            self._lose()
        there.close()

    def answer(self) -> _Answer | None:
        """The next one; None where the process is lost."""
        if self._answers is None:
            return None
        try:
            return _Answer(self._answers.recv())
        except (OSError, EOFError):
            self._lose()
            return None

    def end(self) -> None:
        """When nobody asks any more."""
        self._lose()
        if self._process.pid is not None:
            self._process.kill()
            self._process.join()

    def _lose(self) -> None:
        answers, self._answers = self._answers, None
        if answers is not None:
            answers.close()


def _answer(
    work: Callable[[Any], Any], parts: Sequence[Any], which: range, to: Connection, not_its: Sequence[Connection]
) -> None:
    """In the child. Whatever goes wrong goes wrong again where the part is looked at next, and is said there."""
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent has it as well, and ends this one
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        for pipe in not_its:  # else the parent's end is noticed by nobody
            pipe.close()
        with suppress(Exception):
            for number in which:
                to.send(work(parts[number]))
    finally:
        os._exit(0)  # neither what the parent has to write nor what it does at its end is this one's
