"""Where two greedy streams part, and after it: tokens that the reference does not support; without one, a suspicion."""

from __future__ import annotations

from bisect import bisect_left

from msgspec.structs import replace

from parity.comparator.detect.cases import Case, Detector, Setup, pair_by_pair
from parity.comparator.detect.walk import JUNCTION, Streams, Walk, walk, walk_unscored
from parity.comparator.reference.gaps import TokenGaps, decided
from parity.records import Kind


def _look(case: Case, setup: Setup) -> Case:
    if case.is_identical:
        return case
    if (plain := _at_one_place(case)) is not None:
        return plain
    b, invalid = case.b, case.events
    end = len(b.token_ids) if case.past is None else min(len(b.token_ids), case.past.position)
    if case.gaps is None:
        walked = walk_unscored(case.a.token_ids, b.token_ids, case.parts_at, end)
    else:
        walked = walk(_streams(case, case.gaps, end, setup))
    if walked.flip is None and case.parts_at == len(case.a.token_ids) and setup.rules.leaves_open(case.a):
        walked = _after_the_end(case, walked)
    unjudged = walked.unjudged_from
    if invalid and unjudged is not None and unjudged >= invalid[0].position:
        unjudged = None  # nothing after an invalid token can be scored
    return replace(
        case, flip=walked.flip, events=(*walked.events, *invalid), unjudged_from=unjudged, suspect=walked.suspect
    )


def _at_one_place(case: Case) -> Case | None:
    """Most pairs: they part at one place, and from there on the reference supports every token of the candidate. What
    `walk` says of those, without its streams; None for others."""
    found, at = case.decided, case.parts_at
    if found is None or case.events or case.past is not None or (found.rejected and found.rejected[-1] >= at):
        return None
    if at >= len(case.a.token_ids) or at >= len(case.b.token_ids):
        return None
    unknown = found.unknown[bisect_left(found.unknown, at) :]
    return replace(case, flip=at, unjudged_from=unknown[0] if unknown else None)


def _streams(case: Case, gaps: TokenGaps, end: int, setup: Setup) -> Streams:
    found = case.decided or decided([gaps], setup.tolerance)[0]
    rejected, unknown = found.rejected, found.unknown
    for event in case.events:
        rejected = [at for at in rejected if not event.position <= at < event.end + JUNCTION]
        unknown = [at for at in unknown if not event.position <= at < event.end]
    return Streams(
        case.a.token_ids,
        case.b.token_ids,
        case.parts_at,
        end,
        rejected[: bisect_left(rejected, end)],
        unknown,
        gaps.best_id,
        setup.rules.of(case.b).terminators,
        setup.rules.leaves_open(case.a),
    )


def _after_the_end(case: Case, walked: Walk) -> Walk:
    """The candidate has all of the baseline's tokens and more, and nothing says that there must be no more."""
    end = len(case.a.token_ids)
    flip = None if case.a.aborted else end  # the other branch was to end here
    return replace(walked, flip=flip, unjudged_from=walked.unjudged_from if case.from_scores else end)


DETECTOR = Detector(
    frozenset(
        {
            Kind.DUPLICATION,
            Kind.OMISSION,
            Kind.REPETITION,
            Kind.GARBLED,
            Kind.UNJUSTIFIED,
            Kind.EARLY_STOP,
            Kind.OVERRUN,
        }
    ),
    pair_by_pair(_look),
)
