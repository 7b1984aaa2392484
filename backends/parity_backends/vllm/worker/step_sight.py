"""What is seen of one engine step, and the columns of the steps file that several of them make.

At the doors only copies are taken; columns are made for a whole block at once, so that a step costs a few dozen small
copies whatever the batch. Dictionaries of the engine are copied whole, for looking up 256 names takes twenty times as
long; which row each entry belongs to is settled with the block. Nothing is compared with what ought to be: that is for
whoever reads the file (parity/explain/invariants). What the engine does not show is not made up: its column is missing.
"""

from __future__ import annotations

import marshal
import zlib
from collections.abc import Container
from itertools import chain, repeat
from typing import Any, Callable, NamedTuple, Optional, Union

import numpy as np

from parity.capture.step_table import NO_NUMBERS, NOTHING, Ragged, spans, sums_before

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
        self.lists: dict[str, Any] = {}
        """The same of lists: Ragged, Flat, bytes (`held`), or a matrix of a list for each row."""
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

    def settle(self, before: Optional[Sight] = None, read: Container[str] = ()) -> None:
        """Lists of what was copied whole, and which row each entry of what was copied by name belongs to. Of a batch
        that is as in the step `before` these are that step's. `read`: whose lists need no look (`lists_read`). Raises
        TypeError."""
        if self.resolve is not None:
            self.resolve(self)
        names = self.names
        if before is not None and names != before.names:
            before = None
        for name, lists in self.held.items():
            self.lists[name] = let_go(lists) if isinstance(lists, bytes) and name not in read else lists
        if self.proposed is not None:
            self.lists["proposed"] = self.proposed if "proposed" in read else ragged_rows(self.proposed)
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
        if self.index is not None and unchanged(handed, self.index):
            found = self.numbers["index_row"]
        else:
            found = np.array(looked_up(handed, self.names), dtype=np.int64)
        self.numbers["output_row"] = found
        rows = found.tolist()
        if rows != list(range(count)):
            self.order["handed"] = rows


