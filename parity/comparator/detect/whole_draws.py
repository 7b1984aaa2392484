"""What the draws of both arms add up to (reference/draw_sums.py), completion by completion."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from parity.comparator.detect.drawn_places import Drawn, Outcomes
from parity.comparator.detect.draws import Draws
from parity.comparator.detect.shared_noise import Row, agreement, factors, shares_noise, shows_shared_noise
from parity.comparator.detect.temperatures import LOWEST
from parity.comparator.inputs.numbers import LARGE_VOCABULARY
from parity.comparator.inputs.servers import by_others, served
from parity.comparator.reference.draw_sums import NAMES, AtPlaces, DrawSums, sums_of, times_of
from parity.comparator.reference.drawn_lists import (
    Cut,
    among_left,
    among_listed,
    best_of,
    listed_alone,
    listed_width,
)
from parity.comparator.reference.other_draws import ArmsOdds, Odds, odds_of
from parity.comparator.reference.penalties import as_chosen
from parity.comparator.reference.scores import Reference
from parity.comparator.reference.temperature import Beyond, beyond, cut_within
from parity.comparator.shared_out import ABOUT
from parity.comparator.statistics import FloatArray
from parity.comparator.types import Spread, alone
from parity.records import Capture, Completion, Key, TokenIds, TopLogprobs

WIDEST = 20
"""Listed tokens that are looked at where penalties, biases or bans decided as well."""

HOT: Final = 1.5
"""Temperature above which tokens that are not listed are left out: their part is most of it, and known within wide
bounds. At 3, 8 of 32 clean runs of 32 completions seemed off by it, up to 2 none."""

ONES: Final = np.ones(len(NAMES))

Listed = Sequence[tuple[Completion, TopLogprobs]]


class ArmsDraws(Struct, frozen=True):
    """What the draws of baseline and candidate add up to, in the same completions, and by number (`NAMES`) so many
    times the variance of independent draws that those at the same places have."""

    baseline: Mapping[Key, DrawSums] = field(default_factory=dict)
    candidate: Mapping[Key, DrawSums] = field(default_factory=dict)
    factors: tuple[FloatArray, FloatArray] = (ONES, ONES)
    noise_shared_by: tuple[str, ...] = ()
    """Arms whose completions draw with the same noise."""
    apart: bool = False
    """Enough draws of both arms stand at the same places to show common noise, and they show none."""
    candidate_alone: float | None = None
    """Row by row, the candidate's requests draw with the same numbers, though parity gave each a seed of its own, and
    the baseline's do not: nats of evidence (`agreement`)."""

    def without(self, left_out: Collection[Key]) -> ArmsDraws:
        """But for these completions."""
        base, candidate = (
            {key: one for key, one in side.items() if key not in left_out} for side in (self.baseline, self.candidate)
        )
        return replace(self, baseline=base, candidate=candidate)

    @property
    def not_counted(self) -> frozenset[Key]:
        """Completions that say nothing new: all but one, where they share their noise."""
        return frozenset(sorted(self.candidate)[1:]) if self.noise_shared_by else frozenset()


class AllOutcomes(Struct, frozen=True):
    """Of baseline and candidate, by what decided of a draw: temperature and cut-off alone; penalties, biases or bans as
    well, among the tokens that are listed; these where only some tokens were allowed."""

    plain: tuple[Outcomes, Outcomes]
    shaped: tuple[Outcomes, Outcomes]
    cut_down: tuple[Outcomes, Outcomes]
    cuts_known: bool
    """Whether a cut-off comes after the temperature, as it does in engines: a server's may come before it."""

    def decided(self, temperature: float, cut: Cut) -> bool:
        """Whether it is known what these leave to be drawn from."""
        return self.cuts_known or cut == Cut() or temperature == 1


