"""The tolerance in force, and the gaps a little beyond it that alone are no fault."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import islice

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from parity.comparator.reference.floor import FLOOR_HEADROOM, NOT_NOISE, Floor, automatic_tolerance, logit_step
from parity.comparator.reference.gaps import FloatArray
from parity.comparator.types import CompareOptions, Remarks
from parity.errors import ParityError
from parity.messages import message
from parity.records import DEFAULT_TOLERANCE, TopLogprobs

SINGLE_PRECISION = 1e-5
"""Nats that come from writing logprobs in single precision or with a few decimals: two steps of a bf16 logit are 0.25,
not 0.2500001."""

STEP_SAMPLE = 64
"""Scores looked at to see what step the logits make."""


DOUBT = 2.0
DOUBTFUL_TOKENS = 2
"""A fault whose only witnesses are this many tokens, each within DOUBT times the tolerance, is left open: on the
embedded checkpoint 3 of 28,453 tokens of a baseline lay 0.38 to 0.44 nats below the best when it scored itself."""


OWN_BELIEF = 0.05
"""Nats by which an engine's own logprob of a token lies above the score where its logits moved, and not its choice: a
healthy engine's do so for 5 tokens in 1,000 (24,805 of the embedded checkpoint's, each less likely than 0.74; above 0.1
for 2 in 10,000). With 0.1 a clean arm of tests/worlds was accused of a token at 0.07, 0.31 nats below the best. An
engine that hands out a wrong token knows as well as the reference how unlikely it is."""

FAR_DOUBT = 3.0
"""Times the tolerance, up to which one token alone is left open where the engine's own logprob says that its logits
moved. A router that chooses another expert at a near-tie of its own moves a logit by a few tenths of a nat: in 5.5
million clean tokens of tests/worlds such tokens lay 0.31, 0.35, 0.53 and 0.59 nats below the best, beside baselines
whose largest gap was 0.09 to 0.28 (of up to 65,536 tokens)."""

BELIEVED_SHARE = 0.25
"""Of such a token's gap, that its own logprob must lie above the score: 0.4 and more for those four."""

ALONE_RATE = 3e-6
"""Completions with a token or two that an engine which recorded no logprobs is to be believed in, of so many clean
tokens: six of 1.9 million of tests/worlds; one had two, 0.41 and 0.38 nats below the best."""

ALONE_CHANCE = 1e-3
"""Of a clean run to have more completions with such a token than are left open where nobody recorded a logprob."""


class Doubt(Struct, frozen=True):
    """A few tokens little beyond the tolerance, and nothing else wrong: how far, and how many."""

    limit: float
    """Nats below the best token that such a token may lie."""
    share: float = 0.0
    """Share of the baseline's own tokens that lie beyond the tolerance, where they are scored: completions may have as
    many as that makes likely."""
    free: float = 0.0
    """Nats that are two steps of the logits as the scores show them: tokens so near are not counted."""

    believed: float = 0.0
    """As `limit`, where the engine itself saw the token as likelier than the reference does."""
    far: float = 0.0
    """As `believed`, for one token alone."""
    passed: float = 0.0
    """As `far`, no farther than a run with such a token can still pass."""

    def covers(self, gaps: FloatArray, length: int, residuals: FloatArray | None = None) -> bool:
        """Are these gaps, of tokens beyond the tolerance in a completion of `length` tokens, no more than that?
        `residuals`: nats by which the engine's own logprobs of them are higher than the scores, NaN where unknown."""
        moved = residuals is not None and bool((residuals > OWN_BELIEF).all())
        widely = residuals is not None and moved and float(residuals[0]) > BELIEVED_SHARE * float(gaps[0])
        return self._covers(gaps, length, moved=moved, widely=widely)

    def covers_silent(self, gaps: FloatArray, length: int, residuals: FloatArray) -> bool:
        """The same, had an engine that recorded no logprob of them said the best of them that it can. A run may have as
        many such completions as `silent_rows`."""
        return bool(np.isnan(residuals).all()) and self._covers(gaps, length, moved=True, widely=True)

    @property
    def most(self) -> float:
        """Nats below the best, beyond which `covers` covers nothing."""
        return max(self.lone, self.believed, self.far)

    def _covers(self, gaps: FloatArray, length: int, *, moved: bool, widely: bool) -> bool:
        limit = max(self.lone, self.believed if moved else 0.0, self.far if widely and len(gaps) == 1 else 0.0)
        return float(gaps.max()) <= limit and int((gaps > self.free).sum()) <= self._most(length)

    def excused(self, *, own_logprobs: bool) -> float:
        """Nats below the best up to which a token may lie in a run that passes; `own_logprobs`: the engine recorded its
        own, which can say that its logits moved."""
        return max(self.lone, self.passed if own_logprobs else 0.0)

    @staticmethod
    def silent_rows(tokens: int) -> int:
        """Such completions that a clean run of so many tokens stays within; one at least."""
        return max(1, most_by_chance(tokens * ALONE_RATE, ALONE_CHANCE, tokens))

    @property
    def is_none(self) -> bool:
        """The tolerance was calibrated, and decides."""
        return self.believed <= 0.0

    @property
    def lone(self) -> float:
        """Nats below the best up to which one token alone does not count as a fault."""
        return max(self.limit, self.free)

    def _most(self, length: int) -> int:
        """Tokens beyond the tolerance that a clean completion of this length stays below but once in 10,000."""
        return max(DOUBTFUL_TOKENS, most_by_chance(length * self.share, 1e-4, length))


