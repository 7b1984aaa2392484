"""Counters of several rounds, replicas or attempts as one."""

from __future__ import annotations

from collections.abc import Mapping

from parity.records import Json


def is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def add_counters(total: dict[str, Json], more: Mapping[str, Json]) -> None:
    """Add numbers, lists of numbers place by place, and histograms key by key; `total` is changed.

    What is none of these, or of another kind than what is there, stays as it is.
    """
    for name, value in more.items():
        old = total.get(name)
        if isinstance(value, Mapping) and (old is None or isinstance(old, dict)):
            inner: dict[str, Json] = dict(old or {})
            add_counters(inner, value)
            total[name] = inner
        elif is_number(value) and (old is None or is_number(old)):
            total[name] = value + (old or 0)
        elif _numbers(value) and (old is None or _numbers(old)):
            known: list[Json] = old or []
            longest = max(len(value), len(known))
            total[name] = [
                (known[i] if i < len(known) else 0) + (value[i] if i < len(value) else 0) for i in range(longest)
            ]
        elif old is None:
            total[name] = value


def _numbers(value: Json) -> bool:
    return isinstance(value, list) and all(map(is_number, value))
