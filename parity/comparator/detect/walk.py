"""One pair of greedy completions: walk along both, decide each place where they part.

The walk keeps a place in each stream. While the streams are equal nothing is asked. Where they part, the
reference says which of the candidate's tokens it supports:

* all supported: the candidate took another branch of a near-tie. From here on its text is its own, and each
  of its tokens must be supported by the reference, whether it equals the baseline's or not.
* some not supported: a fault. Its kind comes from how the streams meet again (structure.py). Once they have
  met again, the tokens that agree with the baseline are not asked about: a fault upsets what a reference thinks
  of the next tokens, and they are the right ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from parity.comparator.detect.structure import (
    Event,
    cluster_of,
    is_copy,
    is_plain,
    loops_to_the_end,
    name_gap,
    name_tail,
)
from parity.comparator.reference.gaps import BoolArray
from parity.comparator.streams.alignment import common_prefix, realign
from parity.comparator.streams.repeats import is_periodic
from parity.records import Kind, TokenIds
from parity.records.kinds import Stretch

MAX_EVENTS = 16
"""Faults named per completion; what comes after is more of the same."""

JUNCTION = 3
"""Tokens after a gap that still belong to it: the reference needs a few to get over what it just read."""

STRONG_ANCHOR = 24
STRONG_CHUNK = 8
"""Where the reference does not speak, a chunk of STRONG_CHUNK tokens lost or repeated, with agreement of STRONG_ANCHOR
behind it, is worth a word. It proves nothing: where a model may leave a sentence out or say it again, a near-tie
makes the same shape."""


@dataclass(slots=True)
class Walk:
    """The outcome for one pair."""

    flip: int | None = None
    """Position where the streams first part, None if they never do."""
    events: list[Event] = field(default_factory=list)
    unjudged_from: int | None = None
    """From this position on nothing could be decided."""
    suspect: Event | None = None
    """Without a reference: what the place where the streams part looks like. It proves nothing by itself."""


def walk(
    a: TokenIds,
    b: TokenIds,
    unjustified: BoolArray | None,
    unknown: BoolArray | None,
    *,
    masked_from: int | None = None,
    eos: frozenset[int] = frozenset(),
    best_ids: TokenIds | None = None,
    parts_at: int | None = None,
    open_end: bool = False,
) -> Walk:
    """Walk along baseline `a` (T,) and candidate `b` (U,).

    unjustified, unknown: arrays of shape (U,) from the reference, or None without one.
    masked_from: candidate tokens from here on are explained already (past an end of the stream).
    best_ids: what the reference would have chosen at each candidate position.
    parts_at: number of leading tokens that are equal, where the caller knows it.
    open_end: where the baseline's stream ends, its completion might have gone on.
    """
    result = Walk()
    end = len(b) if masked_from is None else min(len(b), masked_from)
    if unjustified is not None:
        first = common_prefix(a, b) if parts_at is None else parts_at
        if not unjustified[first:end].any():
            # The usual case: a near-tie and nothing else.
            return _benign(a, b, first, end, unknown, open_end=open_end)
    bad_mask = np.zeros(len(b), dtype=np.bool_) if unjustified is None else unjustified.copy()
    bad_mask[end:] = False
    i = j = 0
    explained = False  # in step again after a fault: agreement with the baseline explains the tokens
    while j < end and i < len(a) and len(result.events) < MAX_EVENTS:
        run = min(common_prefix(a[i:], b[j:]), end - j)
        if result.flip is not None and not explained:
            inside = np.flatnonzero(bad_mask[j : j + run])
            if len(inside):
                first = j + int(inside[0])
                event = _free(a, b, bad_mask, first, None, first, eos, best_ids)
                result.events.append(event)
                bad_mask[: max(event.end, first + 1)] = False
                moved = max(event.end, first + 1) - j
                if moved >= run:
                    break
                i, j = i + moved, j + moved
                continue
        if result.flip is None or explained:
            bad_mask[j : j + run] = False
        i, j = i + run, j + run
        if j >= end or i >= len(a):
            break
        if result.flip is None:
            result.flip = j
        gap = realign(a[i:], b[j:end])
        if unjustified is None:
            _without_reference(a, b, i, j, result)
            return result
        stretch_end = end if gap is None else min(end, j + gap.gained + JUNCTION)
        inside = np.flatnonzero(bad_mask[j:stretch_end])
        if not len(inside):
            if gap is None:
                j = end
                break
            i, j, explained = i + gap.lost, j + gap.gained, False
            continue
        bad = [j + int(offset) for offset in inside]
        at_end = bad[0] in _ends(b, eos)
        if gap is not None and not at_end:
            if bad[0] >= j + gap.gained and gap.gained > 0 and not _touches(gap.lost, gap.gained):
                # They met again before the first bad token: the flip was benign, the rest is asked next.
                i, j, explained = i + gap.lost, j + gap.gained, False
                continue
            if (is_plain(gap) and bad[0] - j <= JUNCTION) or is_copy(b, j, gap):
                loop = loops_to_the_end(a, b, j, int(bad_mask[j:].sum()))
                event = name_gap(a, b, i, j, gap) if loop is None else loop
            else:
                event = _free(a, b, bad_mask, bad[0], (i, j), j, eos, best_ids, until=stretch_end)
            event.earliest = j
            result.events.append(event)
            bad_mask[: max(event.end, j + gap.gained + JUNCTION)] = False
            i, j, explained = i + gap.lost, j + gap.gained, True
            continue
        event = _free(a, b, bad_mask, bad[0], (i, j), j, eos, best_ids)
        result.events.append(event)
        bad_mask[: max(event.end, bad[0] + 1)] = False
        j = end
        break
    if result.flip is not None or open_end:
        _rest(a, b, bad_mask, end, result, eos, best_ids)
    _note_unknown(result, unknown, len(a) if open_end and result.flip is None else result.flip, end)
    return result


def _benign(a: TokenIds, b: TokenIds, first: int, end: int, unknown: BoolArray | None, *, open_end: bool) -> Walk:
    result = Walk(flip=first if first < end and first < len(a) else None)
    _note_unknown(result, unknown, first if open_end else result.flip, end)
    return result


def _note_unknown(result: Walk, unknown: BoolArray | None, start: int | None, end: int) -> None:
    if unknown is not None and start is not None:
        open_positions = np.flatnonzero(unknown[start:end])
        if len(open_positions):
            result.unjudged_from = start + int(open_positions[0])


def _touches(lost: int, gained: int) -> bool:
    """May the junction after such a gap be part of it? After a lost or repeated chunk, not after a flip."""
    return abs(lost - gained) >= 2


def _ends(b: TokenIds, eos: frozenset[int]) -> set[int]:
    return {len(b) - 1} if len(b) and int(b[-1]) in eos else set()


def _rest(
    a: TokenIds,
    b: TokenIds,
    bad_mask: BoolArray,
    end: int,
    result: Walk,
    eos: frozenset[int],
    best_ids: TokenIds | None,
) -> None:
    """What is unsupported behind the place where the baseline stopped being a guide."""
    earliest = len(a) if result.flip is None else result.flip
    bad = np.flatnonzero(bad_mask[:end])
    index = 0
    while index < len(bad) and len(result.events) < MAX_EVENTS:
        first = int(bad[index])
        previous = result.events[-1] if result.events else None
        if previous is not None and first - previous.end <= JUNCTION and first != len(b) - 1:
            # Still upset by the fault before.
            if previous.kind.row.stretch is Stretch.UNSUPPORTED:
                previous.length = first + 1 - previous.position
            index += 1
            continue
        bad_mask[:first] = False
        event = _free(a, b, bad_mask, first, None, earliest, eos, best_ids)
        result.events.append(event)
        index = int(np.searchsorted(bad, max(event.end, first + 1)))


def _free(
    a: TokenIds,
    b: TokenIds,
    bad_mask: BoolArray,
    first: int,
    parted_at: tuple[int, int] | None,
    earliest: int,
    eos: frozenset[int],
    best_ids: TokenIds | None,
    until: int | None = None,
) -> Event:
    """Name the fault at `first` by what the candidate's own tokens say; `until` bounds where to look."""
    limit = first + 512 if until is None else until
    bad = [int(position) for position in np.flatnonzero(bad_mask[:limit]) if position >= first]
    ends = _ends(b, eos)
    if first in ends:
        why = "ends here, and the reference does not support ending here"
        return Event(Kind.EARLY_STOP, first, 1, {"why": why}, earliest)
    if best_ids is not None and int(best_ids[first]) in eos and len(cluster_of(bad)) < len(b) - first:
        why = "the reference ends the completion here, the candidate goes on"
        return Event(Kind.OVERRUN, first, len(b) - first, {"why": why}, earliest)
    event = name_tail(a, b, [position for position in bad if position not in ends] or bad, parted_at, earliest)
    event.earliest = earliest
    return event


