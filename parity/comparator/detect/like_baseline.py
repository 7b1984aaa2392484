"""Is what the scores reject in a candidate's completion what they reject in the baseline's own as well? By how far the
tokens lie below the best, or by how far their own logprobs say that the logits moved."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct

from parity.comparator.detect.beyond import Beyond, is_shown_otherwise, measured, rejected_alone
from parity.comparator.detect.cases import Case, Doubted, Setup
from parity.comparator.reference.isolated import (
    ALIKE,
    BESIDE_UNKNOWN,
    FARTHER,
    FEW,
    FEW_UNSHOWN,
    IN_FEWEST,
    LASTS,
    MOST_UNSAID,
    NONE,
    ONE_IN,
    TIMES_IN_A_ROW,
    Isolated,
    are_apart,
    are_single,
    most_in_a_row,
    moved,
    moved_as_far,
)
from parity.comparator.reference.own_logprobs import NEAR, OwnNoise, own_gaps
from parity.comparator.reference.tolerance import OWN_BELIEF
from parity.comparator.sums import most_together
from parity.records.kinds import Stretch

BACKED = 0.35
"""Of the gaps of several tokens together, that their own logprobs must lie above the scores, for the engine to have
held them for about its best. Where logits move, half of a gap is in the best one's, on average."""

RELABELLED = 0.1
"""Nats between how far below the best a token lies and how far its own logprob lies above the score, up to which that
may be the best one's: it was chosen, and another one handed out."""


def _is_loose(found: Beyond, case: Case, setup: Setup) -> bool:
    """Does neither a calibrated tolerance decide it, nor a penalty, nor that tokens are said again, or lost?"""
    if setup.doubt.is_none or (setup.reference.penalises and not (found.raw > setup.tolerance).any()):
        return False
    return not any(one.kind.row.stretch in (Stretch.COPY, Stretch.LOST, Stretch.FOREIGN) for one in case.events)


def _by_itself(found: Beyond, case: Case, setup: Setup) -> Doubted | None:
    """Single tokens that may be chance though none of the baseline's is like them: nobody recorded the engine's own
    logprobs of them; or few of the baseline's tokens are scored, and the engine's own logprobs say that its logits
    moved there, or they lie nearer the best than damage leaves them and are no second best, which is what an engine has
    that takes it for the best."""
    if not are_single(found.places, found.gaps, len(case.b.token_ids), MOST_UNSAID):
        return None
    if np.isnan(found.residuals).all():
        return Doubted.UNSAID
    if (setup.isolated or NONE).shows_enough or len(found.places) > FEW or _knew_better(found, case, setup):
        return None
    if int((found.gaps > setup.doubt.far).sum()) > FEW_UNSHOWN:
        return None
    near = _is_near(found, case, setup) and not setup.reference.penalises  # one that is left out moves no logprob
    return Doubted.ALONE if near or _own_moved(found) else None


def _knew_better(found: Beyond, case: Case, setup: Setup) -> bool:
    """Do the engine's own lists hold another token for better at any of these?"""
    own = None if case.b.lists is None else own_gaps(case.b, setup.reference.shaping(case.b).penalised(case.b))
    return own is not None and bool((own.gap[found.places] > setup.tolerance).any())


def _is_near(found: Beyond, case: Case, setup: Setup) -> bool:
    """Do they lie nearer the best than damage leaves them, and is the farthest no second best?"""
    farthest = float(found.gaps.max())
    return farthest <= ALIKE or (farthest <= BESIDE_UNKNOWN and is_third(case, setup))


def _own_moved(found: Beyond) -> bool:
    """Do the engine's own logprobs say of all these tokens that its logits moved, and are none those of the best?"""
    another = np.abs(found.residuals - found.raw) <= RELABELLED
    return moved(found.gaps, found.residuals) and not another.any()


def is_third(case: Case, setup: Setup) -> bool:
    """Do two other tokens or more stand above the worst one in the scores?"""
    at, top = case.widest()[0], setup.reference.score(setup.arms[1], case.b)
    if top is None or case.gaps is None or at >= len(top.values):
        return False
    return int((top.values[at] > case.gaps.chosen[at]).sum()) > 1


class Like(Struct, frozen=True):
    """Tokens like single ones of the baseline; times: how far, over the baseline's farthest."""

    times: float
    how: Doubted
    alone: Doubted | None = None
    """What `_by_itself` says, where none of the baseline's tokens speaks for it."""


def like_the_baseline(case: Case, isolated: Isolated, setup: Setup) -> Like | None:
    """By how far they lie below the best, or by how far their own logprobs say that the logits moved."""
    places = rejected_alone(case, setup.tolerance, by_shape=False) if case.from_scores else None
    if places is None:
        return None
    length = len(case.b.token_ids)
    if not are_apart(places, length):
        return _in_a_row(places, case, isolated, setup)
    found = measured(case, places)
    if found is None:
        return None
    times = moved_as_far(found.gaps, found.residuals, setup.farthest_own)
    loose = setup.isolated is not None and _is_loose(found, case, setup)
    alone = _by_itself(found, case, setup) if loose else None
    if isolated.of_few:
        return _like_few(found, case, isolated, setup, times, alone)
    if not isolated.covers(found.places, found.gaps, length):
        if times is not None:
            return Like(times, Doubted.MOVED)
        return None if alone is None else Like(isolated.times_unsaid(found.gaps), alone, alone)
    unsaid = alone is Doubted.UNSAID
    below = isolated.times_unsaid(found.gaps) if unsaid else float(found.gaps.max()) / isolated.farthest
    return Like(below if times is None else min(below, times), Doubted.AS_BASELINE)


