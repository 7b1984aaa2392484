"""Counters of several rounds, replicas or attempts as one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from itertools import zip_longest
from typing import TypeAlias

from parity.records import Json

Counters: TypeAlias = dict[str, Json]
"""What an engine counted, by the names it gives."""


def is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def added(counters: Counters, more: Counters) -> Counters:
    """Both together: numbers add up, lists of numbers place by place, histograms key by key.

    Of what is none of these, or of two kinds, that of `counters` stays.
    """
    return counters | {name: _sum(counters.get(name), value) for name, value in more.items()}


def _sum(one: Json, other: Json) -> Json:
    if one is None:
        return other
    if is_number(one) and is_number(other):
        return one + other
    if isinstance(one, dict) and isinstance(other, dict):
        return added(one, other)
    if _numbers(one) and _numbers(other):
        return [a + b for a, b in zip_longest(one, other, fillvalue=0)]
    return one


def _numbers(value: Json) -> bool:
    return isinstance(value, list) and all(map(is_number, value))


def of_replicas(counters: Sequence[Counters]) -> Counters:
    """Counters of all replicas as those of one arm: counts add up, of durations the longest counts."""
    total: Counters = reduce(added, counters, {})
    return total | {name: max(values) for name in total if len(values := _durations(counters, name)) > 1}


def _durations(counters: Iterable[Counters], name: str) -> list[float]:
    values = [each[name] for each in counters if name in each] if name.endswith("_seconds") else []
    return values if all(map(is_number, values)) else []
