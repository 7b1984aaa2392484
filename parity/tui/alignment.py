"""Two token streams laid side by side: which token stands opposite which.

Where they meet again is decided as the comparison decides it, so that the screen shows what it saw.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from parity.comparator.streams.alignment import WINDOW, common_prefix, realign
from parity.records import TokenIds

EQUAL, SUBSTITUTED, INSERTED, DELETED = range(4)
MARKS: Final = (" ", "~", "+", "-")
"""How each is marked where there are no colours."""


@dataclass(frozen=True, slots=True)
class Alignment:
    """R rows; row r puts baseline token left[r] opposite candidate token right[r], -1 for none."""

    left: npt.NDArray[np.int64]
    right: npt.NDArray[np.int64]
    op: npt.NDArray[np.uint8]
    """EQUAL, SUBSTITUTED, INSERTED (only the candidate has it) or DELETED."""

    def __len__(self) -> int:
        return len(self.op)

    def row_of(self, position: int) -> int:
        """The row of candidate token `position`; the last row where there is no such token."""
        hits = np.flatnonzero(self.right == position)
        return int(hits[0]) if len(hits) else max(0, len(self) - 1)

    def starts(self) -> npt.NDArray[np.int64]:
        """Rows at which a stretch that differs begins."""
        differs = self.op != EQUAL
        return np.flatnonzero(differs & ~np.concatenate(([False], differs[:-1])))


def align(a: TokenIds, b: TokenIds) -> Alignment:
    """Align baseline `a` with candidate `b`, both of shape (T,)."""
    left: list[npt.NDArray[np.int64]] = []
    right: list[npt.NDArray[np.int64]] = []
    op: list[npt.NDArray[np.uint8]] = []
    for i, j, lost, gained, equal in _blocks(a, b):
        height = max(lost, gained)
        one, other = np.arange(height), np.arange(height)
        left.append(np.where(one < lost, i + one, -1))
        right.append(np.where(other < gained, j + other, -1))
        if equal:
            op.append(np.zeros(height, dtype=np.uint8))
        else:
            both = min(lost, gained)
            rest = DELETED if lost > gained else INSERTED
            op.append(np.where(one < both, SUBSTITUTED, rest).astype(np.uint8))
    if not op:
        nothing = np.empty(0, dtype=np.int64)
        return Alignment(nothing, nothing, np.empty(0, dtype=np.uint8))
    return Alignment(np.concatenate(left), np.concatenate(right), np.concatenate(op))


def _blocks(a: TokenIds, b: TokenIds) -> Iterator[tuple[int, int, int, int, bool]]:
    """(begin in a, begin in b, tokens of a, tokens of b, equal?) one after the other."""
    i = j = 0
    while i < len(a) or j < len(b):
        same = common_prefix(a[i:], b[j:])
        if same:
            yield i, j, same, same, True
            i, j = i + same, j + same
            continue
        gap = realign(a[i:], b[j:])
        lost, gained = (gap.lost, gap.gained) if gap else (min(WINDOW, len(a) - i), min(WINDOW, len(b) - j))
        yield i, j, lost, gained, False
        i, j = i + lost, j + gained