def _like_few(
    found: Beyond, case: Case, isolated: Isolated, setup: Setup, times: float | None, alone: Doubted | None
) -> Like | None:
    """The same where few of the baseline's tokens are scored. `alone`: as `_by_itself` has it."""
    is_chance = _is_chance(found, case, isolated, setup)
    unsaid = alone is Doubted.UNSAID
    is_alone = not isolated.has_any and (alone is Doubted.ALONE or (unsaid and _is_near(found, case, setup)))
    most = FEW if isolated.has_any or is_alone else FEW_UNSHOWN
    few = len(found.places) <= most and (is_alone or is_chance or (unsaid and isolated.says_something))
    if few or isolated.covers(found.places, found.gaps, len(case.b.token_ids)):
        below = isolated.times_unsaid(found.gaps)
        by_itself = not is_chance and (is_alone or not isolated.says_something)
        return Like(below if times is None else min(below, times), Doubted.BY_FEW, alone if by_itself else None)
    return None if times is None else Like(times, Doubted.MOVED)


def _in_a_row(places: Sequence[int], case: Case, isolated: Isolated, setup: Setup) -> Like | None:
    """Several rejected tokens in a row and nothing else: a move of the logits that lasts, if the baseline shows such.
    By own logprobs, where those of several of its completions lie as far off at as many tokens in a row; where nobody
    recorded the candidate's, by the rejected tokens in its completions."""
    if setup.doubt.is_none or len(places) > max(FEW, len(case.b.token_ids) // ONE_IN):
        return None
    found = measured(case, places, most=MOST_UNSAID)
    if found is None:
        return None
    first, count = most_in_a_row(found.places)
    if np.isnan(found.residuals).all():
        if isolated.has_any and _is_loose(found, case, setup) and count <= TIMES_IN_A_ROW * isolated.in_a_row:
            return Like(isolated.times_unsaid(found.gaps), Doubted.IN_A_ROW, Doubted.UNSAID)
        return None
    noise, times = setup.own_noise(), moved_as_far(found.gaps, found.residuals, setup.farthest_own)
    if noise is None:
        return None
    nats = float(found.residuals[first : first + count].min())
    if times is not None and noise.with_as_many(count, nats, LASTS) >= IN_FEWEST:
        return Like(times, Doubted.IN_A_ROW)
    times = _together_as_far(found, noise, setup.farthest_own)
    return None if times is None else Like(times, Doubted.IN_A_ROW)


def _together_as_far(found: Beyond, noise: OwnNoise, farthest: Callable[[], float]) -> float | None:
    """How far the logits moved at all of these tokens together, over how far the baseline's do in as many places; None
    where the engine did not hold them for about its best, or the baseline's do not move.

    Of a token little below the best it may be the best one's logit that moved: its own logprob does not show that.
    """
    far = found.gaps > ALIKE
    backed = float(found.residuals.sum()) > BACKED * float(found.gaps.sum())
    if not backed or not moved(found.gaps[far], found.residuals[far]):
        return None
    single = moved_as_far(found.gaps, np.maximum(found.residuals, found.gaps), farthest)
    together = most_together(found.places, found.residuals, LASTS) / max(noise.most_together(LASTS), NEAR)
    return None if single is None or together > FARTHER else max(single, together)


def _is_chance(found: Beyond, case: Case, isolated: Isolated, setup: Setup) -> bool:
    """Where few of the baseline's tokens are scored: may a model like it have such tokens, though none of these shows?

    One that its own engine holds for as unlikely as the score does was not its best there; and a long chunk that is
    said again, or lost, speaks against it, but where such a token lies little below the best. If none of the baseline's
    shows more than rounding, its engine's own logprobs must say that its logits moved, and not be those of the best."""
    length, knew = len(case.b.token_ids), bool((found.residuals <= OWN_BELIEF).any())
    little = float(found.gaps.max()) <= ALIKE and not knew
    if setup.doubt.is_none or not are_single(found.places, found.gaps, length, MOST_UNSAID):
        return False
    if not isolated.says_something:
        plain = not setup.reference.penalises and not any(map(is_shown_otherwise, case.events))
        return plain and _own_moved(found)
    little |= len(found.places) == 1 and float(found.gaps.max()) <= setup.doubt.far
    if little or setup.reference.penalises or any(map(is_shown_otherwise, case.events)):
        return little
    return bool(np.isnan(found.residuals).all()) or moved(found.gaps, found.residuals)
