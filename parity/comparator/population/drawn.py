"""Are the tokens of a whole arm, or of one part of it, drawn as asked, though no single completion shows otherwise?

The numbers of `reference/draw_sums.py` have a mean of zero where tokens were drawn as asked, and known variances, at
every place: so their means over the two arms differ by more than x with a chance that Bennett's inequality bounds (for
martingales: Freedman 1975, On tail probabilities for martingales). Whatever the reference takes for likelier than the
engines do, it does so in both arms.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from parity.comparator.detect.whole_draws import ArmsDraws
from parity.comparator.reference.draw_sums import FEWEST, LARGEST, NAMES, DrawSums, times_of
from parity.comparator.statistics import FloatArray, bennett
from parity.comparator.stats import DrawsSeen
from parity.messages import Message, message
from parity.records import Completion, Key

MOST_PARTS = 64
"""Rounds, or samples of a request, of which each is looked at by itself."""

OF_ROUNDING = np.array([1.0, 0.25, 0.25, 0.25, 0.1, 0.1, 0.1, 0.25])
"""Of what rounding may do to a mean log-likelihood, that it may do to each number: a share of tokens moves by less."""

BASELINE_OFF = 0.001
"""Chance of a baseline that lies so far from what was asked, below which the difference of the arms is the baseline's,
if it lies farther than the candidate."""

LIKELY = 0.05
"""Chance of the arms' difference from which on nobody is asked whose it is."""

TINY = 1e-30
"""Variance of a number that no token has."""

SEEN = 1.645
"""Standard errors of 95 %."""


class _Side(Struct, frozen=True):
    """An arm's draws; factor: times the variance of independent ones, by number."""

    sums: DrawSums
    factor: FloatArray

    @property
    def tokens(self) -> int:
        return self.sums.tokens

    @property
    def means(self) -> FloatArray:
        return self.sums.sums / self.tokens

    @property
    def error(self) -> FloatArray:
        """Variances of the means."""
        return self.factor * self.sums.variances / self.tokens**2

    @property
    def largest(self) -> FloatArray:
        """What the tokens that come together add to a mean at most."""
        found: FloatArray = self.factor * LARGEST / self.tokens
        return found

    @property
    def spread(self) -> float:
        """Variance of one token's log-likelihood."""
        return float(self.sums.variances[0]) / self.tokens


class Drawn(Struct, frozen=True):
    """The oddest number of the oddest part: p_value, adjusted for all of them."""

    p_value: float
    name: str
    part: Message
    difference: float
    """Of the means, candidate less baseline."""
    times: float
    """The temperature that explains it, over the one that was asked for."""
    tokens: int
    baseline_at: float | None = None
    """The same of the baseline alone, where it is that arm which is off by the reference, and the candidate hardly."""
    of_either: bool = False
    """The baseline seems off as well, and the lists do not show where the cut-off lies: nobody knows whose it is."""


def test_draws(
    arms: ArmsDraws,
    completions: Mapping[Key, Completion],
    temperature: float,
    rounding: float,
    alpha: float,
) -> tuple[Drawn | None, DrawsSeen | None]:
    """(the oddest difference of the arms, what would have been seen over all of them); None with too few tokens.

    completions: those of the candidate; rounding: nats that it may take off a mean log-likelihood; alpha: the error
    rate of this test.
    """
    found: list[Drawn] = []
    parts = list(_parts(arms.candidate.keys(), completions))
    seen: DrawsSeen | None = None
    for number, (part, keys) in enumerate(parts):
        base, candidate = (
            _Side(DrawSums.of_all(side[key] for key in keys), factor)
            for side, factor in zip((arms.baseline, arms.candidate), arms.factors, strict=True)
        )
        if min(base.tokens, candidate.tokens) < FEWEST:
            continue
        of_part = [
            replace(one, p_value=min(1.0, one.p_value * _share(one.name, number, len(parts))))
            for one in _of_part(base, candidate, part, temperature, rounding)
        ]
        accused = [one.name for one in of_part if one.p_value < alpha]
        found += [_with_its_arm(one, base, candidate, accused or [one.name], temperature) for one in of_part]
        if number == 0:
            seen = _seen(base, candidate, temperature, rounding, alpha, len(parts))
    if not found:
        return None, None
    return min(found, key=lambda one: one.p_value), seen


