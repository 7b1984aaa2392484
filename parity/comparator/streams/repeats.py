"""Where a stream repeats itself: chunks emitted again, loops, periods."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from parity.comparator.streams.alignment import equal, self_match
from parity.records import TokenIds

LONGEST_LAG = 256
"""Longest chunk looked for when tokens are emitted again."""

PARTIAL_COPY = 6
"""So many tokens of a chunk standing again are a copy even where the rest of the chunk does not."""

LOOP_COPIES = 3
"""A stretch that repeats itself at least this many times more is a loop, not a chunk emitted again."""

LOOP_TOKENS = 8
"""Tokens a loop must cover."""


class Repeat(Struct, frozen=True):
    """b[start:end] repeats what stands `lag` tokens before each of its tokens."""

    start: int
    end: int
    lag: int

    @property
    def copies(self) -> float:
        return (self.end - self.start) / self.lag


def find_repeat(b: TokenIds, position: int, earliest: int, *, exact_lag: int | None = None) -> Repeat | None:
    """The repetition that the token at `position` belongs to, the most complete one, shortest lag first.

    A chunk counts when all of it stands again (a whole lag's worth of tokens), or at least PARTIAL_COPY tokens of
    a longer one, not before `earliest`.
    """
    best: Repeat | None = None
    window_start = max(0, position - LONGEST_LAG)
    if exact_lag is not None:
        lags = [exact_lag]
    else:
        # Only lags at which this very token stood before.
        same = np.flatnonzero(b[window_start:position][::-1] == b[position]) + 1
        lags = [int(lag) for lag in same]
    for lag in lags:
        stretch = self_match(b, lag, position)
        if stretch is None:
            continue
        start, end = max(stretch[0], earliest), stretch[1]
        if end - start < min(lag, PARTIAL_COPY) or end <= position:
            continue
        whole = end - start >= lag
        if whole and (lag > 1 or end - start > 1 or best is None):
            # The shortest chunk of which all stands again; one equal token alone may be chance.
            found = Repeat(start, end, lag)
            if best is None or best.lag > lag or best.copies < 1 or best.end - best.start == 1:
                best = found
        elif best is None or (best.copies < 1 and end - start > best.end - best.start):
            best = Repeat(start, end, lag)
    return best


def find_loop(b: TokenIds, position: int, earliest: int) -> Repeat | None:
    """A loop that begins at or near `position` with a pattern of its own: its first period is new text."""
    length = len(b)
    longest = min(64, (length - position) // 2)
    for lag in (np.flatnonzero(b[position + 1 : position + 1 + longest] == b[position]) + 1).tolist():
        stretch = self_match(b, lag, position + lag)
        if stretch is None or stretch[0] > position + lag:
            continue
        start = max(stretch[0] - lag, earliest)
        covered = stretch[1] - start
        least = 2 * LOOP_COPIES * lag if stretch[1] == length else LOOP_TOKENS
        if covered >= max(min(least, LOOP_TOKENS), LOOP_COPIES * lag):
            return Repeat(start, stretch[1], lag)
    return None


def is_periodic(tokens: TokenIds, *, longest: int = 64) -> int | None:
    """The shortest period of a stretch that holds at least two periods, or None."""
    most = min(longest, len(tokens) // 2)
    if most < 1:
        return None
    for lag in (np.flatnonzero(tokens[1 : most + 1] == tokens[0]) + 1).tolist():  # the others are none
        if equal(tokens[lag:], tokens[:-lag]):
            return int(lag)
    return None


def repeats_around(stream: TokenIds, position: int, length: int) -> bool:
    """Does the text around a stretch repeat itself so that the stretch's exact place cannot be known?"""
    if length == 0:
        return False
    before = stream[max(0, position - length) : position]
    after = stream[position : position + length]
    return len(before) == length and len(after) == length and equal(before, after)


def earlier_copy(b: TokenIds, position: int, length: int) -> int | None:
    """Where b[position : position + length] stood earlier in b, the latest place; None if nowhere."""
    if length < 4 or position < length:
        return None
    chunk = b[position : position + length]
    past = b[:position]
    hits = np.flatnonzero(past[: len(past) - length + 1] == chunk[0])[::-1]
    for start in hits.tolist():
        if equal(past[start : start + length], chunk):
            return int(start)
    return None


def loops_on(stream: TokenIds, pattern: TokenIds) -> bool:
    """Does the stream say `pattern` at least twice in a row?"""
    size = len(pattern)
    if len(stream) < 2 * size:
        return False
    same = stream[size:] == stream[:-size]
    for start in np.flatnonzero(stream[: len(stream) - 2 * size + 1] == pattern[0]).tolist():
        if equal(stream[start : start + size], pattern) and bool(same[start : start + size].all()):
            return True
    return False
