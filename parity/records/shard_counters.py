"""What an engine counted, of the shards of a capture.

The worker that plays recordings travels with this module in it: standard library only, Python 3.9 or newer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def added(one: Mapping[str, Any], other: Mapping[str, Any]) -> Mapping[str, Any]:
    """The counters of two shards: whole numbers are added, of anything else only what both say is kept."""
    if not (one and other):
        return one or other

    def sum_of(name: str) -> Any:
        mine, theirs = one.get(name, 0), other.get(name, 0)
        return mine + theirs if type(mine) is type(theirs) is int else mine

    names = dict.fromkeys([*one, *other])
    found = {name: sum_of(name) for name in names}
    return {
        name: value
        for name, value in found.items()
        if type(value) is int or (name in one and name in other and one[name] == other[name])
    }