def looks_moved(a: TokenIds, b: TokenIds, first: int) -> bool:
    """Does it look as if a chunk was lost or emitted again at `first`?

    Near-ties make short ones, and in a loop any two phases agree sooner or later: the chunk must be long, the
    agreement behind it longer, and neither in a loop.
    """
    gap = realign(a[first:], b[first:])
    if gap is None or gap.anchor < min(STRONG_ANCHOR, len(b) - first - gap.gained) or gap.anchor < STRONG_CHUNK:
        return False
    if max(gap.lost, gap.gained) < STRONG_CHUNK or (gap.gained and not is_copy(b, first, gap)):
        return False
    agreed = b[first + gap.gained : first + gap.gained + gap.anchor]
    if is_periodic(agreed[:128]) or is_periodic(agreed[-48:], longest=24):
        return False
    return "ambiguous" not in name_gap(a, b, first, first, gap).evidence


def _without_reference(a: TokenIds, b: TokenIds, i: int, j: int, result: Walk) -> None:
    """Only structure speaks, and it names no more than a suspicion: a chunk lost or emitted again."""
    result.unjudged_from = j
    if i != j or not looks_moved(a, b, j):
        return
    gap = realign(a[i:], b[j:])
    assert gap is not None
    event = name_gap(a, b, i, j, gap)
    event.earliest = j
    result.suspect = event
