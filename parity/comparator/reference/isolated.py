"""Single tokens that the reference rejects, in the baseline's own completions as well.

A router that chooses another expert at a near-tie of its own moves a logit by as much as the experts differ: with the
random weights of `parity model tiny --arch deepseek_v3`, vLLM 0.32 on CPU rejects one own token in a thousand by 1 to
2.8 nats when it scores itself, in each arm alike. Such a token says nothing of the arm that it is found in, unless that
arm has more of them than the baseline.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from operator import sub

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from parity.comparator.reference.floor import Floor
from parity.comparator.reference.gaps import FloatArray, TokenGaps
from parity.comparator.reference.tolerance import DOUBT
from parity.comparator.statistics import binomial_tail
from parity.records import DEFAULT_TOLERANCE, Key

Ints = npt.NDArray[np.int64]

FEW, ONE_IN = 3, 12
"""Tokens of a completion that are single ones: so many, or one in so many."""

ONE_IN_PRECISION = 6
"""One in so many where the arms compute in other precision: of 64 completions of 48 tokens of a random DeepSeek in
bfloat16 (vLLM 0.32 on CPU), scored by transformers in float32, 16 have one to four such tokens, and one has five."""

FEW_UNSHOWN = 2
"""The same where few of the baseline's tokens are scored and none is a single one."""

CROWD, APART = 3, 4
"""So many of them within so many tokens are none: a span that was damaged, or of another request, has more."""

LASTS = 8
"""Tokens within which a move of the logits dies away. Of 1,280 clean completions of `parity model tiny --arch
deepseek_v3` (vLLM 0.32 on CPU) one has four rejected tokens in its first five, since an expert was another one in its
prompt; 44 have two of five."""

IN_FEWEST = 3
"""Completions of the baseline that show as much in as many tokens, before it counts for what its engine does."""

IN_A_ROW = 2
"""Rejected tokens in a row that the baseline is taken to have, where it has single ones at all and only those of
completions that differ are scored. Of twelve clean arms of `parity model tiny --arch deepseek_v3` (vLLM 0.32 on CPU)
ten have three completions or more with two of five tokens rejected."""

TIMES_IN_A_ROW = 2
"""Times as many rejected tokens in a row as the baseline shows, up to which they are like the baseline's."""

MOST = 4.0
"""Nats below the best, at most: tokens that were damaged lie farther, mostly."""

MOST_UNSAID = 5.0
"""The same of tokens of which nobody recorded the engine's own logprob, which would say whether its logits moved. Of
5,723 single tokens of clean arms of tests/worlds whose experts lie far apart, one lies 4.75 nats below the best, and no
other one farther than 3.2."""

MOVED_SHARE = 0.1
"""Of such a token's gap, that its own logprob must lie above the score where the baseline's logits move by nats: a gap
is made of two logits, and an expert may move either. Of 78 such tokens of ten clean arms of `parity model tiny --arch
qwen3_next` (vLLM 0.32 on CPU) 75 are at 0.15 or more."""

ALIKE = 1.0
"""Nats below the best, up to which such tokens are all alike: half of these 5,723 lie beyond 0.75 and one in ten beyond
1.6, so the farthest of the baseline's few says little of how far the next one lies."""

BESIDE_NONE = 2
"""Completions with such tokens that may be chance where the baseline has none. Of 340 arms with experts far apart one
had two beside a baseline without any; six of 32, in the recordings of the demo, are a fault."""

BESIDE_UNKNOWN = 1.8
"""Nats below the best, up to which the tokens of BESIDE_NONE completions may be chance, whatever their own logprobs
say, where the few of the baseline's tokens that are scored show nothing. Of 610 clean arms of tests/worlds with
experts far apart 26 would be accused of such tokens, two of them of farther ones; of 291 planted completions
(tests/planted_set.py) two have nothing but such a token."""

