"""Drawn completions some of whose tokens were drawn from the logits of the step before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct

from parity.comparator.detect.drawn_places import Drawn, Outcomes
from parity.comparator.detect.events import Event, tokens_event
from parity.comparator.reference.drawn_lists import Cut, draws_of, listed_width
from parity.comparator.reference.step_before import Won, log_ratios, redrawn, won
from parity.comparator.shared_out import of_each
from parity.comparator.types import Spread, alone
from parity.messages import Message, message
from parity.records import Completion, Key, Kind, TopLogprobs
from parity.records.evidence import JudgedBy

USUAL = 0.95
"""Share of the baseline's completions that are taken for clean; of the candidate's, where none of these has lists, half
are."""

HABIT = 4.0
"""Times what the bets on the baseline's completions win beyond chance, that one on the candidate's must win more."""

EVERY = 10
"""What a PASS says that it would have seen: one step in so many."""

TRIED = 64
"""Completions on which that is tried."""

Lists = Sequence[tuple[Completion, TopLogprobs]]


class StepsBefore(Struct, frozen=True):
    """What the bets won that tokens were drawn at the step before theirs."""

    found: Mapping[Key, Won]
    completions: int
    """Of the candidate, that were bet on."""
    seen: float
    """Share of these that would be found, had one step in EVERY been such a one."""
    odd_baseline: Mapping[Key, Message]
    """Of the baseline's completions those with such tokens, where most have none."""

    def explains(self, key: Key, log_won: float) -> bool:
        """Does it say more of a completion than a bet that won so many nats?"""
        found = self.found.get(key)
        return found is not None and found.log_won > log_won

    def event(self, key: Key, judged_by: JudgedBy) -> Event | None:
        found = self.found.get(key)
        if found is None:
            return None
        p_value = float(min(1.0, np.exp(-found.log_won) * self.completions))
        length = found.last + 1 - found.first
        return tokens_event(
            Kind.UNJUSTIFIED, found.first, length, _why(found), p_value=p_value, judged_by=judged_by,
            unsupported_tokens=found.count,
        )  # fmt: skip


def steps_before(sides: tuple[Lists, Lists], outcomes: tuple[Outcomes, Outcomes], vocab_size: int | None,
                 alpha: float, spread: Spread = alone) -> StepsBefore:  # fmt: skip
    """Of baseline and candidate: completions and their lists, and what was drawn where these say it. `alpha`: the
    chance of one false alarm in the run."""
    theirs, mine = (_won(dict(_keyed(side)), found, spread) for side, found in zip(sides, outcomes, strict=True))
    logs, share = [one.log_won for one in (theirs or mine).values()], USUAL if theirs else 0.5
    habit = max(0.0, float(np.quantile(logs, share)) + float(np.log(1 - share))) if logs else 0.0
    least = float(np.log(max(1, len(mine)) / alpha)) + HABIT * habit
    return StepsBefore(
        {key: one for key, one in mine.items() if one.log_won >= least and one.count},
        len(mine),
        _seen(sides, outcomes[1], vocab_size, least, spread),
        _odd(theirs, alpha),
    )


def _keyed(side: Lists) -> Sequence[tuple[Key, tuple[Completion, TopLogprobs]]]:
    return [(one.key, (one, top)) for one, top in side]


def _won(known: Mapping[Key, tuple[Completion, TopLogprobs]], outcomes: Outcomes, spread: Spread) -> dict[Key, Won]:
    def of(asked: tuple[tuple[float, Cut], Drawn]) -> Won:
        (temperature, cut), drawn = asked
        one, top = known[drawn.key]
        return won(log_ratios(top, one.token_ids, drawn.draws, drawn.places, temperature, cut))

    every = [(asked, drawn) for asked, many in outcomes.items() for drawn in many]
    return {drawn.key: found for (_, drawn), found in zip(every, of_each(every, of, spread), strict=True)}


def _odd(theirs: Mapping[Key, Won], alpha: float) -> dict[Key, Message]:
    logs = [one.log_won for one in theirs.values()]
    if not logs or float(np.median(logs)) + np.log(0.5) > 0:
        return {}
    least = np.log(len(logs) / alpha)
    return {key: _why(one) for key, one in theirs.items() if one.log_won >= least and one.count}


def _why(found: Won) -> Message:
    return message(
        "step_before.why",
        "from here on {count} token is far likelier at the step before than at its own, as if drawn from the logits of "
        "that step",
        plural="from here on {count} tokens are far likelier at the steps before than at their own, as if drawn from "
        "the logits of those steps",
        count=found.count,
    )


def _seen(
    sides: tuple[Lists, Lists], outcomes: Outcomes, vocab_size: int | None, least: float, spread: Spread
) -> float:
    """Tried on some of the candidate's completions."""
    asked = {drawn.key: key for key, many in outcomes.items() for drawn in many}
    some = [(one, top) for one, top in sides[1] if one.key in asked and len(top) > EVERY and top.ids.shape[1]]
    tried = some[:: max(1, len(some) // TRIED)]
    width = listed_width(
        [top for side in sides for _, top in side], [one.token_ids for side in sides for one, _ in side]
    )

    def is_seen(drawn: tuple[Completion, TopLogprobs]) -> bool:
        (one, top), (temperature, cut) = drawn, asked[drawn[0].key]
        lists, tokens = redrawn(top, one.token_ids, temperature, EVERY)
        draws, places = draws_of(lists, tokens, width, vocab_size)
        return won(log_ratios(lists, tokens, draws, places, temperature, cut)).log_won >= least

    return sum(of_each(tried, is_seen, spread)) / len(tried) if tried else 0.0
