"""How likely are drawn tokens, had they been drawn otherwise than asked, over how likely they are as asked?

Otherwise: at another temperature, the best token in the place of a drawn one, the last part of the probability left
out, without penalties. Only outcomes count whose probabilities as asked are known over each other: listed tokens that
the request's cut-off keeps for certain (what is not listed is one more outcome at temperature 1, where its share is
known). So each ratio is 1 on average where tokens were drawn as asked, whatever came before: an e-value, and so is the
product over the tokens of a completion (likelihood ratios as test martingales: Ville 1939; Grünwald, de Heide, Koolen
2024, Safe Testing).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from parity.comparator.reference.drawn_lists import Cut, Draws, joined, portions
from parity.comparator.reference.temperature import CUT_SLACK, drawn_from, surely_kept, weights_at
from parity.comparator.shared_out import of_parts
from parity.comparator.statistics import FloatArray
from parity.comparator.types import Spread, alone
from parity.records import Key

BoolArray = npt.NDArray[np.bool_]

STAYS: Final = 0.02
"""Share of each other way to draw that stays as asked: one odd token does not lose what the others won."""

CERTAIN: Final = 0.9995
"""Probability of the best token, from which on a place says nothing."""

TEMPERATURES: Final = (0.5, 0.7, 0.85, 0.93, 1.07, 1.15, 1.3, 1.6, 2.5)
"""Times the temperature asked for."""

BEST: Final = (0.1, 0.5)
"""Shares of places at which the best token is taken."""

SECOND: Final = (0.05,)
"""Shares of places at which the second best token is taken."""

LAST: Final = (0.02, 0.1)
"""Parts of the probability, the least likely, that are left out."""

PENALTIES: Final = (0.0, 0.5, 2.0)
"""Times the penalties and biases asked for."""

_NOTHING = 1e-300
"""Stands for a probability of 0, of which there is no logarithm."""


@dataclass(frozen=True, slots=True)
class Way:
    """A way to draw otherwise than asked. name: temperature, best, second, redrawn, last or penalties; size: as the
    constants of these names say."""

    name: str
    size: float


WAYS: Final = (
    *(Way("temperature", one) for one in TEMPERATURES),
    *(Way("best", one) for one in BEST),
    *(Way("second", one) for one in SECOND),
    Way("redrawn", 1.0),
    *(Way("last", one) for one in LAST),
    *(Way("penalties", one) for one in PENALTIES),
)


@dataclass(frozen=True, slots=True)
class Odds:
    """Of N completions, by way: logs of the likelihood ratios of their tokens, what noise of the logits may do to these
    (times nats a token), and logs of the ratios had they been drawn in that way; shapes (N, len(WAYS)). applies: to
    which completions a way is another one at all."""

    logs: FloatArray
    noise: FloatArray
    tried: FloatArray
    applies: BoolArray

    def __len__(self) -> int:
        return len(self.logs)

    @staticmethod
    def none() -> Odds:
        shape = (0, len(WAYS))
        return Odds(np.zeros(shape), np.zeros(shape), np.zeros(shape), np.zeros(shape, dtype=np.bool_))

    @staticmethod
    def together(parts: Sequence[Odds]) -> Odds:
        names = ("logs", "noise", "tried", "applies")
        return Odds(*(np.concatenate([getattr(one, name) for one in (Odds.none(), *parts)]) for name in names))

    def where(self, rows: BoolArray) -> Odds:
        return Odds(self.logs[rows], self.noise[rows], self.tried[rows], self.applies[rows])


@dataclass(frozen=True, slots=True)
class ArmsOdds:
    """Of the drawn completions of both arms that have lists. factor: times the variance of independent draws that
    those at the same places have. keys: the candidate's, shape (N,)."""

    baseline: Odds
    candidate: Odds
    factor: float = 1.0
    keys: Sequence[Key] = ()


def odds_of(many: Sequence[Draws], temperature: float, cut: Cut, *, tried: bool = True, spread: Spread = alone) -> Odds:
    """Of completions that asked for the same. `tried`: whether the ratios of other draws are wanted, else 0."""

    def of(some: slice) -> Odds:
        return _of_some(many[some], temperature, cut, np.random.default_rng(some.start) if tried else None)

    return Odds.together(list(of_parts(list(portions(many)), of, spread)))