ENOUGH = 8192
"""Tokens of the baseline, from which on a model that moves logits by nats shows it. Of clean arms of tests/worlds with
experts far apart, compared in parts, 5 in 100 had such tokens beside a baseline without any at 512 tokens and at 1,024,
3 at 2,048, one of 368 at 4,096, and none of 112 at 6,144 or of 72 at 8,192."""

ROUNDED = 0.16
"""Nats by which rounding moves logits against each other at most, where experts are alike (`MOVED` in moves.py)."""

FARTHER = 4.0
"""Times the baseline's farthest, up to which a token is like those of the baseline. With 2, 19 of 340 clean arms of
tests/worlds (14,000 tokens each, experts far apart) were accused, mostly of one token up to 2.9 times as far.
`explains` counts them."""

TAIL = 3.0
"""Gaps beyond the baseline's farthest fall off at least as fast as their size to the power of minus this."""

ALPHA = 1e-3
"""Chance of more completions with such tokens than the baseline has, or of more that lie beyond its farthest, in arms
that are alike."""


DAMAGED = 10.0
"""Nats below the best, within which a damaged token lies anywhere. Of 197 planted completions with single rejected
tokens alone (tests/planted_set.py) 2 in 100 lie within 1.6 nats, 5 within 2.7, 25 within 4.9 and 50 within 7.6."""

BY_DAMAGE = 1e-2
"""Chance of damage to leave the single tokens of so many completions as near, below which they are none."""


class Isolated(Struct, frozen=True):
    """The baseline's completions in which nothing but single tokens is rejected, of those that differ between the arms,
    and how far the farthest of all its single tokens lies below the best (nats); 0 and 0 where it has none."""

    completions: int
    farthest: float
    exposure: float = 1.0
    """For each such token of the baseline so many of an arm that is alike, where less of the baseline's is scored."""
    of_few: bool = False
    """Only tokens of completions that differ are scored: that none of the baseline's is one says little."""
    in_a_row: int = 1
    """Rejected tokens of LASTS in a row, of which IN_FEWEST of the baseline's completions have as many."""
    shown: float = 0.0
    """Where none is, how far below the best its tokens lie at most, however little that is (nats)."""
    tokens: int = 0
    """Of the baseline's that are scored."""

    def covers(self, places: Ints, gaps: FloatArray, length: int) -> bool:
        """Are these gaps, at these places beyond the tolerance in a completion of `length` tokens, like the
        baseline's?"""
        return are_single(places, gaps, length) and float(gaps.max()) <= FARTHER * self.farthest

    @property
    def says_something(self) -> bool:
        """Of few tokens: does any of the baseline's show that more moves its logits than rounding does?"""
        return self.has_any or not self.of_few or self.shown > ROUNDED

    @property
    def has_any(self) -> bool:
        """Do the scores reject any single token of the baseline's own? Else nothing says that the model has such, and
        more than BESIDE_NONE completions of another arm with some are at fault."""
        return self.farthest > 0

    @property
    def shows_enough(self) -> bool:
        """Would so many tokens of the baseline show one, if the model had some?"""
        return self.tokens >= ENOUGH

    def times_unsaid(self, gaps: FloatArray) -> float:
        """How far tokens of which nobody recorded a logprob lie, over the baseline's farthest."""
        alike = min(ALIKE, FARTHER * self.shown) if self.of_few and self.shown > ROUNDED and not self.has_any else ALIKE
        return float(gaps.max()) / max(self.farthest, alike)


NONE = Isolated(0, 0.0)


def too_near(farthest: Collection[float]) -> bool:
    """Do single tokens of so many completions lie nearer the best than damage leaves them? farthest: of each
    completion, nats below the best, shape (N,). One completion never says so: no gap beyond the tolerance is that
    small."""
    return (max(farthest, default=DAMAGED) / DAMAGED) ** len(farthest) <= BY_DAMAGE


