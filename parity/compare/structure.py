"""What kind of fault a stretch of tokens is, from its structure.

The questions, most specific first: is it an end of the stream, did the stream begin to loop, were tokens
emitted again, were tokens lost, is it a run of unsupported tokens, or a single one? (Whether the stretch
belongs to another request is asked in leak.py, over the whole run at once.)
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from parity.compare.align import Gap, common_prefix, self_match
from parity.records import Json, Kind, TokenIds

LONGEST_LAG = 256
"""Longest chunk looked for when tokens are emitted again."""

LOOP_COPIES = 3
"""A stretch that repeats itself at least this many times more is a loop, not a chunk emitted again."""

LOOP_TOKENS = 8
"""Tokens a loop must cover."""

GARBLED_TOKENS = 4
"""From this many unsupported tokens on, dense in one stretch, the output is garbled; below, `unjustified`."""

CLUSTER_REACH = 8
"""Unsupported tokens at most this far apart belong to one stretch."""


@dataclass(slots=True)
class Event:
    """One fault: tokens [position, position + length) of the candidate."""

    kind: Kind
    position: int
    length: int
    evidence: dict[str, Json] = field(default_factory=dict)
    earliest: int = 0
    """The fault cannot have begun before this position: up to there the streams were equal."""

    @property
    def end(self) -> int:
        return self.position + self.length


@dataclass(frozen=True, slots=True)
class Repeat:
    """b[start:end] repeats what stands `lag` tokens before each of its tokens."""

    start: int
    end: int
    lag: int

    @property
    def copies(self) -> float:
        return (self.end - self.start) / self.lag


def find_repeat(b: TokenIds, position: int, earliest: int, *, exact_lag: int | None = None) -> Repeat | None:
    """The repetition that the token at `position` belongs to, the most complete one, shortest lag first.

    A chunk counts when all of it stands again (a whole lag's worth of tokens), not before `earliest`.
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
        if end - start < lag or end <= position:
            continue
        if best is None or (end - start) / lag > best.copies + 1e-9:
            candidate = Repeat(start, end, lag)
            if best is None or candidate.end - candidate.start >= best.end - best.start:
                best = candidate
    return best


def find_loop(b: TokenIds, position: int, earliest: int) -> Repeat | None:
    """A loop that begins at or near `position` with a pattern of its own: its first period is new text."""
    length = len(b)
    for lag in range(1, min(64, (length - position) // 2) + 1):
        stretch = self_match(b, lag, position + lag)
        if stretch is None or stretch[0] > position + lag:
            continue
        start = max(stretch[0] - lag, earliest)
        covered = stretch[1] - start
        if covered >= max(LOOP_TOKENS, LOOP_COPIES * lag):
            return Repeat(start, stretch[1], lag)
    return None


def is_periodic(tokens: TokenIds, *, longest: int = 64) -> int | None:
    """The shortest period of a stretch that holds at least two periods, or None."""
    length = len(tokens)
    for lag in range(1, min(longest, length // 2) + 1):
        if np.array_equal(tokens[lag:], tokens[:-lag]):
            return lag
    return None


def repeats_around(stream: TokenIds, position: int, length: int) -> bool:
    """Does the text around a stretch repeat itself so that the stretch's exact place cannot be told?"""
    if length == 0:
        return False
    before = stream[max(0, position - length) : position]
    after = stream[position : position + length]
    return len(before) == length and len(after) == length and bool(np.array_equal(before, after))


def name_repeat(repeat: Repeat, position: int, b: TokenIds, baseline_loops: bool) -> Event:
    """A repetition as `repetition` (a loop) or `duplication` (a chunk emitted again)."""
    length = repeat.end - repeat.start
    to_the_end = repeat.end == len(b)
    loops = repeat.copies >= LOOP_COPIES or (to_the_end and repeat.copies >= 2)
    evidence: dict[str, Json] = {
        "period": repeat.lag,
        "copies": round(repeat.copies, 2),
        "source_start": repeat.start - repeat.lag,
        "source_end": repeat.start,
    }
    if loops and length >= LOOP_TOKENS and not baseline_loops:
        evidence["why"] = (
            f"falls into a loop of {repeat.lag} tokens that the baseline does not enter, and the entry is not supported"
        )
        return Event(Kind.REPETITION, position, repeat.end - position, evidence)
    chunk = repeat.lag * max(1, int(repeat.copies))
    evidence["why"] = f"the {repeat.lag} tokens before it are emitted again"
    return Event(Kind.DUPLICATION, position, min(chunk, repeat.end - position), evidence)


def earlier_copy(b: TokenIds, position: int, length: int) -> int | None:
    """Where b[position : position + length] stood earlier in b, the latest place; None if nowhere."""
    if length < 4 or position < length:
        return None
    chunk = b[position : position + length]
    past = b[:position]
    hits = np.flatnonzero(past[: len(past) - length + 1] == chunk[0])[::-1]
    for start in hits.tolist():
        if np.array_equal(past[start : start + length], chunk):
            return int(start)
    return None


def name_gap(a: TokenIds, b: TokenIds, i: int, j: int, gap: Gap, first_bad: int, last_bad: int) -> Event:
    """A stretch with unsupported tokens: the streams part at (i, j) and meet again after `gap`."""
    evidence: dict[str, Json] = {
        "baseline_tokens": a[i : i + gap.lost].tolist()[:64],
        "candidate_tokens": b[j : j + gap.gained].tolist()[:64],
        "agree_again_for": gap.anchor,
    }
    if gap.gained == 0:
        evidence["why"] = f"{gap.lost} tokens of the baseline are missing; then both agree again"
        if repeats_around(a, i, gap.lost) or repeats_around(a, i + gap.lost, gap.lost):
            evidence["ambiguous"] = "the text repeats itself here: which of the copies was lost cannot be told"
        return Event(Kind.OMISSION, j, gap.lost, evidence)
    repeat = _repeat_over(b, j, gap)
    if repeat is not None:
        baseline_loops = common_prefix(a[i:], b[j:]) >= gap.gained
        event = name_repeat(repeat, j, b, baseline_loops)
        if gap.lost == 0 and event.kind is Kind.DUPLICATION:
            event.length = gap.gained
        if repeats_around(b, j, repeat.lag) and repeat.start < j:
            evidence["ambiguous"] = "the text repeats itself here: the copy may begin earlier"
        event.evidence = {**evidence, **event.evidence}
        return event
    if gap.lost == 0:
        source = earlier_copy(b, j, gap.gained)
        if source is not None:
            evidence["source_start"], evidence["source_end"] = source, source + gap.gained
            evidence["why"] = f"{gap.gained} tokens from position {source} are emitted again"
            return Event(Kind.DUPLICATION, j, gap.gained, evidence)
    if gap.lost >= gap.gained + 4 and gap.gained <= 3:
        evidence["why"] = (
            f"{gap.lost} tokens of the baseline are missing ({gap.gained} others stand in their place); "
            "then both agree again"
        )
        return Event(Kind.OMISSION, j, gap.lost, evidence)
    start = j if gap.gained > 3 and gap.lost == gap.gained else min(first_bad, j + gap.gained - 1)
    length = max(1, max(last_bad + 1, j + gap.gained) - start)
    kind = Kind.GARBLED if length >= GARBLED_TOKENS else Kind.UNJUSTIFIED
    evidence["why"] = f"{length} tokens that the reference does not support; then both agree again"
    return Event(kind, start, length, evidence)


def _repeat_over(b: TokenIds, j: int, gap: Gap) -> Repeat | None:
    """The repetition that fills the gained tokens b[j : j + gained], if one does."""
    if gap.lost == 0 and j >= gap.gained:
        whole = find_repeat(b, j, j, exact_lag=gap.gained)
        if whole is not None:
            inner = find_repeat(b, j, j)
            # A chunk that itself is one short loop over and over is a loop of the shorter period.
            if inner is not None and inner.lag < whole.lag and inner.end >= j + gap.gained:
                return Repeat(j, inner.end, inner.lag)
            return Repeat(j, j + gap.gained, gap.gained)
    repeat = find_repeat(b, j, j)
    if repeat is not None and repeat.lag >= 2 and repeat.end >= j + gap.gained:
        return repeat
    if repeat is not None and repeat.lag == 1 and repeat.end >= j + gap.gained and gap.lost == 0:
        return repeat
    return find_loop(b, j, j) if gap.gained >= LOOP_TOKENS else None


def name_tail(
    a: TokenIds,
    b: TokenIds,
    bad: list[int],
    parted_at: tuple[int, int] | None,
    earliest: int,
) -> Event:
    """A stretch after which the streams do not meet again, or where they had parted before.

    `bad` are the unsupported positions from here on, first one first. `parted_at` is (i, j) when the streams
    were in step right up to here, else None and the baseline is no guide any more.
    """
    first = bad[0]
    parted = parted_at[1] if parted_at is not None else None
    # If the streams were in step until a few tokens earlier, the stretch began where they parted: its first
    # tokens may be supported by chance.
    loop = find_loop(b, first, earliest)
    repeat = find_repeat(b, first, earliest)
    candidates = [found for found in (repeat, loop) if found is not None]
    if candidates:
        found = max(candidates, key=lambda one: one.end - one.start)
        strong = found.lag >= 3 or found.copies >= LOOP_COPIES or (found.lag <= 2 and len(bad) <= 2)
        if strong:
            start = _start_of_repeat(found, first, parted, is_loop_of_its_own=found is loop)
            return name_repeat(found, start, b, baseline_loops=False)
    jump = _jump_ahead(a, b, parted_at) if parted_at is not None and parted == first else None
    if jump is not None:
        lost, run = jump
        evidence: dict[str, Json] = {
            "baseline_tokens": a[parted_at[0] : parted_at[0] + lost].tolist()[:64] if parted_at else [],
            "agree_again_for": run,
            "why": f"{lost} tokens of the baseline are missing; the text goes on behind them",
        }
        return Event(Kind.OMISSION, first, lost, evidence)
    cluster = cluster_of(bad)
    start = parted if parted is not None and 0 < first - parted <= 2 and len(cluster) >= GARBLED_TOKENS else first
    length = cluster[-1] + 1 - start
    dense = len(cluster) >= GARBLED_TOKENS and len(cluster) >= 0.4 * length
    kind = Kind.GARBLED if dense else Kind.UNJUSTIFIED
    why = f"{len(cluster)} of {length} tokens are not supported by the reference"
    return Event(kind, start, length, {"why": why})


def _start_of_repeat(found: Repeat, first: int, parted: int | None, *, is_loop_of_its_own: bool) -> int:
    if is_loop_of_its_own:
        return parted if parted is not None and found.start <= parted <= first else max(found.start, first)
    if parted is not None and found.start <= parted <= first:
        return parted
    # The stretch may match a little further than the chunk is long, by chance, at either side.
    slack = max(0, (found.end - found.start) - found.lag * max(1, int(found.copies)))
    return first if found.start <= first <= found.start + slack else found.start + min(slack, 0)


def _jump_ahead(a: TokenIds, b: TokenIds, parted_at: tuple[int, int]) -> tuple[int, int] | None:
    """(tokens lost, tokens that agree after) when b goes on with what a says a little later."""
    i, j = parted_at
    ahead = a[i + 1 : i + 1 + LONGEST_LAG]
    best: tuple[int, int] | None = None
    for offset in np.flatnonzero(ahead == b[j]).tolist():
        run = common_prefix(a[i + 1 + offset :], b[j:])
        if run >= 5 and (best is None or run > best[1]):
            best = (offset + 1, run)
    return best


def cluster_of(bad: list[int]) -> list[int]:
    """The leading positions of `bad` that lie close together."""
    end = 1
    while end < len(bad) and bad[end] - bad[end - 1] <= CLUSTER_REACH:
        end += 1
    return bad[:end]
