"""Lists of the likeliest tokens alone, as most servers and scripts write them: a token drawn beyond them is missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

import numpy as np
from msgspec import Struct

from parity.comparator.inputs.numbers import LARGE_VOCABULARY, FloatArray
from parity.comparator.inputs.questions import temperature_in
from parity.comparator.inputs.servers import address, by_others
from parity.comparator.sums import sums_of_rows
from parity.records import Capture, Completion, Json, Key, ScoreKey, Scores, TopLogprobs
from parity.records.sampling import forbids, penalises

SOME_LACK, FEW_LACK = 1 / 12, 3
"""Share of the completions that were drawn or penalised, and how many of them if there are so many, whose lists leave
out tokens that were chosen, from which on in both arms it is how they write lists. An engine puts the chosen token into
each, which makes some lists longer."""

ROUNDED = 1e-3
"""Probability that a list may lack by the rounding of its numbers."""

CHANCE = 1e-4
"""So unlikely must it be that lists of the best tokens lack as many of the chosen ones as they do, or as few."""

ALTOGETHER = 1e-9
"""The same for a single completion, of which there are many."""

_CUTS = ("top_k", "min_p")

_LOOKED_AT = 256
"""Completions looked at to learn a habit."""


class _Lacks(Struct, frozen=True):
    """What an arm's lists, all of one length, leave out."""

    asked: int = 0
    """Completions that were drawn, penalised or have tokens forbidden."""
    lacking: int = 0
    """Those of them of which a chosen token is not listed."""
    drawn: int = 0
    """Chosen tokens that are not listed, of completions that were drawn and nothing else."""
    least: float = 0.0
    most: float = 0.0
    """How many those are expected to be where the lists are of the best tokens alone."""

    @property
    def may_be_chance(self) -> bool:
        """May lists of the best tokens alone leave out as many of those that were drawn, and no more?"""
        return _tail(self.drawn, self.most) >= CHANCE and _head(self.drawn, self.least) >= CHANCE

    @property
    def is_how_they_write(self) -> bool:
        return self.lacking >= max(SOME_LACK * self.asked, min(FEW_LACK, self.asked), 1)

    def may_be_as(self, other: _Lacks) -> bool:
        """May these lists be of the best tokens alone, as those of the other arm are which leaves some out?"""
        if self.lacking:
            return True
        fair = self.asked / max(1, self.asked + other.asked)
        return bool(np.exp(-self.least) >= CHANCE and (1.0 - fair) ** other.lacking >= CHANCE)


def of_the_best_alone(
    baseline: Capture, candidate: Capture, scores: Scores | None = None
) -> tuple[frozenset[Key] | None, frozenset[Key] | None]:
    """Of each arm None, unless it lists the best tokens alone, whether or not those that were chosen are among them.
    Else its completions of which that cannot be: their lists leave out tokens too likely to be missing.

    It is so where some are not listed, no list is longer than others, and chance explains how many of the tokens that
    were drawn are missing: no more than the lists leave to the other tokens, and in an arm where none is missing not
    surely some. Nor may the scores hold tokens for far better that are not listed. Arms of one engine write in one way;
    of two, either may have its own.
    """
    first, second = (None if _leaves_out_better(arm, scores or {}) else _lacks(arm) for arm in (baseline, candidate))
    if first is not None and second is not None and (first.lacking or second.lacking):
        sound = first.may_be_chance and second.may_be_chance
        alike = sound and first.may_be_as(second) and second.may_be_as(first)
        if alike or (first.is_how_they_write and second.is_how_they_write):
            return _odd(baseline), _odd(candidate)
    if not _may_differ(baseline, candidate):
        return None, None
    own = [one is not None and one.is_how_they_write and one.may_be_chance for one in (first, second)]
    return _odd(baseline) if own[0] else None, _odd(candidate) if own[1] else None


def _may_differ(baseline: Capture, candidate: Capture) -> bool:
    """Are the arms of two engines, or of two servers?"""
    one, other = baseline.header, candidate.header
    return (one.backend, address(one)) != (other.backend, address(other))


def _lacks(arm: Capture) -> _Lacks | None:
    """None where these lists are not of the best tokens alone."""
    if not by_others(arm.header):
        return None
    lengths: set[int] = set()
    found = _Lacks()
    for one, top in islice(_with_lists(arm), _LOOKED_AT):
        lengths.update(np.unique((top.ids >= 0).sum(axis=1)).tolist())
        if len(lengths) > 1:
            return None
        sampling, missing = arm.sampling_of(one), _missing(one, top)
        drawn, least, most = 0, 0.0, 0.0
        temperature = temperature_in(sampling)
        if not _is_shaped(sampling):
            if not temperature:
                if missing > 1:
                    return None  # the best token is in each list, but for one of two that are equal
                continue
            drawn, most = missing, _most(top, temperature, arm.header.vocab_size)
            if _tail(drawn, most) < ALTOGETHER:
                continue
            least = 0.0 if _cuts_off(sampling) else _least(top, temperature, arm.header.vocab_size)
        found = _Lacks(
            found.asked + 1, found.lacking + (missing > 0), found.drawn + drawn, found.least + least, found.most + most
        )
    return found


