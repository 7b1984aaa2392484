"""What the view of tokens draws, and how flowing text is broken into lines with both sides opposite."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style

from parity.tui.format import fit
from parity.tui.tokens import Piece
from parity.view.alignment import EQUAL, Alignment


@dataclass
class Content:
    """What to draw. Pieces go with tokens; everything else is by position of the candidate's tokens."""

    alignment: Alignment
    left: Sequence[Piece]
    right: Sequence[Piece]
    gaps: npt.NDArray[np.float64] | None = None
    """Nats."""
    tolerance: float = 0.25
    found: frozenset[int] = frozenset()
    """Positions that a finding covers."""
    lost: frozenset[int] = frozenset()
    """The baseline's, of tokens that a finding says were lost."""
    copies: Sequence[int] = ()
    """Where each copy of a repeated pattern begins, and after the last one where it ends."""
    trace: Sequence[str] = ()
    """One character each: which of the step's accepted drafts the token was, or that it was sampled."""
    donor: Mapping[int, tuple[Piece, bool]] = field(default_factory=dict)
    """The other request's token that lies opposite, and whether it is the same one."""
    titles: tuple[str, str, str] = ("", "", "")
    """Of the baseline, of the candidate, and of the donor; the last is empty where there is none."""
    texts: tuple[Sequence[Piece], Sequence[Piece]] | None = None
    """Both sides in flowing text, where it is not made of the tokens' pieces."""

    @property
    def flowing(self) -> tuple[Sequence[Piece], Sequence[Piece]]:
        """Both sides as flowing text has them."""
        return (self.left, self.right) if self.texts is None else self.texts

    def copy_number(self, position: int) -> int | None:
        """Which copy of the repeated pattern a token belongs to, counted from 0."""
        if not self.copies or not self.copies[0] <= position < self.copies[-1]:
            return None
        return bisect_right(self.copies, position) - 1


@dataclass(frozen=True, slots=True)
class Line:
    """Rows [first, last) of the alignment that stand on one line of flowing text."""

    first: int
    last: int


@dataclass
class Side:
    """One side of a line being drawn: exactly `width` columns."""

    width: int
    segments: list[Segment] = field(default_factory=list)
    used: int = 0

    def add(self, text: str, style: Style) -> None:
        room = self.width - self.used
        size = cell_len(text)
        if size > room:
            text, size = fit(text, room), room
        if text:
            self.segments.append(Segment(text, style))
            self.used += size

    def done(self, style: Style) -> list[Segment]:
        return [*self.segments, Segment(" " * (self.width - self.used), style)]


def flow(content: Content, width: int) -> list[Line]:
    """Break the rows into lines such that both sides fit into `width` columns, after a newline on either side."""
    alignment, (ours, theirs) = content.alignment, content.flowing
    differs = alignment.op != EQUAL
    # Room for the sign before the first and after the last token of a stretch that differs.
    marks = np.diff(differs.astype(np.int64), prepend=0) != 0
    sizes = [
        (_sizes(pieces, indices) + marks).tolist()
        for pieces, indices in ((ours, alignment.left), (theirs, alignment.right))
    ]
    ends = _breaks(ours, alignment.left) | _breaks(theirs, alignment.right)
    lines: list[Line] = []
    first = used_left = used_right = 0
    for row, (left, right, end) in enumerate(zip(*sizes, ends.tolist(), strict=True)):
        used_left += left
        used_right += right
        if row > first and (used_left > width or used_right > width):
            lines.append(Line(first, row))
            first, used_left, used_right = row, left, right
        if end:
            lines.append(Line(first, row + 1))
            first, used_left, used_right = row + 1, 0, 0
    if first < len(alignment):
        lines.append(Line(first, len(alignment)))
    return lines


def _sizes(pieces: Sequence[Piece], indices: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Columns of the piece on each row, 0 where there is none."""
    known: dict[str, int] = {}
    for piece in pieces:
        if piece.text not in known:
            known[piece.text] = cell_len(piece.text)
    widths = np.fromiter((known[piece.text] for piece in pieces), dtype=np.int64, count=len(pieces))
    # One more at the end, which the index -1 finds.
    return np.append(widths, 0)[indices]


def _breaks(pieces: Sequence[Piece], indices: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Whether a line ends after each row."""
    breaks = np.fromiter((piece.breaks for piece in pieces), dtype=np.bool_, count=len(pieces))
    return np.append(breaks, False)[indices]
