"""The columns of a steps file (`parity.steps/1`), and how a block of them is packed; docs/steps.md specifies it.

The worker travels with this module in it: standard library and numpy only, Python 3.9 or newer.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

STEPS_SCHEMA = "parity.steps/1"

NOTHING = -1
"""In a column of numbers: there is none in this row. A column that is not in a block was not seen at all."""

SPECULATIVE = 0
DECODE = 1
PREFILL = 2
"""Values of the column `path`: how recurrent layers treat a row."""

BLOCK_ROW_STEPS = 2048
"""Row-steps in a block, at most by one step: what zlib's window of 32 KiB spans in about ten columns."""

BLOCK_TOKENS = 1 << 17
"""Tokens in a block, at most by one step: a recorder that waits for row-steps holds no more than some megabytes."""

MAX_BLOCK_VALUES = 1 << 24
"""Numbers in all columns of a block together: a reader takes no more, for steps files come from other hosts."""


MOST_PLACE = 1 << 24
"""Of a number of a request, of rows, of tokens that a row computes in a step."""

NO_NUMBERS = np.zeros(0, dtype=np.int64)

MOST_WRITTEN = 1 << 53
"""Of any number in a block as it is written."""


class StepColumn(NamedTuple):
    """One column of a steps file."""

    name: str
    level: str
    """"step": one entry a step. "row": one a row-step. "group": one a row-step for each cache group, NAME/GROUP."""
    lists: bool = False
    """An entry is a list of numbers, not one."""
    like: str | None = None
    """The column that it nearly always equals: numbers are written as the difference from it, lists that are equal to
    it with a length of -1 and no values."""
    counts_up: bool = False
    """Written as the difference from the entry before it."""
    least: int = -(1 << 53)
    most: int = 1 << 53
    """What its numbers are between; of lists their entries. Narrow where they are used as places or lengths; else a
    number may be as wrong as an engine makes it."""


STEP_TABLE = (
    StepColumn("step", "step", counts_up=True),
    StepColumn("time_us", "step", counts_up=True),
    StepColumn("rows", "step", least=0, most=MOST_PLACE),
    StepColumn("tokens", "step"),
    StepColumn("padded", "step", like="tokens"),
    StepColumn("padded_rows", "step"),
    StepColumn("graph", "step"),
    StepColumn("waiting", "step"),
    StepColumn("finished", "step", lists=True),
    StepColumn("request", "row", least=0, most=MOST_PLACE),
    StepColumn("arrival", "row", least=0, most=MOST_PLACE),
    StepColumn("index_row", "row"),
    StepColumn("output_row", "row", like="index_row"),
    StepColumn("computed", "row"),
    StepColumn("position", "row", like="computed"),
    StepColumn("positions_off", "row"),
    StepColumn("scheduled", "row", least=0, most=MOST_PLACE),
    StepColumn("query_length", "row", like="scheduled"),
    StepColumn("logits_first", "row"),
    StepColumn("logits_off", "row"),
    StepColumn("prompt_crc", "row"),
    StepColumn("kept", "row"),
    StepColumn("buffer_length", "row", like="computed"),
    StepColumn("buffer_last", "row"),
    StepColumn("finish", "row"),
    StepColumn("drafts", "row", lists=True),
    StepColumn("sampler_drafts", "row", lists=True, like="drafts"),
    StepColumn("inputs", "row", lists=True),
    StepColumn("sampled", "row", lists=True),
    StepColumn("chosen", "row", lists=True, like="sampled"),
    StepColumn("handed", "row", lists=True, like="sampled"),
    StepColumn("given", "row", lists=True, like="handed"),
    StepColumn("proposed", "row", lists=True),
    StepColumn("new_blocks", "group", lists=True),
    StepColumn("table_off", "group"),
    StepColumn("table_found", "group"),
    StepColumn("table_own", "group"),
    StepColumn("written", "group", lists=True),
    StepColumn("slots_off", "group"),
    StepColumn("sequence_length", "group", like="computed"),
    StepColumn("path", "group"),
    StepColumn("accepted", "group"),
    StepColumn("initial", "group"),
    StepColumn("state_slots", "group", lists=True),
    StepColumn("split_off", "group"),
    StepColumn("state_found", "group", lists=True),
    StepColumn("state_left", "group", lists=True),
    StepColumn("states_found_in", "step"),
    StepColumn("states_left_in", "step"),
    StepColumn("kv_found", "group"),
    StepColumn("kv_kept", "group"),
    StepColumn("kv_left", "group"),
    StepColumn("kv_tokens", "group"),
)
"""In the order in which a block holds them; what a column is `like` stands before it."""

COLUMN_BY_NAME = {one.name: one for one in STEP_TABLE}