def _share(name: str, part: int, parts: int) -> float:
    """By what a chance is multiplied: half of the error rate is that of the likelihood of all tokens, and of that, and
    of the other half, half is for either side."""
    return 4.0 if name == "likely" and part == 0 else 4.0 * len(NAMES) * parts


def _parts(keys: Collection[Key], completions: Mapping[Key, Completion]) -> Iterator[tuple[Message, list[Key]]]:
    """All, each round, each sample, and the shortest and the longest third of prompts."""
    known = sorted(key for key in keys if key in completions)
    yield message("draws.all", "over all completions"), known
    for of, words in ((1, _of_round), (2, _of_sample)):
        values = sorted({int(key[of]) for key in known})
        for value in values if 1 < len(values) <= MOST_PARTS else ():
            yield words(value), [key for key in known if key[of] == value]
    lengths = np.array([len(completions[key].prompt_token_ids) for key in known])
    if len(lengths) and np.ptp(lengths):
        low, high = (float(one) for one in np.quantile(lengths, (1 / 3, 2 / 3)))
        short = [key for key, long in zip(known, lengths.tolist(), strict=True) if long <= low]
        rest = [key for key, long in zip(known, lengths.tolist(), strict=True) if long >= high]
        yield message("draws.short_prompts", "after prompts of up to {tokens} tokens", tokens=int(low)), short
        yield message("draws.long_prompts", "after prompts of {tokens} tokens and more", tokens=math.ceil(high)), rest


def _of_round(number: int) -> Message:
    return message("draws.round", "in round {number}", number=number)


def _of_sample(number: int) -> Message:
    return message("draws.sample", "in sample {number} of the requests", number=number)


def _of_part(base: _Side, candidate: _Side, part: Message, temperature: float, rounding: float) -> Iterator[Drawn]:
    difference, variance, largest = _compared(base, candidate)
    times = times_of(float(difference[0]), candidate.spread, temperature)
    for at, name in enumerate(NAMES):
        beyond = abs(float(difference[at])) - rounding * float(OF_ROUNDING[at])
        p_value = bennett(beyond, float(variance[at]), float(largest[at]))
        yield Drawn(p_value, name, part, float(difference[at]), times, candidate.tokens)


def _with_its_arm(one: Drawn, base: _Side, candidate: _Side, names: Sequence[str], temperature: float) -> Drawn:
    """The difference with whose it is. Where the lists leave out where a cut-off lies, a sound arm seems to be off as
    well: only the places at which they do not leave it out tell the arms apart."""
    if base.sums.cut_shown is None and candidate.sums.cut_shown is None:
        return replace(one, baseline_at=_baseline_at(base, candidate, names, temperature))
    shown = [_Side(arm.sums.cut_shown or arm.sums, arm.factor) for arm in (base, candidate)]
    if min(arm.tokens for arm in shown) < FEWEST:
        return replace(one, of_either=True)
    at = _baseline_at(shown[0], shown[1], NAMES, temperature)
    return replace(one, baseline_at=at, of_either=at is None and not _is_off(shown[1]))


def is_off(arms: ArmsDraws) -> tuple[bool, bool] | None:
    """Were all draws of baseline and candidate not as asked, each by itself? None: nothing says so of both."""
    found = []
    for side, factor in zip((arms.baseline, arms.candidate), arms.factors, strict=True):
        sums = DrawSums.of_all(side.values())
        arm = _Side(sums.cut_shown or sums, factor)
        if arm.tokens < FEWEST:
            return None
        found.append(_is_off(arm))
    return found[0], found[1]