def most_by_chance(expected: float, alpha: float, limit: int) -> int:
    """The count that a Poisson variable exceeds with a chance of `alpha` at most; no more than `limit`."""
    most, chance = 0, math.exp(-expected)
    left = 1.0 - chance  # of more than `most`
    while left > alpha and most < limit:
        most += 1
        chance *= expected / most
        left -= chance
    return most


def in_force(options: CompareOptions, floor: Floor | None) -> float:
    """The tolerance of this comparison (nats). Raises ParityError for one that is no number of nats."""
    if options.tolerance == "auto":
        return DEFAULT_TOLERANCE if floor is None else automatic_tolerance(floor)
    value = float(options.tolerance)
    if not np.isfinite(value) or value < 0:
        raise ParityError(
            message(
                "reference.tolerance", "the tolerance must be a number of nats of 0 or more, got {value}", value=value
            )
        )
    return value + SINGLE_PRECISION


def remarks(options: CompareOptions, floor: Floor | None) -> Remarks:
    """Says where no tolerance could be calibrated."""
    if options.tolerance != "auto" or floor is not None:
        return Remarks()
    return Remarks(
        notes=(
            message(
                "reference.no_floor",
                "--tolerance auto needs scores of the baseline's own completions; using {tolerance} nats",
                tolerance=DEFAULT_TOLERANCE,
            ),
        )
    )


def doubt_of(
    options: CompareOptions,
    floor: Floor | None,
    tolerance: float,
    scores: Iterable[TopLogprobs],
    *,
    other_precision: bool = False,
) -> Doubt:
    """What is left in doubt: a lone token up to DOUBT times the tolerance, but no more than the baseline's own tokens
    show where they are scored; up to FAR_DOUBT times it where the arms are known to compute in other precision, of
    which the baseline's tokens show nothing. None of it where the tolerance was calibrated."""
    if options.tolerance == "auto":
        return Doubt(tolerance)
    found = _of_one_precision(floor, tolerance, scores)
    least = FAR_DOUBT * tolerance if other_precision else 0.0
    return replace(found, limit=max(found.limit, least), believed=max(found.believed, least))


def _of_one_precision(floor: Floor | None, tolerance: float, scores: Iterable[TopLogprobs]) -> Doubt:
    step = logit_step(islice(scores, STEP_SAMPLE))
    if floor is None:
        return Doubt(DOUBT * tolerance, free=2 * step, believed=DOUBT * tolerance, far=FAR_DOUBT * tolerance)
    limit = max(tolerance, min(DOUBT * tolerance, FLOOR_HEADROOM * floor.largest))
    if floor.largest > DOUBT * DEFAULT_TOLERANCE - 1e-3:  # the baseline itself goes beyond that
        limit = max(limit, min(DOUBT * floor.largest, NOT_NOISE))
    free = 2 * step if floor.largest >= step else 0.0
    believed, far = DOUBT * tolerance, FAR_DOUBT * tolerance
    passed = max(believed, min(far, noise_shown(floor, tolerance)))
    return Doubt(limit, floor.share_beyond(tolerance), free, believed, far, passed)


def noise_shown(floor: Floor, tolerance: float) -> float:
    """Nats below the best up to which a lone token is noise, by what the baseline's own tokens show; one beyond is left
    open."""
    return max(DOUBT * tolerance, min(DOUBT * floor.largest, NOT_NOISE))


def chance_supported(best: FloatArray, tolerance: float, vocab_size: int | None) -> float | None:
    """The chance that a token taken at random is supported at places where the best has these logprobs (nats), shape
    (T,); None where nothing says it.

    At most exp(tolerance) / p tokens lie within the tolerance of one with probability p, so a token taken at random is
    supported with at most that over the vocabulary's size; its mean over the places.
    """
    total, places = chances_supported(best, tolerance, vocab_size)
    return total / places if places else None


def chances_supported(best: FloatArray, tolerance: float, vocab_size: int | None) -> tuple[float, int]:
    """(sum of the chances of `chance_supported`, places that it is of)."""
    known = best[np.isfinite(best)]
    if not vocab_size:
        return 0.0, 0
    return float(np.minimum(1.0, np.exp(tolerance - known) / vocab_size).sum()), len(known)
