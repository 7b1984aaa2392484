"""Scores of other people: each makes scores that accuse whoever believes them, of all records or of a few."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from planted_set import ARMS
from server_habits import Habit, Pair, certain

from parity.records import Key, ScoreKey, TopLogprobs

SCORES: dict[str, Habit] = {}
"""By name; each makes scores that accuse whoever believes them."""


def _wrong(make: Habit) -> Habit:
    SCORES[make.__name__] = make
    return make


def _each_score(pair: Pair, change: Callable[[TopLogprobs], TopLogprobs]) -> Pair:
    return replace(pair, scores={key: change(top) for key, top in pair.scores.items()})


@_wrong
def shifted_to_the_next_token(pair: Pair) -> Pair:
    return _each_score(pair, lambda top: TopLogprobs(np.roll(top.ids, -1, axis=0), np.roll(top.values, -1, axis=0)))


@_wrong
def shifted_to_the_last_token(pair: Pair) -> Pair:
    return _each_score(pair, lambda top: TopLogprobs(np.roll(top.ids, 1, axis=0), np.roll(top.values, 1, axis=0)))


@_wrong
def without_the_first_token(pair: Pair) -> Pair:
    return _each_score(pair, lambda top: TopLogprobs(top.ids[1:], top.values[1:]))


@_wrong
def of_a_misspelt_arm(pair: Pair) -> Pair:
    return replace(pair, scores={key._replace(arm=key.arm.replace("/", "-")): top for key, top in pair.scores.items()})


@_wrong
def of_the_other_arm(pair: Pair) -> Pair:
    """Where the two differ, the candidate's name stands at what the baseline's tokens got."""
    changed = dict(pair.scores)
    for key, top in pair.scores.items():
        a, b = (arm.completions[Key(*key[1:])] for arm in (pair.baseline, pair.candidate))
        if key.arm == ARMS[1] and not np.array_equal(a.token_ids, b.token_ids):
            changed[key] = certain(a.token_ids, top.ids.shape[1])
    return replace(pair, scores=changed)


@_wrong
def as_logits(pair: Pair) -> Pair:
    return _each_score(pair, lambda top: TopLogprobs(top.ids, top.values + 6.0))


@_wrong
def with_every_token_certain(pair: Pair) -> Pair:
    return _each_score(pair, lambda top: TopLogprobs(top.ids, top.values * 0.0))


@_wrong
def in_thousandths(pair: Pair) -> Pair:
    return _each_score(pair, lambda top: TopLogprobs(top.ids, (top.values - 0.05) * 1000))


@_wrong
def of_other_requests(pair: Pair) -> Pair:
    return replace(pair, scores={key._replace(request="x" + key.request): top for key, top in pair.scores.items()})


@_wrong
def mixed_up(pair: Pair) -> Pair:
    arm = [key for key in pair.scores if key.arm == ARMS[1]]
    moved = dict(zip(arm, [*arm[5:], *arm[:5]], strict=True))
    return replace(pair, scores={key: pair.scores[other] for key, other in moved.items()})


@_wrong
def of_another_tokenizer(pair: Pair) -> Pair:
    return _each_score(pair, lambda top: TopLogprobs((top.ids * 7 + 3) % 2048, top.values))


@_wrong
def of_another_model(pair: Pair) -> Pair:
    random = np.random.default_rng(0)

    def other(top: TopLogprobs) -> TopLogprobs:
        values = -random.exponential(3.0, top.values.shape)
        total = np.log(np.exp(values).sum(axis=1, keepdims=True) + 0.05)
        return TopLogprobs(top.ids, values - total)

    return _each_score(pair, other)


@_wrong
def of_probabilities(pair: Pair) -> Pair:
    return _each_score(pair, lambda top: TopLogprobs(top.ids, np.exp(top.values)))


@_wrong
def with_the_other_sign(pair: Pair) -> Pair:
    return _each_score(pair, lambda top: TopLogprobs(top.ids, -top.values))


@_wrong
def to_base_10(pair: Pair) -> Pair:
    return _each_score(pair, lambda top: TopLogprobs(top.ids, top.values / np.log(10)))


# ------------------------------------------------------------------ a few records of a good file

RECORDS: dict[str, Callable[[TopLogprobs], TopLogprobs]] = {}
"""By name; what becomes of one record."""


def _record(make: Callable[[TopLogprobs], TopLogprobs]) -> Callable[[TopLogprobs], TopLogprobs]:
    RECORDS[make.__name__] = make
    return make


def _at(top: TopLogprobs, rows: np.ndarray) -> TopLogprobs:
    return TopLogprobs(top.ids[rows], top.values[rows])


@_record
def early(top: TopLogprobs) -> TopLogprobs:
    return _at(top, np.arange(1, len(top) + 1) % len(top))


@_record
def late(top: TopLogprobs) -> TopLogprobs:
    return _at(top, np.arange(-1, len(top) - 1))


@_record
def without_the_first(top: TopLogprobs) -> TopLogprobs:
    return _at(top, np.arange(1, len(top)))


@_record
def one_list_twice(top: TopLogprobs) -> TopLogprobs:
    return _at(top, np.r_[0:5, 4 : len(top) - 1])


@_record
def one_list_lost(top: TopLogprobs) -> TopLogprobs:
    return _at(top, np.r_[0:5, 6 : len(top), len(top) - 1])


@_record
def after_lists_of_the_prompt(top: TopLogprobs) -> TopLogprobs:
    return _at(top, np.r_[[3, 9, 4, 7, 5], 0 : len(top)])


@_record
def probabilities(top: TopLogprobs) -> TopLogprobs:
    return TopLogprobs(top.ids, np.exp(top.values))


@_record
def beside_the_best(top: TopLogprobs) -> TopLogprobs:
    return TopLogprobs(top.ids, top.values - np.nanmax(top.values, axis=1, keepdims=True))


def with_records(pair: Pair, name: str, count: int) -> tuple[Pair, set[Key]]:
    """The pair with the records of so many of the candidate's completions that differ changed, and which these are."""
    keys = _apart(pair)[:count]
    changed = {key: RECORDS[name](pair.scores[key]) for key in keys}
    return replace(pair, scores={**pair.scores, **changed}), {Key(*key[1:]) for key in keys}


def exchanged(pair: Pair, count: int) -> tuple[Pair, set[Key]]:
    """The records of so many of them each of the next one."""
    keys = _apart(pair)[:count]
    changed = {key: pair.scores[other] for key, other in zip(keys, [*keys[1:], keys[0]], strict=True)}
    return replace(pair, scores={**pair.scores, **changed}), {Key(*key[1:]) for key in keys}


def _apart(pair: Pair) -> list[ScoreKey]:
    """Of the candidate's records those of completions that are others in the baseline."""

    def is_apart(key: ScoreKey) -> bool:
        a, b = (arm.completions[Key(*key[1:])] for arm in (pair.baseline, pair.candidate))
        return key.arm == pair.candidate.header.arm and not np.array_equal(a.token_ids, b.token_ids)

    return [key for key in pair.scores if is_apart(key)]
