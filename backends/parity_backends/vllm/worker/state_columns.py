"""The columns of recurrent layers that the rows of several steps make."""

from __future__ import annotations

from typing import Any

import numpy as np

from parity.capture.step_table import DECODE, NOTHING, PREFILL, SPECULATIVE, Ragged

STATE_DIGESTS = ("found", "left")
"""Of recurrent states, as a step begins and as it ends."""


class StateColumns:
    """One cache group's; `steps` are its readings (`host_copies.state_readings`) in order, `rows` the number of rows of
    each step, `scheduled` the tokens of each row of all steps."""

    def __init__(self, steps: list[dict[str, Any]], rows: Any, scheduled: Any) -> None:
        count = len(scheduled)
        self.steps, self.scheduled = steps, scheduled
        self.wide = max([1, *(seen["spec_slots"].shape[1] for seen in steps if seen["spec_slots"] is not None)])
        self.mask = np.zeros(count, dtype=bool)
        self.path = np.full(count, PREFILL, dtype=np.int64)
        self.accepted = np.full(count, NOTHING, dtype=np.int64)
        self.initial = np.full(count, NOTHING, dtype=np.int64)
        self.split_off = np.zeros(count, dtype=np.int64)
        self.slots = np.full((count, self.wide), NOTHING, dtype=np.int64)
        self.digests = {name: np.zeros((count, self.wide), dtype=np.int64) for name in STATE_DIGESTS}
        ends = np.cumsum(rows).tolist()
        for seen, begin, end in zip(steps, [0, *ends], ends):  # noqa: B905
            self._take(seen, begin, end)

    def all(self) -> dict[str, Any]:
        """Columns of the steps file, without the group in their names."""
        initial = np.where(self.path == DECODE, NOTHING, self.initial)
        found: dict[str, Any] = {
            "path": self.path,
            "accepted": self.accepted,
            "initial": initial,
            "split_off": self.split_off,
        }
        found["state_slots"] = self._of_each_slot(self.slots)
        for name, values in self.digests.items():
            if all(name in seen for seen in self.steps):
                found["state_%s" % name] = self._of_each_slot(values)
        return found

    def _of_each_slot(self, values: Any) -> Ragged:
        """A speculative row has a state for each draft and one more, any other row has one."""
        counts = np.where(self.mask, self.wide, 1)
        return Ragged(counts, values[np.arange(self.wide) < counts[:, None]])

    def _take(self, seen: dict[str, Any], begin: int, end: int) -> None:
        """One step, whose rows stand from `begin` to `end`."""
        if seen["mask"] is not None:
            self.mask[begin:end] = seen["mask"][: end - begin]
        mask = self.mask[begin:end]
        spec, other = begin + np.flatnonzero(mask), begin + np.flatnonzero(~mask)
        self.path[spec] = SPECULATIVE
        self.path[other[: seen["decodes"]]] = DECODE
        put(self.accepted, spec, seen["accepted"])
        put(self.initial, other, seen["initial"])
        put_wide(self.slots, spec, seen["spec_slots"])
        put(self.slots[:, 0], other, seen["other_slots"])
        for name, values in self.digests.items():
            of_spec, of_others = seen.get(name, (None, None))
            put_wide(values, spec, of_spec)
            put(values[:, 0], other, of_others)
        self.split_off[begin:end] = split_off(self.scheduled[begin:end], mask, seen)


def put(column: Any, rows: Any, values: Any) -> None:
    """What was read of these rows, in their order; None: nothing was."""
    if values is not None and len(rows):
        column[rows] = values[: len(rows)]


def put_wide(columns: Any, rows: Any, values: Any) -> None:
    """The same of several numbers a row."""
    if values is not None and len(rows):
        columns[rows, : values.shape[1]] = values[: len(rows)]


def split_off(scheduled: Any, mask: Any, seen: dict[str, Any]) -> Any:
    """How many tokens of each row of a step the split into speculative and other rows puts into another's place."""
    off = np.zeros(len(mask), dtype=np.int64)
    if mask.all() or not mask.any() or seen["spec_tokens"] is None or seen["other_tokens"] is None:
        return off
    rows = np.repeat(np.arange(len(mask)), scheduled)
    for given, of in ((seen["spec_tokens"], mask), (seen["other_tokens"], ~mask)):
        due = np.flatnonzero(of[rows])
        if len(given) != len(due):
            return scheduled.copy()
        wrong = given != due
        if not wrong.any():
            continue
        both = np.union1d(given[wrong], due[wrong])
        off += np.bincount(rows[both[both < len(rows)]], minlength=len(off))
    return off
