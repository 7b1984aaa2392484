"""Sketches of engine steps that wait to be written, and the blocks of the sketches file that they make."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Callable

import numpy as np

from parity.capture.sketch_table import PROJECTIONS, SKETCH_BLOCK_BYTES, UNSEEN_NORM, pack_sketches

PENDING_BLOCKS = 4
"""Blocks that wait to be packed; with more the engine waits."""


class SketchStep:
    """Copies of what one step gave; on a device they are there after its own work."""

    def __init__(self, numbers: dict[str, Any], seen: list[int]) -> None:
        self.numbers = numbers
        """step, row, request, position, token: arrays of shape (tokens,)."""
        self.seen = seen
        """Modules that gave something, by their number."""
        self.sums: Any = None
        """Products with the signs, shape (modules, tokens, projections)."""
        self.norms: Any = None
        self.routed: dict[int, tuple[Any, Any]] = {}
        """Of each router: experts of shape (tokens, chosen), and the gap of logits of shape (tokens,)."""
        self.entry: Any = None
        self.last: Any = None
        """Digests of what goes into the first layer and of what comes out of the last."""
        self.logits: list[tuple[Any, ...]] = []
        """Of each call: digests of the rows, products, norms, the argmax, how many are as large."""
        self.drafted: Any = None
        """The drafter's first pass over the same tokens, a SketchStep; its numbers are drafted and drafted_at."""

    @property
    def tokens(self) -> int:
        return len(next(iter(self.numbers.values())))


class SketchBlocks:
    """Holds steps until they are a block, which a thread packs."""

    def __init__(self, write: Callable[[dict[str, Any]], None], logits: int, ready: Callable[[], None]) -> None:
        """`logits`: the number of the module of that name. `ready` waits for copies that are on their way."""
        self.write, self.logits, self.ready = write, logits, ready
        self.thread = ThreadPoolExecutor(1)
        self.packing: list[Future[list[dict[str, Any]]]] = []
        self.clear()

    def clear(self) -> None:
        self.held: list[SketchStep] = []
        self.bytes = 0

    def add(self, step: SketchStep) -> bool:
        """Hold a step; whether there are enough for a block."""
        self.held.append(step)
        seen = len(step.seen) + (0 if step.drafted is None else len(step.drafted.seen))
        self.bytes += step.tokens * (40 + seen * (4 + 2 * PROJECTIONS))
        return self.bytes >= SKETCH_BLOCK_BYTES

    def close(self, *, wait: bool) -> None:
        """Have packed what is held, and write what is packed; with `wait` all of it."""
        if self.held:
            self.ready()
            self.packing.append(self.thread.submit(packed_sketches, self.held, self.logits))
            self.clear()
        while self.packing and (wait or self.packing[0].done() or len(self.packing) > PENDING_BLOCKS):
            for block in self.packing.pop(0).result():
                self.write(block)


def packed_sketches(steps: list[SketchStep], logits: int) -> list[dict[str, Any]]:
    """The blocks of these steps: one for each set of modules that gave something, none larger than a reader takes."""
    found: list[dict[str, Any]] = []
    alike: list[SketchStep] = []
    for step in [*steps, None]:
        if alike and (step is None or _shape_of(step) != _shape_of(alike[0])):
            found += _blocks_of(sketch_columns(alike, logits))
            alike = []
        if step is not None:
            alike.append(step)
    return found


def _shape_of(step: SketchStep) -> Any:
    drafted = None if step.drafted is None else _shape_of(step.drafted)
    return step.seen, sorted(step.routed), step.entry is None, bool(step.logits), drafted


def _blocks_of(columns: dict[str, Any]) -> list[dict[str, Any]]:
    tokens = len(columns["token"])
    size = sum(values.nbytes for values in columns.values())
    wide = max(1, int(SKETCH_BLOCK_BYTES * tokens / max(size, 1)))
    return [
        {
            "record": "sketches",
            "tokens": min(wide, tokens - begin),
            **pack_sketches({name: values[begin : begin + wide] for name, values in columns.items()}),
        }
        for begin in range(0, tokens, wide)
    ]


def sketch_columns(steps: list[SketchStep], logits: int) -> dict[str, Any]:
    """Columns of the sketches table, of steps in which the same modules gave something."""
    first = steps[0]
    found = _columns_of_modules(steps, "entry")
    if first.drafted is not None:
        found.update(_columns_of_modules([one.drafted for one in steps], "drafter_entry"))
    if first.logits:
        parts = [_of_tokens(one) for one in steps]
        sums, norms, found["best"], found["ties"] = (np.concatenate(each) for each in zip(*parts))  # noqa: B905
        found["norm/%d" % logits] = norms.astype(np.float32)
        found["sketch/%d" % logits] = _relative(sums, norms)
    return found


def _columns_of_modules(steps: list[SketchStep], entry: str) -> dict[str, Any]:
    first = steps[0]
    found: dict[str, Any] = {name: np.concatenate([one.numbers[name] for one in steps]) for name in first.numbers}
    if first.entry is not None:
        found[entry] = np.concatenate([one.entry for one in steps]).astype(np.uint32)
    if first.seen:
        sums = np.concatenate([one.sums for one in steps], axis=1)
        norms = np.concatenate([one.norms for one in steps], axis=1)
        for place, module in enumerate(first.seen):
            found["norm/%d" % module] = norms[place].astype(np.float32)
            found["sketch/%d" % module] = _relative(sums[place], norms[place])
    for module in first.routed:
        found["experts/%d" % module] = np.concatenate([one.routed[module][0] for one in steps]).astype(np.int16)
        found["gap/%d" % module] = np.concatenate([one.routed[module][1] for one in steps]).astype(np.float32)
    return found


def _relative(sums: Any, norms: Any) -> Any:
    """Sketches in units of their norm, as half precision has them."""
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        whole = sums / norms[:, None]
    return np.where(norms[:, None] > 0, whole, np.where(np.isnan(norms)[:, None], np.nan, 0)).astype(np.float16)


def _of_tokens(step: SketchStep) -> tuple[Any, ...]:
    """Logits of each token: those of the row with the same hidden states, which is whose row it is."""
    sums = np.zeros((step.tokens, PROJECTIONS), dtype=np.float32)
    norms = np.full(step.tokens, UNSEEN_NORM, dtype=np.float32)
    best = np.full(step.tokens, -1, dtype=np.int64)
    ties = np.zeros(step.tokens, dtype=np.int64)
    digests, of_sums, of_norms, of_best, of_ties = (np.concatenate(each) for each in zip(*step.logits))  # noqa: B905
    order = np.argsort(digests, kind="stable")
    place = np.searchsorted(digests[order], step.last)
    place = order[np.minimum(place, len(order) - 1)]
    known = digests[place] == step.last
    place = place[known]
    sums[known], norms[known], best[known], ties[known] = (
        of_sums[place],
        of_norms[place],
        of_best[place],
        of_ties[place],
    )
    return sums, norms, best, ties
