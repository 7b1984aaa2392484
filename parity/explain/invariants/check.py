"""What an invariant is: a question to the ledger, and the row-steps that answer it wrongly."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from parity.capture.step_table import Ragged, same_lists
from parity.capture.steps import Ints
from parity.explain.ledger import Ledger, Mask
from parity.messages import Message


@dataclass(frozen=True)
class Broken:
    """Row-steps that break an invariant: what should have been there and what was, by row-step."""

    rows: Ints
    expected: Ints | Ragged
    found: Ints | Ragged
    other: Ints | None = None
    """Another row-step that the same thing belongs to."""


Finder = Callable[[Ledger], Iterator[Broken]]


@dataclass(frozen=True)
class Invariant:
    """An equality that a correct engine never breaks."""

    name: str
    said: Message
    needs: tuple[str, ...]
    """Columns without which it is not asked; NAME/* is asked of each cache group that has it."""
    find: Finder = field(compare=False)
    roughly: tuple[str, ...] = ()
    """Columns of which it needs no more than that they are not too low: numbers that run ahead will do."""


def unequal(found: Ints, expected: Ints, where: Mask | None = None) -> Iterator[Broken]:
    wrong = found != expected
    yield Broken(np.flatnonzero(wrong if where is None else wrong & where), expected, found)


def unequal_lists(found: Ragged, expected: Ragged, where: Mask | None = None) -> Iterator[Broken]:
    wrong = ~same_lists(found, expected)
    yield Broken(np.flatnonzero(wrong if where is None else wrong & where), expected, found)


def groups_with(ledger: Ledger, *names: str) -> list[int]:
    """Cache groups that have all of these columns."""
    return [
        group
        for group in range(len(ledger.steps.header.groups))
        if ledger.steps.has(*(f"{name}/{group}" for name in names))
    ]
