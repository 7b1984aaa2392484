"""Does it fail often enough? Wald's sequential probability ratio test, and what a count of failures says.

A case of a rare fault fails in some shots and not in others. Asking a fixed number of times is wasteful: nine failures
out of nine settle the matter long before the twentieth shot. Wald's test asks just until the likelihoods of "fails
with probability p1" and "with p0" are far enough apart for the error rates wanted, and on average nothing needs fewer
shots (A. Wald, Sequential Tests of Statistical Hypotheses, Ann. Math. Stat. 16, 1945; Wald and Wolfowitz 1948).

Stopping when the shots say so is part of the test and spoils nothing. It does spoil the share of failures among those
shots (a search keeps what failed early), so how often a case fails is estimated from other shots, `predictive`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from parity.comparator.statistics import binomial_tail


class Answer(StrEnum):
    FAILS = "fails"
    """Often enough: p >= p1, wrongly said with probability alpha at p0."""
    CLEAN = "clean"
    """Too rarely: p <= p0, wrongly said with probability beta at p1."""


@dataclass(frozen=True, slots=True)
class Question:
    """H1: fails with probability p1 or more, against H0: with p0 or less. Between them either answer is right.

    alpha: the chance of FAILS where p <= p0 is this at most; beta: that of CLEAN where p >= p1. Both hold exactly:
    the bounds are log(1 / alpha) and log(beta), for a likelihood ratio passes 1 / alpha with probability alpha at most
    (J. Ville, 1939). Wald's own, log((1 - beta) / alpha) and log(beta / (1 - alpha)), save a shot in fifty and hold
    approximately: where alpha and beta are unequal, one of the rates can be passed.

    p1 = 1 is the question to ask of what fails every time: then one clean shot is CLEAN, exactly, and one failure is
    FAILS where p0 <= alpha.
    """

    p0: float
    p1: float
    alpha: float = 0.05
    beta: float = 0.05

    def __post_init__(self) -> None:
        if not 0 < self.p0 < self.p1 <= 1:
            raise ValueError(f"p0 = {self.p0:g} and p1 = {self.p1:g}: wanted 0 < p0 < p1 <= 1")
        if not (0 < self.alpha < 0.5 and 0 < self.beta < 0.5):
            raise ValueError(f"alpha = {self.alpha:g} and beta = {self.beta:g} must lie between 0 and 0.5")

    @property
    def upper(self) -> float:
        """Log likelihood ratio (nats) from which on the answer is FAILS."""
        return -math.log(self.alpha)

    @property
    def lower(self) -> float:
        """Log likelihood ratio (nats) down from which the answer is CLEAN."""
        return math.log(self.beta)

    @property
    def per_failure(self) -> float:
        return math.log(self.p1 / self.p0)

    @property
    def per_clean(self) -> float:
        return -math.inf if self.p1 == 1 else math.log((1 - self.p1) / (1 - self.p0))


@dataclass(slots=True)
class Tally:
    """A question being asked: feed it shots until there is an answer."""

    question: Question
    shots: int = 0
    failures: int = 0
    answer: Answer | None = None
    _ratio: float = field(default=0.0, repr=False)

    def add(self, failed: bool) -> Answer | None:
        """One more shot. Raises ValueError after the answer: a shot more would be another test."""
        if self.answer is not None:
            raise ValueError("the question is answered already")
        self.shots += 1
        self.failures += failed
        self._ratio += self.question.per_failure if failed else self.question.per_clean
        # A hair of room: p0 = alpha must answer at the first failure whatever the rounding.
        if self._ratio >= self.question.upper - 1e-9:
            self.answer = Answer.FAILS
        elif self._ratio <= self.question.lower + 1e-9:
            self.answer = Answer.CLEAN
        return self.answer


def certain(alpha: float = 0.05, beta: float = 0.05) -> Question:
    """The question for a failure that repeats on a deterministic engine: one shot answers it.

    beta holds where the failure comes every time only, so the answers need a check at the end.
    """
    return Question(alpha, 1.0, alpha, beta)


def repeated(alpha: float = 0.05, beta: float = 0.05) -> Question:
    """The question for a failure that repeated itself, where nothing checks the answers: p1 is a half.

    Three failures of three say no more than that. A few shots more cost little beside the start of an engine.
    """
    return Question(0.125, 0.5, alpha, beta)


def clopper_pearson(failures: int, shots: int, confidence: float = 0.95) -> tuple[float, float]:
    """Exact two-sided interval of a failure probability (C. Clopper and E. Pearson, Biometrika 26, 1934).

    Each bound is where the tail of the binomial distribution is (1 - confidence) / 2. (0, 1) without shots.
    """
    if not 0 <= failures <= shots:
        raise ValueError(f"{failures} failures of {shots} shots")
    tail = (1 - confidence) / 2
    low = 0.0 if failures == 0 else _where(lambda p: binomial_tail(failures, shots, p) - tail)
    high = 1.0 if failures == shots else _where(lambda p: binomial_tail(failures + 1, shots, p) - (1 - tail))
    return low, high


def _where(rising: Callable[[float], float]) -> float:
    """The root in (0, 1) of a rising function, by bisection to the last bit that matters."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if rising(middle) > 0 else (middle, high)
    return (low + high) / 2


def predictive(failures: int, shots: int, rounds: int) -> float:
    """Chance that at least one of `rounds` to come fails, after `failures` of `shots`.

    With the share put in for the probability, what comes out is too high: a share that is too high by luck also asks
    for too few rounds. This is the mean over what the probability may be instead, with Jeffreys' prior Beta(1/2, 1/2),
    whose intervals are about as good as their name (L. Brown, T. Cai, A. DasGupta, Statistical Science 16, 2001).
    """

    def log_beta(a: float, b: float) -> float:
        return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)

    hits, misses = failures + 0.5, shots - failures + 0.5
    return -math.expm1(log_beta(hits, misses + rounds) - log_beta(hits, misses))


def rounds_predicted(goal: float, failures: int, shots: int, most: int) -> int:
    """Rounds after which one has failed with probability `goal`, as `predictive` says; `most` where it takes more."""
    low, high = 1, most
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if predictive(failures, shots, middle) >= goal else (middle + 1, high)
    return high


def in_rounds(p: float, rounds: int) -> float:
    """Chance that at least one of `rounds` fails."""
    return -math.expm1(rounds * math.log1p(-p)) if p < 1 else 1.0


def per_round(goal: float, rounds: int) -> float:
    """The chance per round at which `rounds` of them fail with probability `goal`."""
    return -math.expm1(math.log1p(-goal) / rounds)