def all_outcomes(
    plain: tuple[Outcomes, Outcomes],
    listed: Sequence[Listed],
    arms: tuple[Capture, Capture],
    reference: Reference,
    asked: Callable[[Completion], float],
) -> AllOutcomes:
    """plain: outcomes where temperature and cut-off alone decided; listed: what each completion was drawn from."""
    shaped, cut_down = (_shaped(listed, arms, reference, asked, few=few) for few in (False, True))
    return AllOutcomes(plain, shaped, cut_down, not any(served(arm.header) for arm in arms))


def odds_of_arms(
    outcomes: AllOutcomes,
    left_out: Collection[Key],
    factors: tuple[FloatArray, FloatArray],
    spread: Spread = alone,
) -> ArmsOdds:
    """How likely the completions of both arms are, had they been drawn otherwise; without those left out."""
    sides, keys = [], list[Key]()
    for side in (0, 1):
        found = list[Odds]()
        for grouped in (outcomes.plain[side], outcomes.shaped[side], outcomes.cut_down[side]):
            for (temperature, cut), many in grouped.items():
                some = [
                    one for one in many if one.key not in left_out and len(one.draws) and one.draws.logs.shape[1] >= 2
                ]
                if some and outcomes.decided(temperature, cut):
                    draws = [one.draws for one in some]
                    found.append(odds_of(draws, temperature, cut, tried=side == 1, spread=spread))
                    keys += [one.key for one in some] if side == 1 else []
        sides.append(Odds.together(found))
    return ArmsOdds(sides[0], sides[1], float(max(1.0, *(one.max() for one in factors))), keys)


def sums_of_arms(
    outcomes: AllOutcomes, arms: tuple[Capture, Capture], spread: Spread = alone
) -> tuple[ArmsDraws, list[DrawSums]]:
    """(of baseline and candidate, those of the same completions; of the baseline alone, where nothing is cut off, among
    the tokens that are listed: these are known at any temperature, whatever the lists leave out).
    """
    plain, shaped, cut_down = outcomes.plain, outcomes.shaped, outcomes.cut_down
    sides = [
        _together([_sums(one, outcomes.decided, spread) for one in side])
        for side in zip(plain, shaped, cut_down, strict=True)
    ]
    (base, base_places), (candidate, candidate_places) = sides
    shared = [shares_noise(base_places, is_baseline=True), shares_noise(candidate_places, is_baseline=False)]
    found = ArmsDraws(
        base,
        candidate,
        (ONES, ONES) if any(shared) else (factors(base_places), factors(candidate_places)),
        tuple(arm.header.arm for arm, shares in zip(arms, shared, strict=True) if shares),
        apart=not any(shared) and all(map(shows_shared_noise, (base_places, candidate_places))),
    )
    alone = {asked: [_listed_alone(one) for one in many] for asked, many in plain[0].items()}
    own = [
        sums
        for grouped in (alone, shaped[0], cut_down[0])
        for sums in _sums(
            {asked: many for asked, many in grouped.items() if asked[1] == Cut()}, outcomes.decided, spread
        )[0].values()
    ]
    return found.without(base.keys() ^ candidate.keys()), own[:1] if found.noise_shared_by else own


FEW_ROWS: Final = 8
"""Completions that it takes to see what most of them have in common."""

MEDIANS: Final = 3.0
"""Standard errors of the median completion: those who asked for one temperature lie as far off in one run of 400, and
nothing is accused then. Faults of fewer than a third of the completions move it by less."""


FITS: Final = 5.0
"""Standard errors by which no number may be off once another temperature explains the likelihood."""


