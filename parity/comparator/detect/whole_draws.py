"""What the draws of both arms add up to (reference/draw_sums.py), completion by completion."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from parity.comparator.detect.drawn_places import Drawn, Outcomes
from parity.comparator.detect.shared_noise import factors, shares_noise
from parity.comparator.detect.temperatures import LOWEST, OTHER_DISTRIBUTIONS
from parity.comparator.inputs.servers import served
from parity.comparator.reference.draw_sums import NAMES, AtPlaces, DrawSums, sums_of
from parity.comparator.reference.penalties import as_chosen
from parity.comparator.reference.scores import Reference
from parity.comparator.reference.temperature import Cut, among_left, among_listed, best_of, listed_alone, listed_width
from parity.comparator.statistics import FloatArray
from parity.records import Capture, Completion, Key, TopLogprobs

WIDEST = 20
"""Listed tokens that are looked at where penalties, biases or bans decided as well."""

ONES: Final = np.ones(len(NAMES))

Listed = Sequence[tuple[Completion, TopLogprobs]]


@dataclass(frozen=True)
class ArmsDraws:
    """What the draws of baseline and candidate add up to, in the same completions, and by number (`NAMES`) so many
    times the variance of independent draws that those at the same places have."""

    baseline: Mapping[Key, DrawSums] = field(default_factory=dict)
    candidate: Mapping[Key, DrawSums] = field(default_factory=dict)
    factors: tuple[FloatArray, FloatArray] = (ONES, ONES)
    noise_shared_by: tuple[str, ...] = ()
    """Arms whose completions draw with the same noise."""

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


def sums_of_arms(
    plain: tuple[Outcomes, Outcomes],
    listed: Sequence[Listed],
    arms: tuple[Capture, Capture],
    reference: Reference,
    asked: Callable[[Completion], float],
) -> tuple[ArmsDraws, list[DrawSums]]:
    """(of baseline and candidate, those of the same completions; of the baseline alone, where nothing is cut off, among
    the tokens that are listed: these are known at any temperature, whatever the lists leave out).

    plain: outcomes where temperature and cut-off alone decided; listed: what each completion was drawn from.
    """
    shaped, cut_down = (_shaped(listed, arms, reference, asked, few=few) for few in (False, True))
    # A server's cut-off may come before the temperature or after it.
    cuts_known = not any(served(arm.header) for arm in arms)
    sides = [_together([_sums(one, cuts_known) for one in side]) for side in zip(plain, shaped, cut_down, strict=True)]
    (base, base_places), (candidate, candidate_places) = sides
    shared = [shares_noise(base_places, is_baseline=True), shares_noise(candidate_places, is_baseline=False)]
    found = ArmsDraws(
        base,
        candidate,
        (ONES, ONES) if any(shared) else (factors(base_places), factors(candidate_places)),
        tuple(arm.header.arm for arm, shares in zip(arms, shared, strict=True) if shares),
    )
    alone = {asked: [_listed_alone(one) for one in many] for asked, many in plain[0].items()}
    own = [
        sums
        for grouped in (alone, shaped[0], cut_down[0])
        for sums in _sums({asked: many for asked, many in grouped.items() if asked[1] == Cut()}, True)[0].values()
    ]
    return found.without(base.keys() ^ candidate.keys()), own[:1] if found.noise_shared_by else own


def _listed_alone(one: Drawn) -> Drawn:
    kept = one.draws.drawn < one.draws.logs.shape[1]
    return replace(one, draws=listed_alone(one.draws), places=one.places[kept])


def _sums(grouped: Outcomes, cuts_known: bool) -> tuple[dict[Key, DrawSums], AtPlaces]:
    found: dict[Key, DrawSums] = {}
    at_places = AtPlaces.none()
    for (temperature, cut), many in grouped.items():
        some = [one for one in many if len(one.draws) and one.draws.logs.shape[1] >= 2]
        if some and (cuts_known or cut == Cut() or temperature == 1):
            draws, places = [one.draws for one in some], [one.places for one in some]
            sums, at = sums_of(draws, places, temperature, cut)
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
) -> list[Outcomes]:
    """By arm: what was drawn where penalties, biases or bans decided as well, among the tokens that are listed. `few`:
    where only some tokens were allowed, so that at each place another number of a list is left."""
    sides: list[list[tuple[Completion, TopLogprobs]]] = [[], []]
    for arm, side, found in zip(arms, listed, sides, strict=True):
        for one, top in side:
            shaping, sampling = reference.shaping(one), arm.sampling_of(one)
            shapes = shaping.penalises or any(sampling.get(name) for name in OTHER_DISTRIBUTIONS)
            if bool(sampling.get("allowed_token_ids")) != few:
                continue
            if shapes and not shaping.unknown and asked(one) >= LOWEST:
                found.append((one, top))
    known = listed_width([top for side in sides for _, top in side])
    drawn_from = [
        [(one, *lists) for one, top in side
         if (lists := _as_drawn_from(top if few else best_of(top, known), one, reference)) is not None]
        for side in sides
    ]  # fmt: skip
    width = WIDEST if few else min(WIDEST, listed_width([top for side in drawn_from for _, top, _ in side]))
    outcomes: list[Outcomes] = []
    for arm, some in zip(arms, drawn_from, strict=True):
        groups: dict[tuple[float, Cut], list[Drawn]] = {}
        for one, top, pushed in some if width >= 2 else ():
            draws = (among_left if few else among_listed)(top, one.token_ids, width, pushed)
            groups.setdefault((asked(one), Cut.of(arm.sampling_of(one))), []).append(Drawn(one.key, *draws))
        outcomes.append(groups)
    return outcomes


def _as_drawn_from(top: TopLogprobs, one: Completion, reference: Reference) -> tuple[TopLogprobs, FloatArray] | None:
    """(the lists under the request's penalties, whether these push each entry down or up); None where the lists do not
    say it exactly."""
    penalised = reference.shaping(one).penalised(one)
    if penalised is None:
        return top, np.zeros(top.ids.shape)
    length = min(len(top), len(one.token_ids))
    recorded = None if top.logsumexp is None else top.logsumexp[:length]
    found = as_chosen(top.ids[:length], top.values[:length], recorded, one.token_ids[:length], penalised)
    if found is None:
        return None
    scores, _ = found
    best = np.nanmax(np.where(np.isfinite(scores), scores, -np.inf), axis=1, keepdims=True, initial=-np.inf)
    lists = TopLogprobs(top.ids[:length], np.where(np.isfinite(best), scores - best, np.nan))
    return lists, np.sign(penalised.pushed_down(top.ids[:length], one.token_ids[:length]))
