"""What is seen of one engine step, and the columns of the steps file that several of them make.

At the doors only copies are taken; columns are made for a whole block at once, so that a step costs a few dozen small
copies whatever the batch. Dictionaries of the engine are copied whole, for looking up 256 names takes twenty times as
long; which row each entry belongs to is settled with the block. Nothing is compared with what ought to be: that is for
whoever reads the file (parity/explain/invariants). What the engine does not show is not made up: its column is missing.
"""

from __future__ import annotations

import marshal
import zlib
from itertools import chain, repeat
from typing import Any, Callable, NamedTuple, Optional, Union

import numpy as np

from parity.capture.step_table import NO_NUMBERS, NOTHING, Ragged, spans

from .host_copies import LengthParts
from .state_columns import StateColumns


class Sight:
    """Raw readings of a step, in the order in which the doors are passed: copies, of an entry for each row."""

    def __init__(self, step: int, time_us: int) -> None:
        self.step, self.time_us = step, time_us
        self.names: list[str] = []
        """Engine's name of the request in each row."""
        self.said: list[Any] = []
        """What the scheduler said since the step before (`step_requests.Said`), of this step last."""
        self.drafted: Optional[list[str]] = None
        """Whose the lists of `drafts` are, where these are as the scheduler has them."""
        self.drafts_are_the_samplers = False
        """The scheduler has placeholders for them."""
        self.ready: Any = None
        """An event after the copies of a device's tensors."""
        self.resolve: Optional[Callable[[Sight], None]] = None
        """Makes columns of copies that are no columns yet, once these are there."""
        self.index: Optional[dict[str, int]] = None
        """Rows of the batch's index by name, where `index_row` is to be made of it."""
        self.handed: Optional[dict[str, int]] = None
        """Which list of `handed` is whose, where these are as the runner handed them out."""
        self.given: Optional[list[str]] = None
        """Whose the lists of `given` are, in the order in which the caller gets them."""
        self.ends: dict[str, int] = {}
        """Finish reasons of requests that end with this step."""
        self.proposed: Any = None
        """A matrix of the drafts for the next step, shape (rows, k), where `proposed` is to be made of it."""
        self.order: dict[str, list[int]] = {}
        """Of lists that are not in the rows' order: where the one of each row stands; NOTHING where it has none."""
        self.finished: list[int] = []
        self.step_numbers: dict[str, int] = {}
        self.prompt_lengths: Any = None
        self.plain: Any = None
        """Greedy, and nothing shapes the logits: what the target chooses is their argmax."""
        self.numbers: dict[str, Any] = {}
        """Columns that were read as they are: an array or a list with a number for each row."""
        self.lists: dict[str, Union[Ragged, Flat, bytes]] = {}
        """The same of lists."""
        self.empty: list[str] = []
        """Of them, those of which no row has any entry."""
        self.held: dict[str, Union[Flat, bytes]] = {}
        """Of them, those of which `settle` makes `lists`: as `held` has them."""
        self.arrays: dict[str, Any] = {}
        """What columns are made of: input_ids, positions and query_start of the batch; of the sampler `best` (the
        argmax of each row of logits), `matrix` (its tokens, shape (rows, k + 1), -1 after them), `draft_counts`,
        `draft_ids` and `logits_indices` (None without drafts)."""
        self.groups: dict[int, dict[str, Any]] = {}
        """By cache group, columns as they are; `slots` and `lengths` of attention, `state` of recurrent layers,
        `table` as the engine has it of the blocks of each row (`step_owners`)."""
        self.places: Any = None
        """Of each row's request, where `Requests` has it."""
        self.came: list[tuple[int, Any, bool]] = []
        """`Requests.came`"""

    def wait(self) -> None:
        """Until the copies are there. In the engine's thread: on an NPU another has no context to wait in."""
        if self.ready is not None:
            self.ready.synchronize()

    def settle(self, before: Optional[Sight] = None) -> None:
        """Lists of what was copied whole, and which row each entry of what was copied by name belongs to. Of a batch
        that is as in the step `before` these are that step's. Raises TypeError."""
        if self.resolve is not None:
            self.resolve(self)
        names = self.names
        if before is not None and names != before.names:
            before = None
        for name, lists in self.held.items():
            self.lists[name] = let_go(lists) if isinstance(lists, bytes) else lists
        if self.proposed is not None:
            self.lists["proposed"] = ragged_rows(self.proposed)
        if self.drafted is not None and self.drafted != names:
            self.order["drafts"] = looked_up(dict(zip(self.drafted, range(len(self.drafted)))), names)  # noqa: B905
        for name in self.empty:
            known = None if before is None or name not in before.empty else before.lists[name]
            self.lists[name] = known or Ragged(np.zeros(len(names), dtype=np.int64), NO_NUMBERS)
        if self.index is not None:
            if before is not None and unchanged(self.index, before.index):
                self.numbers["index_row"] = before.numbers["index_row"]
            else:
                self.numbers["index_row"] = np.array(looked_up(self.index, names), dtype=np.int64)
        if self.handed is not None:
            self._rows_handed(self.handed, before)
        if self.given is not None:
            if self.given is not names and self.given != names:
                whose = dict(zip(self.given, range(len(self.given))))  # noqa: B905
                self.order["given"] = looked_up(whose, names)
            if self.ends:
                self.numbers["finish"] = looked_up(self.ends, names)
            elif before is not None and before.given is not None and not before.ends:
                self.numbers["finish"] = before.numbers["finish"]
            else:
                self.numbers["finish"] = np.full(len(names), NOTHING)

    def _rows_handed(self, handed: dict[str, int], before: Optional[Sight]) -> None:
        count = list_count(self.lists["handed"])
        if before is not None and unchanged(handed, before.handed) and list_count(before.lists["handed"]) == count:
            self.numbers["output_row"] = before.numbers["output_row"]
            if "handed" in before.order:
                self.order["handed"] = before.order["handed"]
            return
        rows = looked_up(handed, self.names)
        self.numbers["output_row"] = np.array(rows, dtype=np.int64)
        if rows != list(range(count)):
            self.order["handed"] = rows