class Columns:
    """The columns of several steps. A column that any of them lacks is left out."""

    def __init__(self, sights: list[Sight], read: Optional[dict[str, Ragged]] = None) -> None:
        """`read`: `lists_read` of these steps."""
        self.sights, self.read = sights, read or {}
        self.rows = np.array([len(one.names) for one in sights])
        self.found: dict[str, Any] = {}
        self.scheduled = self.numbers("scheduled")
        self.computed = self.numbers("computed")
        self.starts = sums_before(self.scheduled)
        self.row_of_token = np.repeat(np.arange(len(self.scheduled)), self.scheduled)
        self.tokens = np.arange(len(self.row_of_token))
        self.first_tokens = self.starts[:-1][self.scheduled > 0]
        """Of each row that computes any."""
        self.due: Any = None
        """Position of each token if those of its row follow on from the first."""

    def all(self) -> dict[str, Any]:
        """Names of the steps table to arrays."""
        found = self.found
        found["step"] = np.array([one.step for one in self.sights])
        found["time_us"] = np.array([one.time_us for one in self.sights])
        found["rows"] = self.rows
        sums = sums_before(self.rows)
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
        return joined_numbers([one.numbers[name] for one in self.sights])

    def lists(self, name: str) -> Ragged:
        """Those of each row, in the rows' order."""
        joined = self.read.get(name) or as_ragged([one.lists[name] for one in self.sights])
        if not any(name in one.order for one in self.sights):
            return joined
        counts, nothing = [list_count(one.lists[name]) for one in self.sights], len(joined.counts)
        parts = [one.order.get(name, range(count)) for one, count in zip(self.sights, counts)]  # noqa: B905
        at = numbers_of(parts)
        lengths = list(map(len, parts))
        of_step = np.repeat(counts, lengths)
        begins = np.repeat(np.cumsum(counts) - counts, lengths)
        order = np.where((at >= 0) & (at < of_step), at + begins, nothing)
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
            self.due = (first - starts[:-1])[rows] + self.tokens
            found["position"], found["positions_off"] = first, self.counted(rows, positions != self.due)
        ids = self.joined("input_ids")
        if ids is None or len(ids) != len(rows):
            return
        prompts = np.concatenate([one.prompt_lengths for one in self.sights])
        tail = np.minimum(np.maximum(self.computed + self.scheduled - prompts, 0), self.scheduled)
        found["inputs"] = Ragged(tail, ids[self.tokens >= (starts[1:] - tail)[rows]])
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
        inside[np.cumsum(list(map(len, starts))) - 1] = False
        return (all_starts[1:] - all_starts[:-1])[inside[:-1]]

    # ------------------------------------------------------------------ the sampler

    def _sampler(self) -> None:
        if any("matrix" not in one.arrays for one in self.sights):
            return
        matrix = of_one_width([one.arrays["matrix"] for one in self.sights], len(self.scheduled))
        drafting = [one for one in self.sights if one.arrays.get("draft_counts") is not None]
        with_drafts = np.repeat([one.arrays.get("draft_counts") is not None for one in self.sights], self.rows)
        counts = np.zeros(len(self.scheduled), dtype=np.int64)
        ids = np.array([], dtype=np.int64)
        if drafting:
            counts[with_drafts] = joined_numbers([one.arrays["draft_counts"] for one in drafting])
            ids = np.concatenate([one.arrays["draft_ids"] for one in drafting]).astype(np.int64)
        the_schedulers_too = any(one.drafts_are_the_samplers for one in self.sights)
        self.found["drafts" if the_schedulers_too else "sampler_drafts"] = Ragged(counts, ids)
        self._places(drafting, with_drafts, counts)
        made = sums_of_rows(matrix != -1)
        sampled = Ragged(made, matrix[np.arange(matrix.shape[1]) < made[:, None]])
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
            begin = np.cumsum(width) - width
            first[with_drafts] = indices[begin]
            follows = np.ones(len(indices), dtype=bool)
            follows[1:] = indices[1:] - indices[:-1] == 1
            follows[begin] = True
            if not follows.all():
                wrong = indices != spans(first[with_drafts], width)
                off[with_drafts] = np.bincount(np.repeat(np.arange(len(width)), width)[wrong], minlength=len(width))
        self.found["logits_first"], self.found["logits_off"] = first, off

    def _chosen(self, best: Any, drafts: Ragged, sampled: Ragged) -> Ragged:
        """What the target chose in each plain row, up to the first that no draft equals.

        Of equal logits the first, as torch.argmax has it and with it vLLM's samplers.
        """
        width = drafts.counts + 1
        columns = np.arange(int(width.max(initial=1)))
        within = columns < width[:, None]
        chosen = np.full(within.shape, NOTHING, dtype=np.int64)
        chosen[within] = best
        drafted = np.full(within.shape, NOTHING - 1, dtype=np.int64)[:, 1:]
        drafted[within[:, 1:]] = drafts.values
        length = np.ones(len(width), dtype=np.int64)
        equal = np.ones(len(width), dtype=bool)
        for column in (chosen[:, :-1] == drafted).T:
            equal &= column
            length += equal
        length[~np.concatenate([one.plain for one in self.sights])] = 0
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
        due, rows = self.due, self.row_of_token
        if due is None or len(slots) != len(rows) or not size:
            return
        blocks = slots // size
        self.found["slots_off/%d" % group] = self.counted(rows, (slots - due) % size != 0)
        new = np.ones(len(blocks), dtype=bool)
        new[1:] = blocks[1:] != blocks[:-1]
        new[self.first_tokens] = True
        self.found["written/%d" % group] = Ragged(self.counted(rows, new), blocks[new])

    def _state(self, group: int, steps: list[dict[str, Any]]) -> None:
        """Metadata of recurrent layers, by step."""
        state = StateColumns(steps, self.rows, self.scheduled)
        self.found.update(("%s/%d" % (name, group), values) for name, values in state.all().items())


def in_all(known: list[dict[str, Any]]) -> list[str]:
    """Keys that all of these have, in the order of the first."""
    found = set(known[0]).intersection(*known)
    return [name for name in known[0] if name in found]


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
"""How `marshal` begins a list; its length follows, little-endian."""

NUMBER = ord("i")
"""The same of a number of 32 bits and its value."""

ENTRY = np.dtype([("kind", "u1"), ("value", "<i4")])
"""What it writes of each."""


def is_of_entries(lists: bytes) -> bool:
    """Whether these are lists of numbers of 32 bits alone, so that many can be read at once."""
    kinds = lists[:: ENTRY.itemsize]
    outer = len(lists) % ENTRY.itemsize == 0 and kinds[:1] == b"["
    return outer and not kinds.translate(None, b"[i") and kinds.count(b"[") == 1 + list_count(lists)


def lists_read(sights: list[Sight]) -> dict[str, Ragged]:
    """By name the lists that all these steps hold as `as_ragged` reads them, so that none needs a look by itself."""
    found: dict[str, Ragged] = {}
    read: dict[bytes, Ragged] = {}
    for name in in_all([one.held for one in sights]):
        parts = [part for one in sights if isinstance(part := one.held[name], bytes)]
        if len(parts) < len(sights):
            continue
        whole = b"".join(parts)
        lists = read[whole] if whole in read else entries_read(whole, np.array(list(map(len, parts))))
        if lists is not None:
            found[name] = read[whole] = lists  # the caller nearly always gets what the runner handed out
    matrices = [one.proposed for one in sights if one.proposed is not None and "proposed" not in one.held]
    if len(matrices) == len(sights) and len({one.shape[1] for one in matrices}) == 1:
        found["proposed"] = ragged_rows(np.concatenate(matrices))
    return found


