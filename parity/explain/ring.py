"""Of a run of any length, the steps around violations and the last ones: blocks are checked as they come.

An invariant rests on the earlier steps of its request. So blocks are held from the first step of the oldest request
that still runs, and new ones are asked about together with those: what is held is bounded by how long a request may
run, not by how long the engine does. What leaves the ring is let go, but for blocks from the first step of a request
that broke something to the block after; of those, too, only so many are kept. All that was asked is counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from parity.capture.steps import (
    RowSteps,
    StepRequest,
    StepsBlock,
    StepsHeader,
    StepsLine,
    StepsStopped,
    StepsSummary,
    block_columns,
    check_requests,
    joined_blocks,
)
from parity.explain.invariants import INVARIANTS, Invariant
from parity.explain.ledger import Ledger
from parity.explain.violations import check
from parity.records import Key, TokenIds
from parity.records.recording import RING

NUMBERS_OF_A_ROW: Final = 72
"""In the columns of a row-step, at most, of engines that were recorded: a block with more counts as more row-steps."""


class Limits(Struct, frozen=True):
    """In row-steps."""

    last: int = 1 << 18
    """Of the end of a run that are kept whatever they are: some 10 to 25 MB."""
    broken: int = 1 << 20
    """Around violations that are kept: where everything breaks, the first of it tells enough."""
    checked: int = 1 << 16
    """New ones that are checked together; and no fewer than must be looked at again with them."""
    held: int = 1 << 20
    """Held at most for requests that still run: of one that runs longer no more is asked."""


LIMITS: Final = Limits()


@dataclass
class _Held:
    """A block in the ring."""

    number: int
    """Of the engine's blocks, from 0."""
    block: StepsBlock
    requests: frozenset[int]
    """Numbers of those that have rows in it."""
    marked: bool
    """To be kept when it leaves the ring."""
    columns: dict[str, Any] | None
    """Until it is checked."""
    weight: int
    """Its row-steps, or as many as would take the room that it takes."""
    broken: int = 0
    """Row-steps in it that broke an invariant."""


