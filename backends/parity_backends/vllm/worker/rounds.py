"""One round of requests through an engine in this process, and what its batch did meanwhile."""

from __future__ import annotations

import time
from collections import deque
from typing import Any, Optional

from parity_backends.worker.asked import Record, Request
from parity_backends.worker.counters import Counted
from parity_backends.worker.protocol import Stopped
from parity_backends.worker.records import completion_record

from .listed import entries
from .rows import RowCounts, ask_runner, count_rows, counted_rows, runner_of
from .schedule import Join

PROGRESS_SECONDS = 0.5


def batch_rows(llm: Any) -> Optional[list[str]]:
    """Request ids by row of the running batch, as the last step had it; None where that cannot be seen."""
    rows = getattr(getattr(runner_of(llm), "input_batch", None), "req_ids", None)
    return None if rows is None else [row for row in rows if row is not None]


class Watch:
    """Counts the steps of a round and the sizes of its batches, and what came of its rows where they can be seen."""

    def __init__(self) -> None:
        self.sizes: dict[int, int] = {}
        self.steps = self.arrivals = self.aborted = 0
        self.rows = RowCounts()
        self.of_rows: Optional[dict[str, Any]] = None
        """`RowCounts.counters`; None where rows cannot be seen."""

    def step(self, rows: Optional[list[str]], unfinished: int) -> None:
        """After a step: the rows it had where they can be seen, else only how many requests were in flight."""
        self.steps += 1
        if rows is None:
            self.sizes[unfinished] = self.sizes.get(unfinished, 0) + 1
            return
        self.rows.step(rows)
        self.sizes, self.of_rows = self.rows.sizes, self.rows.counters()

    def take(self, counted: Optional[tuple[dict[int, int], dict[str, Any]]]) -> None:
        """At the end of a round: what the model runner counted elsewhere (`counted_rows`)."""
        if counted is not None and counted[0]:
            self.sizes, self.of_rows = counted

    def counters(self) -> Counted:
        found: Counted = {
            "steps": self.steps,
            "batch_sizes": {str(size): count for size, count in sorted(self.sizes.items())},
            "arrivals_while_decoding": self.arrivals,
            "aborted": self.aborted,
        }
        found.update(self.of_rows or {})
        return found


class Round:
    """Runs the joins of one round. `arm` gives the engine, the requests, parameters and the channel."""

    def __init__(self, arm: Any, number: int, joins: list[Join], done: int, tokens: int) -> None:
        self.arm, self.number = arm, number
        self.engine = arm.engine
        self.pending = deque(joins)
        self.running: dict[str, Join] = {}
        self.partial: dict[str, dict[int, Any]] = {}
        """The last outputs of the requests that are to be aborted, by sample."""
        self.said: list[Record] = []
        """Completions that ended with this step."""
        self.watch = Watch()
        self.batch, self.origin = -1, 0.0
        self.clock = time.perf_counter() if arm.asynchronous else None
        """When the round began, where requests arrive by the clock; None where they arrive by steps."""
        self.done, self.tokens = done, tokens
        self.last = time.perf_counter()

    def run(self) -> None:
        step = 0
        elsewhere = self.clock is None and batch_rows(self.arm.llm) is None and ask_runner(self.arm.llm, count_rows)
        while self.pending or self.engine.has_unfinished_requests():
            if self.arm.stop.is_set():
                raise Stopped
            self._admit(step if self.clock is None else time.perf_counter() - self.clock)
            unfinished = self.engine.get_num_unfinished_requests()
            outputs = self.engine.step()
            step += 1
            if self.clock is None:
                self.watch.step(batch_rows(self.arm.llm), unfinished)
            for output in outputs:
                self._take(output)
            self.arm.channel.records(self.said)
            self.said = []
            self.arm.progress(self.done, self.tokens)
        if elsewhere:
            self.watch.take(ask_runner(self.arm.llm, counted_rows))
        if self.clock is not None:
            self.watch.sizes = self.engine.take_sizes()
            self.watch.steps = sum(self.watch.sizes.values())

    def _admit(self, now: float) -> None:
        """Let those join whose time has come. Where nobody decodes there is no waiting: the next ones come at once."""
        busy = self.engine.has_unfinished_requests()
        if not busy and self.pending:
            head = self.pending[0]
            self.batch, self.origin = head.batch, now - (int(head.at) if self.clock is None else head.at)
        due = now - self.origin + (1 if self.clock is None else 1e-9)  # anything within a step joins at its beginning
        while self.pending and self.pending[0].batch == self.batch and self.pending[0].at < due:
            join = self.pending.popleft()
            request = self.arm.requests[join.index]
            name = self.arm.add_request(request, self.number, whole=join.abort_after is None)
            self.running[name] = join
            self.watch.arrivals += int(busy)

    def _take(self, output: Any) -> None:
        name = output.request_id.split("-", 1)[0]
        join = self.running[name]
        if join.abort_after is None:
            if output.finished:
                self._finish(name, list(output.outputs), False)
            return
        samples = self.partial.setdefault(name, {})
        samples.update((sample.index, sample) for sample in output.outputs)
        if output.finished:
            self._finish(name, [samples[index] for index in sorted(samples)], False)
        elif max(len(sample.token_ids) for sample in samples.values()) >= join.abort_after:
            self.engine.abort_request([output.request_id])
            self.watch.aborted += 1
            self._finish(name, [samples[index] for index in sorted(samples)], True)

    def _finish(self, name: str, samples: list[Any], aborted: bool) -> None:
        join = self.running.pop(name)
        self.partial.pop(name, None)
        request = self.arm.requests[join.index]
        seen = set()
        for sample in samples:
            record = output_record(request, self.number, sample)
            if aborted and sample.finish_reason is None:
                # The detokenizer may hold back the bytes of a character that is not complete: no text then.
                record.update(finish_reason="abort", text=None, aborted=True)
            self._record(record)
            seen.add(sample.index)
        for index in range(self.arm.samples):
            if aborted and index not in seen:  # this sample had given nothing yet
                none = completion_record(request, self.number, index, token_ids=[], finish_reason="abort", aborted=True)
                self._record(none)
        self.last = time.perf_counter()

    def _record(self, record: Record) -> None:
        self.said.append(record)
        self.done += 1
        self.tokens += len(record["token_ids"])
        self.arm.remember(record)


def output_record(request: Request, round_: int, output: Any) -> Record:
    """The record of one of vLLM's outputs."""
    record = completion_record(
        request,
        round_,
        output.index,
        token_ids=[int(token) for token in output.token_ids],
        text=output.text,
        finish_reason=output.finish_reason,
        stop_reason=output.stop_reason,
        logprobs=entries(output.logprobs),
    )
    trace: Any = getattr(output, "spec_decode_metrics", None)
    if getattr(trace, "per_step_accepted", None) is not None:
        record["spec"] = {
            "accepted": [int(count) for count in trace.per_step_accepted],
            "drafted": [int(count) for count in trace.per_step_drafted],
        }
    return record


def add_up(total: Counted, more: Counted) -> None:
    """Add counters of one round: numbers, lists of them, and histograms; `total` is changed."""
    for name, value in more.items():
        if isinstance(value, dict):
            add_up(total.setdefault(name, {}), value)
        elif isinstance(value, list):
            old = total.get(name) or [0] * len(value)
            total[name] = [a + b for a, b in zip(old, value)]  # noqa: B905 - strict is Python 3.10
        else:
            total[name] = total.get(name, 0) + value
