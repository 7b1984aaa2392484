"""From which share of the completions on would wrong ends of drawn ones show in the run, by lengths and finish reasons?

Both tests ask how often a value of the one arm lies above one of the other (Mann-Whitney; of two finish reasons it is
the comparison of two shares). A fault of some completions moves that by a known amount for each of them; how far chance
moves it follows from what the baseline's completions look like. Normal approximations, as the test of lengths is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from statistics import NormalDist
from typing import Final

import numpy as np
from msgspec import Struct

from parity.comparator.statistics import FloatArray
from parity.records import Completion

FAULTS: Final = ("early_end", "no_end")
"""An end token put at a place drawn at random; no end before the limit."""

SEEN: Final = 0.99
"""Chance with which the test sees a share that is named: what is said is 95 %, and that arms look as the baseline does
is itself known from the baseline alone."""

SHARES: Final = np.geomspace(0.001, 1.0, 300)
"""Of completions, which are tried."""


class EndsSeen(Struct, frozen=True):
    """Of one of FAULTS: the smallest share of completions that a test of the run would have seen; None: not even all.
    needed: completions that would show `useful` of them."""

    fault: str
    share: float | None
    needed: int | None


def ends_seen(
    baseline: Sequence[Completion],
    candidates: int,
    stopped: Callable[[Completion], bool],
    limit: Callable[[Completion], int | None],
    level: float,
    useful: float,
    *,
    by_length: bool = True,
    by_reason: bool = True,
) -> tuple[EndsSeen, ...]:
    """baseline: the completions that both tests see; candidates: how many there are of the other arm. stopped: did it
    end by itself? limit: the most tokens that it may have, None: unknown. level: p-value below which a test is a
    finding. by_length, by_reason: which of them were made. Nothing of ends kept away where none ended by itself."""
    if not baseline or not candidates:
        return ()
    sizes = len(baseline), candidates
    by_itself = np.array([stopped(one) for one in baseline])
    of_lengths = list(_by_length(baseline, by_itself, limit)) if by_length else []
    of_reasons = list(_by_reason(by_itself)) if by_reason else []
    found = []
    for number, fault in enumerate(FAULTS):
        if fault == "no_end" and not by_itself.any():
            continue
        tests = [_Test(*one[number], *sizes, level) for one in (of_lengths, of_reasons) if one]
        shares = [one.share for one in tests if one.share is not None]
        needed = [one.needed(useful) for one in tests]
        most = [one for one in needed if one is not None]
        found.append(EndsSeen(fault, min(shares, default=None), min(most, default=None)))
    return tuple(found)


def _by_length(
    baseline: Sequence[Completion], by_itself: np.typing.NDArray[np.bool_], limit: Callable[[Completion], int | None]
) -> Iterator[tuple[FloatArray, FloatArray]]:
    """(how often each length comes, and where the fault is in all completions), by fault."""
    lengths = np.array([len(one.token_ids) for one in baseline])
    beyond = int(lengths.max()) + 1
    usual = np.bincount(lengths, minlength=beyond + 1) / len(lengths)
    each = usual[1:] / np.arange(1, beyond + 1)  # an end at any of the places of a completion is as likely
    yield usual, np.concatenate([usual[:1], np.cumsum(each[::-1])[::-1]])
    limits = [beyond if (most := limit(one)) is None else min(most, beyond) for one in baseline]
    kept = np.where(by_itself, np.maximum(limits, lengths), lengths)
    yield usual, np.bincount(kept, minlength=beyond + 1) / len(lengths)


def _by_reason(by_itself: np.typing.NDArray[np.bool_]) -> Iterator[tuple[FloatArray, FloatArray]]:
    """The same of finish reasons, [the limit, an end]."""
    usual = np.bincount(by_itself, minlength=2) / len(by_itself)
    yield usual, np.array([0.0, 1.0])
    yield usual, np.array([1.0, 0.0])


class _Test(Struct, frozen=True):
    """Values of two arms of these sizes. usual: how often each value comes; hit: and where the fault is in all."""

    usual: FloatArray
    hit: FloatArray
    baselines: int
    candidates: int
    level: float

    @property
    def share(self) -> float | None:
        """The smallest share that is seen with chance SEEN."""
        seen = np.flatnonzero(SHARES * abs(self._moves) >= self._least(SHARES) + self._step)
        return float(SHARES[seen[0]]) if len(seen) else None

    def needed(self, share: float) -> int | None:
        """Completions of the candidate (and as many more of the baseline) that would show this share."""
        by = share * abs(self._moves)
        least = float(self._least(np.array([share]))[0])
        return math.ceil(self.candidates * (least / by) ** 2) if by > 0 else None

    @property
    def _moves(self) -> float:
        """What the fault in all completions adds to the chance that the candidate's value is the larger."""
        return float(self.hit @ _middle(self.usual)) - 0.5

    @property
    def _step(self) -> float:
        """By what that chance differs between two outcomes: half of it is taken off for continuity."""
        return 0.25 * (1 / self.baselines + 1 / self.candidates)

    def _least(self, shares: FloatArray) -> FloatArray:
        """What must be added for the test to see each, by its own spread and that of what it would find."""
        mixed = (1 - shares[:, None]) * self.usual + shares[:, None] * self.hit
        n, m = self.baselines, self.candidates
        of_all = (n * self.usual + m * mixed) / (n + m)
        tested = ((n + m) * (1 - (of_all**3).sum(axis=1)) + 1) / (12 * n * m)
        spread = _variance(mixed, _middle(self.usual)) / m + _variance(self.usual, _middle(mixed)) / n
        quantile = NormalDist().inv_cdf
        return np.asarray(-quantile(self.level / 2) * np.sqrt(tested) + quantile(SEEN) * np.sqrt(spread))


def _middle(masses: FloatArray) -> FloatArray:
    """Chance of a smaller value, and half of that of the same."""
    found: FloatArray = np.cumsum(masses, axis=-1) - masses / 2
    return found


def _variance(masses: FloatArray, values: FloatArray) -> FloatArray:
    mean = (masses * values).sum(axis=-1, keepdims=True)
    return np.asarray((masses * (values - mean) ** 2).sum(axis=-1))
