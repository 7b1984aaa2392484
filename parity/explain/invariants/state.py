"""Recurrent states: does a step begin with what the request's last step left in its slots?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from parity.capture.step_table import NOTHING
from parity.capture.steps import Ints
from parity.explain.invariants.check import Broken, Invariant, groups_with
from parity.explain.ledger import Ledger
from parity.messages import message

MOST_SLOTS: Final = 256
"""Of a row, that are asked about."""


def states_are_what_was_left(ledger: Ledger) -> Iterator[Broken]:
    if ledger.steps.header.mamba_cache_mode != "none" or not ledger.steps.has("states_found_in", "states_left_in"):
        return  # with prefix caching states are copied from block to block between steps
    in_step = ledger.steps.step_index
    read_now = ledger.numbers("states_found_in")[in_step]
    same_layers = ledger.running & (read_now == ledger.earlier(ledger.numbers("states_left_in")[in_step]))
    for group in groups_with(ledger, "state_found", "state_left", "state_slots"):
        slots = ledger.lists(f"state_slots/{group}")
        found, left = ledger.lists(f"state_found/{group}"), ledger.lists(f"state_left/{group}")
        earlier: Ints = np.maximum(ledger.before, 0)
        place = np.full(len(ledger), NOTHING, dtype=np.int64)
        here, there = slots.starts[:-1], slots.starts[:-1][earlier]
        found_at, left_at = found.starts[:-1], left.starts[:-1][earlier]
        whole = (found.counts == slots.counts) & (left.counts == slots.counts)
        asked = same_layers & whole & whole[earlier]
        # The slots of a row are a draft each and one more.
        for column in range(min(MOST_SLOTS, int(slots.counts[asked].max(initial=0)))):
            both = asked & (column < slots.counts) & (column < slots.counts[earlier]) & (place == NOTHING)
            rows = np.flatnonzero(both)
            now, then = here[rows] + column, there[rows] + column
            digests = found.values[found_at[rows] + column], left.values[left_at[rows] + column]
            wrong = (slots.values[now] == slots.values[then]) & (digests[0] != digests[1])
            place[rows[wrong]] = column
        rows = np.flatnonzero(place != NOTHING)
        now = here[rows] + place[rows]
        expected, seen = (np.full(len(ledger), NOTHING, dtype=np.int64) for _ in range(2))
        expected[rows], seen[rows] = (
            left.values[left_at[rows] + place[rows]],
            found.values[found_at[rows] + place[rows]],
        )
        other = np.full(len(ledger), NOTHING, dtype=np.int64)
        for row, slot in zip(rows.tolist(), slots.values[now].tolist(), strict=True):
            other[row] = _written_by(ledger, group, row, slot)
        yield Broken(rows, expected, seen, other)


def _written_by(ledger: Ledger, group: int, row: int, slot: int) -> int:
    """The last row-step of another request that had this slot, since the request's own last step began."""
    slots, step = ledger.lists(f"state_slots/{group}"), ledger.steps.step_index
    first, last = np.searchsorted(step, (step[ledger.before[row]], step[row]))
    own = int(ledger.request[row])
    for other in range(int(last) - 1, int(first) - 1, -1):
        if int(ledger.request[other]) != own and slot in slots.row(other):
            return other
    return NOTHING


STATES = (
    Invariant(
        "state_kept",
        message("explain.state_kept", "a step begins with the recurrent state that the request's last step left"),
        ("state_found/*", "state_left/*", "state_slots/*"),
        states_are_what_was_left,
        number=message("explain.number.state", "digest of the state"),
        optional=True,
    ),
)
