"""Questions about drawn completions, shared out among whoever is there (`CompareOptions.spread`): each answer depends
on its own part alone, so that all say the same as one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import TypeVar

from parity.comparator.types import Spread, alone
from parity.messages import message

P = TypeVar("P")
R = TypeVar("R")

FEWEST = 8
"""Parts below which nothing is shared: asking others takes about as long as the answers."""

AT_ONCE = 8
"""Completions that are a part."""

ABOUT = message("spread.draws", "drawn completions")


def of_parts(parts: Sequence[P], work: Callable[[P], R], spread: Spread) -> Iterator[R]:
    """`work` of each part, in their order."""
    return (spread if len(parts) >= FEWEST else alone)(parts, work, ABOUT)


def of_each(completions: Sequence[P], work: Callable[[P], R], spread: Spread) -> Iterator[R]:
    """`work` of each completion, in their order."""

    def of_some(begin: int) -> list[R]:
        return [work(one) for one in completions[begin : begin + AT_ONCE]]

    return chain.from_iterable(of_parts(range(0, len(completions), AT_ONCE), of_some, spread))