class Columns:
    """The columns of several steps. A column that any of them lacks is left out."""

    def __init__(self, sights: list[Sight]) -> None:
        self.sights = sights
        self.rows = np.array([len(one.names) for one in sights])
        self.found: dict[str, Any] = {}
        self.scheduled = self.numbers("scheduled")
        self.computed = self.numbers("computed")
        self.starts = np.concatenate(([0], np.cumsum(self.scheduled)))
        self.row_of_token = np.repeat(np.arange(len(self.scheduled)), self.scheduled)

    def all(self) -> dict[str, Any]:
        """Names of the steps table to arrays."""
        found = self.found
        found["step"] = np.array([one.step for one in self.sights])
        found["time_us"] = np.array([one.time_us for one in self.sights])
        found["rows"] = self.rows
        sums = np.concatenate(([0], np.cumsum(self.rows)))
        found["tokens"] = self.starts[sums[1:]] - self.starts[sums[:-1]]
        for name in self.shared("step_numbers"):
            found[name] = np.array([one.step_numbers[name] for one in self.sights])
        found["finished"] = ragged([one.finished for one in self.sights])
        for name in self.shared("numbers"):
            found[name] = self.numbers(name)
        for name in self.shared("lists"):
            found[name] = self.lists(name)
        self._batch()
        self._sampler()
        for group in sorted({group for one in self.sights for group in one.groups}):
            self._group(group)
        return found

    def shared(self, what: str) -> list[str]:
        """Names that all steps have in this dictionary."""
        return in_all([getattr(one, what) for one in self.sights])

    def numbers(self, name: str) -> Any:
        parts = [one.numbers[name] for one in self.sights]
        if all(type(one) is list for one in parts):
            return np.array(list(chain.from_iterable(parts)), dtype=np.int64)
        return np.concatenate(parts).astype(np.int64, copy=False)

    def lists(self, name: str) -> Ragged:
        """Those of each row, in the rows' order."""
        joined = as_ragged([one.lists[name] for one in self.sights])
        if not any(name in one.order for one in self.sights):
            return joined
        places, begin, nothing = [], 0, len(joined.counts)
        for one in self.sights:
            count = list_count(one.lists[name])
            at = np.asarray(one.order.get(name, range(count)), dtype=np.int64)
            places.append(np.where((at >= 0) & (at < count), at + begin, nothing))
            begin += count
        order = np.concatenate(places)
        if np.array_equal(order, np.arange(nothing)):
            return joined
        return Ragged(np.append(joined.counts, 0), joined.values).take(order)

    def joined(self, name: str) -> Optional[Any]:
        """An array of all steps, None where any lacks it."""
        parts = [part for one in self.sights if (part := one.arrays.get(name)) is not None]
        return np.concatenate(parts) if len(parts) == len(self.sights) else None

    def counted(self, rows: Any, wrong: Any) -> Any:
        """How many of `wrong` each row has."""
        return np.bincount(rows[wrong], minlength=len(self.scheduled))

    # ------------------------------------------------------------------ the batch

    def _batch(self) -> None:
        found, starts, rows = self.found, self.starts, self.row_of_token
        if all(one.arrays.get("query_start") is not None for one in self.sights):
            found["query_length"] = self._lengths([one.arrays["query_start"] for one in self.sights])
        positions = self.joined("positions")
        if positions is not None and len(positions) == len(rows):
            first = positions[np.minimum(starts[:-1], len(positions) - 1)]
            off = positions != (first - starts[:-1])[rows] + np.arange(len(positions))
            found["position"], found["positions_off"] = first, self.counted(rows, off)
        ids = self.joined("input_ids")
        if ids is None or len(ids) != len(rows):
            return
        prompts = np.concatenate([one.prompt_lengths for one in self.sights])
        tail = np.clip(self.computed + self.scheduled - prompts, 0, self.scheduled)
        found["inputs"] = Ragged(tail, ids[np.arange(len(ids)) >= (starts[1:] - tail)[rows]])
        crc = np.zeros(len(tail), dtype=np.int64)
        for row in np.flatnonzero(self.scheduled > tail).tolist():
            part = ids[starts[row] : starts[row + 1] - tail[row]]
            crc[row] = zlib.crc32(np.ascontiguousarray(part, dtype="<i4").tobytes())
        found["prompt_crc"] = crc

    @staticmethod
    def _lengths(starts: list[Any]) -> Any:
        """Of each row, from where the rows of each step start, and the last one ends."""
        all_starts = np.concatenate(starts)
        inside = np.ones(len(all_starts), dtype=bool)
        inside[np.cumsum([len(one) for one in starts]) - 1] = False
        return np.diff(all_starts)[inside[:-1]]

    # ------------------------------------------------------------------ the sampler

    def _sampler(self) -> None:
        if any("matrix" not in one.arrays for one in self.sights):
            return
        widest = max(one.arrays["matrix"].shape[1] for one in self.sights)
        matrix = np.full((len(self.scheduled), widest), -1, dtype=np.int64)
        begin = 0
        for one in self.sights:
            part = one.arrays["matrix"]
            matrix[begin : begin + len(part), : part.shape[1]] = part
            begin += len(part)
        drafting = [one for one in self.sights if one.arrays.get("draft_counts") is not None]
        with_drafts = np.repeat([one.arrays.get("draft_counts") is not None for one in self.sights], self.rows)
        counts = np.zeros(len(self.scheduled), dtype=np.int64)
        ids = np.array([], dtype=np.int64)
        if drafting:
            counts[with_drafts] = np.concatenate([one.arrays["draft_counts"] for one in drafting])
            ids = np.concatenate([one.arrays["draft_ids"] for one in drafting]).astype(np.int64)
        the_schedulers_too = any(one.drafts_are_the_samplers for one in self.sights)
        self.found["drafts" if the_schedulers_too else "sampler_drafts"] = Ragged(counts, ids)
        self._places(drafting, with_drafts, counts)
        made = (matrix != -1).sum(axis=1)
        sampled = Ragged(made, matrix[np.arange(widest) < made[:, None]])
        self.found["sampled"] = sampled
        best = self.joined("best")
        if best is not None and len(best) == int((counts + 1).sum()) and len(ids) == int(counts.sum()):
            self.found["chosen"] = self._chosen(best.astype(np.int64), Ragged(counts, ids), sampled)

    def _places(self, drafting: list[Sight], with_drafts: Any, counts: Any) -> None:
        """The first of each row's places of logits, and how many do not follow on; only where there are drafts."""
        first = np.full(len(counts), NOTHING, dtype=np.int64)
        off = np.zeros(len(counts), dtype=np.int64)
        known = [one.arrays["logits_indices"] for one in drafting]
        width = (counts + 1)[with_drafts]
        if known and all(part is not None for part in known) and sum(map(len, known)) == int(width.sum()):
            indices = np.concatenate(known)
            first[with_drafts] = indices[np.cumsum(width) - width]
            wrong = indices != spans(first[with_drafts], width)
            off[with_drafts] = np.bincount(np.repeat(np.arange(len(width)), width)[wrong], minlength=len(width))
        self.found["logits_first"], self.found["logits_off"] = first, off

    def _chosen(self, best: Any, drafts: Ragged, sampled: Ragged) -> Ragged:
        """What the target chose in each plain row, up to the first that no draft equals.

        Of equal logits the first, as torch.argmax has it and with it vLLM's samplers.
        """
        width = drafts.counts + 1
        begin = np.cumsum(width) - width
        columns = np.arange(int(width.max(initial=1)))
        chosen = best[np.minimum(begin[:, None] + columns, len(best) - 1)]
        padded = np.full(chosen.shape, -2, dtype=np.int64)
        padded[columns < drafts.counts[:, None]] = drafts.values
        length = np.minimum(1 + np.cumprod(chosen == padded, axis=1).sum(axis=1), width)
        plain = np.concatenate([one.plain for one in self.sights])
        length = np.where(plain, length, 0)
        return Ragged(length, chosen[columns < length[:, None]])

    # ------------------------------------------------------------------ cache groups

    def _group(self, group: int) -> None:
        parts = [one.groups.get(group, {}) for one in self.sights]
        for name in in_all(parts):
            full = "%s/%d" % (name, group)
            if name == "state":
                self._state(group, [part["state"] for part in parts])
            elif name == "slots":
                self._slots(group, np.concatenate([part["slots"] for part in parts]), parts[0]["size"])
            elif name == "sequence_length":
                lengths = [part[name] for part in parts]
                self.found[full] = np.concatenate(
                    [one.whole() if isinstance(one, LengthParts) else one for one in lengths]
                )
            elif name not in ("size", "table"):
                self.found[full] = np.concatenate([part[name] for part in parts])

    def _slots(self, group: int, slots: Any, size: int) -> None:
        """Slots that keys and values go into, shape (tokens,); `size` slots are a block."""
        first, rows = self.found.get("position"), self.row_of_token
        if first is None or len(slots) != len(rows) or not size:
            return
        offset = (first - self.starts[:-1])[rows] + np.arange(len(slots))
        self.found["slots_off/%d" % group] = self.counted(rows, slots % size != offset % size)
        blocks = slots // size
        new = np.ones(len(blocks), dtype=bool)
        new[1:] = (np.diff(blocks) != 0) | (np.diff(rows) != 0)
        self.found["written/%d" % group] = Ragged(self.counted(rows, new), blocks[new])

    def _state(self, group: int, steps: list[dict[str, Any]]) -> None:
        """Metadata of recurrent layers, by step."""
        state = StateColumns(steps, self.rows, self.scheduled)
        self.found.update(("%s/%d" % (name, group), values) for name, values in state.all().items())


