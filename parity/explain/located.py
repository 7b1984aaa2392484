"""Three answers from sketches: the first module beyond noise; a clean forward whose token is not its own; neither.

A completion is accused by its largest jump (`noise.levels`). The module that is named is then the first at the first
token of the stretch that leads to it: what goes beyond the level of single tokens, token after token, or did so in the
same module before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from parity.explain.aligned import Aligned, Ints, pooled
from parity.explain.noise import LEAST_DISTANCE, Judged, judge
from parity.messages import Message
from parity.records import Key

MODULE, SAMPLER = "module", "sampler"

FEW: Final = 24
"""Completions; the error rate has been measured on runs of as many."""

STRIP_TOKENS: Final = 8
"""Tokens before and after the located one that its strip shows."""


@dataclass(frozen=True)
class Strip:
    """Modules and tokens around a located one: excess over noise as multiples of its level."""

    modules: tuple[str, ...]
    positions: tuple[int, ...]
    excess: tuple[tuple[float, ...], ...]
    """A row for each module."""


@dataclass(frozen=True)
class Located:
    """Where one completion went wrong."""

    key: Key
    answer: str
    """MODULE or SAMPLER."""
    position: int
    """Of the token that went in, in prompt and completion."""
    prompt_tokens: int
    step: int
    row: int
    module: str
    type: str
    """Its path in the model, and its class."""
    distance: float
    """Relative difference from the reference; 0 for SAMPLER."""
    usual: float
    """The median of the same over the run's own tokens."""
    input_clean: bool
    """Everything that ran before it in this token was within noise."""
    tokens_beyond: int
    """Tokens of this completion with anything beyond the level of single tokens, from here on."""
    handed_out: int = -1
    own_best: int = -1
    """Of SAMPLER: the token that came out, and the argmax of its own logits."""
    strip: Strip | None = None

    @property
    def output_position(self) -> int:
        """Of the first output token that it can have changed."""
        return max(0, self.position + 1 - self.prompt_tokens)


@dataclass(frozen=True)
class Noise:
    """What the run's own tokens say of one module."""

    module: str
    role: str
    tokens: int
    middle: float
    high: float
    """Median and 99th percentile of the relative distance."""
    flips: int


@dataclass(frozen=True)
class Locating:
    """What the sketches of one arm say."""

    located: tuple[Located, ...]
    tokens: int
    completions: int
    """Tokens and completions that were paired with the reference."""
    judged: bool
    """Whether there were enough completions to know the noise."""
    unpaired: Mapping[str, int]
    """Completions that were not paired to their end, by why."""
    noise: tuple[Noise, ...]
    unread: Message | None = None
    """Why the file could not be read."""
    drafter: Locating | None = None
    """The same of the drafter, where it was sketched: `locate_drafter`."""


def locate(aligned: Aligned, baseline: Aligned | None = None) -> Locating:
    """What is beyond the noise of the run's own tokens; of few completions those of the baseline's own decode steps are
    counted with them, as a case that was made small may fail in most of its completions."""
    together = aligned if baseline is None or len(aligned.keys) >= FEW else pooled(aligned, baseline)
    judged = judge(together)
    found = [_of_completion(together, judged, number) for number in range(len(aligned.keys))]
    return Locating(
        located=tuple(one for one in found if one is not None),
        tokens=len(aligned),
        completions=len(aligned.keys),
        judged=bool(np.isfinite(judged.level).any()),
        unpaired=dict(Counter(aligned.unpaired.values())),
        noise=_noise_of(aligned),
    )


def locate_drafter(aligned: Aligned) -> Locating:
    """What is wrong first in the drafter, of tokens aligned with `drafter`. Where the target
    was wrong before, whose hidden states it reads, nothing is said of it."""
    found = locate(aligned)
    own = {one.name for one in aligned.modules if one.drafter}
    return replace(
        found,
        located=tuple(one for one in found.located if one.module in own),
        noise=tuple(one for one in found.noise if one.module in own),
    )


