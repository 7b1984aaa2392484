"""What tokens beyond the tolerance leave open: noise or a fault. A row for each way in which they are doubted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct

from parity.comparator.detect.cases import Doubted
from parity.comparator.detect.pairs import Judged
from parity.comparator.reference.floor import Floor
from parity.comparator.reference.isolated import ENOUGH
from parity.comparator.reference.tolerance import noise_shown
from parity.comparator.types import Remarks, note, reason
from parity.messages import Message, message
from parity.records import words
from parity.records.next_steps import NextStep, Step

LONGER: Final = 4
"""Times as many tokens, of the larger run that is asked for."""


class _Row(Struct, frozen=True):
    """What is said of completions that are doubted in one way, and what would settle it, the best one first."""

    said: Callable[[Message, float], Message]
    """Of how many completions, and how far the farthest of their tokens lies (nats)."""
    steps: tuple[Step, ...]
    """None of them another engine as the baseline: its own router moves nothing beside its own scores, so that it would
    call what the arms' routers do faults of both."""
    score_first: bool = False
    """Before all these the baseline's own tokens are to be scored, where they are not."""
    until_enough: bool = False
    """A run in which ENOUGH of the baseline's tokens are scored decides it."""


_ROWS: Final[Mapping[Doubted, _Row]] = {
    Doubted.IN_A_ROW: _Row(
        lambda completions, gap: message(
            "conclude.in_a_row",
            "the scores reject a few tokens in a row in {completions} of this arm (up to {gap:.3f} nats below the "
            "best): a state that is wrong for a while leaves them, and so do experts at near-ties of their router, "
            "which move the baseline's logits as well",
            completions=completions,
            gap=gap,
        ),
        (Step.ARBITER, Step.LONGER),
        score_first=True,
    ),
    Doubted.AS_BASELINE: _Row(
        lambda completions, gap: message(
            "conclude.as_baseline",
            "the scores reject single tokens in {completions} of this arm (up to {gap:.3f} nats below the best), no "
            "more than chance makes beside those of the baseline's own: experts at near-ties of their router do that, "
            "and a fault in both arms",
            completions=completions,
            gap=gap,
        ),
        (Step.ARBITER, Step.LONGER),
    ),
    Doubted.MOVED: _Row(
        lambda completions, gap: message(
            "conclude.logits_moved",
            "the scores reject single tokens in {completions} of this arm (up to {gap:.3f} nats below the best); its "
            "own logprobs say that its logits moved there, and the baseline's move as well: experts at near-ties of "
            "their router do that, and a fault in both arms",
            completions=completions,
            gap=gap,
        ),
        (Step.ARBITER, Step.LONGER),
    ),
    Doubted.CUT_OFF: _Row(
        lambda completions, gap: message(
            "conclude.cut_off",
            "in {completions} a single token lies beyond what its request's top_k, top_p or min_p leaves (by up to "
            "{gap:.2f} nats), which a fault leaves, and so do experts at near-ties of their router: its engine's own "
            "logprob would say whether its logits moved, and was not recorded",
            completions=completions,
            gap=gap,
        ),
        (Step.LOGPROBS, Step.LONGER),
    ),
    Doubted.BY_FEW: _Row(
        lambda completions, gap: message(
            "conclude.by_few",
            "the scores reject single tokens in {completions} of this arm (up to {gap:.3f} nats below the best), no "
            "more than chance makes of an arm like the baseline, by the few of the baseline's tokens that are scored: "
            "experts at near-ties of their router do that, and a fault; scores of all completions of both arms would "
            "say more",
            completions=completions,
            gap=gap,
        ),
        (Step.SCORE, Step.ARBITER, Step.LONGER),
    ),
    Doubted.ALONE: _Row(
        lambda completions, gap: message(
            "conclude.alone",
            "the scores reject single tokens in {completions} of this arm (up to {gap:.3f} nats below the best), no "
            "more than chance makes of an arm like the baseline: experts at near-ties of their router do that, and a "
            "fault of one step",
            completions=completions,
            gap=gap,
        ),
        (Step.LONGER, Step.ARBITER),
        score_first=True,
        until_enough=True,
    ),
    Doubted.LOGPROBS_ALONE: _Row(
        lambda completions, gap: message(
            "conclude.logprobs_alone",
            "the engine's own logprobs of single tokens lie far off in {completions} of this arm (up to {gap:.3f} "
            "nats), no more than chance makes of an arm like the baseline: experts at near-ties of their router do "
            "that, and a fault of one step",
            completions=completions,
            gap=gap,
        ),
        (Step.LONGER, Step.ARBITER),
        score_first=True,
        until_enough=True,
    ),
    Doubted.UNSAID: _Row(
        lambda completions, gap: message(
            "conclude.unsaid",
            "the scores reject single tokens in {completions} of this arm (up to {gap:.3f} nats below the best), which "
            "a fault leaves, and so do experts at near-ties of their router: beside the baseline's own tokens it is no "
            "more than chance; its engine's own logprobs would say whether its logits moved, and were not recorded",
            completions=completions,
            gap=gap,
        ),
        (Step.LOGPROBS, Step.ARBITER, Step.LONGER),
    ),
    Doubted.PRECISION: _Row(
        lambda completions, gap: message(
            "conclude.other_precision",
            "the scores reject single tokens in {completions} of this arm, which runs in other precision (up to "
            "{gap:.3f} nats below the best, nearer than damage leaves them): it does that where experts are at "
            "near-ties of their router, and so does a fault; arms of one precision would say more",
            completions=completions,
            gap=gap,
        ),
        (Step.SAME_PRECISION, Step.ARBITER),
    ),
    Doubted.CONTRADICTED: _Row(
        lambda completions, gap: message(
            "conclude.lists_contradict",
            "where they part, the arms' own logprobs contradict each other in {completions}: each holds its own token "
            "for the best (by the baseline's the other one lies up to {gap:.3f} nats below or more): a fault in either "
            "arm does that, and so do experts at near-ties of their router; scores of both arms would say more",
            completions=completions,
            gap=gap,
        ),
        (Step.SCORE, Step.ARBITER, Step.LONGER),
    ),
    Doubted.APART: _Row(
        lambda completions, gap: message(
            "conclude.logprobs_apart",
            "the arms' own logprobs of some tokens lie apart in {completions} (up to {gap:.3f} nats): a fault in "
            "either arm does that, and so do experts at near-ties of their router; scores of both arms would say more",
            completions=completions,
            gap=gap,
        ),
        (Step.SCORE, Step.ARBITER, Step.LONGER),
    ),
}
"""In the order in which they are said: of several ways the first. The others are tokens little beyond the tolerance."""