def in_all(known: list[dict[str, Any]]) -> list[str]:
    """Keys that all of these have, in the order of the first."""
    names = known[0].keys()
    found = set(names)
    for one in known:
        if not found <= one.keys():
            found &= one.keys()
    return [name for name in names if name in found]


def unchanged(one: Any, other: Any) -> bool:
    return one is other or one == other


def held(lists: list[Any]) -> Union[Flat, bytes]:
    """Lists of numbers as they are now, for `settle`.

    Of a step of 256 rows whose lists are in none of the processor's caches `marshal` takes 31 us, `flat` 69."""
    first = next((one for one in lists if len(one)), None)
    if type(first) is list and type(first[0]) is int:
        return marshal.dumps(lists, 2)
    return flat(lists)


LIST = ord("[")
"""How `marshal` begins a list; a number of 32 bits with "i". Its length or value follows, little-endian."""

ENTRY = np.dtype([("kind", "u1"), ("value", "<i4")])
"""What it writes of each."""


def is_of_entries(lists: bytes) -> bool:
    """Whether these are lists of numbers of 32 bits alone, so that many can be read at once."""
    kinds = lists[:: ENTRY.itemsize]
    outer = len(lists) % ENTRY.itemsize == 0 and kinds[:1] == b"["
    return outer and not kinds.translate(None, b"[i") and kinds.count(b"[") == 1 + list_count(lists)


