"""What the draws of both arms add up to (reference/draw_sums.py), completion by completion."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from parity.comparator.detect.drawn_places import Drawn, Outcomes
from parity.comparator.detect.temperatures import LOWEST, OTHER_DISTRIBUTIONS
from parity.comparator.inputs.servers import served
from parity.comparator.reference.draw_sums import DrawSums, sums_of
from parity.comparator.reference.penalties import as_chosen
from parity.comparator.reference.scores import Reference
from parity.comparator.reference.temperature import Cut, among_listed, listed_alone, listed_width
from parity.comparator.statistics import FloatArray
from parity.records import Capture, Completion, Key, TopLogprobs

WIDEST = 20
"""Listed tokens that are looked at where penalties, biases or bans decided as well."""

Sums = tuple[Mapping[Key, DrawSums], Mapping[Key, DrawSums]]

Listed = Sequence[tuple[Completion, TopLogprobs]]


def sums_of_arms(
    plain: tuple[Outcomes, Outcomes],
    listed: Sequence[Listed],
    arms: tuple[Capture, Capture],
    reference: Reference,
    asked: Callable[[Completion], float],
) -> tuple[Sums, list[DrawSums]]:
    """(of baseline and candidate, those of the same completions; of the baseline alone, where nothing is cut off, among
    the tokens that are listed: these are known at any temperature, whatever the lists leave out).

    plain: outcomes where temperature and cut-off alone decided; listed: what each completion was drawn from.
    """
    shaped = _shaped(listed, arms, reference, asked)
    # A server's cut-off may come before the temperature or after it.
    cuts_known = not any(served(arm.header) for arm in arms)
    base, candidate = (
        _sums(one, cuts_known) | _sums(other, cuts_known) for one, other in zip(plain, shaped, strict=True)
    )
    alone = {asked: [replace(one, draws=listed_alone(one.draws)) for one in many] for asked, many in plain[0].items()}
    own = [
        sums
        for grouped in (alone, shaped[0])
        for sums in _sums({asked: many for asked, many in grouped.items() if asked[1] == Cut()}, True).values()
    ]
    return without((base, candidate), frozenset(base.keys() ^ candidate.keys())), own


def without(sums: Sums, left_out: frozenset[Key]) -> Sums:
    """Of both arms, but for these completions."""
    base, candidate = ({key: one for key, one in side.items() if key not in left_out} for side in sums)
    return base, candidate


def _sums(grouped: Outcomes, cuts_known: bool) -> dict[Key, DrawSums]:
    found: dict[Key, DrawSums] = {}
    for (temperature, cut), many in grouped.items():
        some = [one for one in many if len(one.draws) and one.draws.logs.shape[1] >= 2]
        if some and (cuts_known or cut == Cut() or temperature == 1):
            sums = sums_of([one.draws for one in some], temperature, cut)
            found |= {one.key: made for one, made in zip(some, sums, strict=True)}
    return found


def _shaped(
    listed: Sequence[Listed],
    arms: tuple[Capture, Capture],
    reference: Reference,
    asked: Callable[[Completion], float],
) -> list[Outcomes]:
    """By arm: what was drawn where penalties, biases or bans decided as well, among the tokens that are listed."""
    sides: list[list[tuple[Completion, TopLogprobs, FloatArray]]] = [[], []]
    for arm, side, found in zip(arms, listed, sides, strict=True):
        for one, top in side:
            shaping, sampling = reference.shaping(one), arm.sampling_of(one)
            shapes = shaping.penalises or any(sampling.get(name) for name in OTHER_DISTRIBUTIONS)
            if shapes and not shaping.unknown and asked(one) >= LOWEST:
                lists = _as_drawn_from(top, one, reference)
                found += [] if lists is None else [(one, *lists)]
    width = min(WIDEST, listed_width([top for side in sides for _, top, _ in side]))
    outcomes: list[Outcomes] = []
    for arm, some in zip(arms, sides, strict=True):
        groups: dict[tuple[float, Cut], list[Drawn]] = {}
        for one, top, pushed in some if width >= 2 else ():
            drawn = Drawn(one.key, *among_listed(top, one.token_ids, width, pushed))
            groups.setdefault((asked(one), Cut.of(arm.sampling_of(one))), []).append(drawn)
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