def _of_completion(aligned: Aligned, judged: Judged, number: int) -> Located | None:
    rows = np.flatnonzero(aligned.completion == number)
    jump, distance = judged.jump[rows], aligned.distance[rows]
    with np.errstate(invalid="ignore"):
        over = (jump > judged.level[number]) & (distance >= LEAST_DISTANCE) & judged.judged[rows]
        traced = (jump > judged.trace) & (distance >= LEAST_DISTANCE)
    traced &= judged.judged[rows] | over.any(axis=1, keepdims=True)
    beyond = np.asarray(traced.any(axis=1))
    accused = np.flatnonzero(over.any(axis=1))
    wrong = _not_their_own(aligned, rows, number)
    first = int(accused[0]) if len(accused) else len(rows)
    if len(accused):
        first = _begin(traced, beyond, first)
    if len(wrong) and wrong[0] < first:
        return _sampler(aligned, rows, number, int(wrong[0]), int(beyond[wrong[0] :].sum()))
    if first == len(rows):
        return None
    module = int(np.argmax((traced | over)[first]))
    at = rows[first]
    return Located(
        key=aligned.keys[number],
        answer=MODULE,
        position=int(aligned.position[at]),
        prompt_tokens=int(aligned.prompt_tokens[number]),
        step=int(aligned.step[at]),
        row=int(aligned.row[at]),
        module=aligned.modules[module].name,
        type=aligned.modules[module].type,
        distance=float(distance[first, module]),
        usual=float(judged.usual[at, module]),
        input_clean=bool(judged.before[at, module] <= judged.trace),
        tokens_beyond=int(beyond[first:].sum()),
        strip=_strip(aligned, judged, rows, number, first),
    )


def _begin(traced: npt.NDArray[np.bool_], beyond: npt.NDArray[np.bool_], accused: int) -> int:
    """The token at which what is accused began: the stretch of tokens beyond the level that leads to it, or an earlier
    token at which the same module was beyond it."""
    first = accused
    while first > 0 and beyond[first - 1]:
        first -= 1
    module = int(np.argmax(traced[first]))
    return int(np.argmax(traced[:, module])) if traced[first, module] else first


def _not_their_own(aligned: Aligned, rows: Ints, number: int) -> Ints:
    """Tokens of a greedy completion after which another was handed out than the one largest logit."""
    if not aligned.plain[number]:
        return np.zeros(0, dtype=np.int64)
    sampled = aligned.position[rows] >= aligned.prompt_tokens[number] - 1
    best = aligned.best[rows]
    return np.flatnonzero(sampled & (best >= 0) & (best != aligned.follows[rows]))


def _sampler(aligned: Aligned, rows: Ints, number: int, first: int, beyond: int) -> Located:
    at = rows[first]
    return Located(
        key=aligned.keys[number],
        answer=SAMPLER,
        position=int(aligned.position[at]),
        prompt_tokens=int(aligned.prompt_tokens[number]),
        step=int(aligned.step[at]),
        row=int(aligned.row[at]),
        module=SAMPLER,
        type="",
        distance=0.0,
        usual=0.0,
        input_clean=True,
        tokens_beyond=beyond,
        handed_out=int(aligned.follows[at]),
        own_best=int(aligned.best[at]),
    )


def _strip(aligned: Aligned, judged: Judged, rows: Ints, number: int, first: int) -> Strip:
    begin, end = max(0, first - STRIP_TOKENS), min(len(rows), first + STRIP_TOKENS + 1)
    part = judged.excess[rows[begin:end]] / judged.level[number]
    return Strip(
        modules=tuple(one.name for one in aligned.modules),
        positions=tuple(int(one) for one in aligned.position[rows[begin:end]]),
        excess=tuple(tuple(round(float(min(max(v, -9.0), 99.0)), 2) if v == v else 0.0 for v in one) for one in part.T),
    )


def _noise_of(aligned: Aligned) -> tuple[Noise, ...]:
    found = []
    for number, module in enumerate(aligned.modules):
        known = aligned.distance[:, number]
        known = known[np.isfinite(known)]
        if len(known):
            middle, high = (float(one) for one in np.quantile(known, (0.5, 0.99)))
            flips = int(aligned.flipped[:, number].sum())
            found.append(Noise(module.name, module.role, len(known), middle, high, flips))
    return tuple(found)
