"""How far the modules of several engines are from one reference, set beside each other: whose rounding is larger than
it must be, and where that begins.

What one engine's module adds is seen from how its distance grows relative to the first engine's, beyond what ran before
it in the model. That takes a reference which shares its rounding with neither. Only tokens are
counted that are alike in what routers chose otherwise before the module (`noise`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Final

import numpy as np

from parity.capture.sketches import SketchedModule
from parity.explain.aligned import Aligned, Floats
from parity.explain.noise import LEAST_COMPLETIONS, LEAST_TOKENS, QUANTUM, after_flips, majority

GROWN: Final = 1.5
"""A module stands out where its distance grows by more than this factor relative to the first engine's."""

BY_CHANCE: Final = 0.01
"""Rate at which any module of a profile stands out by which completions were drawn alone."""

PROMPTS, DECODED = "prompts", "decoded"
"""Tokens that engines compute in other ways, and so are set beside each other apart: what is wrong in decode steps
alone is a minority of tokens, but of nearly all that logits are known of."""

DRAWS: Final = 200
"""Of completions with replacement, for the spread of a growth."""

ROUNDING: Final[Mapping[str, float]] = {"bfloat16": 1.66e-3, "float16": 2.1e-4, "float32": 2.5e-8}
"""Relative length of what one rounding of a vector takes off: steps of 2^-7 (2^-10, 2^-23) of each number's own power
of two, uniform, over mantissas that are spread as their logarithms: 2^-7 sqrt(3 / (8 ln 2) / 12)."""

_LAYER: Final = re.compile(r"(?:^|\.)(?:layers|h|blocks)\.(\d+)(?:\.|$)")


@dataclass(frozen=True)
class Distances:
    """Relative distances of one module of one arm from the reference."""

    tokens: int
    low: float
    middle: float
    high: float
    """Quantiles 0.1, 0.5 and 0.99."""
    flips: int
    """Tokens at which a router chose other experts than the reference."""
    times: float = 1.0
    """Its median (over completions) as a multiple of the first arm's."""
    grows: float = 1.0
    """By which factor that is larger than at any module before, in prompts or in decode steps, whichever is more."""
    stands_out: bool = False
    part: str = ""
    """PROMPTS or DECODED, where it stands out: `times` is of these tokens; else of all."""


@dataclass(frozen=True)
class ProfiledModule:
    name: str
    role: str
    layer: int
    """-1 for what is in no layer."""
    of_arms: tuple[Distances | None, ...]
    """None where an arm has too few tokens of it."""


@dataclass(frozen=True)
class Profile:
    """The modules of several arms, in the order in which they run."""

    arms: tuple[str, ...]
    tokens: tuple[int, ...]
    completions: tuple[int, ...]
    modules: tuple[ProfiledModule, ...]

    def standing_out(self, arm: int) -> tuple[ProfiledModule, ...]:
        """Modules in which this arm adds more than the first."""
        return tuple(one for one in self.modules if (of := one.of_arms[arm]) is not None and of.stands_out)


def profile(arms: Sequence[tuple[str, Aligned]], *, own_reference: bool) -> Profile:
    """Set arms beside the first of them. `own_reference`: the reference was computed by the first arm's engine, which
    may have computed the same to the last bit; then nothing is said to stand out."""
    common = _common([one for _, one in arms])
    measured = [_measured(one, [module.name for module in common]) for _, one in arms]
    first, *others = measured
    found = [first.spreads, *(_beside(first, one, judged=not own_reference) for one in others)]
    return Profile(
        arms=tuple(name for name, _ in arms),
        tokens=tuple(len(one) for _, one in arms),
        completions=tuple(len(one.keys) for _, one in arms),
        modules=tuple(
            ProfiledModule(module.name, module.role, layer_of(module.name), tuple(of_arm[place] for of_arm in found))
            for place, module in enumerate(common)
        ),
    )


@dataclass(frozen=True)
class _Measured:
    """One arm, by module."""

    spreads: list[Distances | None]
    medians: Mapping[str, Floats]
    """Of the tokens of each completion, those of its prompt and those decoded ("": of all), as logarithms, shape
    (completions, modules)."""


def _common(arms: Sequence[Aligned]) -> list[SketchedModule]:
    """The modules that all arms have, in the order of the first."""
    names = [{one.name for one in arm.modules} for arm in arms]
    return [one for one in arms[0].modules if all(one.name in there for there in names)]


def _measured(arm: Aligned, modules: Sequence[str]) -> _Measured:
    place_of = {one.name: place for place, one in enumerate(arm.modules)}
    columns = [place_of[name] for name in modules]
    logs = _distances(arm, columns)
    return _Measured(_quantiles(arm, logs, columns), _of_completions(arm, logs))


