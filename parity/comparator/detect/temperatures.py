"""Completions drawn at another temperature than the one that was asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from parity.comparator.detect.drawn_places import Drawn, Outcomes, Places, Tested, by_place, first_greedy
from parity.comparator.detect.events import Event
from parity.comparator.detect.trials import TRIED
from parity.comparator.reference.drawn_lists import Cut, Draws, draws_of, listed_width
from parity.comparator.reference.scores import Reference
from parity.comparator.reference.temperature import Bet, bet, bets, looks_like, of_winnings
from parity.comparator.statistics import FloatArray
from parity.comparator.types import Spread, alone
from parity.messages import Message, message
from parity.records import Capture, Completion, Key, Kind, TokenIds, TopLogprobs
from parity.records.engine_settings import draft_tokens
from parity.records.evidence import JudgedBy, TemperatureEvidence

LOWEST = 0.05
"""Below, an engine's own rules decide what a temperature means."""

HABIT = 4.0
"""Factor on what the bets win against the baseline's own completions beyond chance: so much more a completion of the
candidate must lose to be at fault. Where an engine draws by rules that are not modelled, both arms show it."""

HEAVY = 2
"""Times the weight of the other tests of samples that `draws` and `mixture` have in the error rate which they share."""

TESTS = 8 + 2 * HEAVY
"""Weights of all tests of samples (population/sampled.py)."""

USUAL = 0.95
"""Share of the baseline's completions that are taken for clean."""

AS_WELL = 3.0
"""Nats that the bet must win outside stretches that no sampler draws, for another temperature to explain them."""


class Warmth(Struct, frozen=True):
    """A completion that looks as if drawn at another temperature."""

    position: int
    log_won: float
    looks_like: float
    draws: Draws
    places: TokenIds
    cut: Cut


class Temperatures(Struct, frozen=True):
    """What the bets on the candidate's completions won."""

    found: Mapping[Key, Warmth]
    completions: int
    """How many were bet on."""
    habit: float
    """Log of what the baseline's own completions lose beyond chance."""
    greedy_seen: float
    """Share of the completions bet on that would be found, had the best token been taken at each place."""
    places: tuple[Places, Places]
    drawn: Outcomes
    """Of the candidate."""
    of_baseline: Outcomes
    odd_baseline: Mapping[Key, Message]
    """Of the baseline's completions those that look drawn at another temperature, where most look as asked."""

    def by_place(self, left_out: frozenset[Key], alpha: float) -> Tested | None:
        """Are the candidate's tokens at certain places drawn otherwise? `left_out`: completions with a fault."""
        found = by_place(*self.places, self.drawn, left_out, HABIT, alpha)
        if found is None or found.odd:
            return found
        return replace(found, first_greedy=first_greedy(*self.places, self.drawn, left_out, HABIT, alpha / TESTS))

    def event(self, b: Completion, asked: float, judged_by: JudgedBy, unlikely: Sequence[Event]) -> Event | None:
        """What is wrong with this completion's temperature. `unlikely`: stretches that no sampler draws as asked; they
        are the fault where the rest does not look any hotter; nor any colder, where they are chunks said twice, as
        greedy text falls into loops."""
        found = self.found.get(b.key)
        if found is None or found.looks_like == asked:
            return None
        if found.looks_like < asked and any(one.kind is not Kind.DUPLICATION for one in unlikely):
            return None
        if unlikely:
            apart = ~np.isin(found.places, [place for one in unlikely for place in range(one.position, one.end)])
            (rest,) = bets([found.draws.where(apart)], asked, found.cut)
            if rest is None or rest.log_won < AS_WELL:
                return None
        p_value = float(min(1.0, np.exp(-found.log_won) * self.completions))
        why = _why(found.looks_like, asked)
        length = len(b.token_ids) - found.position
        evidence = TemperatureEvidence(
            why=why, asked=asked, looks_like=found.looks_like, p_value=p_value, judged_by=judged_by
        )
        return Event(Kind.WRONG_TEMPERATURE, found.position, length, evidence)

    @property
    def notes(self) -> list[Message]:
        if self.habit <= 0:
            return []
        return [
            message(
                "wrong_temperature.habit",
                "by its scores the baseline does not draw at the temperature that was asked for either (another order "
                "of temperature and cut-off?): completions are judged less sharply by it",
            )
        ]


