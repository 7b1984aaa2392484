"""Are the tokens at certain places of drawn completions drawn otherwise than asked: the first one, the k-th of a step?

One token shows no temperature. Those at the same place of all completions do, by the bets that are made on completions
(reference/temperature.py): each token's is an e-value, and so is the product of those at one place. What a place is
must be known before its token is drawn, so the token of a rejected draft is none: it is drawn from what the draft
leaves. The k-th of a step is one, whatever becomes of the draft (Leviathan, Kalman, Matias 2023).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from parity.comparator.reference.drawn_lists import Cut, Draws, joined
from parity.comparator.reference.temperature import looks_like, winnings
from parity.comparator.statistics import FloatArray
from parity.comparator.streams.steps import place_in_step
from parity.messages import Message, message
from parity.records import Capture, Key, TokenIds

Ints = npt.NDArray[np.int64]

STAKES = (1.0, 0.5, 0.1)
"""Share of the tokens at a place that a bet takes for drawn otherwise."""

FEWEST = 8
"""Tokens at a place, below which nothing is bet on it."""

CHANCE = 3.0
"""Nats that the bets on the baseline's tokens may win by chance; what they win beyond is its habit."""

SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
"""Of completions, on which greedy decoding of the first token is tried."""

TRIALS = 20
"""Draws of completions, for each share."""

ALONE = 16
"""Places, of which each is looked at by itself as well."""

STEPS, TURNS, SINGLE, LAST, ALL = 32, 64, 96, 96 + ALONE, 97 + ALONE
"""Numbers of places: powers of two below 32, of a decode step below 64, by turns below 96, then single ones, the last
one, every one."""

_NUMBERS = ALL + 1


class Drawn(Struct, frozen=True):
    """What was drawn at the places of a completion that have lists."""

    key: Key
    draws: Draws
    places: TokenIds


Outcomes = Mapping[tuple[float, Cut], Sequence[Drawn]]
"""By what was asked for: temperature and cut-off."""


class OddPlace(Struct, frozen=True):
    """A place (`number` as in `places_in`) at which tokens look as if drawn at another temperature than asked."""

    number: int
    tokens: int
    asked: float
    looks_like: float


class Tested(Struct, frozen=True):
    """p_value: of the oddest place, adjusted for the number of places. odd: names of those below the error rate, oddest
    first; worst: the first of them. first_greedy: as the function of that name says."""

    p_value: float
    odd: tuple[str, ...] = ()
    worst: OddPlace | None = None
    first_greedy: float | None = None


def places_in(arm: Capture, keys: Sequence[Key], places: Sequence[TokenIds], drafts: int | None) -> tuple[Ints, ...]:
    """The numbers of the places that tokens of completions stand at, in four ways; shapes (N,), ALL where in none.

    By powers of two (0, 1, 2 and 3, 4 to 7, ...); by its place in the decode step, or where no trace says that and
    `drafts` tokens are drafted, by turns; alone; whether it is the last one that `max_tokens` allows.
    """
    at, lengths = np.concatenate(places), [len(each) for each in places]
    some = [arm.completions[key] for key in keys]
    limits = [arm.sampling_of(one).get("max_tokens") for one in some]
    last = np.repeat([one if isinstance(one, int) else 0 for one in limits], lengths) - 1
    turn = TURNS + np.minimum((at - 1) % (drafts + 1), SINGLE - TURNS - 1) if drafts else np.full(len(at), ALL)
    begin = 0
    for one, mine in zip(some, places, strict=True):
        steps = place_in_step(one)
        if steps is not None:
            turn[begin : begin + len(mine)] = STEPS + np.minimum(steps[mine], TURNS - STEPS - 1)
        begin += len(mine)
    turn[at <= 0] = ALL
    alone = np.where((at > 1) & (at < ALONE), SINGLE + at, ALL)
    powers = np.frexp(at + 0.5)[1].astype(np.int64)
    return powers, turn.astype(np.int64), alone.astype(np.int64), np.where(at == last, LAST, ALL).astype(np.int64)


