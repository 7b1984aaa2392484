"""What is shown while large captures are read and compared: a bar on a terminal, nothing elsewhere.

Comparing goes through a run several times, each with a bar of its own."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TextIO, TypeVar

from parity.language import render
from parity.messages import Message, message
from parity.text import visible

if TYPE_CHECKING:
    from parity.capture.remote import Place
    from parity.comparator.types import Spread

P = TypeVar("P")
R = TypeVar("R")
LARGE_BYTES = 48 * 1024 * 1024
"""Files that are smaller together are compared in about a second."""


class Watch:
    """Nobody looks: what is read and compared is not shown."""

    def file(self, path: Place) -> Callable[[int], None] | None:
        """The next file: what `parity.capture.read_capture` takes as `seen`."""
        return None

    def comparing(self, spread: Spread) -> Spread:
        """All is read: what `CompareOptions.spread` is then."""
        return spread


@contextmanager
def watched(files: Sequence[Place], stream: TextIO | None = None) -> Iterator[Watch]:
    """Shows how far the reading of the files has come and how long it will take, on `stream` (stderr unless given)."""
    stream = sys.stderr if stream is None else stream
    total = sum(map(_size, files))
    if total < LARGE_BYTES or not stream.isatty():
        yield Watch()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, Task, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.text import Text

    class Left(TimeRemainingColumn):
        """Nothing where nobody knows."""

        def render(self, task: Task) -> Text:
            left = render(message("cli.time_left", "left:"))
            return Text("") if task.total is None else Text.assemble(f"{left} ", super().render(task))

    bars = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TimeElapsedColumn(),
        Left(),
        console=Console(file=stream),
        transient=True,
    )

    class Bar(Watch):
        done, task = 0, bars.add_task("", total=total)

        def file(self, path: Place) -> Callable[[int], None]:
            before = self.done
            self.done += _size(path)
            bars.update(
                self.task,
                completed=before,
                description=render(message("cli.reading", "reading {name}", name=visible(path.name))),
            )
            return lambda read: bars.update(self.task, completed=before + read)

        def comparing(self, spread: Spread) -> Spread:
            said = render(message("cli.comparing", "comparing"))
            self._now(said, None)

            def shown(parts: Sequence[P], work: Callable[[P], R], about: Message, /) -> Iterator[R]:
                self._now(f"{said}: {render(about)}", len(parts))
                for answer in spread(parts, work, about):
                    bars.advance(self.task)
                    yield answer
                self._now(said, None)

            return shown

        def _now(self, said: str, total: int | None) -> None:
            """Another bar in the place of the one before; total: None where nobody knows."""
            bars.remove_task(self.task)
            self.task = bars.add_task(said, total=total)

    with bars:
        yield Bar()


def _size(path: Place) -> int:
    """Bytes; of what cannot be looked at none, for whoever reads it says so."""
    with suppress(OSError):
        files = path.iterdir() if path.is_dir() else (path,)
        return sum(file.stat().st_size for file in files)
    return 0
