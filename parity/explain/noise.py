"""What rounding does to each module, from the run's own tokens, and which tokens it does not explain.

Distances are taken as logarithms and set against the median and the upper spread of their module: the spread is the
median over completions of each completion's own ninth decile, so that faults in less than half of the completions do
not reach it. What both sides computed alike, as they may a prompt, says nothing of rounding and is left out. Some
tokens are noisier than others in all modules (rare ones, those of another script), so what counts is the jump: by how
much a module is further out than everything that ran before it in the same token. Of each completion the largest jump
is kept. Largest values follow Gumbel's law (Fisher and Tippett 1928, doi:10.1017/S0305004100015681), which is fitted to
the lower half of the completions first, then (by maximum likelihood) to all that this first law explains, and a
completion is accused where its own is larger than the law gives in ERROR_RATE of all runs.

A router that chooses other experts at a near-tie of its logits makes a difference that is no fault. What runs after
one, in this token and in later ones of the completion, is judged only where most tokens of the module are in the same
place: with many experts and many layers that is after a flip, with few of them it is before any. In a later token a
module is judged nevertheless where it gave something else altogether (OTHERWISE).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from parity.explain.aligned import Aligned, Floats, Ints

ERROR_RATE: Final = 1e-3
"""Share of clean runs in which any completion is accused, by the law of largest values."""

QUANTUM: Final = 1e-3
"""Smaller relative distances count as this one: twice the rounding of a sketch's own numbers."""

LEAST_DISTANCE: Final = 0.02
"""Nothing nearer than this accuses: four units in the last place of bfloat16."""

LEAST_SPREAD: Final = 0.25
"""Of logarithms: a module that is always equal to the last bit has no spread of its own."""

LEAST_COMPLETIONS: Final = 8
"""With fewer nothing is known of largest values, and nothing is accused."""

LEAST_TOKENS: Final = 40
"""Of a module; with fewer it is not judged."""

MOST_OF: Final = 0.5
"""Share of a module's tokens that are alike in what routers chose otherwise before it; others are not judged."""

LOWER: Final = (0.1, 0.2, 0.3, 0.4, 0.5)
"""Quantiles of completions that the law is fitted to first: faults in less than half of them do not reach it."""

EXPLAINED: Final = 0.98
"""Share of completions that the first law holds; it is fitted again to those, as half of them leave its width, and with
it the level, uncertain by a third."""

FITTING: Final = 100
"""Rounds of the second fit; by half of the way each, ten are enough."""

LEAST_SCALE: Final = 0.2
"""Of the law, before the uncertainty of its fit is added, which is two parts in the root of the number of completions:
where all that is seen is equal it stays that wide."""

TRACE_RATE: Final = 1e-3
"""Share of clean tokens beyond the level at which the first module of an accused completion is looked for."""

OTHERWISE: Final = 1.0
"""Relative distance; of two vectors that have nothing in common but their length it is 1.4. In 1,820 clean tokens after
an earlier token's flip it was 0.41 at most."""

UPPER: Final = 0.9
_DECILE: Final = 1.2815515655446004
"""Standard deviations from the median to UPPER of a normal law."""


@dataclass(frozen=True)
class Judged:
    """Every token and module against the noise. Arrays as in `Aligned`."""

    excess: Floats
    """Spreads above the module's median, shape (tokens, modules); NaN where nothing is known of it."""
    judged: npt.NDArray[np.bool_]
    """Whether it may be accused."""
    before: Floats
    """The largest excess of what ran before it in the same token, 0 or more, shape (tokens, modules)."""
    jump: Floats
    """`excess` less `before`."""
    usual: Floats
    """Median relative distance of the module in that state, shape (tokens, modules)."""
    level: Floats
    """Jump beyond which a completion is accused, shape (keys,); infinite where too little is known."""
    trace: float
    """Jump of TRACE_RATE of clean tokens."""
    after_flip: Ints
    """0: no router before it chose otherwise; 1: one did at this token; 2: one did at an earlier token."""


def judge(aligned: Aligned) -> Judged:
    states = after_flips(aligned)
    excess, usual = standardised(aligned, states)
    before = np.zeros_like(excess)
    before[:, 1:] = np.maximum.accumulate(np.nan_to_num(excess[:, :-1], nan=0.0, posinf=np.inf), axis=1)
    before = np.maximum(before, 0.0)
    with np.errstate(invalid="ignore"):
        jump = excess - before
    most = majority(states, ~np.isnan(aligned.distance))
    with np.errstate(invalid="ignore"):
        judged = most | ((states == 2) & (aligned.distance >= OTHERWISE))
    level, trace = levels(aligned, np.where(most, jump, np.nan), np.asarray(touched(aligned).any(axis=1)))
    return Judged(excess, judged, before, jump, usual, level, trace, states)


