"""Two token streams laid side by side: which token stands opposite which.

What a finding says of the streams is drawn as it says; elsewhere they meet again where the comparison would have them
meet.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from parity.comparator.streams.alignment import WINDOW, common_prefix, realign
from parity.records import Kind, TokenIds, kinds
from parity.records.evidence import TokensEvidence
from parity.store import FindingRow

SHOWN: Final = 64
"""Tokens of a stretch that its evidence lists, and tokens of agreement after it that are looked at."""

EQUAL, SUBSTITUTED, INSERTED, DELETED = range(4)
MARKS: Final = (" ", "~", "+", "-")
"""How each is marked where there are no colours."""


class Alignment(Struct, frozen=True):
    """R rows; row r puts baseline token left[r] opposite candidate token right[r], -1 for none."""

    left: npt.NDArray[np.int64]
    right: npt.NDArray[np.int64]
    op: npt.NDArray[np.uint8]
    """EQUAL, SUBSTITUTED, INSERTED (only the candidate has it) or DELETED."""

    @staticmethod
    def empty() -> Alignment:
        nothing = np.empty(0, dtype=np.int64)
        return Alignment(nothing, nothing, np.empty(0, dtype=np.uint8))

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


class Stretch(Struct, frozen=True):
    """What a finding says of the two streams: `gained` tokens of the candidate from `position` on stand in the place of
    `lost` tokens of the baseline, which begin with `tokens`; then both agree for `agree` tokens."""

    position: int
    gained: int
    lost: int
    tokens: tuple[int, ...] = ()
    agree: int = 0

    def place(self, a: TokenIds, b: TokenIds, expected: int, first: int) -> int | None:
        """Where its lost tokens begin in the baseline, from `first` on and as near to `expected` as there are such
        tokens with such agreement after them; None where there are none."""
        shown, after = np.array(self.tokens, dtype=np.int64), b[self.position + self.gained :][: self.agree]
        starts = np.arange(first, len(a) - self.lost - len(after) + 1)
        for wanted, shift in ((shown, 0), (after, self.lost)):
            for offset, token in enumerate(wanted.tolist()):
                starts = starts[a[starts + shift + offset] == token]
        return int(starts[np.abs(starts - expected).argmin()]) if len(starts) else None


def stretch_of(finding: FindingRow) -> Stretch | None:
    """What a finding says of the two streams; None where it says nothing of the baseline's tokens."""
    if finding.position is None:
        return None
    row, facts, length = Kind(finding.kind).row, finding.facts, finding.length or 0
    if not isinstance(facts, TokensEvidence):
        facts = TokensEvidence(why=facts.why)
    lost, gained = facts.baseline_tokens or (), facts.candidate_tokens or ()
    agree = min(facts.agree_again_for or 0, SHOWN)
    if row.stretch is kinds.Stretch.LOST:
        return Stretch(finding.position, 0, length, lost, agree)
    if agree > 0:
        # Longer lists are cut in the evidence.
        return Stretch(finding.position, len(gained) if len(gained) < SHOWN else length, len(lost), lost, agree)
    return Stretch(finding.position, length, 0) if row.lengthens > 0 else None


def align(a: TokenIds, b: TokenIds, stretches: Sequence[Stretch] = ()) -> Alignment:
    """Align baseline `a` with candidate `b`, both of shape (T,), as the comparison found them.

    Each of `stretches` is drawn as it says. Between them the streams are realigned as the comparison realigns them.
    """
    blocks: list[_Block] = []
    i = j = 0
    for one in sorted(stretches, key=lambda one: one.position):
        if not j <= one.position <= one.position + one.gained <= len(b):
            continue
        before = list(_cut(_realigned(a, b, i, j), one.position))
        expected = before[-1].i + before[-1].lost if before else i
        begin = one.place(a, b, expected, i)
        if begin is None:
            continue
        if begin != expected:
            before = list(_realigned(a[:begin], b[: one.position], i, j))
        blocks += [*before, _Block(begin, one.position, one.lost, one.gained, False)]
        i, j = begin + one.lost, one.position + one.gained
    blocks += _realigned(a, b, i, j)
    return _rows(blocks)


class _Block(Struct, frozen=True):
    """`lost` tokens of the baseline from i opposite `gained` tokens of the candidate from j."""

    i: int
    j: int
    lost: int
    gained: int
    equal: bool


def _realigned(a: TokenIds, b: TokenIds, i: int, j: int) -> Iterator[_Block]:
    """Everything from (i, j) on, one block after the other."""
    while i < len(a) or j < len(b):
        same = common_prefix(a[i:], b[j:])
        if same:
            yield _Block(i, j, same, same, True)
            i, j = i + same, j + same
            continue
        gap = realign(a[i:], b[j:])
        lost, gained = (gap.lost, gap.gained) if gap else (min(WINDOW, len(a) - i), min(WINDOW, len(b) - j))
        yield _Block(i, j, lost, gained, False)
        i, j = i + lost, j + gained


def _cut(blocks: Iterator[_Block], position: int) -> Iterator[_Block]:
    """The blocks before candidate token `position`."""
    for one in blocks:
        if one.j >= position:
            return
        gained = min(one.gained, position - one.j)
        lost = one.lost if one.j + one.gained < position else min(one.lost, gained)
        yield _Block(one.i, one.j, lost, gained, one.equal)


def _rows(blocks: Sequence[_Block]) -> Alignment:
    left: list[npt.NDArray[np.int64]] = []
    right: list[npt.NDArray[np.int64]] = []
    op: list[npt.NDArray[np.uint8]] = []
    for block in blocks:
        rows = np.arange(max(block.lost, block.gained))
        left.append(np.where(rows < block.lost, block.i + rows, -1))
        right.append(np.where(rows < block.gained, block.j + rows, -1))
        if block.equal:
            op.append(np.zeros(len(rows), dtype=np.uint8))
        else:
            rest = DELETED if block.lost > block.gained else INSERTED
            op.append(np.where(rows < min(block.lost, block.gained), SUBSTITUTED, rest).astype(np.uint8))
    if not op:
        return Alignment.empty()
    return Alignment(np.concatenate(left), np.concatenate(right), np.concatenate(op))
