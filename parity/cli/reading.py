"""What is shown while large captures are read and compared: a bar on a terminal, nothing elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TextIO

from parity.language import render
from parity.messages import message
from parity.text import visible

if TYPE_CHECKING:
    from parity.capture.remote import Place

LARGE_BYTES = 48 * 1024 * 1024
"""Files that are smaller together are compared in about a second."""


class Watch:
    """Nobody looks: what is read and compared is not shown."""

    def file(self, path: Place) -> Callable[[int], None] | None:
        """The next file: what `parity.capture.read_capture` takes as `seen`."""
        return None

    def comparing(self) -> None:
        """All is read."""


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
    task = bars.add_task("", total=total)

    class Bar(Watch):
        done = 0

        def file(self, path: Place) -> Callable[[int], None]:
            before = self.done
            self.done += _size(path)
            bars.update(
                task,
                completed=before,
                description=render(message("cli.reading", "reading {name}", name=visible(path.name))),
            )
            return lambda read: bars.update(task, completed=before + read)

        def comparing(self) -> None:
            bars.remove_task(task)
            bars.add_task(render(message("cli.comparing", "comparing")), total=None)

    with bars:
        yield Bar()


def _size(path: Place) -> int:
    """Bytes; of what cannot be looked at none, for whoever reads it says so."""
    with suppress(OSError):
        files = path.iterdir() if path.is_dir() else (path,)
        return sum(file.stat().st_size for file in files)
    return 0