class Ragged(NamedTuple):
    """Lists of numbers, one after the other: `counts` of shape (rows,), `values` of shape (sum of counts,)."""

    counts: Any
    values: Any

    @property
    def starts(self) -> Any:
        """Where each list begins in `values`, and after the last one its length; shape (rows + 1,)."""
        return sums_before(self.counts)

    def row(self, index: int) -> list[int]:
        starts = self.starts
        return [int(value) for value in self.values[starts[index] : starts[index + 1]]]

    def take(self, rows: Any) -> Ragged:
        """The lists of these rows (indices, or a mask), in their order."""
        if isinstance(rows, np.ndarray) and rows.dtype.kind == "b":
            return Ragged(self.counts[rows], self.values[np.repeat(rows, self.counts)])
        rows = np.arange(len(self.counts))[rows]
        counts = self.counts[rows]
        return Ragged(counts, self.values[spans(self.starts[:-1][rows], counts)])


def sums_before(counts: Any) -> Any:
    """What all counts before each add up to, and after the last one the sum; shape (counts + 1,)."""
    found = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=found[1:])
    return found


def spans(starts: Any, counts: Any) -> Any:
    """Indices start, start + 1, … of each span, one after the other; shape (sum of counts,)."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(starts - (ends - counts), counts) + np.arange(total)


def joined_lists(parts: Any) -> Ragged:
    """Several Ragged as one."""
    return Ragged(np.concatenate([one.counts for one in parts]), np.concatenate([one.values for one in parts]))


def same_lists(a: Ragged, b: Ragged) -> Any:
    """Where the lists of two columns are equal; a mask of shape (rows,)."""
    if a is b:
        return np.ones(len(a.counts), dtype=bool)
    same = a.counts == b.counts
    if same.all():
        counts, differs = a.counts, a.values != b.values
        if not differs.any():
            return same
    else:
        counts = np.where(same, a.counts, 0)
        differs = a.take(same).values != b.take(same).values
    same[np.repeat(np.arange(len(same)), counts)[differs]] = False
    return same


def split_name(name: str) -> tuple[StepColumn, int | None]:
    """The column of a name in a block, and its cache group. Raises KeyError."""
    base, _, group = name.partition("/")
    column = COLUMN_BY_NAME[base]
    if (column.level == "group") != group.isdigit():
        raise KeyError(name)
    return column, int(group) if group else None


INTEGERS = tuple((kind, 1 << (8 * int(kind[2:]) - 1)) for kind in ("<i1", "<i2", "<i4"))
"""With the first positive number that each does not hold."""

WIDEST = "<i8"

KINDS = tuple(np.dtype(kind).str for kind in (*(kind for kind, _ in INTEGERS), WIDEST))
"""As a block names them."""


def smallest(values: Any) -> Any:
    """In the smallest little-endian integers that hold them."""
    low, high = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    for kind, beyond in INTEGERS:
        if -beyond <= low and high < beyond:
            return values.astype(kind)
    return values.astype(WIDEST)


def in_smallest(arrays: list[Any]) -> tuple[list[str], bytes]:
    """Arrays one after the other, each in what `smallest` takes for it, and which integers these are.

    All at once: a block has some sixty, and for each by itself numpy's calls take longer than the numbers.
    """
    counts = np.array([len(one) for one in arrays])
    whole = np.concatenate(arrays, dtype=np.int64, casting="unsafe")
    ends = np.cumsum(counts)
    filled = np.flatnonzero(counts)
    which = np.zeros(len(arrays), dtype=np.int64)
    if len(filled):
        begins = (ends - counts)[filled]
        low, high = np.minimum.reduceat(whole, begins), np.maximum.reduceat(whole, begins)
        which[filled] = sum((low < -beyond) | (high >= beyond) for _, beyond in INTEGERS)
    ends_at, pieces, begin = ends.tolist(), [], 0
    for first, end in alike(which.tolist()):
        pieces.append(whole[begin : ends_at[end - 1]].astype(KINDS[which[first]]).tobytes())
        begin = ends_at[end - 1]
    return [KINDS[one] for one in which.tolist()], b"".join(pieces)


def alike(values: list[int]) -> list[tuple[int, int]]:
    """Where each stretch of equal values begins, and where it ends."""
    begins = [at for at, value in enumerate(values) if at == 0 or values[at - 1] != value]
    return list(zip(begins, [*begins[1:], len(values)]))  # noqa: B905


def pack_block(columns: Mapping[str, Any]) -> dict[str, Any]:
    """`columns` and `data` of a block: [[name, dtype, entries], …] and the numbers, zlib in base64.

    `columns` maps names of STEP_TABLE (NAME/GROUP for cache groups) to integer arrays or Ragged.
    """
    names: list[str] = []
    arrays: list[Any] = []

    def put(name: str, values: Any) -> None:
        names.append(name)
        arrays.append(values)

    for name, value in columns.items():
        column, _ = split_name(name)
        other = columns.get(column.like) if column.like else None
        if isinstance(value, Ragged):
            if other is not None:
                same = same_lists(value, other)
                put(name + ".n", np.where(same, -1, value.counts))
                put(name, NO_NUMBERS if same.all() else value.take(~same).values)
            else:
                put(name + ".n", value.counts)
                put(name, value.values)
            continue
        numbers = np.asarray(value, dtype=np.int64)
        if other is not None:
            numbers = numbers - np.asarray(other, dtype=np.int64)
        if column.counts_up:
            numbers = numbers.copy()
            numbers[1:] -= numbers[:-1].copy()
        put(name, numbers)
    kinds, data = in_smallest(arrays)
    layout = [[name, kind, len(values)] for name, kind, values in zip(names, kinds, arrays)]  # noqa: B905
    return {"columns": layout, "data": base64.b64encode(zlib.compress(data, 1)).decode("ascii")}


def unpack_block(layout: Any, data: str) -> dict[str, Any]:
    """What `pack_block` was given, as int64 arrays and Ragged of them. Raises ValueError for anything else."""
    raw: dict[str, Any] = {}
    wanted = values = 0
    if len({name for name, _, _ in layout}) < len(layout):
        raise ValueError("a column twice")
    for entry in layout:
        name, kind, count = entry
        values += max(0, int(count))
        if values > MAX_BLOCK_VALUES:
            raise ValueError("more than %d numbers" % MAX_BLOCK_VALUES)
        if kind not in ("<i1", "|i1", "<i2", "<i4", "<i8") or int(count) < 0:
            raise ValueError("column %s of %s entries of %s" % (name, count, kind))
        wanted += int(count) * np.dtype(kind).itemsize
    whole = zlib.decompressobj()
    try:
        numbers = whole.decompress(base64.b64decode(data, validate=True), wanted + 1)
    except zlib.error as error:
        raise ValueError("not zlib: %s" % error) from None
    if len(numbers) != wanted or not whole.eof:
        raise ValueError("%d bytes of numbers, %d expected" % (len(numbers), wanted))
    at = 0
    for name, kind, count in layout:
        raw[name] = np.frombuffer(numbers, dtype=kind, count=int(count), offset=at).astype(np.int64)
        at += int(count) * np.dtype(kind).itemsize
        if not _between(raw[name], -MOST_WRITTEN, MOST_WRITTEN):
            raise ValueError("numbers of %s that no engine has" % name)
    found = _restored(raw)
    for name, column_values in found.items():
        column, _ = split_name(name)
        inner = column_values.values if column.lists else column_values
        if not _between(inner, column.least, column.most):
            raise ValueError("numbers of %s that no engine has" % name)
    return found


def _between(values: Any, least: int, most: int) -> bool:
    return not len(values) or (int(values.min()) >= least and int(values.max()) <= most)


def _restored(raw: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    order = list(COLUMN_BY_NAME)
    # Others are of a later parity; what a column is like comes before it.
    known = [name for name in raw if name.partition("/")[0] in COLUMN_BY_NAME and not name.endswith(".n")]
    for name in sorted(known, key=lambda name: order.index(name.partition("/")[0])):
        column, _ = split_name(name)
        values = raw[name]
        other = found.get(column.like) if column.like else None
        if column.lists:
            found[name] = _restored_lists(name, raw.get(name + ".n"), values, other)
        elif other is not None and len(other) == len(values):
            found[name] = values + other
        else:
            if column.counts_up and float(np.abs(values).sum(dtype=np.float64)) > 2.0 * MOST_WRITTEN:
                raise ValueError("numbers of %s that no engine has" % name)
            found[name] = np.cumsum(values) if column.counts_up else values
    return found


def _restored_lists(name: str, counts: Any, values: Any, other: Any) -> Ragged:
    if counts is None:
        raise ValueError("%s has no lengths" % name)
    same = counts < 0
    own = np.where(same, 0, counts)
    if not _between(own, 0, MAX_BLOCK_VALUES):
        raise ValueError("the lengths of %s do not add up" % name)
    if int(own.sum()) != len(values) or (same.any() and (other is None or len(other.counts) != len(counts))):
        raise ValueError("the lengths of %s do not add up" % name)
    if not same.any():
        return Ragged(counts, values)
    whole = np.where(same, other.counts, counts)
    starts = np.concatenate(([0], np.cumsum(whole)))[:-1]
    filled = np.empty(int(whole.sum()), dtype=np.int64)
    filled[spans(starts[~same], whole[~same])] = values
    filled[spans(starts[same], whole[same])] = other.take(same).values
    return Ragged(whole, filled)