def in_words(number: int) -> Message:
    """A place, for a sentence."""
    if number == ALL:
        return message("places.all", "every output token")
    if number == LAST:
        return message("places.last", "the last output token that the limit allows")
    if number >= SINGLE:
        return message("places.one", "output token {number}", number=number - SINGLE + 1)
    if number >= TURNS:
        return message("places.turn", "output token {number} of each turn of drafts", number=number - TURNS + 1)
    if number >= STEPS:
        return message("places.step", "token {number} of each decode step", number=number - STEPS + 1)
    if number == 0:
        return message("places.first", "the first output token")
    first, last = 1 << (number - 1), (1 << number) - 1
    if first == last:
        return message("places.one", "output token {number}", number=first + 1)
    return message("places.some", "output tokens {first} to {last}", first=first + 1, last=last + 1)


def name_of(number: int) -> str:
    """A place, for data."""
    if number == ALL:
        return "all"
    if number == LAST:
        return "last"
    if number >= SINGLE:
        return str(number - SINGLE)
    if number >= TURNS:
        return f"turn {number - TURNS}"
    if number >= STEPS:
        return f"step {number - STEPS}"
    first, last = (1 << number) >> 1, (1 << number) - 1
    return str(first) if first >= last else f"{first}-{last}"


class Places:
    """The bets at each place of one arm's completions."""

    def __init__(self, arm: Capture, drafts: int | None) -> None:
        self._arm, self._drafts = arm, drafts
        self.won: dict[tuple[float, Cut], FloatArray] = {}
        """Nats by bet and place, shape (B, places), for what was asked for."""
        self.tokens = np.zeros(_NUMBERS)

    def sums(self, many: Sequence[Drawn], won: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Of some completions: (tokens at each place, nats by bet and place); `won`, (A, N), as `winnings` has it."""
        columns = self.of(many)
        # A token's places together are one label, of which there are few: so each bet's sums are made once.
        code = columns[0]
        for one in columns[1:]:
            code = code * _NUMBERS + one
        labels, label = np.unique(code, return_inverse=True)
        is_at = np.zeros((len(labels), _NUMBERS))
        for _ in columns:
            is_at[np.arange(len(labels)), labels % _NUMBERS] = 1.0
            labels = labels // _NUMBERS
        is_at[:, ALL] = 1.0
        tokens = np.bincount(label, minlength=len(is_at)) @ is_at
        return tokens, np.array([np.bincount(label, logs, len(is_at)) for logs in _staked(won)]) @ is_at

    def add(self, asked: float, cut: Cut, sums: tuple[FloatArray, FloatArray], sign: float = 1.0) -> None:
        """Takes up (or, with sign -1, takes out) completions by their `sums`."""
        self.tokens += sign * sums[0]
        known = self.won.get((asked, cut))
        self.won[asked, cut] = sign * sums[1] if known is None else known + sign * sums[1]

    def of(self, many: Sequence[Drawn]) -> tuple[Ints, ...]:
        """`places_in` of completions of this arm."""
        return places_in(self._arm, [one.key for one in many], [one.places for one in many], self._drafts)

    def logs(self) -> FloatArray:
        """Log of the e-value of each place, shape (places,)."""
        total = np.zeros(_NUMBERS)
        for one in self.won.values():
            most = one.max(axis=0)
            total += most + np.log(np.exp(one - most).mean(axis=0))
        return total


def by_place(
    baseline: Places, candidate: Places, drawn: Outcomes, left_out: frozenset[Key], habit: float, alpha: float
) -> Tested | None:
    """The odd places of the candidate, `drawn` being its completions and `left_out` those with a fault of their own.
    None where the baseline has no lists, or no place has enough tokens.

    habit: factor on what the baseline's tokens win at the same place (at all places, where it has too few of them): so
    much more the candidate's must win.
    """
    _take_out(candidate, drawn, left_out)
    number = np.flatnonzero(candidate.tokens >= FEWEST)
    if baseline.tokens[ALL] < FEWEST or not len(number):
        return None
    usual, own = np.maximum(0.0, baseline.logs() - CHANCE), np.maximum(1.0, baseline.tokens)
    rate = np.where(baseline.tokens >= FEWEST, usual / own, usual[ALL] / own[ALL])
    logs = (candidate.logs() - habit * rate * candidate.tokens)[number]
    p_values = np.minimum(1.0, np.exp(np.minimum(0.0, np.log(len(number)) - logs)))
    odd = [int(at) for at in np.argsort(-logs, kind="stable") if p_values[at] < alpha]
    worst = None
    if odd:
        at = int(number[odd[0]])
        worst = OddPlace(at, int(candidate.tokens[at]), *_looks(candidate, drawn, left_out, at))
    return Tested(float(p_values.min()), tuple(name_of(int(number[at])) for at in odd), worst)


def first_greedy(
    baseline: Places, candidate: Places, drawn: Outcomes, left_out: frozenset[Key], habit: float, alpha: float
) -> float | None:
    """The smallest share of completions whose first token, had the best been taken, would have been seen in at least
    19 of TRIALS draws of these completions; None where not even all of them would."""
    groups = list(_first_tokens(drawn, left_out))
    count = sum(plain.shape[1] for plain, _ in groups)
    if count < FEWEST or baseline.tokens[ALL] < FEWEST:
        return None
    at = 0 if baseline.tokens[0] >= FEWEST else ALL
    usual = max(0.0, float(baseline.logs()[at]) - CHANCE) / float(baseline.tokens[at])
    least = float(np.log(int((candidate.tokens >= FEWEST).sum()) / alpha)) + habit * usual * count
    rng = np.random.default_rng(0)
    for share in SHARES:
        hits = [rng.random((TRIALS, plain.shape[1])) < share for plain, _ in groups]
        won = np.zeros(TRIALS)
        for hit, (plain, greedy) in zip(hits, groups, strict=True):
            sums = plain.sum(axis=1)[None, :] + hit @ (greedy - plain).T
            most = sums.max(axis=1)
            won += most + np.log(np.exp(sums - most[:, None]).mean(axis=1))
        if (won >= least).mean() >= 0.95:
            return share
    return None


def _first_tokens(drawn: Outcomes, left_out: frozenset[Key]) -> Iterator[tuple[FloatArray, FloatArray]]:
    """By what was asked for: what each bet wins at the first tokens as they are, and had the best ones been taken;
    shape (B, completions)."""
    for (asked, cut), many in drawn.items():
        first = [one.draws.where(slice(0, 1)) for one in many if one.key not in left_out and 0 in one.places[:1]]
        best = [replace(one, drawn=np.zeros_like(one.drawn)) for one in first]
        sides = [[won for _, won in winnings(side, asked, cut)] for side in (first, best)]
        if sides[0]:
            plain, greedy = (_staked(np.concatenate(side, axis=1)) for side in sides)
            yield plain, greedy


def _staked(won: FloatArray) -> FloatArray:
    """What each bet wins with each of the STAKES, (A, N) to (B, N)."""
    gains = np.exp(np.minimum(won, 600.0)) - 1.0  # several times as fast as expm1 and log1p, and sharp enough for sums
    return np.concatenate([won if stake == 1 else np.log(1.0 + stake * gains) for stake in STAKES])


def _take_out(places: Places, drawn: Outcomes, left_out: frozenset[Key]) -> None:
    for (asked, cut), many in drawn.items():
        some = [one for one in many if one.key in left_out]
        for rows, won in winnings([one.draws for one in some], asked, cut):
            places.add(asked, cut, places.sums([some[row] for row in rows], won), sign=-1.0)


def _looks(places: Places, drawn: Outcomes, left_out: frozenset[Key], number: int) -> tuple[float, float]:
    """(temperature asked for, that which the tokens look like) at a place, by what most of them were asked for."""
    found: dict[tuple[float, Cut], list[Draws]] = {}
    for asked, one in _each(drawn, left_out):
        kept = np.ones(len(one.places), dtype=np.bool_) if number == ALL else np.zeros(len(one.places), dtype=np.bool_)
        for column in places.of([one]) if number != ALL else ():
            kept |= column == number
        if kept.any():
            found.setdefault(asked, []).append(one.draws.where(kept))
    (temperature, cut), many = max(found.items(), key=lambda item: sum(map(len, item[1])))
    return temperature, looks_like(joined(many), cut)


def _each(drawn: Outcomes, left_out: frozenset[Key]) -> Iterator[tuple[tuple[float, Cut], Drawn]]:
    return ((asked, one) for asked, many in drawn.items() for one in many if one.key not in left_out)
