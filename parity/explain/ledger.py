"""What the steps of an engine imply for each row-step: the row-step before it, tokens so far, blocks owned.

Everything is an array of shape (R,), R the row-steps of one start of an engine, and follows from what the scheduler
asked for and what was handed out. Each expectation rests on the request's own last row-step as it was recorded, so one
wrong number is one violation and not one in every step after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np
import numpy.typing as npt

from parity.capture.step_table import NOTHING, Ragged, spans
from parity.capture.steps import Ints, RowSteps, StepRequest
from parity.records import Key, TokenIds

NEW, RESUMED = 1, 2
"""Values of the column `arrival`; 0: the request was running."""

Mask = npt.NDArray[np.bool_]


def counts_ahead(steps: RowSteps) -> bool:
    """Whether `computed` runs ahead of what is computed, and can be put right."""
    return "computed" in steps.header.unseen and steps.has("computed", "handed", "request")


class Ledger:
    """One start of an engine. `prompts`: token ids of the prompts by completion, as far as known."""

    def __init__(self, steps: RowSteps, prompts: Mapping[Key, TokenIds] | None = None) -> None:
        self.steps = steps
        self.prompts = prompts or {}
        self.count = len(steps)

    def __len__(self) -> int:
        return self.count

    def numbers(self, name: str) -> Ints:
        return self.steps.numbers(name)

    def lists(self, name: str) -> Ragged:
        return self.steps.lists(name)

    def request_of(self, index: int) -> StepRequest:
        return self.steps.requests[int(self.request[index])]

    # ------------------------------------------------------------------ requests

    @cached_property
    def request(self) -> Ints:
        """Number of the request in each row-step."""
        return self.numbers("request")

    def _of_request(self, values: Mapping[int, int]) -> Ints:
        size = int(self.request.max(initial=-1)) + 1
        table = np.full(size, NOTHING, dtype=np.int64)
        for number, value in values.items():
            if 0 <= number < size:
                table[number] = value
        return table[self.request]

    @cached_property
    def prompt_tokens(self) -> Ints:
        return self._of_request({number: one.prompt_tokens for number, one in self.steps.requests.items()})

    @cached_property
    def plain(self) -> Mask:
        found: Mask = self._of_request({number: int(one.plain) for number, one in self.steps.requests.items()}) == 1
        return found

    @cached_property
    def max_tokens(self) -> Ints:
        """Most output tokens of the request, NOTHING where it has no limit of its own."""
        known = self.steps.requests.items()
        return self._of_request(
            {number: NOTHING if one.max_tokens is None else one.max_tokens for number, one in known}
        )

    # ------------------------------------------------------------------ one row-step after the other

    @cached_property
    def order(self) -> Ints:
        """Row-steps by request, and of each request in time."""
        return np.argsort(self.request, kind="stable")

    @cached_property
    def begins(self) -> Mask:
        """In `order`: where another request begins."""
        sorted_requests = self.request[self.order]
        found = np.ones(self.count, dtype=bool)
        found[1:] = np.diff(sorted_requests) != 0
        return found

    @cached_property
    def known(self) -> Mask:
        """The request's first step is among these: of a ring's stretch it may be an earlier one."""
        if not self.steps.has("arrival"):
            return np.ones(self.count, dtype=bool)
        order = self.order
        first = np.where(self.begins, np.arange(self.count), 0)
        found = np.empty(self.count, dtype=bool)
        found[order] = self.numbers("arrival")[order[np.maximum.accumulate(first)]] == NEW
        return found

    @cached_property
    def before(self) -> Ints:
        """The request's row-step before this one, NOTHING for its first."""
        found = np.full(self.count, NOTHING, dtype=np.int64)
        later = ~self.begins
        found[self.order[later]] = self.order[np.flatnonzero(later) - 1]
        return found

    @cached_property
    def running(self) -> Mask:
        """The request was in the batch before and has not been preempted since."""
        found: Mask = (self.before != NOTHING) & (self.numbers("arrival") == 0)
        return found

    def earlier(self, values: Ints, otherwise: int = NOTHING) -> Ints:
        """`values` of the request's row-step before this one."""
        return np.where(self.before == NOTHING, otherwise, values[self.before])

    def lately(self, values: Mask, count: int) -> Mask:
        """Whether any of the request's `count` row-steps before this one has it."""
        places = np.arange(self.count)
        first = np.maximum.accumulate(np.where(self.begins, places, 0))
        sums = np.concatenate(([0], np.cumsum(values[self.order])))
        found = np.empty(self.count, dtype=bool)
        found[self.order] = sums[places] > sums[np.maximum(first, places - count)]
        return found

    def _sum_before(self, values: Ints) -> Ints:
        """The sum of `values` over the request's earlier row-steps."""
        ordered = values[self.order]
        sums = np.cumsum(ordered) - ordered
        base = np.maximum.accumulate(np.where(self.begins, sums, 0))
        found = np.empty(self.count, dtype=np.int64)
        found[self.order] = sums - base
        return found

    @cached_property
    def starts(self) -> Ints:
        """Where the row's tokens begin in its step's batch."""
        scheduled = self.numbers("scheduled")
        sums = np.cumsum(scheduled) - scheduled
        first = np.cumsum(self.steps.rows) - self.steps.rows
        found: Ints = sums - np.repeat(sums[first] if len(first) else first, self.steps.rows)
        return found

    # ------------------------------------------------------------------ tokens

    @cached_property
    def dropped(self) -> Mask:
        """What was handed out the scheduler did not take: the request had ended, or been put off, since it had asked
        for the step. Only under asynchronous scheduling (vLLM v0.32.0, v1/core/sched/scheduler.py,
        `update_from_output`)."""
        if not self.steps.header.asynchronous or not self.steps.has("given", "finish", "arrival"):
            return np.zeros(self.count, dtype=bool)
        no_more = np.ones(self.count, dtype=bool)  # the request's last row-step, or it was put off after this one
        had_one = self.before != NOTHING
        no_more[self.before[had_one]] = self.numbers("arrival")[had_one] == RESUMED
        ended = self._sum_before((self.numbers("finish") != NOTHING).astype(np.int64)) > 0
        found: Mask = (self.lists("given").counts == 0) & (no_more | ended)
        return found

    @cached_property
    def handed(self) -> Ragged:
        """Tokens that the row-step handed out, but for those that were `dropped`."""
        handed = self.lists("handed")
        if not self.dropped.any():
            return handed
        counts = np.where(self.dropped, 0, handed.counts)
        return Ragged(counts, handed.values[spans(handed.starts[:-1], counts)])

    @cached_property
    def emitted(self) -> Ints:
        """Tokens that the row-step handed out, but for those that were `dropped`."""
        found: Ints = self.handed.counts
        return found

    @cached_property
    def emitted_before(self) -> Ints:
        """Output tokens that the request had when the step began: the position of the step's first token."""
        return self._sum_before(self.emitted)

    @cached_property
    def computed(self) -> Ints:
        """Tokens computed before the step: never more than all but the last one known. Where the scheduler counts
        drafts as accepted until it is known, put right by what was handed out, if that was seen."""
        said = self.numbers("computed")
        if not counts_ahead(self.steps):
            return said
        found: Ints = np.minimum(said, self.prompt_tokens + self.emitted_before - 1)
        return found

    @cached_property
    def emits(self) -> Mask:
        """The row's last token is the last one known: the step makes new ones, and no chunk of a prompt."""
        known = self.prompt_tokens + self.emitted_before
        found: Mask = self.computed + self.numbers("scheduled") >= known
        return found

    @cached_property
    def decodes(self) -> Mask:
        """The whole prompt was computed before the step."""
        found: Mask = self.computed >= self.prompt_tokens
        return found

    @cached_property
    def without_drafts(self) -> Mask:
        """The row's drafts are placeholders. Under asynchronous scheduling a request that was not in the step before
        gets no others: the runner has the last step's proposals alone (vLLM v0.23.0, v1/worker/gpu_model_runner.py,
        `_prepare_input_ids`). None of them can be accepted."""
        drafts = self.lists("drafts")
        if not self.steps.header.asynchronous:
            return np.zeros(self.count, dtype=bool)
        real = np.zeros(self.count, dtype=np.int64)
        np.add.at(real, np.repeat(np.arange(self.count), drafts.counts), drafts.values != NOTHING)
        found: Mask = (drafts.counts > 0) & (real == 0)
        return found

    @cached_property
    def computed_due(self) -> Ints:
        """Computed tokens by the request's last row-step; NOTHING where it has none, or was preempted since."""
        drafts: Ints = self.lists("drafts").counts
        rejected = np.where(self.emitted > 0, drafts - (self.emitted - 1), 0)
        after = self.numbers("computed") + self.numbers("scheduled") - rejected
        return np.where(self.running, self.earlier(after), NOTHING)

    @cached_property
    def stream(self) -> tuple[Ints, Ints]:
        """All tokens handed out, request by request; and for each row-step where those of its request begin there."""
        values: Ints = self.handed.take(self.order).values
        ordered = self.emitted[self.order]
        starts = np.cumsum(ordered) - ordered
        base = np.empty(self.count, dtype=np.int64)
        base[self.order] = starts
        return values, base - self.emitted_before

    # ------------------------------------------------------------------ blocks

    def owned(self, group: int) -> Owned:
        """The blocks that the scheduler has given each row's request, up to and with this step."""
        new = self.lists(f"new_blocks/{group}")
        values: Ints = new.take(self.order).values
        ordered = new.counts[self.order]
        ends = np.cumsum(ordered)
        whole = self.begins | (self.numbers("arrival")[self.order] > 0)
        base = np.maximum.accumulate(np.where(whole, ends - ordered, 0))
        first, count = np.empty(self.count, dtype=np.int64), np.empty(self.count, dtype=np.int64)
        first[self.order], count[self.order] = base, ends - base
        return Owned(values, first, count)


class Owned:
    """Blocks of all requests in a row: those of row-step r are `values[first[r] : first[r] + count[r]]`."""

    def __init__(self, values: Ints, first: Ints, count: Ints) -> None:
        self.values, self.first, self.count = values, first, count

    def has(self, row_step: int, block: int) -> bool:
        first = int(self.first[row_step])
        return bool((self.values[first : first + int(self.count[row_step])] == block).any())

    def at(self, begin: Ints, counts: Ints) -> Ragged:
        """`counts` blocks of each row-step from its block `begin` on; NOTHING for those that it does not own."""
        index = spans(begin, counts)
        rows = np.repeat(np.arange(len(counts)), counts)
        owned = (index >= 0) & (index < self.count[rows])
        place = np.where(owned, self.first[rows] + index, 0)
        values = self.values[place] if len(self.values) else np.full(len(place), NOTHING)
        return Ragged(counts, np.where(owned, values, NOTHING))