def entries_read(whole: bytes, lengths: Any) -> Optional[Ragged]:
    """What `held` was given in several steps, of so many bytes each; None where some are no lists of small numbers."""
    begins, rest = np.divmod(sums_before(lengths), ENTRY.itemsize)
    if rest.any():
        return None
    entries, begins = np.frombuffer(whole, dtype=ENTRY), begins[:-1]
    kinds, values = entries["kind"].copy(), entries["value"].astype(np.int64)
    of_lists = kinds == LIST
    if not of_lists[begins].all() or not (of_lists | (kinds == NUMBER)).all():
        return None
    places = np.flatnonzero(of_lists)
    outer = np.searchsorted(places, begins)  # a step's list of lists
    counts = values[places]
    listed = counts[outer]
    counts[outer] = 0
    inner = np.ones(len(places), dtype=bool)
    inner[outer] = False
    ends = places + counts + 1
    if ends[-1] != len(values) or not np.array_equal(ends[:-1], places[1:]):
        return None
    if not np.array_equal(np.add.reduceat(inner, outer, dtype=np.int64), listed):
        return None
    return Ragged(counts[inner], values[~of_lists])


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
    found = entries_read(b"".join(parts), np.array(list(map(len, parts))))
    if found is None:
        raise TypeError("lists of several kinds")
    return found


class Flat(NamedTuple):
    """Lists of numbers, copied as they were: arrays are made of them later (`as_ragged`)."""

    counts: list[int]
    values: list[int]


def flat(lists: Any) -> Flat:
    return Flat(list(map(len, lists)), list(chain.from_iterable(lists)))


def list_count(lists: Any) -> int:
    if isinstance(lists, bytes):
        return int.from_bytes(lists[1:5], "little")
    return len(lists) if isinstance(lists, np.ndarray) else len(lists.counts)


def as_ragged(parts: list[Any]) -> Ragged:
    """Flat, Ragged, matrices and what `held` made, one after the other as one Ragged."""
    if set(map(type, parts)) == {bytes}:
        return of_entries(parts)
    parts = [of_entries([one]) if isinstance(one, bytes) else one for one in parts]
    parts = [ragged_rows(one) if isinstance(one, np.ndarray) else one for one in parts]
    counts = np.concatenate([np.asarray(one.counts, dtype=np.int64) for one in parts])
    return Ragged(counts, np.concatenate([np.asarray(one.values, dtype=np.int64) for one in parts]))


def ragged(lists: Any) -> Ragged:
    """Ragged of lists of numbers."""
    return Ragged(np.array(list(map(len, lists)), dtype=np.int64), numbers_of(lists))


def of_one_width(parts: list[Any], rows: int) -> Any:
    """Matrices of several steps as one of so many rows, with -1 where they have no number."""
    widths = {part.shape[1] for part in parts}
    if len(widths) == 1 and sum(map(len, parts)) == rows:
        return np.concatenate(parts).astype(np.int64, copy=False)
    whole = np.full((rows, max(widths)), -1, dtype=np.int64)
    begin = 0
    for part in parts:
        whole[begin : begin + len(part), : part.shape[1]] = part
        begin += len(part)
    return whole


def sums_of_rows(mask: Any) -> Any:
    """How many of each row are true. By column: rows are short, and numpy takes each by itself."""
    total = np.zeros(len(mask), dtype=np.int64)
    for column in mask.T:
        total += column
    return total


def numbers_of(parts: Any) -> Any:
    """Numbers that lie in several lists, one after the other."""
    return np.fromiter(chain.from_iterable(parts), dtype=np.int64, count=sum(map(len, parts)))


def joined_numbers(parts: list[Any]) -> Any:
    """The same of lists or arrays."""
    if set(map(type, parts)) == {list}:
        return numbers_of(parts)
    return np.concatenate(parts).astype(np.int64, copy=False)


def looked_up(known: Any, names: Any, otherwise: int = NOTHING) -> list[int]:
    """The numbers that a dictionary has for these names."""
    return list(map(known.get, names, repeat(otherwise)))


def ragged_rows(matrix: Any) -> Ragged:
    """Ragged of the rows of a matrix."""
    rows, wide = matrix.shape
    return Ragged(np.full(rows, wide, dtype=np.int64), matrix.astype(np.int64).reshape(-1))
