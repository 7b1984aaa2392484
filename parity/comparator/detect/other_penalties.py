"""Completions whose choices are those of other penalties than asked for, though each by itself is a near-tie.

A small penalty, or one of another request that leaked into a row, turns few choices, and each of them may lie within
the tolerance. Together they tell (`reference/choices.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct, structs
from msgspec.structs import replace

from parity.comparator.detect.cases import Case, Detector, Setup, replaced
from parity.comparator.detect.events import Event, tokens_event
from parity.comparator.detect.penalties import did_another, reason_of
from parity.comparator.reference.choices import PIECE, at_most, evidence, once, turned, unit_of
from parity.comparator.reference.gaps import FloatArray, TokenGaps, token_gaps
from parity.comparator.reference.penalties import Penalised, Penalties, other_ways
from parity.comparator.reference.scores import Reference
from parity.messages import Message, message
from parity.records import Completion, Kind, TopLogprobs

CHANCE = 0.001
"""Of a run in which a completion that kept to its penalties is accused by this."""

NOT_NOISE = 2.0
"""Times the tolerance, from which a single token is found."""

TRIED = 64
"""Completions on which another request's penalties are tried."""

HABIT = 0.02
"""Share of the baseline's own completions of which the same may be said, before its engine is taken to have other rules
and nobody is accused."""


class Weighed(Struct, frozen=True):
    """What the choices of one completion say for other penalties.

    log_won: log of the evidence for any of them; of the likeliest one: the first place that tells for it, how many do,
    how many tell at all, and its name in `other_ways` ("" for another request's).
    """

    log_won: float
    position: int
    count: int
    number: int
    name: str


def alternatives(own: Penalties, reference: Reference) -> Iterator[tuple[str, Penalties]]:
    """What an engine at fault may have applied instead, by name in `other_ways`; "": another request's."""
    if own:
        yield from other_ways(own).items()
    yield from (("", one) for one in reference.penalties_asked if one not in (own, Penalties()))


def weighed(one: Completion, gaps: TokenGaps, reference: Reference, arm: str, unit: float) -> Weighed | None:
    """The evidence for any other way, the mean over all; None where nothing tells."""
    shaping, top = reference.shaping(one), reference.score(arm, one)
    if top is None or shaping.hidden or len(top) != len(one.token_ids) or reference.chosen_alone:
        return None
    plain = Penalised(shaping.penalties, one.prompt_token_ids, shaping.logit_range)
    ways = [
        Weighed(*evidence(one.token_ids, gaps, token_gaps(top, one.token_ids, plain.but(penalties)), unit), name)
        for name, penalties in alternatives(shaping.penalties, reference)
    ]
    logs = np.array([way.log_won for way in ways])
    if not len(logs) or not np.isfinite(logs.max()):
        return None
    best = ways[int(logs.argmax())]
    return replace(best, log_won=best.log_won + float(np.log(np.exp(logs - best.log_won).mean())))


def _is_asked(setup: Setup) -> bool:
    return setup.reference.penalises and bool(setup.reference)


def _may_tell(case: Case, setup: Setup) -> bool:
    """Could the choices of this completion say that its penalties were others?"""
    return not (case.gaps is None or not case.from_scores or case.events or case.contradicted or case.is_identical)


def _look(cases: Sequence[Case], setup: Setup) -> Sequence[Case]:
    unit = unit_of(setup.reference.scores.values())
    least = float(np.log(max(1, len(setup.pairs.keys)) / CHANCE))
    found: dict[int, Weighed] = {}
    for place, case in enumerate(cases):
        if case.gaps is None or not _may_tell(case, setup) or at_most(case.gaps, unit) < least:
            continue
        said = weighed(case.b, case.gaps, setup.reference, setup.arms[1], unit)
        if said is not None and said.log_won >= least:
            found[place] = said
    if not found or _is_habit(setup, unit, least):
        return cases
    accused = {n: structs.replace(cases[n], events=(_event(said),), doubtful=None) for n, said in found.items()}
    return replaced(cases, accused)


def _is_habit(setup: Setup, unit: float, least: float) -> bool:
    """Does the baseline's engine choose so as well?"""
    arm = setup.arms[0]
    scored = setup.reference.all_gaps(arm, list(setup.inputs.baseline))
    said = (
        weighed(setup.inputs.baseline.completions[key], gaps, setup.reference, arm, unit)
        for key, (gaps, _) in scored.items()
        if at_most(gaps, unit) >= least
    )
    return sum(one is not None and one.log_won >= least for one in said) > HABIT * len(scored)


def seen_of_another(
    completions: Sequence[tuple[Completion, TopLogprobs, TokenGaps]],
    reference: Reference,
    tolerance: float,
    total: int,
) -> float | None:
    """The share of completions that would be found, had their engine applied another request's penalties; None where
    all requests ask for the same, or nothing is scored.

    Tried on the completions of a clean run with their scores: at each place where the other penalties ask for another
    token, the engine takes that one. What it would have said after it is not made, and is taken to be like what it
    said. total: completions of the run, which share the error rate.
    """
    unit = unit_of(top for _, top, _ in completions)
    least = float(np.log(max(1, total) / CHANCE))
    tried, found = 0, 0.0
    for one, top, gaps in completions[:: max(1, len(completions) // TRIED)]:
        shaping = reference.shaping(one)
        others = [each for each in reference.penalties_asked if each != shaping.penalties]
        if not others or shaping.hidden or len(top) != len(one.token_ids) or reference.chosen_alone:
            continue
        tried += 1
        own = Penalised(shaping.penalties, one.prompt_token_ids, shaping.logit_range)
        ways = len(list(alternatives(shaping.penalties, reference))) * max(1, len(one.token_ids) // PIECE)
        turned_to = [_gaps_if_taken(one, top, gaps, own, own.but(each)) for each in others]
        seen = sum(
            bool((gap > NOT_NOISE * tolerance).any()) or -np.log(2 * turned(gap, unit)).sum() - np.log(ways) >= least
            for gap in turned_to
        )
        found += float(seen) / len(others)
    return found / tried if tried else None


def _gaps_if_taken(one: Completion, top: TopLogprobs, gaps: TokenGaps, own: Penalised, other: Penalised) -> FloatArray:
    """How far below the best, under the own penalties, the tokens lie that the other ones ask for instead; alike ones
    once."""
    instead = token_gaps(top, one.token_ids, other)
    telling = (gaps.gap == 0) & (instead.gap > 0) & (instead.best_id >= 0)
    telling = once(one.token_ids, np.where(telling, instead.best_id, one.token_ids), telling)
    gap = token_gaps(top, np.where(telling, instead.best_id, one.token_ids), own).gap[telling]
    return np.asarray(gap[np.isfinite(gap)])


def _event(said: Weighed) -> Event:
    why = message(
        "penalties.choices",
        "its engine seems to {did}: {count} of {number} choices that tell speak for an engine that does (evidence "
        "{e_value:.2g})",
        did=did(said.name),
        count=said.count,
        number=said.number,
        e_value=float(np.exp(min(said.log_won, 600.0))),
    )
    return tokens_event(Kind.UNJUSTIFIED, said.position, 1, why, p_value=float(np.exp(-said.log_won)))


def did(name: str) -> Message:
    """What an engine did instead."""
    return reason_of(name) if name else did_another()


DETECTOR = Detector(frozenset({Kind.UNJUSTIFIED}), _look, is_asked=_is_asked, together=_may_tell)
