"""Steps that wait to be written, and the blocks of the steps file that they make.

A block is made in a thread of its own: the engine's thread only holds what was seen, waits for the last copies of a
device, which are long there, and writes what is packed.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Callable, Optional

from parity.capture.step_table import BLOCK_ROW_STEPS, BLOCK_TOKENS, pack_block

from .step_owners import Owners
from .step_requests import Requests
from .step_sight import Columns, Sight, lists_read

MOST_PACKING = 4
"""Blocks that wait for the thread; with more the engine waits, so that they never fill the memory."""

Write = Callable[[dict[str, Any]], None]


class StepBlocks:
    """Holds what was seen of steps until it is a block; before the first one it writes the header."""

    def __init__(self, write: Write, header: Callable[[list[str]], dict[str, Any]], groups: int) -> None:
        """`write` takes records of the steps file; `header` makes the first from the names of the columns."""
        self.write, self.header = write, header
        self.requests, self.owners = Requests(), Owners(groups)
        """Of the thread."""
        self.thread = ThreadPoolExecutor(1)
        self.packing: list[Future[tuple[Optional[dict[str, Any]], Optional[Exception]]]] = []
        self.header_sent = False
        self.clear()

    def clear(self) -> None:
        self.held: list[Sight] = []
        self.rows = self.tokens = 0

    def add(self, sight: Sight) -> bool:
        """Hold a step; whether there are enough for a block."""
        self.held.append(sight)
        self.rows += len(sight.names)
        self.tokens += sight.said[-1].total
        return self.rows >= BLOCK_ROW_STEPS or self.tokens >= BLOCK_TOKENS

    def close(self, *, wait: bool) -> None:
        """Make a block of what is held. Then write what is packed; with `wait` all of it. Raises what stopped that."""
        if self.held:
            for sight in self.held:
                sight.wait()
            self.packing.append(self.thread.submit(packed, self.held, self.requests, self.owners))
            self.clear()
        while self.packing and (wait or self.packing[0].done() or len(self.packing) > MOST_PACKING):
            block, error = self.packing.pop(0).result()
            if block is not None:
                if not self.header_sent:
                    self.header_sent = True
                    self.write(self.header([name for name, _, _ in block["columns"]]))
                self.write(block)
            if error is not None:
                raise error


def packed(
    sights: list[Sight], requests: Requests, owners: Owners
) -> tuple[Optional[dict[str, Any]], Optional[Exception]]:
    """A block of these steps, or of those before one that is no use, and why it is none."""
    error = before = None
    requests.release()
    read = lists_read(sights)
    for done, sight in enumerate(sights):
        try:
            requests.step(sight)
            sight.settle(before, read)
            before = sight
        except Exception as failed:
            sights, error, read = sights[:done], failed, {}
            break
    if not sights:
        return None, error
    fresh, requests.fresh = requests.fresh, []
    counts = {"steps": len(sights), "rows": sum(len(one.names) for one in sights)}
    columns = {**Columns(sights, read).all(), **owners.columns(sights)}
    return {"record": "steps", **counts, "requests": fresh, **pack_block(columns)}, error