def _of_some(many: Sequence[Draws], temperature: float, cut: Cut, rng: np.random.Generator | None) -> Odds:
    whole = joined(many)
    row = np.repeat(np.arange(len(many)), [len(one) for one in many])
    asked = _as_asked(whole, temperature, cut)
    usable = np.isfinite(asked[np.arange(len(whole)), whole.drawn]) & (asked.max(axis=1) < np.log(CERTAIN))
    draws, row, asked = whole.where(usable), row[usable], asked[usable]
    shape = (len(many), len(WAYS))
    found = Odds(np.zeros(shape), np.zeros(shape), np.zeros(shape), np.zeros(shape, dtype=np.bool_))
    if not len(draws):
        return found
    at, chance = np.arange(len(draws)), np.exp(asked)
    floored = np.maximum(asked, np.log(_NOTHING))
    for number, way in enumerate(WAYS):
        other = _otherwise(way, draws, asked, chance, temperature)
        if other is None:
            continue
        other *= (1.0 - STAYS) / other.sum(axis=1, keepdims=True)
        other += STAYS * chance
        ratio = np.log(np.maximum(other, _NOTHING))
        ratio -= floored
        mean = np.einsum("nk,nk->n", chance, ratio)
        noise = np.sqrt(np.maximum(np.einsum("nk,nk,nk->n", chance, ratio, ratio) - mean * mean, 0.0))
        found.logs[:, number] = np.bincount(row, ratio[at, draws.drawn], len(many))
        found.noise[:, number] = np.bincount(row, noise, len(many))
        if rng is not None:
            reach = np.cumsum(other, axis=1)
            taken = np.minimum((reach <= rng.random((len(draws), 1)) * reach[:, -1:]).sum(axis=1), ratio.shape[1] - 1)
            found.tried[:, number] = np.bincount(row, ratio[at, taken], len(many))
        found.applies[:, number] = np.bincount(row, noise, len(many)) > 0
    return found


def _as_asked(draws: Draws, temperature: float, cut: Cut) -> FloatArray:
    """Logs of the probabilities of the outcomes that are known, each place's adding up to 1; (N, K + 1), minus infinity
    for all others, the last of them for what is not listed."""
    listed, least, _ = weights_at(draws, temperature)
    width = listed.shape[1]
    kept = surely_kept(listed, least, cut, CUT_SLACK, draws.others)
    rest = draws.rest / np.exp(draws.logs[:, 0]) if temperature == 1.0 and cut == Cut() else np.zeros(len(draws))
    weights = np.concatenate([np.where(np.arange(width) < kept[:, None], listed, 0.0), rest[:, None]], axis=1)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(weights / weights.sum(axis=1, keepdims=True)), dtype=np.float64)


def _otherwise(way: Way, draws: Draws, asked: FloatArray, chance: FloatArray, temperature: float) -> FloatArray | None:
    """Weights of the same outcomes in another way, (N, K + 1); None where it is none of these requests'."""
    if way.name == "temperature":
        if chance[:, -1].any():
            return np.where(chance > 0, drawn_from(draws, temperature * way.size, Cut()), 0.0)
        return np.asarray(np.exp(asked / way.size))
    if way.name in ("best", "second", "redrawn"):
        column = 1 if way.name == "second" else 0
        share = chance[:, column] if way.name == "redrawn" else np.where(chance[:, column] > 0, way.size, 0.0)
        made = chance * (1.0 - share[:, None])
        made[:, column] += share
        return made
    if way.name == "last":
        above = np.cumsum(chance, axis=1) - chance
        return np.where(above < 1.0 - way.size, chance, 0.0)
    if draws.pushed is None or not draws.pushed.any():
        return None
    pushed = np.concatenate([draws.pushed, np.zeros((len(draws), 1))], axis=1)
    moved = asked + (1.0 - way.size) * pushed / temperature
    return np.asarray(np.exp(moved - moved.max(axis=1, keepdims=True)))
