"""When a fault may strike: conditions of a row in this step, from what scheduler and runner have on the host.

They are the words of `parity why` (parity/explain/predicates.py), read here from the engine and there from the steps
file, so that a condition that was planted can be set against the one that was found.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .rows import outputs_of, request_of, sampling_rows


@dataclass
class Last:
    """What a request did in its last step."""

    row: int
    moved: bool
    outputs: int
    """Tokens that it had when the step was over."""
    emitted: int
    drafts: int


class History:
    """Requests of the steps before. `begin` comes before the runner takes up the next step's batch."""

    def __init__(self) -> None:
        self.last: dict[str, Last] = {}
        self.resumed: set[str] = set()
        self.output: Any = None
        """What the scheduler asked for in the step that runs."""

    def begin(self, runner: Any, scheduler_output: Any) -> None:
        if self.output is not None:
            for request in self.output.num_scheduled_tokens:
                if request in runner.requests and request in runner.input_batch.req_id_to_index:
                    self.last[request] = self._closed(runner, request)
        self.output = scheduler_output
        self.resumed |= resumed_in(scheduler_output)
        for request in scheduler_output.finished_req_ids:
            self.last.pop(request, None)
            self.resumed.discard(request)

    def _closed(self, runner: Any, request: str) -> Last:
        row = int(runner.input_batch.req_id_to_index[request])
        total = len(runner.requests[request].output_token_ids)
        before = self.last.get(request)
        drafts = len(self.output.scheduled_spec_decode_tokens.get(request, ()))
        emitted = total - (0 if before is None else before.outputs)
        return Last(row, self.moved(request, row), total, emitted, drafts)

    def moved(self, request: str, row: int) -> bool:
        """Its row is another than in its last step; one that has just come (again) has not moved."""
        before = self.last.get(request)
        return before is not None and request not in resumed_in(self.output) and before.row != row


def resumed_in(output: Any) -> set[str]:
    """Requests that come back after a preemption in this step: a set from vLLM 0.12 on, flags beside names before."""
    cached = output.scheduled_cached_reqs
    named = getattr(cached, "resumed_req_ids", None)
    if named is not None:
        return {str(name) for name in named}
    flags = getattr(cached, "resumed_from_preemption", ())
    return {str(name) for name, flag in zip(cached.req_ids, flags) if flag}  # noqa: B905 - Python 3.9


def decodes(runner: Any, row: int) -> bool:
    """The whole prompt was computed before this step."""
    request = runner.requests[request_of(runner, row)]
    return int(request.num_computed_tokens) >= len(request.prompt_token_ids or ())


def first_position(runner: Any, row: int) -> int:
    """Of the first token that the row emits in this step, the prompt counted."""
    return len(runner.requests[request_of(runner, row)].prompt_token_ids or ()) + len(outputs_of(runner, row))


def _new(state: Any, runner: Any, row: int) -> bool:
    return request_of(runner, row) not in state.history.last


def _moved(state: Any, runner: Any, row: int) -> bool:
    return bool(state.history.moved(request_of(runner, row), row))


def _moved_before(state: Any, runner: Any, row: int) -> bool:
    last = state.history.last.get(request_of(runner, row))
    return last is not None and bool(last.moved)


def _boundary(state: Any, runner: Any, row: int) -> bool:
    return first_position(runner, row) % int(state.planting.block) == 0


def _mixed(state: Any, runner: Any, row: int) -> bool:
    rows = range(runner.input_batch.num_reqs)
    return decodes(runner, row) and any(not decodes(runner, other) for other in rows)


def _preempted(state: Any, runner: Any, row: int) -> bool:
    return request_of(runner, row) in state.history.resumed


def _accepted(state: Any, runner: Any, row: int) -> bool:
    last = state.history.last.get(request_of(runner, row))
    return last is not None and last.drafts > 0 and last.emitted == last.drafts + 1


def _rejected(state: Any, runner: Any, row: int) -> bool:
    last = state.history.last.get(request_of(runner, row))
    return last is not None and 0 < last.emitted <= last.drafts


def _drawn_beside(state: Any, runner: Any, row: int) -> bool:
    others = (other for other in range(runner.input_batch.num_reqs) if other != row)
    params = (runner.requests[request_of(runner, other)].sampling_params for other in others)
    return any(getattr(one, "temperature", 0) > 0 for one in params)


HOLDS: dict[str, Callable[[Any, Any, int], bool]] = {
    "new": _new,
    "moved": _moved,
    "moved_before": _moved_before,
    "boundary": _boundary,
    "mixed": _mixed,
    "preempted": _preempted,
    "accepted": _accepted,
    "rejected": _rejected,
    "drawn_beside": _drawn_beside,
}
"""By the names of `catalogue.CONDITIONS`."""


def able_rows(state: Any, runner: Any) -> list[int]:
    """Rows that emit in this step and in which all conditions of the planting hold: where it may strike."""
    return [row for row in sampling_rows(runner) if holds(state, runner, row)]


def holds(state: Any, runner: Any, row: int) -> bool:
    return all(HOLDS[name](state, runner, row) for name in state.planting.conditions)