def temperatures(
    baseline: Iterable[tuple[Completion, TopLogprobs]],
    candidate: Iterable[tuple[Completion, TopLogprobs]],
    arms: tuple[Capture, Capture],
    reference: Reference,
    asked: Callable[[Completion], float],
    alpha: float,
    vocab_size: int | None,
    spread: Spread = alone,
) -> Temperatures:
    """The bets on all completions with lists; `alpha`: the chance of one false alarm in the run."""
    sides = [list(baseline), list(candidate)]
    width = listed_width(
        [top for side in sides for _, top in side], [one.token_ids for side in sides for one, _ in side]
    )

    def outcomes(arm: Capture, side: list[tuple[Completion, TopLogprobs]]) -> Outcomes:
        found: dict[tuple[float, Cut], list[Drawn]] = {}
        for one, top in side:
            if reference.shaping(one).none and asked(one) >= LOWEST:
                drawn = Drawn(one.key, *draws_of(top, one.token_ids, width, vocab_size))
                found.setdefault((asked(one), Cut.of(arm.sampling_of(one))), []).append(drawn)
        return found

    drafts = draft_tokens(arms[1].header.engine) or None
    of_arms = [outcomes(arm, side) for arm, side in zip(arms, sides, strict=True)]
    places = Places(arms[0], drafts), Places(arms[1], drafts)
    usual, mine = (_won(grouped, found, spread) for grouped, found in zip(of_arms, places, strict=True))
    # Without bets on the baseline the candidate's own completions must do: half of them are taken for clean.
    known, share = (usual, USUAL) if usual else (mine, 0.5)
    logs = [bet.log_won for _, _, bet in known]
    habit = max(0.0, float(np.quantile(logs, share)) + float(np.log(1 - share))) if logs else 0.0
    least = float(np.log(max(1, len(mine)) / alpha)) + HABIT * habit
    found = {
        drawn.key: Warmth(
            int(drawn.places[bet.start]),
            bet.log_won,
            looks_like(drawn.draws.where(slice(bet.start, None)), cut),
            drawn.draws,
            drawn.places,
            cut,
        )
        for drawn, cut, bet in mine
        if bet.log_won >= least
    }
    tried = outcomes(arms[1], sides[1][:: _step(sides[1])])
    seen = _greedy_seen(tried, least, spread)
    return Temperatures(
        found, len(mine), habit, seen, places, of_arms[1], of_arms[0], _odd(usual, arms[0], asked, alpha)
    )


def _odd(
    usual: Sequence[tuple[Drawn, Cut, Bet]], arm: Capture, asked: Callable[[Completion], float], alpha: float
) -> dict[Key, Message]:
    """Of an arm's own completions those drawn at another temperature; none where half of them look so."""
    if not usual or float(np.median([made.log_won for _, _, made in usual])) + np.log(0.5) > 0:
        return {}
    least = np.log(len(usual) / alpha)
    found: dict[Key, Message] = {}
    for drawn, cut, made in usual:
        if made.log_won >= least:
            looks = looks_like(drawn.draws.where(slice(made.start, None)), cut)
            wanted = asked(arm.completions[drawn.key])
            found |= {drawn.key: _why(looks, wanted)} if looks != wanted else {}
    return found


def _why(looks: float, asked: float) -> Message:
    return message(
        "wrong_temperature.why",
        "looks like temperature {looks}, asked for was {asked}",
        looks=f"{looks:g}",
        asked=f"{asked:g}",
    )


def _won(grouped: Outcomes, places: Places, spread: Spread) -> list[tuple[Drawn, Cut, Bet]]:
    """The bets on the completions of an arm; those on its places are taken up."""
    found = []
    for (temperature, cut), many in grouped.items():
        look = partial(_bets, places, many, temperature)
        for rows, made, sums in of_winnings([one.draws for one in many], temperature, cut, look, spread):
            places.add(temperature, cut, sums)
            found += [(many[row], cut, one) for row, one in zip(rows, made, strict=True) if one is not None]
    return found


def _bets(
    places: Places, many: Sequence[Drawn], asked: float, rows: list[int], won: FloatArray
) -> tuple[list[int], list[Bet | None], tuple[FloatArray, FloatArray]]:
    """(`rows` of `many`, the bets on these, those on their places)."""
    some = [many[row] for row in rows]
    parts = np.split(won, np.cumsum([len(one.draws) for one in some])[:-1], axis=1)
    return rows, [bet(part, asked) for part in parts], places.sums(some, won)


def _step(side: Sequence[object]) -> int:
    return max(1, len(side) // TRIED)


def _greedy_seen(grouped: Outcomes, least: float, spread: Spread) -> float:
    tried = seen = 0
    for (temperature, cut), many in grouped.items():
        best = [replace(one.draws, drawn=np.zeros_like(one.draws.drawn)) for one in many]
        won = bets(best, temperature, cut, spread)
        tried += len(won)
        seen += sum(bet is not None and bet.log_won >= least for bet in won)
    return seen / tried if tried else 0.0
