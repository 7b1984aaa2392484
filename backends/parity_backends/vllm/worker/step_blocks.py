"""Steps that wait to be written, and the blocks of the steps file that they make.

A thread of its own has blocks made: the engine's thread only holds what was seen, and writes what is packed.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Callable, Optional

from parity.capture.step_table import BLOCK_ROW_STEPS, BLOCK_TOKENS, pack_block

from .step_owners import Owners
from .step_requests import Requests
from .step_sight import Columns, Sight

MOST_PACKING = 4
"""Blocks that wait for the thread; with more the engine waits, so that they never fill the memory."""

Write = Callable[[dict[str, Any]], None]


Packed = tuple[Optional[dict[str, Any]], Optional[Exception]]
"""A block of some steps, or of those before one that is no use, and why it is none."""


class Unpackable(Exception):
    """What stopped the packing elsewhere: why in a line, and where."""

    def __init__(self, why: str, where: str) -> None:
        super().__init__(why)
        self.where = where


class Packing:
    """Makes blocks, one after another, for it knows the requests that the engine has."""

    def begin(self, groups: int) -> None:
        """Another file, of so many cache groups: no request is known."""
        raise NotImplementedError

    def pack(self, sights: list[Sight]) -> Packed:
        """Raises Unpackable where nothing can be packed any more."""
        raise NotImplementedError

    def end(self) -> None:
        """No more steps come."""


class PackingInThread(Packing):
    """In the thread that asks."""

    def begin(self, groups: int) -> None:
        self.requests, self.owners = Requests(), Owners(groups)

    def pack(self, sights: list[Sight]) -> Packed:
        return packed(sights, self.requests, self.owners)


class StepBlocks:
    """Holds what was seen of steps until it is a block; before the first one it writes the header."""

    def __init__(
        self, write: Write, header: Callable[[list[str]], dict[str, Any]], groups: int, packing: Packing
    ) -> None:
        """`write` takes records of the steps file; `header` makes the first from the names of the columns."""
        self.write, self.header, self.packer = write, header, packing
        self.packer.begin(groups)
        self.thread = ThreadPoolExecutor(1)
        self.packing: list[Future[Packed]] = []
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
            self.packing.append(self.thread.submit(self.packer.pack, self.held))
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


def packed(sights: list[Sight], requests: Requests, owners: Owners) -> Packed:
    error = before = None
    requests.release()
    for done, sight in enumerate(sights):
        try:
            requests.step(sight)
            sight.settle(before)
            before = sight
        except Exception as failed:
            sights, error = sights[:done], failed
            break
    if not sights:
        return None, error
    fresh, requests.fresh = requests.fresh, []
    counts = {"steps": len(sights), "rows": sum(len(one.names) for one in sights)}
    columns = {**Columns(sights).all(), **owners.columns(sights)}
    return {"record": "steps", **counts, "requests": fresh, **pack_block(columns)}, error
