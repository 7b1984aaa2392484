"""Are some of the completions, or all, drawn otherwise than asked, though no single one shows it?

If a share of them is drawn in another way, the likelihood of each is that of the mixture of both. For each way
(reference/other_draws.py) and some shares the ratio to what was asked is an e-value, and so is their weighted mean: it
exceeds 1/a with a chance of at most a where all were drawn as asked (Ville 1939). Against a rare fault a mixture sees
far more than any mean over completions does (Donoho, Jin 2004, Higher criticism for detecting sparse heterogeneous
mixtures), and against a fault of all of them it is the likelihood ratio, which no test beats by much.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np

from parity.comparator.reference.other_draws import WAYS, ArmsOdds, Odds, Way
from parity.comparator.statistics import FloatArray, few_alone
from parity.comparator.stats import WaySeen
from parity.messages import Message, message
from parity.records import Key

MIXED: Final = (1.0, 0.5, 0.2, 0.1, 0.05, 0.02)
"""Shares of the completions that are taken for drawn otherwise."""

ON_ALL: Final = 0.4
"""Share of the stake that is on all completions; the others have as much as each other."""

HABIT: Final = 4.0
"""Factor on what the same mixture wins against the baseline beyond CHANCE, that the candidate must win more."""

CHANCE: Final = 3.0
"""Nats that it may win against the baseline by chance."""

SHARES: Final = (0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 1.0)
"""Of completions, on which each way is tried."""

TRIALS: Final = (100, 20)
"""Draws of these, for each share; the fewer from MANY completions on, whose sums scatter little."""

MANY: Final = 2_000
"""Completions: 100 trials over so many take a second."""

ENOUGH: Final = 0.99
"""Of the draws, that must be seen. Of 20 with 19 to be seen, a share that 85 in 100 runs see was named in one of six:
the smallest is named, which is the one that chance favours."""

FEWEST: Final = 4
"""Completions below which nothing is said."""

_STAKES = np.log([ON_ALL, *[(1.0 - ON_ALL) / (len(MIXED) - 1)] * (len(MIXED) - 1)])


@dataclass(frozen=True, slots=True)
class Mixed:
    """p_value: that all are drawn as asked. way and share: the mixture that explains them best. of_few: completions
    without which all are (`few_alone`): they say nothing of the others."""

    p_value: float
    way: Way
    share: float
    completions: int
    of_few: tuple[Key, ...] = ()


def test_mixtures(arms: ArmsOdds, rounding: float) -> Mixed | None:
    """rounding: nats a token by which the logits of the engine that drew may lie elsewhere. None with too few."""
    won = _won(arms, rounding)
    if won is None:
        return None
    logs, stakes = won
    total = logs + stakes
    number, share = map(int, np.unravel_index(int(total.argmax()), total.shape))
    few = _few(arms, total, (number, share), rounding) if arms.keys else ()
    return Mixed(_chance(total), WAYS[number], MIXED[share], len(arms.candidate), few)


def _few(arms: ArmsOdds, total: FloatArray, best: tuple[int, int], rounding: float) -> tuple[Key, ...]:
    """Those that alone are not drawn as asked. best: way and share of the best mixture."""
    number, share = best
    column = arms.candidate.logs[:, [number]], _column(arms.candidate, number)
    own = _mixed(_fair(*column, rounding))[:, 0, share] / arms.factor
    few = few_alone(own, lambda rows: _chance(total - _won_by(arms, rows, rounding)))
    return tuple(arms.keys[row] for row in few)


def _chance(logs: FloatArray) -> float:
    """The p-value of the sum of e-values, by their logs."""
    most = float(logs.max())
    return float(np.exp(min(0.0, -most - float(np.log(np.exp(logs - most).sum())))))


def _won_by(arms: ArmsOdds, rows: slice | list[int], rounding: float) -> FloatArray:
    """Logs of what these completions of the candidate win, (ways, shares)."""
    some = Odds(*(getattr(arms.candidate, name)[rows] for name in ("logs", "noise", "tried", "applies")))
    return np.asarray(_mixed(_fair(some.logs, some, rounding)).sum(axis=0) / arms.factor)


def _won(arms: ArmsOdds, rounding: float) -> tuple[FloatArray, FloatArray] | None:
    """(logs of the e-values, logs of the stakes), shapes (ways, shares)."""
    some = arms.candidate.applies.sum(axis=0) >= FEWEST
    if not some.any() or not len(arms.baseline):
        return None
    mine = _won_by(arms, slice(None), rounding)
    stakes = np.where(some, -np.log(some.sum()), -np.inf)[:, None] + _STAKES
    return np.asarray(mine - _habit(arms, rounding)), stakes


def _habit(arms: ArmsOdds, rounding: float) -> FloatArray:
    """What the candidate must win besides, because the baseline does, (ways, shares): what the reference takes for one
    way to draw otherwise may look a little like any other."""
    usual = _mixed(_fair(arms.baseline.logs, arms.baseline, rounding)).sum(axis=0) / arms.factor
    sizes = [np.maximum(1.0, one.applies.sum(axis=0)) for one in (arms.candidate, arms.baseline)]
    return np.asarray(HABIT * np.maximum(0.0, usual - CHANCE) * (sizes[0] / sizes[1])[:, None]) + max(
        0.0, float(usual.max()) - CHANCE
    )


def _fair(logs: FloatArray, odds: Odds, rounding: float) -> FloatArray:
    """Without what noise of the logits may have done."""
    return np.asarray(logs - rounding * odds.noise)


def _mixed(logs: FloatArray) -> FloatArray:
    """Logs of the ratios of the mixtures, (N, ways) to (N, ways, shares)."""
    mixed = np.array(MIXED)
    with np.errstate(divide="ignore"):
        return np.asarray(np.logaddexp(np.log1p(-mixed), np.log(mixed) + logs[:, :, None]))


def ways_seen(arms: ArmsOdds, rounding: float, alpha: float) -> tuple[WaySeen, ...]:
    """By way, the smallest share of the completions that, had it been drawn so, would have been seen in
    ENOUGH of the draws of these at an error rate of `alpha`; tried on the run's own lists."""
    won = _won(arms, rounding)
    if won is None:
        return ()
    _, stakes = won
    habit = _habit(arms, rounding)
    found = []
    for number, way in enumerate(WAYS):
        rows = arms.candidate.applies[:, number]
        if np.isfinite(stakes[number, 0]):
            share = _smallest(arms, number, rounding, -np.log(alpha) - stakes[number] + habit[number])
            found.append(WaySeen(way=way.name, size=way.size, completions=int(rows.sum()), share=share))
    return tuple(found)