def let_go(lists: bytes) -> Union[Flat, bytes]:
    """What `held` was given, or the same bytes where `as_ragged` reads them. Raises TypeError where some were of
    another kind: an array is marshalled as its bytes."""
    if is_of_entries(lists):
        return lists
    found = marshal.loads(lists)
    if any(type(one) is not list for one in found):
        raise TypeError("lists of several kinds")
    return flat(found)


def of_entries(parts: list[bytes]) -> Ragged:
    """What `held` was given, one after the other. Raises TypeError for lists of lists."""
    entries = np.frombuffer(b"".join(part[ENTRY.itemsize :] for part in parts), dtype=ENTRY)
    of_lists = entries["kind"] == LIST
    counts = entries["value"][of_lists].astype(np.int64)
    if not np.array_equal(np.flatnonzero(of_lists), np.arange(len(counts)) + np.cumsum(counts) - counts):
        raise TypeError("lists of several kinds")
    return Ragged(counts, entries["value"][~of_lists].astype(np.int64))


class Flat(NamedTuple):
    """Lists of numbers, copied as they were: arrays are made of them later (`as_ragged`)."""

    counts: list[int]
    values: list[int]


def flat(lists: Any) -> Flat:
    return Flat(list(map(len, lists)), list(chain.from_iterable(lists)))