def after_flips(aligned: Aligned) -> Ints:
    """What routers chose otherwise before each module ran, shape (tokens, modules)."""
    here = np.cumsum(aligned.flipped, axis=1) - aligned.flipped > 0
    earlier = np.zeros_like(here)
    for number in range(len(aligned.keys)):
        rows = np.flatnonzero(aligned.completion == number)
        # What a token hands on passes through later layers' states and keys: any router at or before this module.
        so_far = np.cumsum(aligned.flipped[rows], axis=0) - aligned.flipped[rows] > 0
        earlier[rows] = np.cumsum(so_far, axis=1) > 0
    return np.where(here, 1, np.where(earlier, 2, 0))


def touched(aligned: Aligned) -> npt.NDArray[np.bool_]:
    """Where this module or one before it gave something else than the reference's, shape (tokens, modules)."""
    with np.errstate(invalid="ignore"):
        found: npt.NDArray[np.bool_] = np.logical_or.accumulate(aligned.distance > QUANTUM, axis=1)
    return found


def standardised(aligned: Aligned, states: Ints) -> tuple[Floats, Floats]:
    """Excess and usual distance of every token and module."""
    with np.errstate(invalid="ignore", divide="ignore"):
        logs = np.log(np.maximum(aligned.distance, QUANTUM))
    excess, usual = np.full(logs.shape, np.nan), np.full(logs.shape, np.nan)
    alike, other = majority(states, ~np.isnan(logs)), touched(aligned)
    for module in range(logs.shape[1]):
        known = ~np.isnan(logs[:, module])
        rows = np.flatnonzero(alike[:, module])
        if len(rows) < LEAST_TOKENS:
            continue
        middle, spread = _noise(logs[rows, module], aligned.completion[rows], other[rows, module])
        set_against = np.flatnonzero(known & (alike[:, module] | (states[:, module] == 2)))
        excess[set_against, module] = (logs[set_against, module] - middle) / spread
        usual[set_against, module] = math.exp(middle)
    return excess, usual


def majority(states: Ints, known: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Where a module is in the state in which most of its known tokens are, shape (tokens, modules)."""
    found = np.zeros(states.shape, dtype=bool)
    for state in (0, 1, 2):
        here = (states == state) & known
        found |= here & (here.sum(axis=0) > MOST_OF * known.sum(axis=0))
    return found


def _noise(logs: Floats, completion: Ints, other: npt.NDArray[np.bool_]) -> tuple[float, float]:
    """Median and upper spread, neither moved by what less than half of the completions do. Of a completion in which
    some tokens are `other` than the reference's, those count alone."""
    some = np.bincount(completion[other], minlength=int(completion.max()) + 1) > 0
    keep = other | ~some[completion]
    logs, completion = logs[keep], completion[keep]
    order = np.argsort(completion, kind="stable")
    parts = np.split(logs[order], np.flatnonzero(np.diff(completion[order])) + 1)
    middle = float(np.median([np.median(one) for one in parts]))
    high = float(np.median([np.quantile(one, UPPER) for one in parts]))
    return middle, max((high - middle) / _DECILE, LEAST_SPREAD)


def levels(aligned: Aligned, jump: Floats, other: npt.NDArray[np.bool_]) -> tuple[Floats, float]:
    """The level of each completion, and that of single tokens. `other`: tokens that the two sides computed otherwise,
    shape (tokens,); a completion without any has no jump of its own, and most have one."""
    keys = len(aligned.keys)
    most, tokens = np.full(keys, np.nan), np.bincount(aligned.completion[other], minlength=keys)
    if np.count_nonzero(tokens) < max(LEAST_COMPLETIONS, keys / 2):
        tokens = np.bincount(aligned.completion, minlength=keys)
    whole = np.where(np.isnan(jump), -np.inf, jump).max(axis=1, initial=-np.inf)
    for number in range(keys):
        most[number] = whole[aligned.completion == number].max(initial=-np.inf)
    own = tokens > 0
    known = most[own & (np.isfinite(most) | (most == np.inf))]
    if len(known) < LEAST_COMPLETIONS:
        return np.full(keys, np.inf), math.inf
    usual = float(np.median(tokens[own]))
    place, scale = _largest_law(known)
    rare = -math.log(-math.log1p(-ERROR_RATE / keys))
    level = place + scale * (np.log(np.maximum(tokens, 1) / usual) + rare)
    return level, place - scale * math.log(usual * TRACE_RATE)


def _largest_law(known: Floats) -> tuple[float, float]:
    """Gumbel's law of the largest jump of a completion: its place, and its width with the uncertainty of the fit."""
    shares = np.array(LOWER)
    seen = np.quantile(np.minimum(known, np.finfo(float).max), shares)
    slope, place = (float(one) for one in np.polyfit(-np.log(-np.log(shares)), seen, 1))
    width = max(slope, LEAST_SCALE)
    held = known[known <= place - width * math.log(-math.log(EXPLAINED))]
    if not len(held):
        return math.inf, 1.0
    middle = float(held.mean())
    for _ in range(FITTING):
        weight = np.exp(-(held - middle) / width)
        width = max(LEAST_SCALE, (width + middle - float((held * weight).sum() / weight.sum())) / 2)
    place = middle - width * math.log(float(np.exp(-(held - middle) / width).mean()))
    return place, width * (1 + 2 / math.sqrt(len(held)))
