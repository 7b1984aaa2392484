"""The columns of recurrent layers that the rows of several steps make."""

from __future__ import annotations

from typing import Any

import numpy as np

from parity.capture.step_table import DECODE, NOTHING, PREFILL, SPECULATIVE, Ragged, sums_before

STATE_DIGESTS = ("found", "left")
"""Of recurrent states, as a step begins and as it ends."""


class StateColumns:
    """One cache group's; `steps` are its readings (`host_copies.state_readings`) in order, `rows` the number of rows of
    each step, `scheduled` the tokens of each row of all steps."""

    def __init__(self, steps: list[dict[str, Any]], rows: Any, scheduled: Any) -> None:
        count = len(scheduled)
        self.scheduled = scheduled
        self.wide = max([1, *(seen["spec_slots"].shape[1] for seen in steps if seen["spec_slots"] is not None)])
        self.mask = np.zeros(count, dtype=bool)
        self.path = np.full(count, PREFILL, dtype=np.int64)
        self.accepted = np.full(count, NOTHING, dtype=np.int64)
        self.initial = np.full(count, NOTHING, dtype=np.int64)
        self.split_off = np.zeros(count, dtype=np.int64)
        self.slots = np.full((count, self.wide), NOTHING, dtype=np.int64)
        seen = [name for name in STATE_DIGESTS if all(name in one for one in steps)]
        self.digests = {name: np.zeros((count, self.wide), dtype=np.int64) for name in seen}
        self._take(steps, np.asarray(rows))

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
            found["state_%s" % name] = self._of_each_slot(values)
        return found

    def _of_each_slot(self, values: Any) -> Ragged:
        """A speculative row has a state for each draft and one more, any other row has one."""
        counts = np.where(self.mask, self.wide, 1)
        return Ragged(counts, values[np.arange(self.wide) < counts[:, None]])

    def _take(self, steps: list[dict[str, Any]], rows: Any) -> None:
        """All steps at once: of speculative rows (`spec`) and of others, each in the order of rows."""
        ends = np.cumsum(rows)
        begins = ends - rows
        masks = [seen["mask"] for seen in steps]
        for mask, begin, end in zip(masks, begins.tolist(), ends.tolist()):  # noqa: B905
            if mask is not None:
                self.mask[begin:end] = mask[: end - begin]
        spec, other = np.flatnonzero(self.mask), np.flatnonzero(~self.mask)
        sums = sums_before(self.mask)
        of_spec = sums[ends] - sums[begins]
        of_other = rows - of_spec
        self.path[spec] = SPECULATIVE
        decodes = np.array([seen["decodes"] for seen in steps])
        rank = np.arange(len(other)) - np.repeat(np.cumsum(of_other) - of_other, of_other)
        self.path[other[rank < np.repeat(decodes, of_other)]] = DECODE
        put(self.accepted, spec, of_spec, [seen["accepted"] for seen in steps])
        put(self.initial, other, of_other, [seen["initial"] for seen in steps])
        put(self.slots, spec, of_spec, [seen["spec_slots"] for seen in steps])
        put(self.slots[:, 0], other, of_other, [seen["other_slots"] for seen in steps])
        for name, values in self.digests.items():
            put(values, spec, of_spec, [seen[name][0] for seen in steps])
            put(values[:, 0], other, of_other, [seen[name][1] for seen in steps])
        mixed = np.flatnonzero((of_spec > 0) & (of_other > 0)).tolist()
        if not mixed or self._splits_in_order(steps, begins, ends, mixed):
            return
        for at in mixed:
            part = slice(int(begins[at]), int(ends[at]))
            self.split_off[part] = split_off(self.scheduled[part], self.mask[part], steps[at])

    def _splits_in_order(self, steps: list[dict[str, Any]], begins: Any, ends: Any, mixed: list[int]) -> bool:
        """Whether these steps with both kinds of rows have every token in its place: so it is in nearly all blocks."""
        sums = sums_before(self.scheduled)
        first, end = sums[begins], sums[ends]
        asked = np.zeros(len(steps), dtype=bool)
        asked[mixed] = True
        asked = np.repeat(asked, end - first)
        place = np.arange(len(asked)) - np.repeat(first, end - first)
        mask = np.repeat(self.mask, self.scheduled)
        before = sums_before(np.where(self.mask, self.scheduled, 0))
        of_spec = before[ends] - before[begins]
        for name, of, counts in (("spec_tokens", mask, of_spec), ("other_tokens", ~mask, end - first - of_spec)):
            given = [steps[at][name] for at in mixed]
            if any(one is None for one in given) or list(map(len, given)) != counts[mixed].tolist():
                return False
            if not np.array_equal(np.concatenate(given), place[of & asked]):
                return False
        return True


def put(column: Any, rows: Any, counts: Any, values: list[Any]) -> None:
    """What was read of these rows, of which each step has `counts`: an array by step, None where nothing was.

    Of several numbers a row `column` has as many or more.
    """
    parts = [one[:count] for one, count in zip(values, counts.tolist()) if one is not None and count]  # noqa: B905
    if not parts:
        return
    known = [one is not None for one in values]
    if not all(known):
        rows = rows[np.repeat(known, counts)]
    if column.ndim == 1 or len({one.shape[1] for one in parts}) == 1:
        found = np.concatenate(parts)
        where = (rows,) if column.ndim == 1 else (rows, slice(found.shape[1]))
        column[where] = found
        return
    begin = 0
    for part in parts:
        column[rows[begin : begin + len(part)], : part.shape[1]] = part
        begin += len(part)


def split_off(scheduled: Any, mask: Any, seen: dict[str, Any]) -> Any:
    """How many tokens of each row of a step with both the split into speculative and other rows puts into another's
    place."""
    off = np.zeros(len(mask), dtype=np.int64)
    if seen["spec_tokens"] is None or seen["other_tokens"] is None:
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
