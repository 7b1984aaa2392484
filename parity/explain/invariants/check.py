"""What an invariant is: a question to the ledger, and the row-steps that answer it wrongly."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from parity.capture.step_table import NOTHING, Ragged, same_lists
from parity.capture.steps import Ints
from parity.explain.ledger import Ledger, Mask
from parity.messages import Message, message


@dataclass(frozen=True)
class Broken:
    """Row-steps that break an invariant: what should have been there and what was, by row-step."""

    rows: Ints
    expected: Ints | Ragged
    found: Ints | Ragged
    other: Ints | None = None
    """Another row-step that the same thing belongs to."""


Finder = Callable[[Ledger], Iterator[Broken]]
Number = int | tuple[int, ...]
NONE = message("explain.none", "none")


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
    as_said: bool = False
    """It needs the columns as the engine's scheduler has them, and not put right (`Ledger.computed`)."""
    optional: bool = False
    """It rests on what is recorded on demand alone, and is not missed where that was not."""
    number: Message | None = None
    """What its two numbers are, where it compares one thing."""
    values: Mapping[int, Message] = field(default_factory=dict)
    """Names of numbers that are no counts."""
    due: Message | None = None
    """What should be there, where that is no number: `expected` is what it must differ from."""

    def in_words(self, found: Number, expected: Number) -> tuple[Message | str, Message | str]:
        """Both numbers for people."""
        return self._named(found), self._named(expected) if self.due is None else self.due

    def _named(self, number: Number) -> Message | str:
        if isinstance(number, tuple):
            return str(list(number))
        return self.values.get(number, NONE if number == NOTHING else str(number))


def no_longer(counts: Ints, found: Ragged) -> Ints:
    """Lengths of the lists that should be there. Where a file asks for many times as much as it holds, they are cut to
    one more than what is there: unequal they stay."""
    most = 4 * (len(found.values) + len(counts)) + (1 << 20)
    return counts if int(counts.sum()) <= most else np.minimum(counts, found.counts + 1)


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


def reaches_block_end(ledger: Ledger, *, since_last: bool = False) -> Mask:
    """Row-steps whose tokens, or those since the step before, reach the end of a block of recurrent states, where these
    are kept for a prefix cache. The newest state is moved to a first slot there, and its accepted count is one (vLLM
    v0.23.0, v1/worker/mamba_utils.py, `preprocess_mamba` and `postprocess_mamba_align_gpu`)."""
    found = np.zeros(len(ledger), dtype=bool)
    if ledger.steps.header.mamba_cache_mode != "align":
        return found
    first = ledger.computed
    last = first + ledger.numbers("scheduled")
    if since_last:
        first, last = np.minimum(first, ledger.earlier(first, 0)), np.maximum(last, ledger.earlier(last, 0))
    for size in {one.block_size for one in ledger.steps.header.groups if one.kind == "state" and one.block_size}:
        found |= last // size > first // size
    return found