def explains(baseline: Isolated, times: Sequence[float]) -> bool:
    """Are these completions of another arm no more than chance makes of one that is like the baseline?

    times: of each of the other arm's, how far its farthest lies, over the baseline's farthest.
    """
    beyond = sorted((one for one in times if one > 1), reverse=True)
    more = baseline.exposure
    chances = [float(more / (more + one**TAIL)) ** count for count, one in enumerate(beyond, 1)]
    as_many = binomial_tail(len(times), len(times) + baseline.completions, more / (1.0 + more))
    return min(as_many, *chances, 1.0) >= ALPHA


def moved_as_far(gaps: FloatArray, residuals: FloatArray, farthest: Callable[[], float]) -> float | None:
    """How far the engine's own logprobs say that its logits moved at these tokens, over how far they do in the baseline
    at most (`farthest`, nats); None where they do not say it, or the baseline's move no farther than those of models
    whose experts are alike.

    gaps: of the tokens, which are single ones; residuals: nats by which their own logprobs lie above the scores, NaN
    where unknown.
    """
    if not moved(gaps, residuals):
        return None
    most = farthest()
    times = float(residuals.max()) / most if most > DOUBT * DEFAULT_TOLERANCE else math.inf
    return times if times <= FARTHER else None


def moved(gaps: FloatArray, residuals: FloatArray) -> bool:
    """Do the engine's own logprobs say of all these tokens that its logits moved?"""
    return bool((residuals > MOVED_SHARE * gaps).all())


def isolated(
    baseline: Mapping[Key, TokenGaps],
    floor: Floor | None,
    tolerance: float,
    differing: Collection[Key],
    context: Callable[[Key, int], Hashable],
    *,
    of_few: bool = False,
) -> Isolated | None:
    """Of the baseline's own greedy completions, by their scores; None where these are not known. Tokens that are left
    in doubt anyway are none. `differing`: completions that are others in the candidate; `context`: what names the token
    at a place of one, since what completions choose after the same tokens is one choice in both arms."""
    if floor is None:
        return None
    if not (floor.rejected or floor.largest > DOUBT * tolerance):
        return Isolated(0, 0.0, of_few=of_few, shown=floor.largest, tokens=floor.tokens)
    differ, farthest, in_a_row = set[Hashable](), 0.0, list[int]()
    for key, one in baseline.items():
        places = np.flatnonzero(one.gap > tolerance)
        if len(places) and are_single(places, gaps := one.gap[places], len(one.gap)):
            if key in differing:
                differ.add(context(key, int(places[gaps.argmax()])))
            farthest = max(farthest, float(gaps.max()))
            in_a_row.append(most_in_a_row(places)[1])
    if farthest <= DOUBT * tolerance:
        return Isolated(0, 0.0, of_few=of_few, shown=farthest, tokens=floor.tokens)
    in_a_row.sort(reverse=True)
    least = max([IN_A_ROW if of_few else 1, *in_a_row[IN_FEWEST - 1 : IN_FEWEST]])
    return Isolated(len(differ), farthest, of_few=of_few, in_a_row=least, tokens=floor.tokens)


def most_in_a_row(places: Ints) -> tuple[int, int]:
    """(the first, how many) of the places, in order, that lie within LASTS tokens of one of them: where most do."""
    counts = np.searchsorted(places, places + LASTS) - np.arange(len(places))
    first = int(counts.argmax())
    return first, int(counts[first])


def are_single(places: Ints, gaps: FloatArray, length: int, most: float = MOST) -> bool:
    """Of the rejected tokens, at least one, shape (N,), in order; `length`: tokens of the completion; `most`: nats."""
    return are_apart(places.tolist(), length) and float(gaps.max()) <= most


def are_apart(places: Sequence[int], length: int, one_in: int = ONE_IN) -> bool:
    """The same, however far they lie below the best."""
    if len(places) > max(FEW, length // one_in):
        return False
    return min(map(sub, places[CROWD - 1 :], places), default=APART) >= APART