def layer_of(module: str) -> int:
    """The number of a module's decoder layer, -1 where it is in none."""
    found = _LAYER.search(module)
    return int(found[1]) if found else -1


def _distances(aligned: Aligned, columns: Sequence[int]) -> Floats:
    """Logarithms of relative distances, shape (tokens, modules); NaN where nothing is known or a router's flip before
    makes a token unlike most."""
    alike = majority(after_flips(aligned), ~np.isnan(aligned.distance))
    with np.errstate(invalid="ignore", divide="ignore"):
        logs = np.log(np.maximum(aligned.distance, QUANTUM))
    found: Floats = np.where(alike & np.isfinite(logs), logs, np.nan)[:, list(columns)]
    return found


def _quantiles(aligned: Aligned, logs: Floats, columns: Sequence[int]) -> list[Distances | None]:
    found: list[Distances | None] = []
    for place, column in enumerate(columns):
        kept = ~np.isnan(logs[:, place])
        if kept.sum() < LEAST_TOKENS:
            found.append(None)
            continue
        low, middle, high = (float(one) for one in np.quantile(aligned.distance[kept, column], (0.1, 0.5, 0.99)))
        found.append(Distances(int(kept.sum()), low, middle, high, int(aligned.flipped[:, column].sum())))
    return found


def _of_completions(aligned: Aligned, logs: Floats) -> dict[str, Floats]:
    decoded = aligned.position >= aligned.prompt_tokens[aligned.completion]
    found = {}
    for part, inside in (("", np.ones_like(decoded)), (PROMPTS, ~decoded), (DECODED, decoded)):
        found[part] = np.full((len(aligned.keys), logs.shape[1]), np.nan)
        for number in range(len(aligned.keys)):
            rows = logs[inside & (aligned.completion == number)]
            seen = ~np.isnan(rows).all(axis=0)
            found[part][number, seen] = np.nanmedian(rows[:, seen], axis=0)
    return found


def _beside(baseline: _Measured, arm: _Measured, *, judged: bool) -> list[Distances | None]:
    """The distances of another arm, with what its modules add beside the first one's."""
    every = (
        _beside_in(part, baseline.medians[part], arm.medians[part], arm.spreads) for part in ("", PROMPTS, DECODED)
    )
    overall, *parts = every
    found = list(arm.spreads)
    for place, one in overall.items():
        of_parts = [of_part[place] for of_part in parts if place in of_part]
        best = max(of_parts, key=lambda each: (each.stands_out, each.grows), default=one)
        found[place] = best if best.stands_out and judged else replace(one, grows=best.grows, stands_out=False, part="")
    return found


def _beside_in(part: str, first: Floats, other: Floats, spreads: Sequence[Distances | None]) -> dict[int, Distances]:
    """The modules that both arms have of enough completions, by place, with how they grow in this part."""
    enough = np.minimum((~np.isnan(first)).sum(axis=0), (~np.isnan(other)).sum(axis=0)) >= LEAST_COMPLETIONS
    known = [(place, one) for place, one in enumerate(spreads) if one is not None and enough[place]]
    if not known:
        return {}
    places = [place for place, _ in known]
    first, other = first[:, places], other[:, places]
    rng = np.random.default_rng(len(first) * 1000 + len(other))
    ratio = np.nanmedian(other, axis=0) - np.nanmedian(first, axis=0)
    grows = _growth(ratio[None])[0]
    drawn = np.stack([_median_of_draw(rng, other) - _median_of_draw(rng, first) for _ in range(DRAWS)])
    spread = _growth(drawn).std(axis=0)
    level = NormalDist().inv_cdf(1 - BY_CHANCE / (2 * len(known)))
    found = {}
    for at, (place, one) in enumerate(known):
        out = bool(grows[at] > np.log(GROWN) and grows[at] > level * spread[at])
        times, factor = float(np.exp(ratio[at])), float(np.exp(grows[at]))
        found[place] = replace(one, times=times, grows=factor, stands_out=out, part=part)
    return found


def _median_of_draw(rng: np.random.Generator, values: Floats) -> Floats:
    drawn = values[rng.integers(0, len(values), len(values))]
    missing = np.isnan(drawn).all(axis=0)
    drawn[:, missing] = np.nanmedian(values[:, missing], axis=0)
    found: Floats = np.nanmedian(drawn, axis=0)
    return found


def _growth(ratio: Floats) -> Floats:
    """By how much each ratio is above all before it and above none, shape (draws, modules), as logarithms."""
    before = np.maximum.accumulate(np.hstack([np.zeros((len(ratio), 1)), ratio[:, :-1]]), axis=1)
    found: Floats = ratio - before
    return found