def times_of_own_lists(draws: Draws, outcomes: AllOutcomes, sums: ArmsDraws) -> float | None:
    """So many times the temperature asked for is what the candidate's completions look like by its own lists, where
    nobody says of which kind these are, and that explains them. None: as asked, or off in another way, or judged by
    something else."""
    header, at = draws.candidate.header, NAMES.index("likely")
    if not by_others(header) or header.engine.get("logprobs_mode") is not None:
        return None
    own = [one for key, one in sums.candidate.items() if key not in draws.scored and one.variances[at] > 0]
    middle = float(np.median([one.sums[at] / np.sqrt(one.variances[at]) for one in own])) if own else 0.0
    if len(own) < FEW_ROWS or abs(middle) * np.sqrt(len(own)) < MEDIANS * np.sqrt(np.pi / 2):
        return None
    listed = [
        (temperature, [_listed_alone(one) for one in many if one.key in sums.candidate and one.key not in draws.scored])
        for (temperature, cut), many in outcomes.plain[1].items()
        if cut == Cut()
    ]
    times = 1.0
    for _ in range(FITTED):
        rows = [
            made
            for temperature, many in listed
            for made in sums_of([o.draws for o in many], [o.places for o in many], temperature * times, Cut())[0]
            if made.variances[at] > 0
        ]
        if len(rows) < FEW_ROWS:
            return None
        whole = DrawSums.of_all(rows)
        off = whole.sums / np.sqrt(np.maximum(whole.variances, 1e-9))
        if abs(off[at]) < 0.5:
            break
        times *= times_of(float(whole.sums[at]) / whole.tokens, float(whole.variances[at]) / whole.tokens, 1.0)
    spread = float(np.mean([one.sums[at] ** 2 / one.variances[at] for one in rows]))
    is_one = bool((np.abs(off) < FITS).all()) and spread < 1.0 + FITS * np.sqrt(2.0 / len(rows))
    return times if is_one else None


FITTED: Final = 12
"""Steps in which the temperature is looked for."""


def with_rows(
    found: ArmsDraws,
    listed: Sequence[Listed],
    arms: tuple[Capture, Capture],
    reference: Reference,
    asked: Callable[[Completion], float],
    spread: Spread = alone,
) -> ArmsDraws:
    """The same with what single requests have in common: one completion of each, as other samples and rounds have its
    context."""

    def agreed(number: int) -> float | None:
        arm, side = arms[number], listed[number]
        first = {one.key.request: (one, top) for one, top in reversed(side) if asked(one) >= LOWEST}
        return agreement(
            Row.of(one.token_ids, drawn_from[0], asked(one), Cut.of(arm.sampling_of(one)))
            for one, top in reversed(first.values())
            if (drawn_from := _as_drawn_from(top, one, reference)) is not None
        )

    alike = list(spread((0, 1), agreed, ABOUT))
    own_seeds = not by_others(arms[1].header)
    if alike[0] is not None or (alike[1] is not None and not own_seeds):  # it may have been asked with one seed for all
        shared = {
            *found.noise_shared_by,
            *(arm.header.arm for arm, one in zip(arms, alike, strict=True) if one is not None),
        }
        names = tuple(arm.header.arm for arm in arms if arm.header.arm in shared)
        return replace(found, noise_shared_by=names, factors=(ONES, ONES), apart=False)
    return replace(found, candidate_alone=None if arms[0].header.arm in found.noise_shared_by else alike[1])


def _listed_alone(one: Drawn) -> Drawn:
    kept = one.draws.drawn < one.draws.logs.shape[1]
    return replace(one, draws=listed_alone(one.draws), places=one.places[kept])


def _sums(
    grouped: Outcomes, decided: Callable[[float, Cut], bool], spread: Spread
) -> tuple[dict[Key, DrawSums], AtPlaces]:
    found: dict[Key, DrawSums] = {}
    at_places = AtPlaces.none()
    for (temperature, cut), many in grouped.items():
        some = [one for one in many if len(one.draws) and one.draws.logs.shape[1] >= 2]
        if temperature > HOT and cut == Cut():
            some = [one for one in map(_listed_alone, some) if len(one.draws)]
        if some and decided(temperature, cut):
            draws, places = [one.draws for one in some], [one.places for one in some]
            sums, at = sums_of(draws, places, temperature, cut, spread)
            found |= {one.key: made for one, made in zip(some, sums, strict=True)}
            at_places += at
    return found, at_places


