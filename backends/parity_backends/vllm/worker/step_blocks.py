"""Steps that wait to be written, and the blocks of the steps file that they make.

A block is packed in a thread of its own: the engine's thread only holds what was seen, and writes what is packed.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Callable

from parity.capture.step_table import BLOCK_ROW_STEPS, BLOCK_TOKENS, pack_block

from .step_requests import Owners
from .step_sight import Columns, Sight

MOST_PACKING = 4
"""Blocks that wait for the thread; with more the engine waits, so that they never fill the memory."""

Write = Callable[[dict[str, Any]], None]


class StepBlocks:
    """Holds what was seen of steps until it is a block; before the first one it writes the header."""

    def __init__(self, write: Write, header: Callable[[list[str]], dict[str, Any]], groups: int) -> None:
        """`write` takes records of the steps file; `header` makes the first from the names of the columns."""
        self.write, self.header = write, header
        self.owners = Owners(groups)
        """Of the thread."""
        self.thread = ThreadPoolExecutor(1)
        self.packing: list[tuple[dict[str, Any], Future[dict[str, Any]]]] = []
        self.header_sent = False
        self.clear()

    def clear(self) -> None:
        self.held: list[Sight] = []
        self.rows = self.tokens = 0

    def add(self, sight: Sight) -> bool:
        """Hold a step; whether there are enough for a block."""
        self.held.append(sight)
        self.rows += len(sight.names)
        self.tokens += int(sum(sight.numbers["scheduled"]))
        return self.rows >= BLOCK_ROW_STEPS or self.tokens >= BLOCK_TOKENS

    def close(self, requests: list[dict[str, Any]], *, wait: bool) -> None:
        """Make a block of what is held, with the records of requests that are new in it. Then write what is packed;
        with `wait` all of it."""
        if self.held:
            block = {"record": "steps", "steps": len(self.held), "rows": self.rows, "requests": requests}
            self.packing.append((block, self.thread.submit(packed, self.held, self.owners)))
            self.clear()
        while self.packing and (wait or self.packing[0][1].done() or len(self.packing) > MOST_PACKING):
            block, made = self.packing.pop(0)
            columns = made.result()
            if not self.header_sent:
                self.header_sent = True
                self.write(self.header([name for name, _, _ in columns["columns"]]))
            self.write({**block, **columns})


def packed(sights: list[Sight], owners: Owners) -> dict[str, Any]:
    for sight in sights:
        owners.step(sight)
    return pack_block(Columns(sights).all())
