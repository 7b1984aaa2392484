"""Walk along two greedy streams and decide each place where they part.

The walk keeps a place in each stream. While the streams are equal nothing is asked. Where they part, the
reference says which of the candidate's tokens it supports:

* all supported: the candidate took another branch of a near-tie. From here on its text is its own, and each
  of its tokens must be supported by the reference, whether it equals the baseline's or not.
* some not supported: a fault. Its kind comes from how the streams meet again (structure.py). Once they have
  met again, the tokens that agree with the baseline are not asked about: a fault upsets what a reference thinks
  of the next tokens, and they are the right ones.
"""

from __future__ import annotations

from bisect import bisect_left

from msgspec import Struct
from msgspec.structs import replace

from parity.comparator.detect.beyond import STRONG_ANCHOR, STRONG_CHUNK
from parity.comparator.detect.events import Event
from parity.comparator.detect.structure import (
    cluster_of,
    is_copy,
    is_plain,
    loops_to_the_end,
    name_gap,
    name_tail,
)
from parity.comparator.streams.alignment import Gap, common_prefix, realign
from parity.comparator.streams.repeats import is_periodic
from parity.messages import message
from parity.records import Kind, TokenIds
from parity.records.evidence import EndEvidence
from parity.records.kinds import Stretch

MAX_EVENTS = 16
"""Faults named per completion; what comes after is more of the same."""

JUNCTION = 3
"""Tokens after a gap that still belong to it: the reference needs a few to get over what it just read."""


class Streams(Struct, frozen=True):
    """Baseline `a` (T,) and candidate `b` (U,), and what is known of them."""

    a: TokenIds
    b: TokenIds
    parts_at: int
    """Leading tokens that are equal."""
    end: int
    """Candidate tokens from here on are explained already (past an end of the stream)."""
    bad: list[int]
    """Positions of the candidate's tokens before `end` that the reference does not support, ascending."""
    unknown: list[int]
    """Positions of those on which the reference has no say, ascending."""
    best_ids: TokenIds
    """Shape (U,): what the reference would have chosen."""
    eos: frozenset[int] = frozenset()
    open_end: bool = False
    """Where the baseline's stream ends, its completion might have gone on."""

    def unsupported(self, start: int, stop: int) -> list[int]:
        return self.bad[bisect_left(self.bad, start) : bisect_left(self.bad, stop)] if self.bad else []

    def ends_at(self, position: int) -> bool:
        return position == len(self.b) - 1 and int(self.b[-1]) in self.eos


class Walk(Struct, frozen=True):
    """The outcome for one pair."""

    flip: int | None = None
    """Position where the streams first part, None if they never do."""
    events: tuple[Event, ...] = ()
    unjudged_from: int | None = None
    """From this position on nothing could be decided."""
    suspect: Event | None = None
    """Without a reference: what the place where the streams part looks like. It proves nothing by itself."""


class _Place(Struct, frozen=True):
    """A place in both streams: b[j] stands against a[i]."""

    i: int
    j: int
    asked_from: int
    """Unsupported tokens before this position are explained."""
    events: tuple[Event, ...] = ()
    in_step: bool = False
    """They met again after a fault: agreement with the baseline explains the tokens."""
    is_over: bool = False
    """The baseline is no guide any more."""

    def goes_on(self, streams: Streams) -> bool:
        inside = self.i < len(streams.a) and self.j < streams.end
        return inside and not self.is_over and len(self.events) < MAX_EVENTS

    def met(self, gap: Gap, *, in_step: bool) -> _Place:
        return replace(self, i=self.i + gap.lost, j=self.j + gap.gained, in_step=in_step)

    def found(self, event: Event, until: int, *, is_over: bool = False) -> _Place:
        """With one more event, which explains the tokens before `until`."""
        explained = max(event.end, until)
        return replace(self, events=(*self.events, event), asked_from=explained, is_over=is_over)


def walk(streams: Streams) -> Walk:
    """What is wrong with the candidate, by the reference."""
    first = min(streams.parts_at, streams.end)
    flip = first if first < len(streams.a) and first < streams.end else None
    events = _events(streams, first, flip) if streams.unsupported(first, streams.end) else ()
    start = first if flip is None and streams.open_end else flip
    return Walk(flip, events, None if start is None else _first_unknown(streams, start))


def _events(streams: Streams, first: int, flip: int | None) -> tuple[Event, ...]:
    """All faults; most often there is a near-tie and nothing else, and nobody asks."""
    place = _Place(first, first, first)
    while place.goes_on(streams):
        place = _across(streams, place)
        if place.goes_on(streams):
            place = _along(streams, place)
    if flip is None and not streams.open_end:
        return place.events
    return _rest(streams, place, len(streams.a) if flip is None else flip)


def walk_unscored(a: TokenIds, b: TokenIds, parts_at: int, end: int) -> Walk:
    """Without a reference only structure speaks, and it names no more than a suspicion: a chunk lost or emitted
    again."""
    if parts_at >= min(end, len(a)):
        return Walk()
    return Walk(parts_at, (), parts_at, _moved(a, b, parts_at))