def _together(parts: Sequence[tuple[dict[Key, DrawSums], AtPlaces]]) -> tuple[dict[Key, DrawSums], AtPlaces]:
    found: dict[Key, DrawSums] = {}
    at_places = AtPlaces.none()
    for sums, places in parts:
        found, at_places = found | sums, at_places + places
    return found, at_places


def _shaped(
    listed: Sequence[Listed],
    arms: tuple[Capture, Capture],
    reference: Reference,
    asked: Callable[[Completion], float],
    *,
    few: bool,
) -> tuple[Outcomes, Outcomes]:
    """By arm: what was drawn where penalties, biases or bans decided as well, among the tokens that are listed. `few`:
    where only some tokens were allowed, so that at each place another number of a list is left."""
    sides = [
        [(one, top) for one, top in side
         if top.ids.size and asked(one) >= LOWEST and _is_shaped(arm, one, reference, few)]
        for arm, side in zip(arms, listed, strict=True)
    ]  # fmt: skip
    known = listed_width(*_lists_and_tokens(sides))
    drawn_from = [
        [(one, *lists) for one, top in side
         if (lists := _as_drawn_from(top if few else best_of(top, one.token_ids, known), one, reference)) is not None]
        for side in sides
    ]  # fmt: skip
    width = WIDEST if few else min(WIDEST, listed_width(*_lists_and_tokens(drawn_from)))
    outcomes: list[Outcomes] = []
    for arm, some in zip(arms, drawn_from, strict=True):
        groups: dict[tuple[float, Cut], list[Drawn]] = {}
        for one, top, pushed, left_out in some if width >= 2 else ():
            draws, places = (among_left if few else among_listed)(top, one.token_ids, width, pushed)
            how = asked(one), Cut.of(arm.sampling_of(one))
            known_cut = cut_within(top, left_out, places, width, *how, arm.header.vocab_size or LARGE_VOCABULARY)
            groups.setdefault(how, []).append(Drawn(one.key, draws.where(known_cut), places[known_cut]))
        outcomes.append(groups)
    return outcomes[0], outcomes[1]


def _lists_and_tokens(sides: Sequence[Sequence[tuple[Any, ...]]]) -> tuple[list[TopLogprobs], list[TokenIds]]:
    """Of both arms."""
    every = [some for side in sides for some in side]
    return [some[1] for some in every], [some[0].token_ids for some in every]


def _is_shaped(arm: Capture, one: Completion, reference: Reference, few: bool) -> bool:
    shaping = reference.shaping(one)
    allowed = bool(arm.sampling_of(one).get("allowed_token_ids"))
    return allowed == few and (shaping.penalises or shaping.forbids) and not shaping.unknown


def _as_drawn_from(
    top: TopLogprobs, one: Completion, reference: Reference
) -> tuple[TopLogprobs, FloatArray, Beyond] | None:
    """(the lists under the request's penalties, nats by which these push each entry down, what is not listed); None
    where the lists do not say it exactly."""
    penalised = reference.shaping(one).penalised(one)
    if penalised is None:
        return top, np.zeros(top.ids.shape), beyond(top, top, np.zeros(len(top)))
    length = min(len(top), len(one.token_ids))
    recorded = None if top.logsumexp is None else top.logsumexp[:length]
    found = as_chosen(top.ids[:length], top.values[:length], recorded, one.token_ids[:length], penalised)
    if found is None:
        return None
    scores, raised = found
    best = np.nanmax(np.where(np.isfinite(scores), scores, -np.inf), axis=1, keepdims=True, initial=-np.inf)
    lists = TopLogprobs(top.ids[:length], np.where(np.isfinite(best), scores - best, np.nan))
    with np.errstate(invalid="ignore"):  # engines write minus infinity for a token that cannot come
        pushed = top.values[:length] - scores
    left_out = beyond(top, TopLogprobs(top.ids[:length], scores), raised)
    return lists, np.where(np.isfinite(pushed), pushed, 0.0), left_out
