"""Lines as they come through a pipe: together what came together, so that not each is handed over by itself."""

from __future__ import annotations

from collections.abc import Iterator
from io import BufferedReader
from typing import IO

PIPE_BYTES = 1 << 16
"""What is read at once: as much as a pipe of Linux holds."""


def lines_of(stream: IO[bytes], most: int) -> Iterator[list[bytes]]:
    """Whole lines, each with its end; at the end of the stream what is left of one, without.

    One longer than `most` bytes is cut after one byte more, and is the last.
    """
    assert isinstance(stream, BufferedReader)
    begun: list[bytes] = []
    size = 0
    while piece := stream.read1(PIPE_BYTES):
        *ended, rest = piece.split(b"\n")
        lines = [line + b"\n" for line in ended]
        if lines:
            lines[0] = b"".join((*begun, lines[0]))
            begun, size = [], 0
        begun.append(rest)
        size += len(rest)
        if lines:
            long = next((n for n, line in enumerate(lines) if len(line) > most), None)
            if long is not None:
                yield [*lines[:long], lines[long][: most + 1]]
                return
            yield lines
        if size > most:
            yield [b"".join(begun)[: most + 1]]
            return
    if size:
        yield [b"".join(begun)]