def _along(streams: Streams, place: _Place) -> _Place:
    """To where equal tokens end; after a near-tie they are asked about, too."""
    i, j = place.i, place.j
    run = min(common_prefix(streams.a[i:], streams.b[j:]), streams.end - j)
    if not place.in_step:
        inside = streams.unsupported(max(j, place.asked_from), j + run)
        if inside:
            place = place.found(_free(streams, inside[0], None, inside[0]), inside[0] + 1)
            moved = place.asked_from - j
            place = replace(place, i=i + moved, j=j + moved, is_over=moved >= run)
            return _along(streams, place) if place.goes_on(streams) else place
    return replace(place, i=i + run, j=j + run, asked_from=max(place.asked_from, j + run if place.in_step else 0))


def _across(streams: Streams, place: _Place) -> _Place:
    """Over a place where the streams part, to where they meet again."""
    a, b, i, j = streams.a, streams.b, place.i, place.j
    gap = realign(a[i:], b[j : streams.end])
    until = streams.end if gap is None else min(streams.end, j + gap.gained + JUNCTION)
    bad = streams.unsupported(max(j, place.asked_from), until)
    if not bad:
        return replace(place, is_over=True) if gap is None else place.met(gap, in_step=False)
    if gap is None or streams.ends_at(bad[0]):
        return place.found(_free(streams, bad[0], (i, j), j), bad[0] + 1, is_over=True)
    if bad[0] >= j + gap.gained and gap.gained > 0 and not _touches(gap):
        # They met again before the first bad token: the flip was benign, the rest is asked next.
        return place.met(gap, in_step=False)
    if (is_plain(gap) and bad[0] - j <= JUNCTION) or is_copy(b, j, gap):
        rejected = len(streams.unsupported(max(j, place.asked_from), streams.end))
        event = loops_to_the_end(a, b, j, rejected) or name_gap(a, b, i, j, gap)
    else:
        event = _free(streams, bad[0], (i, j), j, until=until)
    return place.found(replace(event, earliest=j), j + gap.gained + JUNCTION).met(gap, in_step=True)


def _touches(gap: Gap) -> bool:
    """May the junction after such a gap be part of it? After a lost or repeated chunk, not after a flip."""
    return abs(gap.lost - gap.gained) >= 2


def _rest(streams: Streams, place: _Place, earliest: int) -> tuple[Event, ...]:
    """The events with those after the place where the baseline stopped being a guide."""
    events, end = list(place.events), place.events[-1].end if place.events else -JUNCTION - 1
    last, asked_from = len(streams.b) - 1, 0
    grows = bool(events) and _grows(events[-1])
    for first in streams.unsupported(place.asked_from, streams.end):
        if first < asked_from:
            continue
        if len(events) >= MAX_EVENTS:
            break
        if first - end <= JUNCTION and first != last:
            # Still upset by the fault before.
            if grows:
                end = first + 1
            continue
        events[-1:] = [_until(event, end) for event in events[-1:]]
        events.append(_free(streams, first, None, earliest))
        end, grows = events[-1].end, _grows(events[-1])
        asked_from = max(end, first + 1)
    events[-1:] = [_until(event, end) for event in events[-1:]]
    return tuple(events)


def _grows(event: Event) -> bool:
    """Do unsupported tokens right after it belong to it?"""
    return event.kind.row.stretch is Stretch.UNSUPPORTED


def _until(event: Event, end: int) -> Event:
    return event if event.end == end else replace(event, length=end - event.position)


def _free(
    streams: Streams, first: int, parted_at: tuple[int, int] | None, earliest: int, until: int | None = None
) -> Event:
    """Name the fault at `first` by what the candidate's own tokens say; `until` bounds where to look."""
    b = streams.b
    bad = streams.unsupported(first, first + 512 if until is None else until)
    if streams.ends_at(first):
        why = message("early_stop.unsupported", "ends here, and the reference does not support ending here")
        return Event(Kind.EARLY_STOP, first, 1, EndEvidence(why=why), earliest)
    if int(streams.best_ids[first]) in streams.eos and len(cluster_of(bad)) < len(b) - first:
        why = message("overrun.reference", "the reference ends the completion here, the candidate goes on")
        return Event(Kind.OVERRUN, first, len(b) - first, EndEvidence(why=why), earliest, by_gap=True)
    inside = [place for place in bad if not streams.ends_at(place)]
    met_again = parted_at is not None and parted_at[1] > streams.parts_at
    event = name_tail(streams.a, b, inside or bad, parted_at, earliest, met_again=met_again)
    return replace(event, earliest=earliest)


def _first_unknown(streams: Streams, start: int) -> int | None:
    at = bisect_left(streams.unknown, start)
    return streams.unknown[at] if at < len(streams.unknown) and streams.unknown[at] < streams.end else None


def _moved(a: TokenIds, b: TokenIds, first: int) -> Event | None:
    """The chunk that seems lost or emitted again at `first`.

    Near-ties make short ones, and in a loop any two phases agree sooner or later: the chunk must be long, the
    agreement after it longer, and neither in a loop.
    """
    gap = realign(a[first:], b[first:])
    if gap is None or gap.anchor < min(STRONG_ANCHOR, len(b) - first - gap.gained) or gap.anchor < STRONG_CHUNK:
        return None
    if max(gap.lost, gap.gained) < STRONG_CHUNK or (gap.gained and not is_copy(b, first, gap)):
        return None
    agreed = b[first + gap.gained : first + gap.gained + gap.anchor]
    if is_periodic(agreed[:128]) or is_periodic(agreed[-48:], longest=24):
        return None
    event = name_gap(a, b, first, first, gap)
    return None if event.is_ambiguous else replace(event, earliest=first)