class Ring:
    """The steps of one start of an engine. `prompts`: token ids by completion, as far as known."""

    def __init__(
        self,
        header: StepsHeader,
        prompts: Mapping[Key, TokenIds],
        limits: Limits = LIMITS,
        invariants: Sequence[Invariant] = INVARIANTS,
    ) -> None:
        self._header = replace(header, kept=RING)
        self._prompts, self._limits, self._invariants = prompts, limits, invariants
        self._held: list[_Held] = []
        self._count = 0
        """Blocks that came."""
        self._new = 0
        """Row-steps that no invariant was asked of yet."""
        self._new_weight = self._old_weight = self._kept_weight = 0
        """Of the blocks that these are in, of those that must be looked at again with them, and of those that left the
        ring and are kept."""
        self._floor = 0
        """The first block that those to come may have to be asked about with."""
        self._alive: dict[int, int] = {}
        """The block of its first step, of each request that has not ended."""
        self._born: dict[int, int] = {}
        """The same of all requests in the ring."""
        self._requests: dict[int, StepRequest] = {}
        self._marked_to = -1
        """Up to this block all are kept, also those to come."""
        self._summary = StepsSummary(replica=header.replica)
        self._stopped: StepsStopped | None = None
        self._out = _Stretches(self._header, self._requests)

    # ------------------------------------------------------------------ what comes

    def add(self, line: StepsBlock | StepsStopped) -> None:
        """The next line of the engine. Raises ValueError, KeyError, TypeError for a damaged block."""
        if isinstance(line, StepsStopped):
            self._stopped = line
            return
        columns = block_columns(line)
        self._requests.update((one.number, one) for one in line.requests)
        check_requests(columns, self._requests)
        numbers = frozenset(np.unique(columns["request"]).tolist())
        weight = max(1, line.rows, line.numbers // NUMBERS_OF_A_ROW, len(line.requests))
        self._held.append(_Held(self._count, line, numbers, self._count <= self._marked_to, columns, weight))
        for number in numbers - self._born.keys():
            self._alive[number] = self._born[number] = self._count
        for number in columns["finished"].values.tolist() if "finished" in columns else ():
            self._alive.pop(number, None)
        self._count += 1
        self._new += line.rows
        self._new_weight += weight
        if self._new_weight >= max(self._limits.checked, self._old_weight):
            self._check()

    def pause(self) -> None:
        """No request is left: everything that came is asked about."""
        self._alive.clear()
        self._check()

    # ------------------------------------------------------------------ what is written

    def kept(self) -> list[StepsLine]:
        """Lines that will not change, since the last call."""
        lines, self._out.lines = self._out.lines, []
        return lines

    def rest(self, *, whole: bool) -> list[StepsLine]:
        """Lines that follow them for now: what the ring holds (without `whole` only what is to be kept), the count."""
        out = _Stretches(self._header, self._requests, self._out)
        for one in self._held:
            if whole or one.marked:
                out.add(one.number, one.block, one.requests)
        summary = replace(self._summary, kept=self._summary.kept + out.row_steps)
        return [*out.lines, self._header, *([self._stopped] if self._stopped else []), summary]

    # ------------------------------------------------------------------ asking

    def _check(self) -> None:
        """Ask the invariants of what is new, count, mark what is to be kept, and let go of what is not needed."""
        if not self._new_weight:
            return
        window = [one for one in self._held if one.number >= self._floor]
        if self._new:
            self._ask(window)
        for one in window:
            one.columns = None
        self._new = self._new_weight = 0
        self._floor = min(self._alive.values(), default=self._count)
        if self._weight_from(self._floor) > self._limits.held:
            self._floor = self._count
        self._let_go()
        self._old_weight = self._weight_from(self._floor)

    def _weight_from(self, number: int) -> int:
        return sum(one.weight for one in self._held if one.number >= number)

    def _ask(self, window: Sequence[_Held]) -> None:
        columns = joined_blocks([one.columns or block_columns(one.block) for one in window])
        steps = RowSteps(self._header, self._requests, columns)
        found = check(steps, self._prompts, self._invariants, most=None)
        old = len(steps) - self._new
        asked = int(Ledger(steps).known[old:].sum())
        violations = [one for one in found.violations if one.index >= old]
        ends = np.cumsum([one.block.rows for one in window])
        wanted: set[tuple[int, int]] = set()
        for index in sorted({one.index for one in violations}):
            held = window[int(np.searchsorted(ends, index, side="right"))]
            held.broken += 1
            wanted.add((self._born.get(int(steps.numbers("request")[index]), held.number), held.number + 1))
        self._mark(wanted)
        before = self._summary
        self._summary = replace(
            before,
            steps=before.steps + len(np.unique(steps.step_index[old:])),
            row_steps=before.row_steps + asked,
            asked=_added(before.asked, dict.fromkeys(found.asked, asked)),
            violations=_added(before.violations, Counter(one.invariant for one in violations)),
            broken=before.broken + len({one.index for one in violations}),
        )

    def _mark(self, spans: Collection[tuple[int, int]]) -> None:
        """Blocks from a first to a last, of each span."""
        last = -1
        waiting = sorted(spans, reverse=True)
        for one in self._held:
            while waiting and waiting[-1][0] <= one.number:
                last = max(last, waiting.pop()[1])
            one.marked |= one.number <= last
        self._marked_to = max(self._marked_to, last)

    def _let_go(self) -> None:
        weight, gone = self._weight_from(0), 0
        while (
            gone < len(self._held)
            and self._held[gone].number < self._floor
            and weight - self._held[gone].weight >= self._limits.last
        ):
            one = self._held[gone]
            gone += 1
            weight -= one.weight
            if one.marked and self._kept_weight + one.weight <= self._limits.broken:
                self._kept_weight += one.weight
                self._out.add(one.number, one.block, one.requests)
                self._summary = replace(self._summary, kept=self._summary.kept + one.block.rows)
            elif one.broken:
                self._summary = replace(self._summary, let_go=self._summary.let_go + one.broken)
        del self._held[:gone]
        there = {number for one in self._held for number in one.requests} | self._alive.keys()
        for known in (self._requests, self._born):
            for number in known.keys() - there:
                del known[number]


class _Stretches:
    """Lines of blocks that are kept: each stretch of them that follow on under a header of its own."""

    def __init__(
        self, header: StepsHeader, requests: Mapping[int, StepRequest], after: _Stretches | None = None
    ) -> None:
        """`after`: goes on where those ended."""
        self.header, self.requests = header, requests
        self.lines: list[StepsLine] = []
        self.row_steps = 0
        self.last: int = -2 if after is None else after.last
        self.named: set[int] = set() if after is None else set(after.named)
        """Requests whose records stand in this stretch."""

    def add(self, number: int, block: StepsBlock, requests: frozenset[int]) -> None:
        if number != self.last + 1:
            self.lines.append(self.header)
            self.named.clear()
        self.last = number
        new = [self.requests[one] for one in sorted(requests - self.named) if one in self.requests]
        self.named |= requests
        self.row_steps += block.rows
        self.lines.append(replace(block, requests=new))


def _added(before: Mapping[str, int], more: Mapping[str, int]) -> dict[str, int]:
    return {name: before.get(name, 0) + more.get(name, 0) for name in {**before, **more}}


def ringed(
    header: StepsHeader, lines: Sequence[StepsBlock | StepsStopped], prompts: Mapping[Key, TokenIds], limits: Limits
) -> Iterator[StepsLine]:
    """What a ring keeps of these lines."""
    ring = Ring(header, prompts, limits)
    for line in lines:
        ring.add(line)
    ring.pause()
    yield from ring.kept()
    yield from ring.rest(whole=True)


__all__ = ["LIMITS", "Limits", "Ring", "ringed"]
