"""Recurrent states, keys and values: does a step begin with what the request's last step left there?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from parity.capture.step_table import NOTHING, Ragged
from parity.capture.steps import Ints
from parity.explain.invariants.check import Broken, Invariant, groups_with
from parity.explain.ledger import Ledger
from parity.messages import message

MOST_SLOTS: Final = 256
"""Of a row, that are asked about."""

MOST_NAMED: Final = 256
MOST_READ: Final = 1 << 16
"""Violations of which it is said who wrote there, and entries that each is looked for in: files come from elsewhere."""


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
        other[rows] = _written_by(ledger, group, rows, slots.values[now])
        yield Broken(rows, expected, seen, other)


def _written_by(ledger: Ledger, group: int, rows: Ints, wanted: Ints) -> Ints:
    """For each of `rows`, the last row-step of another request that had this slot, since the request's own last step
    began; NOTHING where there is none. One sort, whatever a file holds: every row of it may be broken."""
    slots, step, size = ledger.lists(f"state_slots/{group}"), ledger.steps.step_index, len(ledger)
    if not len(rows):
        return np.zeros(0, dtype=np.int64)
    names, codes = np.unique(slots.values, return_inverse=True)
    key = np.sort(codes * size + np.repeat(np.arange(size), slots.counts))
    holder, request = key % size, ledger.request[key % size]
    turns = np.ones(len(key), dtype=bool)
    turns[1:] = (key[1:] // size != key[:-1] // size) | (request[1:] != request[:-1])
    begun = np.maximum.accumulate(np.where(turns, np.arange(len(key)), 0))
    """Where the run of one request in one slot begins that an entry is part of."""
    slot = np.searchsorted(names, wanted) * size
    at = np.searchsorted(key, slot + np.searchsorted(step, step[rows])) - 1
    own = (at >= 0) & (request[at] == ledger.request[rows])
    at = np.where(own, begun[at] - 1, at)
    first = np.searchsorted(step, step[ledger.before[rows]])
    found: Ints = np.where((at >= 0) & (key[at] >= slot + first), holder[at], NOTHING)
    return found


def key_values_are_what_was_left(ledger: Ledger) -> Iterator[Broken]:
    """Of the same tokens at three times: as the request's last step ended, as this one begins, and as it ends."""
    for group in groups_with(ledger, "kv_found", "kv_kept", "kv_left"):
        found, kept = ledger.numbers(f"kv_found/{group}"), ledger.numbers(f"kv_kept/{group}")
        left = ledger.earlier(ledger.numbers(f"kv_left/{group}"))
        known = ledger.running & (left != NOTHING) & (found != NOTHING)
        between = known & (left != found)
        within = known & ~between & (kept != NOTHING) & (kept != found)
        rows = np.flatnonzero(between | within)
        other = np.full(len(ledger), NOTHING, dtype=np.int64)
        if len(rows) and ledger.steps.has(f"written/{group}", f"new_blocks/{group}"):
            owned, written = ledger.owned(group), ledger.lists(f"written/{group}")
            starts, in_step = written.starts, ledger.steps.step_index
            for row in rows.tolist()[:MOST_NAMED]:
                own = owned.values[owned.first[row] : owned.first[row] + owned.count[row]]
                # In this step, or in those since the request's own last one.
                begin = in_step[row] if within[row] else in_step[ledger.before[row]] + 1
                other[row] = _last_with(ledger, written, starts, row, own, (begin, in_step[row] + within[row]))
        yield Broken(rows, left, np.where(between, found, kept), other)


def _last_with(ledger: Ledger, lists: Ragged, starts: Ints, row: int, blocks: Ints, steps: tuple[int, int]) -> int:
    """The last row-step of another request that had one of these blocks, from one step to before another; of no more
    than MOST_READ entries before that."""
    first, last = (int(one) for one in np.searchsorted(ledger.steps.step_index, steps))
    first = max(first, int(np.searchsorted(starts, starts[last] - MOST_READ)))
    if first >= last:
        return NOTHING
    rows = np.repeat(np.arange(first, last), lists.counts[first:last])
    had = np.isin(lists.values[starts[first] : starts[last]], blocks) & (ledger.request[rows] != ledger.request[row])
    found = rows[had]
    return int(found[-1]) if len(found) else NOTHING


STATES = (
    Invariant(
        "state_kept",
        message("explain.state_kept", "a step begins with the recurrent state that the request's last step left"),
        ("state_found/*", "state_left/*", "state_slots/*"),
        states_are_what_was_left,
        number=message("explain.number.state", "digest of the state"),
        optional=True,
    ),
    Invariant(
        "kv_kept",
        message("explain.kv_kept", "a token's keys and values stay as the step that computed them left them"),
        ("kv_found/*", "kv_kept/*", "kv_left/*"),
        key_values_are_what_was_left,
        number=message("explain.number.key_values", "digest of keys and values"),
        optional=True,
    ),
)
