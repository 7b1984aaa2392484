"""Alignment of two token streams: where they part, where they meet again, where one repeats itself.

rapidfuzz gives the edit operations: it computes Levenshtein bit-parallel in C++ (64 cells a machine word),
takes any hashable items (token ids as they are, no mapping to characters), and is maintained. difflib's
SequenceMatcher is not minimal and quadratic in Python; parasail and edlib want small alphabets.

Windows are bounded, so the time grows linearly with the length of the streams whatever they hold.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from parity.records import TokenIds

WINDOW = 512
"""Tokens of each side looked at to find where streams meet again: longer than any chunk an engine emits twice
or loses in one step, short enough that a window costs about a tenth of a millisecond."""

ANCHOR = 6
"""Tokens in a row that must agree before two streams count as met again. Fewer agree by chance in ordinary
text; a match that runs to the end of both streams counts from 3."""


def common_prefix(a: TokenIds, b: TokenIds) -> int:
    """Number of leading tokens that are equal."""
    length = min(len(a), len(b))
    # Most streams part early or never; a short look first spares the long comparison.
    for size in (64, length) if length > 64 else (length,):
        different = a[:size] != b[:size]
        at = int(different.argmax()) if size else 0
        if size and different[at]:
            return at
    return length


def equal(a: TokenIds, b: TokenIds) -> bool:
    """Are two short stretches equal? Half of the time that np.array_equal takes, which a walk would ask thousands of
    times."""
    return len(a) == len(b) and bool(np.logical_and.reduce(a == b))


class Gap(Struct, frozen=True):
    """Streams part and meet again: `lost` tokens of a stand against `gained` tokens of b."""

    lost: int
    gained: int
    anchor: int
    """Tokens in a row that agree after the gap."""


def realign(a: TokenIds, b: TokenIds, *, window: int = WINDOW, anchor: int = ANCHOR) -> Gap | None:
    """Where two streams that differ at their first token meet again; None if not within the window.

    The meeting point is the first run of at least `anchor` equal tokens on the path of fewest edits.
    """
    head_a, head_b = a[:window], b[:window]
    reach_end = len(a) <= window and len(b) <= window
    simple = _shifted(a, b, head_a, head_b, anchor)
    if simple is not None:
        return simple
    from rapidfuzz.distance import Levenshtein  # brings forty modules, for what most runs have none of

    list_a, list_b = head_a.tolist(), head_b.tolist()
    for block in Levenshtein.opcodes(list_a, list_b):
        if block.tag != "equal":
            continue
        size = block.src_end - block.src_start
        at_end = reach_end and block.src_end == len(a) and block.dest_end == len(b)
        if size >= anchor or (at_end and size >= 3):
            run = common_prefix(a[block.src_start :], b[block.dest_start :])
            return Gap(block.src_start, block.dest_start, run)
    return None


def _shifted(a: TokenIds, b: TokenIds, head_a: TokenIds, head_b: TokenIds, anchor: int) -> Gap | None:
    """The three plain cases at once: pure substitution of few tokens, pure insertion, pure deletion.

    They are what a fault in an engine makes; finding them directly keeps a repeated token inside the chunk
    from drawing the path of fewest edits through it.
    """
    need = 4 * anchor

    def long_enough(run: int, rest_a: int, rest_b: int) -> bool:
        return run >= need or (run >= anchor and run in (rest_a, rest_b))

    for size in range(1, min(4, len(head_a), len(head_b))):
        if a[size] != b[size]:
            continue
        run = common_prefix(a[size:], b[size:])
        if long_enough(run, len(a) - size, len(b) - size):
            return Gap(size, size, run)
    for size in _places(head_b, head_a[:anchor]):  # b gained `size` tokens
        run = common_prefix(a, b[size:])
        if size and long_enough(run, len(a), len(b) - size):
            return Gap(0, size, run)
    for size in _places(head_a, head_b[:anchor]):  # b lost `size` tokens
        run = common_prefix(a[size:], b)
        if size and long_enough(run, len(a) - size, len(b)):
            return Gap(size, 0, run)
    return None


def _places(stream: TokenIds, needle: TokenIds) -> list[int]:
    """Where `needle` (a few tokens) stands in `stream`."""
    # As bytes: a fifth of the time that arrays of a few hundred tokens take.
    wanted, within, size = (needle.tobytes(), stream.tobytes(), stream.itemsize) if len(needle) else (b"", b"", 1)
    found = []
    at = within.find(wanted) if wanted else -1
    while at >= 0:
        if at % size == 0:
            found.append(at // size)
        at = within.find(wanted, (at // size + 1) * size)
    return found


def self_match(b: TokenIds, lag: int, position: int) -> tuple[int, int] | None:
    """The longest stretch [start, end) around `position` where each token equals the one `lag` before it."""
    if position < lag or b[position] != b[position - lag]:
        return None
    forward = common_prefix(b[position:], b[position - lag : len(b) - lag])
    head, tail = b[lag:position], b[: position - lag]
    back = common_prefix(head[::-1], tail[::-1])
    return position - back, position + forward
