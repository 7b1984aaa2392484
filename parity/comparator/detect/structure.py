"""What kind of fault a stretch of tokens is, from its structure.

The questions, most specific first: is it an end of the stream, did the stream begin to loop, were tokens
emitted again, were tokens lost, is it a run of unsupported tokens, or a single one? (Whether the stretch
belongs to another request is asked in leak.py, over the whole run at once.)
"""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from parity.comparator.detect.events import Event, tokens_event
from parity.comparator.streams.alignment import Gap, common_prefix, equal
from parity.comparator.streams.repeats import (
    LONGEST_LAG,
    LOOP_COPIES,
    LOOP_TOKENS,
    Repeat,
    earlier_copy,
    find_loop,
    find_repeat,
    loops_on,
    repeats_around,
)
from parity.messages import message
from parity.records import Kind, TokenIds
from parity.records.evidence import TokensEvidence

GARBLED_TOKENS = 4
"""From this many unsupported tokens on, dense in one stretch, the output is garbled; below, `unjustified`."""

CLUSTER_REACH = 8
"""Unsupported tokens at most this far apart belong to one stretch."""


def loops_to_the_end(a: TokenIds, b: TokenIds, position: int, unsupported: int) -> Event | None:
    """From `position` on the candidate only repeats itself, in a loop that the baseline is nowhere in.

    Asked where the streams seem to meet again: a loop of another length than the baseline's own meets it in every
    turn. `unsupported` tokens from there on: one alone is an entry into a loop that the model then stays in.
    """
    rest = b[position:]
    if unsupported < LOOP_COPIES or len(rest) < LOOP_TOKENS:
        return None
    longest = min(64, len(rest) // LOOP_COPIES)
    for lag in (np.flatnonzero(rest[1 : longest + 1] == rest[0]) + 1).tolist():
        if equal(rest[lag:], rest[:-lag]):
            if loops_on(a, b[len(b) - lag :]):
                return None
            why = message(
                "repetition.enters",
                "falls into a loop of {period} tokens that the baseline does not enter, and it is not supported",
                period=lag,
            )
            copies = round(len(rest) / lag, 2)
            return tokens_event(Kind.REPETITION, position, len(rest), why, period=lag, copies=copies)
    return None


def name_repeat(
    repeat: Repeat, position: int, b: TokenIds, *, in_loop_already: bool = False, unsupported: int = 0
) -> Event:
    """A repetition as `repetition` (a loop) or `duplication` (a chunk emitted again).

    A candidate that was in this very loop before the fault did not fall into it now; but where it stays in it to the
    end, and several of its tokens (`unsupported`) are rejected, that is the fault.
    """
    length = repeat.end - repeat.start
    to_the_end = repeat.end == len(b)
    loops = repeat.copies >= LOOP_COPIES or (to_the_end and repeat.copies >= 2)
    loop = TokensEvidence(
        why=message(
            "duplication.before",
            "the token before it is emitted again",
            plural="the {count} tokens before it are emitted again",
            count=repeat.lag,
        ),
        period=repeat.lag,
        copies=round(repeat.copies, 2),
        source_start=repeat.start - repeat.lag,
        source_end=repeat.start,
    )
    stays = in_loop_already and to_the_end and unsupported >= LOOP_COPIES and repeat.copies >= LOOP_COPIES
    enough = length >= LOOP_TOKENS or (to_the_end and repeat.copies >= 2 * LOOP_COPIES)
    if stays:
        why = message(
            "repetition.stays",
            "goes on in a loop of {period} tokens that the baseline leaves, and that is not supported",
            period=repeat.lag,
        )
    elif loops and enough and not in_loop_already:
        why = message(
            "repetition.entry",
            "falls into a loop of {period} tokens that the baseline does not enter, and the entry is not supported",
            period=repeat.lag,
        )
    else:
        chunk = repeat.lag * max(1, int(repeat.copies))
        return Event(Kind.DUPLICATION, position, min(chunk, repeat.end - position), loop)
    return Event(Kind.REPETITION, position, repeat.end - position, replace(loop, why=why))


def is_plain(gap: Gap) -> bool:
    """Tokens only lost, or a few put in the place of as many."""
    return gap.gained == 0 or (gap.lost == gap.gained and gap.gained < GARBLED_TOKENS)


def is_copy(b: TokenIds, j: int, gap: Gap) -> bool:
    """Are the tokens gained ones from before, emitted again?"""
    if gap.lost or not gap.gained:
        return False
    return earlier_copy(b, j, gap.gained) is not None or _is_again(b, j, gap.gained) or _fills(b, j, gap.gained)


def _is_again(b: TokenIds, j: int, size: int) -> bool:
    return j >= size and equal(b[j - size : j], b[j : j + size])


def _fills(b: TokenIds, j: int, size: int) -> bool:
    """Does one short chunk, emitted again several times, make up b[j : j + size]?"""
    inner = find_repeat(b, j, j)
    return inner is not None and inner.end >= j + size and inner.copies >= LOOP_COPIES


def name_gap(a: TokenIds, b: TokenIds, i: int, j: int, gap: Gap) -> Event:
    """A gap at (i, j) that `is_plain` or `is_copy`, with unsupported tokens in it; both agree again after it."""
    lost, gained = a[i : i + gap.lost].tolist()[:64], b[j : j + gap.gained].tolist()[:64]
    sides = {"baseline_tokens": tuple(lost), "candidate_tokens": tuple(gained), "agree_again_for": gap.anchor}
    if gap.gained == 0:
        why = message(
            "omission.agree", "{count} tokens of the baseline are missing; then both agree again", count=gap.lost
        )
        repeats = repeats_around(a, i, gap.lost) or repeats_around(a, i + gap.lost, gap.lost)
        return tokens_event(Kind.OMISSION, j, gap.lost, why, ambiguous=_WHICH_LOST if repeats else None, **sides)
    if gap.lost == 0:
        return _gained(b, j, gap.gained).but(**sides)
    why = message(
        "unjustified.in_place",
        "{count} token that the reference does not support stands in the place of another",
        plural="{count} tokens that the reference does not support stand in the place of as many",
        count=gap.gained,
    )
    return tokens_event(Kind.UNJUSTIFIED, j, gap.gained, why, **sides)


_WHICH_LOST = message("omission.ambiguous", "the text repeats itself here: which of the copies was lost is not known")
_WHICH_GAINED = message(
    "duplication.ambiguous", "the text repeats itself here: which copy is the extra one is not known"
)


def _gained(b: TokenIds, j: int, gained: int) -> Event:
    """Tokens b[j : j + gained] that the baseline does not have and that `is_copy` knows."""
    if _fills(b, j, gained):
        inner = find_repeat(b, j, j)
        assert inner is not None
        return name_repeat(Repeat(j, j + gained, inner.lag), j, b)
    source = j - gained if _is_again(b, j, gained) else earlier_copy(b, j, gained)
    assert source is not None
    why = message(
        "duplication.from",
        "the token at position {source} is emitted again",
        plural="the {count} tokens from position {source} are emitted again",
        count=gained,
        source=source,
    )
    ambiguous = _WHICH_GAINED if repeats_around(b, source, gained) else None
    place = {"source_start": source, "source_end": source + gained}
    return tokens_event(Kind.DUPLICATION, j, gained, why, ambiguous=ambiguous, **place)


def is_garbled(unsupported: int, length: int) -> bool:
    """A run of unsupported tokens rather than a few: enough of them, and dense."""
    if length < GARBLED_TOKENS:
        return False
    return unsupported >= max(GARBLED_TOKENS, 0.3 * length) or (
        unsupported == GARBLED_TOKENS - 1 and unsupported >= 0.6 * length
    )


def name_tail(
    a: TokenIds,
    b: TokenIds,
    bad: list[int],
    parted_at: tuple[int, int] | None,
    earliest: int,
    *,
    met_again: bool = False,
) -> Event:
    """A stretch after which the streams do not meet again, or where they had parted before.

    `bad` are the unsupported positions from here on, first one first. `parted_at` is (i, j) when the streams
    were in step right up to here, else None and the baseline is no guide any more. met_again: they had
    parted before that; then what the candidate has said already is no sign that tokens were lost.
    """
    first = bad[0]
    parted = parted_at[1] if parted_at is not None else None
    jump = _jump_ahead(a, b, parted_at) if parted_at is not None and parted == first else None
    if jump is not None and met_again and earlier_copy(b, first, jump[1]) is not None:
        jump = None
    again = _again(a, b, bad, parted, earliest, jump)
    if again is not None:
        return again
    if jump is not None and parted_at is not None:
        lost, run = jump
        why = message(
            "omission.ahead", "{count} tokens of the baseline are missing; the text goes on after that", count=lost
        )
        tokens = tuple(a[parted_at[0] : parted_at[0] + lost].tolist()[:64])
        return tokens_event(Kind.OMISSION, first, lost, why, baseline_tokens=tokens, agree_again_for=run)
    cluster = cluster_of(bad)
    length = cluster[-1] + 1 - first
    kind = Kind.GARBLED if is_garbled(len(cluster), length) else Kind.UNJUSTIFIED
    why = (
        message("unsupported.one", "the reference does not support this token")
        if length == 1
        else message(
            "unsupported.why",
            "{count} of {length} tokens are not supported by the reference",
            count=len(cluster),
            length=length,
        )
    )
    return tokens_event(kind, first, length, why)


def _again(
    a: TokenIds, b: TokenIds, bad: list[int], parted: int | None, earliest: int, jump: tuple[int, int] | None
) -> Event | None:
    """The stretch as tokens emitted again or a loop, where it is one and nothing explains it with less."""
    first = bad[0]
    loop = find_loop(b, first, earliest)
    repeat = find_repeat(b, first, earliest)
    if loop is not None and repeat is not None and loops_on(b[:first], b[loop.end - loop.lag : loop.end]):
        loop = None  # the loop was there before; what is new is the chunk emitted again
    if jump is not None and repeat is not None and (jump[0] < repeat.lag or repeat.end - repeat.start == 1):
        repeat = None  # a short way ahead in the baseline explains the tokens with less
    if repeat is not None and _is_habit(repeat, bad, len(b)):
        repeat = None
    candidates = [found for found in (repeat, loop) if found is not None]
    if not candidates:
        return None
    found = max(candidates, key=lambda one: one.end - one.start)
    if found.lag < 3 and found.copies < LOOP_COPIES and len(bad) > 2:
        return None
    start = _start_of_repeat(found, first, parted, is_loop_of_its_own=found is loop)
    pattern = b[found.end - found.lag : found.end]
    already = loops_on(b[:start], pattern) and loops_on(a, pattern)
    inside = sum(start <= place < found.end for place in bad)
    return name_repeat(found, start, b, in_loop_already=already, unsupported=inside)


def _is_habit(repeat: Repeat, bad: list[int], length: int) -> bool:
    """Only part of a chunk stands again, and only its entry is not supported: the text went on as it did before."""
    if repeat.copies >= 1 or repeat.end == length:
        return False
    return not any(bad[0] + 2 <= place < repeat.end for place in bad)


def _start_of_repeat(found: Repeat, first: int, parted: int | None, *, is_loop_of_its_own: bool) -> int:
    if is_loop_of_its_own:
        return max(found.start, first)
    if found.copies >= LOOP_COPIES:
        if parted is not None and found.start <= parted and first - parted <= found.lag:
            return parted  # the loop begins where the streams part
        return max(found.start, first)  # what is supported before is the model's own loop
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
        if run >= (3 if offset < 32 else 5) and (best is None or run > best[1]):
            best = (offset + 1, run)
    return best


def cluster_of(bad: list[int]) -> list[int]:
    """The leading positions of `bad` that lie close together."""
    end = 1
    while end < len(bad) and bad[end] - bad[end - 1] <= CLUSTER_REACH:
        end += 1
    return bad[:end]
