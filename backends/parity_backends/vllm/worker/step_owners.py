"""The blocks that the scheduler gave each request, and where the engine's block tables part from them.

Done for a whole block of the steps file at once: between two blocks no place of a request goes to another
(`step_requests.Requests`), so what a place owns only grows, and how much of it was there at a step is a running sum.
"""

from __future__ import annotations

from itertools import chain
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from parity.capture.step_table import NOTHING, Ragged, alike, spans

from .step_sight import Sight, ragged

PARTED = ("table_off", "table_found", "table_own")


PLACE, WHOLE = map(itemgetter, (0, 2))
"""Of what came (`Requests.came`)."""


class Grants(NamedTuple):
    """Blocks that came in several steps, in the order of places, then steps. Arrays of shape (grants,)."""

    to: Any
    """Places."""
    blocks: list[Any]
    """By group."""
    fresh: Any
    """Whether these are all that the place has."""
    row: Any
    """Of the steps together; NOTHING where the place has none in that step."""
    before: Any
    """How many grants came up to each row, shape (rows,), as an index into the sums of their lengths."""
    first: Any
    """The first grant of the row's place, as such an index, shape (rows,)."""


def grants_of(sights: list[Sight], places: Any) -> Grants:
    """`places`: of the rows of all these steps, shape (rows,)."""
    came = list(chain.from_iterable(one.came for one in sights))
    to = np.array(list(map(PLACE, came)), dtype=np.int64)
    order = np.argsort(to, kind="stable")
    steps = np.arange(len(sights))
    key = to * len(sights) + np.repeat(steps, [len(one.came) for one in sights])
    of_rows = places * len(sights) + np.repeat(steps, [len(one.names) for one in sights])
    key = key[order]
    at = np.argsort(of_rows, kind="stable")
    found = np.searchsorted(of_rows, key, sorter=at)
    row = at[np.minimum(found, len(at) - 1)]
    return Grants(
        to=to[order],
        blocks=[came[index][1] for index in order.tolist()],
        fresh=np.array(list(map(WHOLE, came)), dtype=bool)[order],
        row=np.where(of_rows[row] == key, row, NOTHING),
        before=np.searchsorted(key, of_rows, side="right"),
        first=np.searchsorted(to[order], places),
    )


class Owners:
    """What each place owns by cache group, from block to block of the steps file."""

    def __init__(self, groups: int) -> None:
        self.own = [np.zeros((0, 8), dtype=np.int32) for _ in range(groups)]
        """Of each place its blocks, shape (places, blocks)."""
        self.counts = np.zeros((groups, 0), dtype=np.int64)

    def columns(self, sights: list[Sight]) -> dict[str, Any]:
        """Columns of the blocks that came in these steps, and of the engine's tables of them. In the steps' order."""
        places = np.concatenate([one.places for one in sights])
        grants = grants_of(sights, places)
        self._make_room(1 + max(int(grants.to.max(initial=-1)), int(places.max(initial=-1))))
        self.counts[:, grants.to[grants.fresh]] = 0
        found: dict[str, Any] = {}
        for group in range(len(self.own)):
            lists = ragged([blocks[group] for blocks in grants.blocks])
            counts = self._give(group, grants, lists, places)
            found["new_blocks/%d" % group] = _of_rows(grants.row, lists, len(places))
            tables = [one.groups.get(group, {}).get("table") for one in sights]
            if all(table is not None for table in tables):
                parted = self._parted(group, places, counts, tables)
                found.update(("%s/%d" % (name, group), values) for name, values in parted.items())
        return found

    def _make_room(self, places: int) -> None:
        more = places - self.counts.shape[1]
        if more > 0:
            more = max(more, places)
            self.own = [np.concatenate([one, np.zeros((more, one.shape[1]), one.dtype)]) for one in self.own]
            self.counts = np.concatenate([self.counts, np.zeros((len(self.own), more), dtype=np.int64)], axis=1)

    def _give(self, group: int, grants: Grants, lists: Ragged, places: Any) -> Any:
        """How many blocks the place of each row has in its step, shape (rows,)."""
        counts, sums = self.counts[group], lists.starts
        of_rows = counts[places] + sums[grants.before] - sums[grants.first]
        begin = counts[grants.to] + sums[:-1] - sums[np.searchsorted(grants.to, grants.to)]
        ends = begin + lists.counts
        while int(ends.max(initial=0)) > self.own[group].shape[1]:
            self.own[group] = np.concatenate([self.own[group], np.zeros_like(self.own[group])], axis=1)
        self.own[group][np.repeat(grants.to, lists.counts), spans(begin, lists.counts)] = lists.values
        np.maximum.at(counts, grants.to, ends)
        return of_rows

    def _parted(self, group: int, places: Any, counts: Any, tables: list[Any]) -> dict[str, Any]:
        """Where each of the engine's block tables (rows, blocks) first parts from what the row's place owns."""
        found = {name: np.full(len(places), NOTHING) for name in PARTED}
        most = min(self.own[group].shape[1], int(counts.max(initial=0)))
        ends = np.cumsum([len(table) for table in tables]).tolist()
        for first, end in alike([min(table.shape[1], most) for table in tables]):
            rows = slice(ends[first] - len(tables[first]), ends[end - 1])
            wide = min(tables[first].shape[1], most)
            if not wide:
                continue
            together = [table[:, :wide] for table in tables[first:end]]
            table = together[0] if len(together) == 1 else np.concatenate(together)
            own = self.own[group][:, :wide].take(places[rows], axis=0)
            differs = own != table
            at = differs.argmax(axis=1)  # what lies after the row's blocks is left over from others
            off = np.flatnonzero(at < counts[rows])
            off = off[differs[off, at[off]]]
            if len(off):
                at = at[off]
                for name, values in zip(PARTED, (at, table[off, at], own[off, at])):  # noqa: B905
                    found[name][rows][off] = values
        return found


def _of_rows(row: Any, lists: Ragged, rows: int) -> Ragged:
    """The lists of each row."""
    known = np.flatnonzero(row != NOTHING)
    mine = lists.take(known[np.argsort(row[known], kind="stable")])
    counts = np.zeros(rows, dtype=np.int64)
    np.add.at(counts, row[known], lists.counts[known])
    return Ragged(counts, mine.values)