def list_count(lists: Union[Ragged, Flat, bytes]) -> int:
    return int.from_bytes(lists[1:5], "little") if isinstance(lists, bytes) else len(lists.counts)


def as_ragged(parts: list[Any]) -> Ragged:
    """Flat, Ragged and what `held` made, one after the other as one Ragged."""
    if all(type(one) is bytes for one in parts):
        return of_entries(parts)
    parts = [of_entries([one]) if isinstance(one, bytes) else one for one in parts]
    counts = np.concatenate([np.asarray(one.counts, dtype=np.int64) for one in parts])
    return Ragged(counts, np.concatenate([np.asarray(one.values, dtype=np.int64) for one in parts]))


def ragged(lists: Any) -> Ragged:
    """Ragged of lists of numbers."""
    counts = np.fromiter(map(len, lists), dtype=np.int64, count=len(lists))
    return Ragged(counts, np.fromiter(chain.from_iterable(lists), dtype=np.int64, count=int(counts.sum())))


def looked_up(known: Any, names: Any, otherwise: int = NOTHING) -> list[int]:
    """The numbers that a dictionary has for these names."""
    return list(map(known.get, names, repeat(otherwise)))


def ragged_rows(matrix: Any) -> Ragged:
    """Ragged of the rows of a matrix."""
    rows, wide = matrix.shape
    return Ragged(np.full(rows, wide, dtype=np.int64), matrix.astype(np.int64).reshape(-1))
