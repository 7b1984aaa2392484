"""The capture's own text under tokens whose tokenizer is not here.

Which token made which characters is not known then. What both sides begin with, and end with, is the same text under
the same tokens; each stretch is shared out evenly among its tokens, so that places are right to a few characters.
"""

from __future__ import annotations

from itertools import pairwise

from parity.text import visible
from parity.tui.tokens import Piece
from parity.view.alignment import EQUAL
from parity.view.completion import CompletionView


def spread_both(view: CompletionView) -> tuple[list[Piece], list[Piece]] | None:
    """Pieces for the tokens of baseline and candidate; None where a side has no text."""
    if view.baseline is None or view.candidate is None:
        return None
    ours, theirs = view.candidate.text, view.baseline.text
    if not ours or not theirs:
        return None
    op = view.alignment.op
    differs = (op != EQUAL).nonzero()[0]
    head = int(differs[0]) if len(differs) else len(op)
    tail = len(op) - 1 - int(differs[-1]) if len(differs) else 0
    begin = _shared(ours, theirs)
    rest = min(len(ours), len(theirs)) - begin
    end = min(rest, _shared(ours[::-1], theirs[::-1])) if tail else 0
    begin = begin if head else 0
    return _parts(theirs, len(view.left), head, tail, begin, end), _parts(ours, len(view.right), head, tail, begin, end)


def _shared(one: str, other: str) -> int:
    """Characters that both begin with."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _parts(text: str, tokens: int, head: int, tail: int, begin: int, end: int) -> list[Piece]:
    middle = max(0, tokens - head - tail)
    stop = len(text) - end
    if not middle:  # nothing to put the characters between under: they belong to the first stretch
        begin = stop
    return [*spread(text[:begin], head), *spread(text[begin:stop], middle), *spread(text[stop:], tail)][:tokens]


def spread(text: str, tokens: int) -> list[Piece]:
    """`text` in so many pieces of about the same length, each character in one of them."""
    ends = [round(len(text) * number / tokens) for number in range(tokens + 1)] if tokens else []
    return [_piece(text[first:last]) for first, last in pairwise(ends)]


def _piece(text: str) -> Piece:
    return Piece(visible(text, keep="\n").replace("\n", "↵"), breaks="\n" in text)
