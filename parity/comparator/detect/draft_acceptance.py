"""Are drafts among drawn tokens accepted at their probability?

A drafter that proposes its best token has it accepted with the probability p that the target gives it (Leviathan,
Kalman, Matias 2023), so 1/p for each accepted draft and 0 for each rejected one is 1 on average, whichever tokens were
proposed. What a rejected draft was need not be known: only how many there were. Where recorded steps name the drafts,
1/(1 - p) for each rejected one says as well whether too many are rejected. Each is an e-value, and so is their product,
at any share that is staked; and so is the mean over stakes and sides.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from parity.comparator.detect.drawn_places import Drawn, Outcomes
from parity.comparator.reference.drawn_lists import Cut, draws_of
from parity.comparator.reference.temperature import least_likely, logs_of, most_likely, most_likely_of
from parity.comparator.statistics import FloatArray, few_alone
from parity.comparator.streams.steps import drafts_at, places_of
from parity.records import Capture, Completion, Header, TopLogprobs
from parity.records.steps import steps_of
from parity.records.verification import accepts_at_its_probability

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]

STAKES = (0.01, 0.03, 0.1, 0.3, 0.9)
"""Share of what is won so far that is staked on a draft."""

LEAST = 0.001
"""Probability that a draft counts for at least: one token is not to decide of an arm."""

SHARES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
"""Of the rejected drafts, that are tried as accepted unchecked."""

TRIALS = 20
"""Runs that are tried with each share."""

FEWEST = 64
"""Drafts below which nothing is said."""


class Proposed(Struct, frozen=True):
    """Drafts, one after the other; shapes (N,). accepted: whether it was. most: the largest probability that it may
    have had; of a rejected one that is not named that of the best token. least: the smallest one of a draft that is
    named (0 for others). sizes: how many of them each completion had."""

    accepted: Bools
    most: FloatArray
    least: FloatArray
    sizes: Ints

    def without(self, completions: list[int]) -> Proposed:
        """But for these of the completions."""
        kept = np.ones(len(self.sizes), dtype=np.bool_)
        kept[completions] = False
        some = np.repeat(kept, self.sizes)
        return Proposed(self.accepted[some], self.most[some], self.least[some], self.sizes[kept])


class Accepted(Struct, frozen=True):
    """p_value: that drafts are accepted at their probability. drafts: looked at; accepted: of these. worth: how many
    drafts the accepted ones stand for by their probabilities; where `too_few`, how many ought to have been accepted.
    of_few: without so many of the completions they are (`few_alone`); 0: there are no such few."""

    p_value: float
    drafts: int
    accepted: int
    worth: float
    too_few: bool = False
    of_few: int = 0


def proposed_drafts(
    arm: Capture,
    drawn: Outcomes,
    left_out: Collection[object],
    lists: Callable[[Completion], TopLogprobs | None],
) -> Proposed | None:
    """Of the completions `drawn` of an arm but for those that are left out; `lists`: what one was drawn from. None
    where the engine accepts drafts by another rule, or no trace says what became of them."""
    if not proposes_its_best(arm.header):
        return None
    parts = [
        part
        for (temperature, cut), many in drawn.items()
        for one in many
        if one.key not in left_out and len(one.draws) and one.draws.logs.shape[1] >= 2
        for part in _of_one(arm, one, temperature, cut, lists)
    ]
    if not parts:
        return None
    return Proposed(*(np.concatenate([getattr(one, name) for one in parts]) for name in Proposed.__struct_fields__))


def _of_one(
    arm: Capture, one: Drawn, temperature: float, cut: Cut, lists: Callable[[Completion], TopLogprobs | None]
) -> Iterator[Proposed]:
    completion = arm.completions[one.key]
    outcome, named, top = trials(completion), drafts_at(completion), lists(completion)
    if outcome is None or top is None:
        return
    asked = outcome[one.places] >= 0
    draws, places = one.draws.where(asked), one.places[asked]
    accepted, own = outcome[places] > 0, logs_of(top, completion.token_ids)[places]
    best = replace(draws, drawn=np.where(accepted, draws.drawn, 0))
    most = np.where(accepted, most_likely_of(draws, own, temperature, cut), most_likely(best, temperature, cut))
    least = np.zeros(len(outcome))
    if named is not None:
        width = draws.logs.shape[1]
        drafts, at = draws_of(top, named, width, draws.others + width)
        # Those among the best alone: that another one is listed, where it is the token, follows from what became of it.
        least[at] = np.where(drafts.drawn < width, np.exp(least_likely(drafts, temperature, cut)), 0.0)
    yield Proposed(accepted, np.maximum(LEAST, np.exp(most)), least[places], np.array([len(places)]))


def accepted_drafts(found: Proposed | None, rounding: float) -> Accepted | None:
    """`rounding`: nats by which the logits of the engine that drew may lie elsewhere. None with too few drafts."""
    if found is None or len(found.accepted) < FEWEST:
        return None
    sides = _won(found, rounding)
    p_value, named, accepted = _chance(sides), found.least > 0, found.accepted
    which = int(np.argmax([side.sum(axis=1).max() for side in sides]))
    best = sides[which][int(sides[which].sum(axis=1).argmax())]
    row = np.repeat(np.arange(len(found.sizes)), found.sizes)
    won = np.bincount(row, best, len(found.sizes)).astype(np.float64)
    few = len(few_alone(won, lambda rows: _chance(_won(found.without(rows), rounding))))
    if which:
        least = _moved(found.least[named], -rounding)
        return Accepted(
            p_value, int(named.sum()), int(accepted[named].sum()), float(least.sum()), too_few=True, of_few=few
        )
    worth = float((1.0 / _moved(found.most, rounding))[accepted].sum())
    return Accepted(p_value, len(accepted), int(accepted.sum()), worth, of_few=few)


def _won(found: Proposed, rounding: float) -> list[FloatArray]:
    """Logs of what each draft wins at each of STAKES, shapes (stakes, N): if too many are accepted, and, where some are
    named, if too few are."""
    stakes = np.array(STAKES)[:, None]
    worth = np.where(found.accepted, 1.0 / _moved(found.most, rounding), 0.0)
    sides = [np.log1p(stakes * (worth - 1.0))]
    named = found.least > 0
    if named.any():
        least = _moved(found.least, -rounding)
        odds = np.where(found.accepted, -1.0, least / np.maximum(1.0 - least, 1e-9))
        sides.append(np.where(named, np.log1p(stakes * odds), 0.0))
    return sides


def _chance(sides: list[FloatArray]) -> float:
    """The p-value of the mean of what is won, over stakes and sides."""
    log_won = float(_log_mean(np.concatenate([side.sum(axis=1) for side in sides])))
    return float(np.exp(min(0.0, -log_won)))


def unchecked_seen(found: Proposed | None, rounding: float, alpha: float) -> float | None:
    """The smallest share of the rejected drafts that, had they been accepted unchecked, would have been seen in at
    least 19 of TRIALS runs; None where not even all of them would. In each run drafts are accepted anew, at their
    probability: what chance, or such a fault, has won in this one is no help to another. Where a rejected draft is not
    named, it counts as the best token, for which an accepted one says least."""
    if found is None or len(found.accepted) < FEWEST:
        return None
    stakes = np.array(STAKES)[:, None]
    lost = np.log1p(-stakes)
    gain = np.log1p(stakes * (1.0 / _moved(found.most, rounding) - 1.0)) - lost
    sides = 2 if (found.least > 0).any() else 1
    rng = np.random.default_rng(0)
    runs, more = np.zeros((TRIALS, len(STAKES))), np.zeros((TRIALS, len(STAKES), len(SHARES)))
    for number in range(TRIALS):
        rejected = rng.random(len(found.most)) >= found.most
        runs[number] = gain[:, ~rejected].sum(axis=1)
        since = np.searchsorted(SHARES, rng.random(int(rejected.sum())), side="right")  # the first share that has it
        for stake, gained in enumerate(gain[:, rejected]):
            more[number, stake] = np.bincount(since, gained, len(SHARES)).cumsum()
    lacking = np.minimum(0.0, gain[:, found.accepted].sum(axis=1) - runs.mean(axis=0))
    total = (runs + lacking + len(found.accepted) * lost[:, 0])[:, :, None] + more
    seen = (_log_mean(total.swapaxes(1, 2)) >= np.log(sides / alpha)).mean(axis=0) >= 0.95
    return SHARES[int(seen.argmax())] if seen.any() else None


def _log_mean(logs: FloatArray) -> FloatArray:
    """Log of the mean of what these are the logs of, over the last axis."""
    most = logs.max(axis=-1)
    return np.asarray(most + np.log(np.exp(logs - most[..., None]).mean(axis=-1)), dtype=np.float64)


def _moved(chance: FloatArray, nats: float) -> FloatArray:
    """Probabilities with the token's logit moved against all others."""
    lifted = chance * np.exp(nats)
    return np.asarray(lifted / (1.0 - chance + lifted), dtype=np.float64)


def proposes_its_best(header: Header) -> bool:
    """Whether the engine's drafts are the drafter's best tokens, each accepted at its own probability."""
    return accepts_at_its_probability(header.engine)


def trials(one: Completion) -> npt.NDArray[np.int64] | None:
    """Of each output token: 1 where it is a draft that was accepted, 0 where one was rejected in its place, -1 where
    none was proposed; shape (T,). None without a trace that fits the tokens."""
    if one.spec is None or places_of(one) is None:
        return None
    length = len(one.token_ids)
    steps = steps_of(one.spec.accepted, length)
    short = np.concatenate([one.spec.accepted < one.spec.drafted, [False]])[steps.step]
    found = np.where(steps.is_draft, 1, np.where(short & (steps.step >= 0), 0, -1)).astype(np.int64)
    return np.concatenate([found, np.full(length - len(found), -1)])
