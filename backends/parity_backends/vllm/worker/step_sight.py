"""What is seen of one engine step, and the columns of the steps file that it makes.

Everything here is on the host. Nothing is compared with what ought to be: that is for whoever reads the file
(parity/explain/invariants). What the engine does not show is not made up: its column is missing.
"""

from __future__ import annotations

import zlib
from typing import Any, Optional

import numpy as np

from parity.capture.step_table import NOTHING, Ragged

SPECULATIVE, DECODE, PREFILL = 0, 1, 2
"""The paths of a row through recurrent layers."""


class Sight:
    """Raw readings of a step, in the order in which the doors are passed. Arrays are copies."""

    def __init__(self, step: int, time_us: int) -> None:
        self.step, self.time_us = step, time_us
        self.names: list[str] = []
        """Engine's name of the request in each row."""
        self.request = self.arrival = self.prompt_lengths = np.zeros(0, dtype=np.int64)
        self.plain = np.zeros(0, dtype=bool)
        """Greedy, and nothing shapes the logits: what the target chooses is their argmax."""
        self.scheduled = self.computed = np.zeros(0, dtype=np.int64)
        self.drafts = Ragged(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
        self.numbers: dict[str, Any] = {}
        """Columns that were read as they are."""
        self.lists: dict[str, Ragged] = {}
        self.step_numbers: dict[str, int] = {}
        self.finished: list[int] = []
        self.groups: dict[int, dict[str, Any]] = {}
        """By cache group, what its layers were given."""
        self.logits_indices: Optional[Any] = None

    @property
    def starts(self) -> Any:
        """Where each row's tokens begin in the batch, as the scheduler's counts have it; shape (rows + 1,)."""
        return np.concatenate(([0], np.cumsum(self.scheduled)))

    @property
    def row_of_token(self) -> Any:
        return np.repeat(np.arange(len(self.scheduled)), self.scheduled)

    # ------------------------------------------------------------------ the batch

    def batch(self, input_ids: Optional[Any], positions: Optional[Any], query_start: Optional[Any]) -> None:
        """Arrays of shape (tokens,), (tokens,) and (rows + 1,), None where not seen."""
        starts, rows = self.starts, self.row_of_token
        if query_start is not None:
            self.numbers["query_length"] = np.diff(query_start)
        if positions is not None:
            first = positions[starts[:-1]]
            off = positions != (first - starts[:-1])[rows] + np.arange(len(positions))
            self.numbers["position"] = first
            self.numbers["positions_off"] = np.bincount(rows[off], minlength=len(starts) - 1)
        if input_ids is not None:
            ends = self.computed + self.scheduled
            tail = np.clip(ends - self.prompt_lengths, 0, self.scheduled)
            whole = Ragged(self.scheduled, input_ids)
            keep = np.arange(len(input_ids)) >= (starts[1:] - tail)[rows]
            self.lists["inputs"] = Ragged(tail, input_ids[keep])
            crc = np.zeros(len(tail), dtype=np.int64)
            for row in np.flatnonzero(self.scheduled > tail):
                begin = starts[row]
                part = whole.values[begin : begin + self.scheduled[row] - tail[row]]
                crc[row] = zlib.crc32(np.ascontiguousarray(part, dtype="<i4").tobytes())
            self.numbers["prompt_crc"] = crc

    def attention(self, group: int, slots: Optional[Any], lengths: Optional[Any], size: int) -> None:
        """An attention group: slots of shape (tokens,), sequence lengths of shape (rows,), slots in a block."""
        found = self.groups.setdefault(group, {})
        if lengths is not None:
            found["sequence_length"] = lengths
        positions = self.numbers.get("position")
        if slots is None or positions is None or not size:
            return
        starts, rows = self.starts, self.row_of_token
        offset = (positions - starts[:-1])[rows] + np.arange(len(slots))
        found["slots_off"] = np.bincount(rows[slots % size != offset % size], minlength=len(starts) - 1)
        blocks = slots // size
        new = np.ones(len(blocks), dtype=bool)
        new[1:] = (np.diff(blocks) != 0) | (np.diff(rows) != 0)
        counts = np.bincount(rows[new], minlength=len(starts) - 1)
        found["written"] = Ragged(counts, blocks[new])

    def state(self, group: int, seen: dict[str, Any]) -> None:
        """A group of recurrent layers: `seen` is its metadata as arrays (None: there is none)."""
        count = len(self.scheduled)
        mask = seen["mask"]
        mask = np.zeros(count, dtype=bool) if mask is None else mask[:count].astype(bool)
        spec, other = np.flatnonzero(mask), np.flatnonzero(~mask)
        path = np.where(mask, SPECULATIVE, PREFILL)
        path[other[: seen["decodes"]]] = DECODE
        accepted = np.full(count, NOTHING, dtype=np.int64)
        initial = np.full(count, NOTHING, dtype=np.int64)
        found = self.groups.setdefault(group, {})
        found.update(path=path, accepted=accepted, initial=initial)
        if len(spec) and seen["accepted"] is not None:
            accepted[spec] = seen["accepted"][: len(spec)]
        if seen["initial"] is not None:
            initial[other] = seen["initial"][: len(other)]
            initial[path == DECODE] = NOTHING
        width = seen["spec_slots"].shape[1] if len(spec) and seen["spec_slots"] is not None else 1
        slots = np.full((count, width), NOTHING, dtype=np.int64)
        if len(spec) and seen["spec_slots"] is not None:
            slots[spec] = seen["spec_slots"][: len(spec)]
        if len(other) and seen["other_slots"] is not None:
            slots[other, 0] = seen["other_slots"][: len(other)]
        counts = np.where(mask, width, 1)
        found["state_slots"] = Ragged(counts, slots[np.arange(width) < counts[:, None]])
        found["split_off"] = self._split_off(mask, spec, other, seen["spec_tokens"], seen["other_tokens"])

    def _split_off(self, mask: Any, spec: Any, other: Any, spec_tokens: Any, other_tokens: Any) -> Any:
        """How many tokens of each row the split into speculative and other rows puts into another's place."""
        off = np.zeros(len(mask), dtype=np.int64)
        if not len(spec) or not len(other) or spec_tokens is None or other_tokens is None:
            return off
        rows = self.row_of_token
        for given, due in ((spec_tokens, np.flatnonzero(mask[rows])), (other_tokens, np.flatnonzero(~mask[rows]))):
            if len(given) != len(due):
                return self.scheduled.copy()
            wrong = given != due
            both = np.union1d(given[wrong], due[wrong])
            off += np.bincount(rows[both[both < len(rows)]], minlength=len(mask))
        return off

    # ------------------------------------------------------------------ the sampler

    def logits(self, counts: Optional[Any], draft_ids: Optional[Any], indices: Optional[Any]) -> None:
        """Before sampling: drafts of each row as the sampler has them, and the places of its logits."""
        rows = len(self.scheduled)
        if counts is None or draft_ids is None:
            self.lists["sampler_drafts"] = Ragged(np.zeros(rows, dtype=np.int64), np.zeros(0, dtype=np.int64))
            self.numbers["logits_first"] = np.full(rows, NOTHING)
            self.numbers["logits_off"] = np.zeros(rows, dtype=np.int64)
            return
        counts = np.asarray(counts, dtype=np.int64)
        self.lists["sampler_drafts"] = Ragged(counts, np.asarray(draft_ids, dtype=np.int64))
        if indices is not None and len(indices) == int(counts.sum()) + rows:
            width = counts + 1
            begin = np.cumsum(width) - width
            first = indices[begin]
            of_row = np.repeat(np.arange(rows), width)
            off = indices != (first - begin)[of_row] + np.arange(len(indices))
            self.numbers["logits_first"] = first
            self.numbers["logits_off"] = np.bincount(of_row[off], minlength=rows)

    def sampled(self, matrix: Any, best: Optional[Any]) -> Any:
        """After sampling: tokens of shape (rows, k + 1), -1 after them, and the argmax of each logits row.

        The places where a plain row's tokens are not what the logits chose: [row, place in the row, token], for
        whoever can tell whether two logits were equal.
        """
        counts = (matrix != -1).sum(axis=1)
        self.lists["sampled"] = Ragged(counts, matrix[np.arange(matrix.shape[1]) < counts[:, None]].astype(np.int64))
        if best is None:
            return []
        drafts = self.lists["sampler_drafts"]
        width = drafts.counts + 1
        if len(best) != int(width.sum()):
            return []
        begin = np.cumsum(width) - width
        columns = np.arange(int(width.max(initial=1)))
        chosen = best[np.minimum(begin[:, None] + columns, len(best) - 1)].astype(np.int64)
        padded = np.full(chosen.shape, -2, dtype=np.int64)
        padded[columns < drafts.counts[:, None]] = drafts.values
        length = 1 + np.cumprod(chosen == padded, axis=1).sum(axis=1)
        length = np.where(self.plain, np.minimum(length, width), 0)
        self.lists["chosen"] = Ragged(length, chosen[columns < length[:, None]])
        return self._parted(matrix, counts, chosen, length, begin)

    def _parted(self, matrix: Any, counts: Any, chosen: Any, length: Any, begin: Any) -> list[tuple[int, int, int]]:
        wide = min(matrix.shape[1], chosen.shape[1])
        both = np.arange(wide) < np.minimum(counts, length)[:, None]
        differs = (matrix[:, :wide] != chosen[:, :wide]) & both
        rows = np.flatnonzero(differs.any(axis=1))
        places = differs[rows].argmax(axis=1)
        return [(int(row), int(begin[row] + at), int(matrix[row, at])) for row, at in zip(rows, places)]  # noqa: B905

    def was_a_tie(self, row: int) -> None:
        """The row's token had the very same logit as the argmax: the target chose either."""
        chosen, sampled = self.lists["chosen"], self.lists["sampled"]
        kept = [chosen.row(one) if one != row else sampled.row(one) for one in range(len(chosen.counts))]
        self.lists["chosen"] = ragged(kept)

    # ------------------------------------------------------------------ columns

    def columns(self) -> dict[str, Any]:
        """Names of the steps table to arrays of one step."""
        found: dict[str, Any] = {
            "step": np.array([self.step]),
            "time_us": np.array([self.time_us]),
            "rows": np.array([len(self.names)]),
            "tokens": np.array([int(self.scheduled.sum())]),
            **{name: np.array([value]) for name, value in self.step_numbers.items()},
            "finished": ragged([self.finished]),
            "request": self.request,
            "arrival": self.arrival,
            "computed": self.computed,
            "scheduled": self.scheduled,
            "drafts": self.drafts,
            **self.numbers,
            **self.lists,
        }
        for group, columns in self.groups.items():
            found.update(("%s/%d" % (name, group), values) for name, values in columns.items())
        return found


def ragged(lists: Any) -> Ragged:
    """Ragged of lists of numbers."""
    counts = np.fromiter((len(one) for one in lists), dtype=np.int64, count=len(lists))
    flat = [value for one in lists for value in one]
    return Ragged(counts, np.array(flat, dtype=np.int64))