def _is_off(arm: _Side) -> bool:
    """Does any number say that the arm was not drawn as asked?"""
    return any(
        bennett(abs(float(arm.means[at])), float(arm.error[at]), float(arm.largest[at])) < BASELINE_OFF
        for at in range(len(NAMES))
    )


def _baseline_at(base: _Side, candidate: _Side, names: Sequence[str], temperature: float) -> float | None:
    """Times the temperature that the baseline looks like, where it is that arm which is not drawn as asked: which lies
    farthest off by one of these numbers."""
    numbers = [NAMES.index(name) for name in names]
    own, other = (np.abs(one.means) / np.sqrt(np.maximum(one.error, TINY)) for one in (base, candidate))
    at = max(numbers, key=lambda number: float(max(own[number], other[number])))
    chance = bennett(abs(float(base.means[at])), float(base.error[at]), float(base.largest[at]))
    if own[at] <= other[at] or chance >= BASELINE_OFF:
        return None
    return times_of(float(base.means[0]), base.spread, temperature)


def _compared(base: _Side, candidate: _Side) -> tuple[FloatArray, FloatArray, FloatArray]:
    """(difference of the means, its variance, what one token adds to it at most)."""
    return candidate.means - base.means, candidate.error + base.error, np.maximum(base.largest, candidate.largest)


def _seen(base: _Side, candidate: _Side, temperature: float, rounding: float, alpha: float, parts: int) -> DrawsSeen:
    """What would have been seen with a chance of 95 %."""
    _, variance, largest = _compared(base, candidate)
    needed = [
        rounding * float(OF_ROUNDING[at])
        + _critical(float(variance[at]), float(largest[at]), alpha / _share(NAMES[at], 0, parts))
        + SEEN * math.sqrt(float(variance[at]))
        for at in range(len(NAMES))
    ]
    of = dict(zip(NAMES, needed, strict=True))
    more = temperature * of["likely"] / candidate.spread if candidate.spread > 0 else 1.0
    room = candidate.sums.open / candidate.tokens
    return DrawsSeen(
        tokens=candidate.tokens,
        temperature_times=1.0 + more if more < 1.0 else None,
        best_taken=of["best"] / room if 0 < of["best"] < room else None,
    )


def _critical(variance: float, largest: float, alpha: float) -> float:
    """The smallest sum whose chance is below alpha."""
    low, high = 0.0, largest
    while bennett(high, variance, largest) > alpha:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if bennett(middle, variance, largest) > alpha else (low, middle)
    return high


_WORDS = {
    "likely": (
        message("draws.less_likely", "its tokens are less likely than drawn ones are"),
        message("draws.likelier", "its tokens are likelier than drawn ones are"),
    ),
    "rank": (
        message("draws.lower_rank", "its tokens stand higher among the likely ones than drawn ones do"),
        message("draws.higher_rank", "its tokens stand lower among the likely ones than drawn ones do"),
    ),
    "best": (
        message("draws.best_less", "it takes the best token less often"),
        message("draws.best_more", "it takes the best token more often"),
    ),
    "second": (
        message("draws.second_less", "it takes the second best token less often"),
        message("draws.second_more", "it takes the second best token more often"),
    ),
    "last_tenth": (
        message("draws.last_less", "it takes the least likely tokens less often"),
        message("draws.last_more", "it takes the least likely tokens more often"),
    ),
    "pushed": (
        message("draws.pushed_less", "it takes tokens that penalties or biases push down less often"),
        message("draws.pushed_more", "it takes tokens that penalties or biases push down more often"),
    ),
}


def in_words(one: Drawn) -> Message:
    """What is odd about the arm's draws."""
    less, more = _WORDS[one.name if one.name in _WORDS else "last_tenth"]
    return message(
        "draws.why",
        "{part} ({tokens} tokens) the candidate does not draw as asked: {what} (as at {times:.2f} times the "
        "temperature; p = {p_value:.2g} after adjustment)",
        tokens=one.tokens,
        part=one.part,
        what=more if one.difference > 0 else less,
        times=one.times,
        p_value=one.p_value,
    )
