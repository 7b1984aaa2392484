"""A run's residuals as the tests look at them, stretch after stretch.

Each test says what it adds up over the tokens of one stretch; of two stretches that is added (`sums.py`). So a run is
looked at in a few passes, whatever its size, and the answer does not depend on where stretches end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial, reduce
from operator import add
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from parity.comparator.population import rates
from parity.comparator.population.first_contexts import KINDS, New
from parity.comparator.population.residual_tests import BLOCK, Arm, ArmSums, Groups, numbered
from parity.comparator.reference.gaps import FloatArray
from parity.comparator.reference.residuals import PairedResiduals, Residuals
from parity.comparator.sums import Added, Sums
from parity.comparator.types import Spread, alone
from parity.unnamed import Unnamed

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
T = TypeVar("T")


class Stretch:
    """Whole completions of a run; N tokens."""

    def __init__(self, residuals: PairedResiduals, arms: tuple[Arm, Arm], new: Bools, before: int) -> None:
        """arms: baseline and candidate. new: shape (KINDS, N). before: completions in earlier stretches."""
        self.residuals, self.arms, self.before = residuals, arms, before
        self.new, self.new_by_context, self.new_by_place = new

    @cached_property
    def completion(self) -> Groups:
        return Groups(numbered(self.residuals.row))

    @cached_property
    def block(self) -> Groups:
        names = self.residuals.row.astype(np.int64) * 65_536 + self.residuals.place // BLOCK
        return Groups(numbered(names))

    @cached_property
    def half(self) -> Ints:
        """0 or 1, by completion; shape (N,)."""
        return np.asarray((self.completion.of + self.before) % 2)

    @cached_property
    def rows(self) -> Ints:
        """The pair of each completion."""
        return self.residuals.row[self.completion.begins()]


class OfHalf(Added, frozen=True):
    """Of one half of the completions, asked about what stood out in the other: sums over completions, what is found in
    all, nats, and the weight of the tokens asked."""

    units: Sums
    found: float
    weight: float


class BothHalves(Added, frozen=True):
    first: OfHalf
    second: OfHalf


class Sample(Struct, frozen=True):
    """Residuals evenly spaced over a run, and the own logprobs of their tokens, nats; baseline's and candidate's."""

    residuals: tuple[FloatArray, FloatArray]
    own: tuple[FloatArray, FloatArray]


NONE_THERE = 0.2
"""Times the candidate's usual noise, below which its first tokens have none, and count with the usual."""


class Looked:
    """The stretches of a run, looked at as often as asked. What was recorded of all tokens is known from the first
    look."""

    def __init__(
        self,
        residuals: Residuals,
        step: float,
        spot: Callable[[PairedResiduals], Ints] | None = None,
        spread: Spread = alone,
    ) -> None:
        """step: the bf16 unit of the logits, nats. spot: as `New` has it."""
        self._residuals, self._step = residuals, step
        self._spread = alone if residuals.are_held else spread
        self._new = Unnamed()
        self._numbers: list[int] = []
        """Of the stretches that there are residuals of."""
        self._bits, self._before = [0], [0]
        """Of each: where what is new begins, and completions in earlier ones."""
        new, every = New(residuals.most, spot), max(1, residuals.most // rates.QUANTILES_OF)
        sums, some = [], []
        first = partial(self._first, every)
        for number, looked in enumerate(self._spread(range(residuals.count), first, rates.ABOUT)):
            if looked is None:
                continue
            one, of_arms, columns = looked
            self.by_scores = one.by_scores
            self._new.append(np.packbits(new.of(one), axis=1).tobytes())
            self._numbers.append(number)
            self._bits.append(self._new.size)
            self._before.append(self._before[-1] + Groups(numbered(one.row)).count)
            sums.append(of_arms)
            some.append(columns)
        baseline, candidate, *scores = (np.concatenate(column) for column in zip(*some, strict=True))
        self.sample = Sample((baseline, candidate), (baseline + scores[0], candidate + scores[1]))
        self.baseline: ArmSums
        self.candidate: ArmSums
        self.baseline, self.candidate = (reduce(add, of_arm) for of_arm in zip(*sums, strict=True))
        self._lifts = (self.baseline.lift(), self.candidate.lift(NONE_THERE)) if self.by_scores else (0.0, 0.0)
        self._only: Stretch | None = None

    def _first(
        self, every: int, number: int
    ) -> tuple[PairedResiduals, tuple[ArmSums, ArmSums], tuple[FloatArray, ...]] | None:
        """A stretch, what is recorded of its arms, and some of its numbers; None where there is no token."""
        one = self._residuals.at(number)
        if not len(one):
            return None
        baseline, candidate = (ArmSums.of(arm, one.place) for arm in self._arms(one))
        columns = one.baseline, one.candidate, one.baseline_score, one.candidate_score
        return one, (baseline, candidate), tuple(column[::every].copy() for column in columns)

    @property
    def completions(self) -> int:
        return self._before[-1]

    @property
    def tokens(self) -> int:
        return self.candidate.tokens

    @property
    def noise(self) -> tuple[float, float]:
        """Mean logit noise of baseline and candidate, nats, as the tests have it: first tokens of outputs are without
        noise in the arm whose engine scores, and count as usual ones."""
        return self.baseline.noise(self._lifts[0]), self.candidate.noise(self._lifts[1])

    def _arms(self, one: PairedResiduals) -> tuple[Arm, Arm]:
        return (
            Arm.of(one.baseline, one.baseline_score, self._step) if one.by_scores else Arm.of_none(len(one)),
            Arm.of(one.candidate, one.candidate_score, self._step),
        )

    def _stretch(self, at: int) -> Stretch:
        if self._only is not None:
            return self._only
        one = self._residuals.at(self._numbers[at])
        packed = np.frombuffer(self._new.read(*self._bits[at : at + 2]), dtype=np.uint8).reshape(KINDS, -1)
        new = np.unpackbits(packed, axis=1, count=len(one)).astype(np.bool_)
        baseline, candidate = self._arms(one)
        arms = baseline.lifted(one.place, self._lifts[0]), candidate.lifted(one.place, self._lifts[1])
        found = Stretch(one, arms, new, self._before[at])
        if len(self._numbers) == 1:
            self._only = found
        return found

    def each(self, ask: Callable[[Stretch], T]) -> Iterator[T]:
        """What is said of each stretch, in order."""

        def of(at: int) -> T:
            return ask(self._stretch(at))

        return self._spread(range(len(self._numbers)), of, rates.ABOUT)


def in_one_pass(looked: Looked, questions: Sequence[Callable[[Stretch], Any]]) -> list[Any]:
    """What each of these answers of all stretches: its answers added up."""

    def answers(part: Stretch) -> list[Any]:
        return [one(part) for one in questions]

    return reduce(lambda sums, more: list(map(add, sums, more)), looked.each(answers))