def doubtful(judged: Judged, floor: Floor | None, tolerance: float, *, other_precision: bool = False) -> Remarks:
    """Tokens beyond the tolerance that are left open, or noise where the baseline's own tokens show such gaps, or where
    the arms are known to compute in other precision; floor: of these tokens, None where they are not scored; tolerance
    in nats."""
    gaps: dict[Doubted, list[float]] = {}
    for one in judged.doubtful.values():
        gaps.setdefault(one.how, []).append(one.gap)
    for how, row in _ROWS.items():
        if found := gaps.get(how):
            scored = (Step.SCORE,) if row.score_first and floor is None else ()
            enough = -(-ENOUGH // max(1, floor.tokens)) if floor is not None and row.until_enough else 0
            said = row.said(words.completions(len(found)), max(found))
            return _open(said, *scored, *row.steps, longer=max(LONGER, enough))
    if not gaps:
        return Remarks()
    if other_precision and Doubted.SILENT not in gaps:
        return note(
            message(
                "conclude.doubtful_precision",
                "{what}; so little is taken for the rounding of the other precision",
                what=_what(judged),
            )
        )
    return _little(judged, floor, tolerance, silent=Doubted.SILENT in gaps)


def _open(said: Message, *steps: Step, longer: int = LONGER) -> Remarks:
    more = NextStep(Step.LONGER, said.id, number=longer)
    return reason(said, *(more if step is Step.LONGER else step for step in steps))


def _what(judged: Judged) -> Message:
    key, worst = max(judged.doubtful.items(), key=lambda item: item[1].gap)
    return message(
        "conclude.doubtful",
        "{count} completion has a token or two a little beyond the tolerance and nothing else wrong (the widest gap: "
        "{gap:.3f} nats, {completion} at {position})",
        plural="{count} completions have a token or two a little beyond the tolerance and nothing else wrong (the "
        "widest gap: {gap:.3f} nats, {completion} at {position})",
        count=len(judged.doubtful),
        gap=worst.gap,
        completion=str(key),
        position=worst.position,
    )


def _little(judged: Judged, floor: Floor | None, tolerance: float, *, silent: bool) -> Remarks:
    """Tokens a little beyond the tolerance; `silent`: nobody recorded some engine's own logprob of them."""
    worst, what = max(one.gap for one in judged.doubtful.values()), _what(judged)
    if silent:
        said = message(
            "conclude.doubtful_silent",
            "{what}; its engine's own logprob would say whether its logits moved there, and was not recorded",
            what=what,
        )
        return _open(said, Step.LOGPROBS, Step.ARBITER, Step.LONGER)
    if floor is not None and worst > noise_shown(floor, tolerance):
        said = message(
            "conclude.doubtful_far",
            "{what}; its engine's own logprob says that its logits moved there, as another expert at a near-tie of a "
            "router does, and a fault of one step: a larger run says whether it happens to the baseline as well",
            what=what,
        )
        return _open(said, Step.LONGER)
    if floor is not None:
        return note(
            message(
                "conclude.doubtful_noise",
                "{what}; so little is taken for rounding (the baseline's own tokens lie up to {largest:.3f} nats below "
                "the best; beyond the tolerance: {own} of {tokens})",
                what=what,
                largest=floor.largest,
                own=round(floor.share_beyond(tolerance) * floor.tokens),
                tokens=floor.tokens,
            )
        )
    return reason(
        message(
            "conclude.doubtful_open",
            "{what}: score the baseline's own completions as well (`--score all`), or use `--tolerance auto`",
            what=what,
        ),
        Step.SCORE,
        Step.REFERENCE,
    )
