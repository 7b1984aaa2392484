"""The noise of the method: how far the baseline's own tokens lie below the best when they are scored."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from msgspec import UNSET, Struct

from parity.comparator.reference.gaps import FloatArray, TokenGaps
from parity.comparator.stats import FloorStats
from parity.comparator.sums import Added, Joined, Largest
from parity.records import TopLogprobs

SMALLEST_TOLERANCE = 0.125
"""Nats. One step of a bf16 logit between 16 and 32: rounding alone takes logits that far apart."""

FLOOR_HEADROOM = 3.0
"""`--tolerance auto` allows this times the largest gap of the baseline's own tokens: that gap knows one change of
kernel only (prefill instead of decode), and a maximum over a few thousand tokens understates the next. Clean runs
with other batches, speculation and logit noise reached twice the baseline's largest gap."""

NOT_NOISE = 1.0
"""Nats. Rounding does not explain a token of the baseline that its own scores put that far below the best one: it is
two steps of a bf16 logit between 64 and 128, and more than twice what any clean run of the embedded checkpoint has
shown (0.44)."""

STEPS = (0.5, 0.25)
"""Nats by which bf16 logits of 64 and more, and of 32 and more, step."""

STEPS_SEEN = 0.75
"""Share of positions at which the two best logprobs must differ by a whole number of steps, to say so: with steps
half as large, half of them do."""

FEW_POSITIONS = 64
"""Positions that it takes to see a step."""


POSITIONS = 16_384
"""Positions looked at, evenly spaced, where there are more."""

FINEST_STEP = 1 / 64
"""Nats. Below it logprobs with a few decimals seem to have any step."""


def logit_step(tops: Iterable[TopLogprobs]) -> float:
    """The step (nats) of the logits that some scores were made from, where it is more than the tolerance allows
    for: one of STEPS, else 0. Logits are rounded to bfloat16, and logprobs of one position keep their differences."""
    known = best_differences(tops)
    known = known[known < 4.0]
    if len(known) < FEW_POSITIONS:
        return 0.0
    for step in STEPS:
        if _share_of_multiples(known, step) >= STEPS_SEEN:
            return step
    return 0.0


def logit_unit(differences: FloatArray) -> float | None:
    """The bf16 unit (nats) of the best logits, from `best_differences`; None where these have no step.

    The two best logits differ by whole units of the smaller one. Where half of the differences at most are multiples of
    twice the step, as chance has it, that is the unit; where more are, the better ones have twice the step.
    """
    known = differences[differences < 8.0]
    if len(known) < FEW_POSITIONS:
        return None
    known = known[:: max(1, len(known) // POSITIONS)]
    step = 1.0
    while _share_of_multiples(known, step) < STEPS_SEEN:
        step /= 2
        if step < FINEST_STEP:
            return None
    return 2 * step if _share_of_multiples(known, 2 * step) > UNIT_IS_TWICE else step


UNIT_IS_TWICE = 0.55
"""Share of multiples of twice the step from which that is the better logits' unit."""


def _share_of_multiples(differences: FloatArray, step: float) -> float:
    steps = differences / step
    return float((np.abs(steps - np.round(steps)) * step < 3e-3).mean())


def best_differences(tops: Iterable[TopLogprobs]) -> FloatArray:
    """Nats between the two best logprobs of each position, where there are two."""
    differences = []
    by_width: dict[int, list[FloatArray]] = {}
    for top in tops:
        by_width.setdefault(top.values.shape[1], []).append(top.values)
    for width, lists in by_width.items():
        if width < 2:
            continue
        columns = np.ascontiguousarray(np.concatenate(lists).T)
        with np.errstate(invalid="ignore", over="ignore"):
            best = np.fmax.reduce(columns, axis=0)
            columns[~(columns < best - 1e-3)] = -np.inf  # NaN is below nothing
            differences.append(best - np.maximum.reduce(columns, axis=0))
    known = np.concatenate(differences) if differences else np.empty(0)
    return np.asarray(known[np.isfinite(known)])


class Floor(Struct, frozen=True):
    """How far the baseline's own tokens lie below the best token when scored: the noise of the method.

    Tokens beyond NOT_NOISE are counted in `tokens` and left out of the rest: something is wrong with them.
    """

    tokens: int
    largest: float
    mean: float
    share_flat: float
    """Share of positions where the five best tokens lie within the default tolerance: there, nearly any
    token is supported and a fault cannot be seen."""

    wide: FloatArray
    """The gaps beyond SMALLEST_TOLERANCE, in any order."""
    rejected: int = 0
    """Tokens beyond NOT_NOISE."""

    def share_beyond(self, tolerance: float) -> float:
        """Share of the tokens that lie beyond the tolerance and are noise. Tolerances below SMALLEST_TOLERANCE count as
        that."""
        return float((self.wide > tolerance).sum()) / self.tokens

    def stats(self) -> FloorStats:
        """The floor as numbers for people."""
        return FloorStats(
            tokens=self.tokens,
            largest_gap=round(self.largest, 4),
            mean_gap=round(self.mean, 6),
            share_of_flat_positions=round(self.share_flat, 4),
            rejected_tokens=self.rejected or UNSET,
        )


class FloorSums(Added, frozen=True):
    """What a floor is made of, of some completions: as `Floor` has it."""

    tokens: int
    total: float
    largest: Largest
    flat: int
    rejected: int
    wide: Joined


def floor_sums(scored: Iterable[tuple[TokenGaps, TopLogprobs]], tolerance: float) -> FloorSums:
    """Of the baseline's own completions and their scores."""
    tokens, total, largest, flat, rejected = 0, 0.0, 0.0, 0, 0
    wide: list[FloatArray] = []
    for view, top in scored:
        known = view.gap[np.isfinite(view.gap)]
        tokens += len(known)
        if len(known) and float(known.max()) > NOT_NOISE:
            rejected += int((known > NOT_NOISE).sum())
            known = known[known <= NOT_NOISE]
        if not len(known):
            continue
        if len(beyond := known[known > SMALLEST_TOLERANCE]):
            wide.append(beyond)
        total += float(known.sum())
        largest = max(largest, float(known.max()))
        if top.values.shape[1] >= 5:
            with np.errstate(invalid="ignore"):
                best = np.fmax.reduce(top.values.T, axis=0)
                near = best[:, None] - top.values <= tolerance  # not where a value is NaN
            flat += int((near.sum(axis=1) >= 5).sum())
    every = np.concatenate(wide) if wide else np.empty(0)
    return FloorSums(tokens, total, Largest(largest), flat, rejected, Joined.of(every))


def floor_of(sums: FloorSums) -> Floor | None:
    """None where there is no token."""
    if not sums.tokens:
        return None
    mean, flat = sums.total / sums.tokens, sums.flat / sums.tokens
    return Floor(sums.tokens, sums.largest.value, mean, flat, sums.wide.values, sums.rejected)


def automatic_tolerance(floor: Floor) -> float:
    """The tolerance that the measured floor asks for (nats)."""
    return max(SMALLEST_TOLERANCE, FLOOR_HEADROOM * floor.largest)