def _odd(arm: Capture) -> frozenset[Key]:
    """Of all completions that were drawn and nothing else those whose lists cannot be of the best tokens."""
    found = set()
    for one, top in _with_lists(arm):
        missing, sampling = _missing(one, top), arm.sampling_of(one)
        if missing and temperature_in(sampling) and not _is_shaped(sampling):
            most = _most(top, temperature_in(sampling), arm.header.vocab_size)
            if _tail(missing, most) < ALTOGETHER:
                found.add(one.key)
    return frozenset(found)


def _with_lists(arm: Capture) -> Iterator[tuple[Completion, TopLogprobs]]:
    """Completions with as many lists as tokens."""
    for one in arm.with_logprobs():
        if one.logprobs is not None and len(one.logprobs) == len(one.token_ids) > 0:
            yield one, one.logprobs


def _missing(one: Completion, top: TopLogprobs) -> int:
    return int((~(top.ids == one.token_ids[:, None]).any(axis=1)).sum())


def _is_shaped(sampling: Mapping[str, Json]) -> bool:
    return penalises(sampling) or forbids(sampling)


def _cuts_off(sampling: Mapping[str, Json]) -> bool:
    return sampling.get("top_p") not in (None, 1) or any(sampling.get(name) not in (None, 0, -1) for name in _CUTS)


def _rest(top: TopLogprobs) -> FloatArray:
    """Probability that each list leaves to other tokens, shape (T,)."""
    return np.asarray(np.clip(1.0 - sums_of_rows(np.exp(_listed(top))), 0.0, 1.0))


def _listed(top: TopLogprobs) -> FloatArray:
    return np.where(np.isfinite(top.values) & (top.ids >= 0), np.minimum(top.values, 0.0), -np.inf)


def _most(top: TopLogprobs, temperature: float, vocab_size: int | None) -> float:
    """How many tokens that are drawn at this temperature the lists leave out at most, on average; also where their
    numbers are of the tempered probabilities."""
    listed, rest = _listed(top), np.minimum(_rest(top) + ROUNDED, 1.0)
    power = 1.0 / temperature
    within = sums_of_rows(np.exp(listed * power))
    with np.errstate(divide="ignore", invalid="ignore"):
        if power >= 1:  # each of the others is at most as likely as the last that is listed
            last = np.where(np.isfinite(listed), listed, np.inf).min(axis=1)
            beyond = rest * np.exp(np.minimum(last, 0.0) * (power - 1))
        else:  # they weigh most where all of them are equally likely
            beyond = float(vocab_size or LARGE_VOCABULARY) ** (1 - power) * rest**power
        share = np.where(within + beyond > 0, beyond / (within + beyond), 1.0)
    return float(np.maximum(share, rest).sum())


def _least(top: TopLogprobs, temperature: float, vocab_size: int | None) -> float:
    """How many drawn tokens the lists leave out at least, on average, if they are of the best tokens: each of the
    others is less likely than any that is listed, and together they weigh least where all are equally likely."""
    listed, rest = _listed(top), np.maximum(_rest(top) - ROUNDED, 0.0)
    if temperature >= 1:
        return float(rest.sum())
    power = 1.0 / temperature
    within = sums_of_rows(np.exp(listed * power))
    beyond = float(vocab_size or LARGE_VOCABULARY) ** (1 - power) * rest**power
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.where(within + beyond > 0, beyond / (within + beyond), 0.0).sum())


FAR_BETTER, OFTEN = 1.0, 0.02
"""Nats by which the scores hold a token for better than any that is listed, and share of the places at which they do,
from which on lists are not of the best tokens. Rounding moves neighbours by a tenth of that, and a row whose lists are
another's is one of fifty or fewer."""


def _leaves_out_better(arm: Capture, scores: Scores) -> bool:
    """Do the scores say that these lists are not of the best tokens, as where each names the chosen one alone?"""
    places, better = 0, 0
    for one, top in islice(_with_lists(arm), _LOOKED_AT):
        score = scores.get(ScoreKey(arm.header.arm, *one.key))
        if score is None or len(score) != len(top) or not (score.ids.size and top.ids.size):
            continue
        values = _listed(score)
        best, last = values.max(axis=1), np.where(np.isfinite(values), values, np.inf).min(axis=1)
        theirs = _listed(top)
        own = top.ids[np.arange(len(top)), theirs.argmax(axis=1)]
        found = np.where(score.ids == own[:, None], values, -np.inf).max(axis=1)
        known = np.isfinite(best) & np.isfinite(theirs.max(axis=1))
        places += int(known.sum())
        better += int((known & (best - np.maximum(found, last) > FAR_BETTER)).sum())
    return better > max(FEW_LACK, OFTEN * places)


def _head(count: int, mean: float) -> float:
    """Bound on the chance of so few successes or fewer in independent trials with this mean sum (Chernoff)."""
    if count >= mean:
        return 1.0
    return float(np.exp(count - mean + (count * np.log(mean / count) if count else 0.0)))


def _tail(count: int, mean: float) -> float:
    """Bound on the chance of so many successes or more in independent trials with this mean sum (Chernoff)."""
    if count <= mean:
        return 1.0
    return float(np.exp(count - mean - count * np.log(count / mean))) if mean > 0 else 0.0