def _smallest(arms: ArmsOdds, number: int, rounding: float, needed: FloatArray) -> float | None:
    """needed: nats that the mixture of each share must win, (shares,)."""
    rows = arms.candidate.where(arms.candidate.applies[:, number])
    plain, tried = (
        _mixed(_fair(one[:, [number]], _column(rows, number), rounding))[:, 0] / arms.factor
        for one in (rows.logs, rows.tried)
    )
    rng = np.random.default_rng(0)
    least = [max(1, round(share * len(rows))) for share in SHARES]
    hits = np.zeros(len(SHARES))
    trials = TRIALS[len(rows) >= MANY]
    for _ in range(trials):
        order = rng.permutation(len(rows))
        # A pool of what completions drawn so win: each may stand for any other, and for more than one.
        wins = np.concatenate([np.zeros((1, len(MIXED))), np.cumsum(tried[rng.choice(order, len(rows))], axis=0)])
        others = plain.sum(axis=0) - np.concatenate([np.zeros((1, len(MIXED))), np.cumsum(plain[order], axis=0)])
        rest = np.minimum(0.0, others)  # what they win, chance or such a fault has won for this run alone
        hits += ((wins + rest)[least] >= needed).any(axis=1)
    seen = np.flatnonzero(hits >= ENOUGH * trials)
    return SHARES[int(seen[0])] if len(seen) else None


def _column(rows: Odds, number: int) -> Odds:
    return Odds(*(getattr(rows, name)[:, [number]] for name in ("logs", "noise", "tried", "applies")))


_WORDS: Final[Mapping[str, Callable[[float], Message]]] = MappingProxyType(
    {
        "temperature": lambda size: message("mixture.temperature", "{times:.2f} times the temperature", times=size),
        "best": lambda size: message("mixture.best", "the best token taken at {share:.0%} of the places", share=size),
        "second": lambda size: message(
            "mixture.second", "the second best token taken at {share:.0%} of the places", share=size
        ),
        "redrawn": lambda _: message("mixture.redrawn", "best tokens drawn, when rejected, once more"),
        "last": lambda size: message(
            "mixture.last", "the least likely {share:.0%} of the listed never drawn", share=size
        ),
        "penalties": lambda size: (
            message("mixture.penalties", "penalties and biases {times:.1f} times as large", times=size)
            if size
            else message("mixture.unpenalised", "penalties and biases ignored")
        ),
    }
)


def in_words(way: str, size: float) -> Message:
    """A way to draw otherwise, for a sentence."""
    return _WORDS[way](size)
