"""Who wrote a state slot last: as looked for row by row, in time that grows with the file and not with its square."""

from __future__ import annotations

import time

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from step_world import World

from parity.capture.step_table import NOTHING
from parity.capture.steps import Ragged, RowSteps, StepRequest
from parity.explain.invariants.state import states_are_what_was_left
from parity.explain.ledger import Ledger

HEADER = World(1).recorded().header
GROUP = next(number for number, one in enumerate(HEADER.groups) if one.kind == "state")


def recorded(rows: list[int], requests: list[int], slots: list[list[int]], found: int) -> RowSteps:
    """Steps of so many rows, each with slots of a state; every one is found as `found` and left as 1."""
    counts, values = (
        np.array(one, dtype=np.int64) for one in ([len(one) for one in slots], [slot for one in slots for slot in one])
    )
    ones = np.ones(len(values), dtype=np.int64)
    of_rows, of_steps = np.ones(len(requests), dtype=np.int64), np.ones(len(rows), dtype=np.int64)
    columns = {
        "rows": np.array(rows), "step": np.arange(len(rows)), "request": np.array(requests, dtype=np.int64),
        "arrival": 0 * of_rows, "computed": of_rows, "scheduled": of_rows,
        "states_found_in": of_steps, "states_left_in": of_steps,
        f"state_slots/{GROUP}": Ragged(counts, values), f"state_left/{GROUP}": Ragged(counts, ones),
        f"state_found/{GROUP}": Ragged(counts, ones * found),
    }  # fmt: skip
    return RowSteps(HEADER, {number: StepRequest(number=number) for number in set(requests)}, columns)


def looked_for(steps: RowSteps, row: int) -> int:
    """As it was written down first: back from the row's step to that of the request's last one."""
    ledger, slots = Ledger(steps), steps.lists(f"state_slots/{GROUP}")
    before = int(ledger.before[row])
    both = zip(slots.row(row), slots.row(before), strict=False)
    slot = next(now for now, then in both if now == then)
    for other in range(row - 1, -1, -1):
        between = steps.step_index[before] <= steps.step_index[other] < steps.step_index[row]
        if between and ledger.request[other] != ledger.request[row] and slot in slots.row(other):
            return other
    return NOTHING


@st.composite
def worlds(draw: st.DrawFn) -> RowSteps:
    rows = draw(st.lists(st.integers(0, 4), min_size=1, max_size=12))
    some = st.lists(st.integers(0, 3), min_size=1, max_size=3)
    requests = draw(st.lists(st.integers(0, 3), min_size=sum(rows), max_size=sum(rows)))
    slots = draw(st.lists(some, min_size=sum(rows), max_size=sum(rows)))
    return recorded(rows, requests, slots, found=2)


@settings(deadline=None, max_examples=200)
@given(steps=worlds())
def test_it_is_who_had_the_slot_last(steps: RowSteps) -> None:
    ledger = Ledger(steps)
    for broken in states_are_what_was_left(ledger):
        assert broken.other is not None
        for row in broken.rows.tolist():
            assert broken.other[row] == looked_for(steps, row)


def test_a_long_file_in_which_every_row_is_broken_takes_no_time_of_its_square() -> None:
    def seconds(count: int) -> float:
        """Every request has the same slot, in two large steps."""
        half = count // 2
        requests = [*range(half), *range(half)]
        steps = recorded([half, half], requests, [[7]] * half + [[7]] * half, found=2)
        began = time.process_time()
        (broken,) = states_are_what_was_left(Ledger(steps))
        took = time.process_time() - began
        assert len(broken.rows) == half
        return took

    assert seconds(200_000) < 5.0
