"""All invariants over all steps of an engine: which were asked, and what broke, with its place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
from msgspec import Struct, field

from parity.capture.step_table import NOTHING, Ragged
from parity.capture.steps import Ints, RowSteps, StepRequest, Unseen
from parity.explain.invariants import INVARIANTS, Broken, Invariant
from parity.explain.ledger import Ledger, Mask, counts_ahead
from parity.records import Key, TokenIds

Value = int | tuple[int, ...]


class Violation(Struct, frozen=True):
    """One row-step that broke one invariant."""

    invariant: str
    step: int
    row: int
    index: int
    """Of the row-step in its RowSteps."""
    request: StepRequest
    position: int
    """Of the first output token that the row-step handed out (or would have)."""
    length: int
    """Output tokens that it handed out."""
    expected: Value
    found: Value
    row_before: StepRequest | None = None
    """Who had this row in the step before, where that was another request."""
    shared_with: StepRequest | None = None
    """Who has the same row or slot in the same step."""

    @property
    def key(self) -> Key | None:
        return self.request.key


class Checked(Struct, frozen=True):
    """What the invariants say of one start of an engine."""

    row_steps: int
    """Of requests whose first step is among them: of others nothing is known that they could be held to."""
    violations: tuple[Violation, ...]
    """By step and row; of a request that breaks one invariant again and again only the first."""
    asked: Mapping[str, int]
    """Row-steps that each invariant was asked of."""
    unasked: tuple[str, ...] = ()
    """Invariants whose columns were not seen."""
    why_not: Mapping[str, Any] = field(default_factory=dict)
    """Why columns were not seen (`StepsHeader.unseen`)."""
    broken: Mapping[int, int] = field(default_factory=dict)
    """Row-steps that broke any invariant, by the number of the request."""


MOST_OF_EACH: Final = 256
"""Row-steps of one request that break one invariant, which are listed; all are counted."""


MOST_LISTED: Final = 1 << 16
"""The same of all requests together, where each has its first: more is a list that nobody reads, of a kilobyte each."""


def check(
    steps: RowSteps,
    prompts: Mapping[Key, TokenIds] | None = None,
    invariants: Sequence[Invariant] = INVARIANTS,
    most: int | None = MOST_OF_EACH,
) -> Checked:
    """Ask every invariant of every row-step. `prompts`: token ids by completion, as far as known. `most`: how many
    row-steps of a request are listed for each invariant, beside its first up to MOST_LISTED of all; None: every one."""
    if not len(steps):
        return Checked(0, (), {}, tuple(one.name for one in invariants), steps.header.unseen)
    ledger = Ledger(steps, prompts)
    count = int(ledger.known.sum())
    found: list[Violation] = []
    asked: dict[str, int] = {}
    unasked: list[str] = []
    broken = np.zeros(len(ledger), dtype=bool)
    for one in invariants:
        try:
            broke = list(_violations(ledger, one, most, broken)) if _can_ask(steps, one) else None
        except Unseen:
            broke = None
        if broke is None:
            unasked += [] if one.optional else [one.name]
            continue
        asked[one.name] = count
        found += broke
    ordered = sorted(found, key=lambda violation: (violation.index, violation.invariant))
    numbers, counts = np.unique(ledger.request[broken], return_counts=True)
    by_request = dict(zip(numbers.tolist(), counts.tolist(), strict=True))
    return Checked(count, tuple(ordered), asked, tuple(unasked), steps.header.unseen, by_request)


def _can_ask(steps: RowSteps, invariant: Invariant) -> bool:
    groups = range(len(steps.header.groups))
    plain = [name for name in invariant.needs if not name.endswith("/*")]
    grouped = [name[:-1] for name in invariant.needs if name.endswith("/*")]
    right = {"computed"} if counts_ahead(steps) and not invariant.as_said else set()
    if not steps.header.unseen.keys().isdisjoint(set(plain) - right):  # a column may be there and not hold what it says
        return False
    return steps.has(*plain, *invariant.roughly) and (
        not grouped or any(steps.has(*(f"{name}{group}" for name in grouped)) for group in groups)
    )


def _violations(ledger: Ledger, invariant: Invariant, most: int | None, broken_at: Mask) -> Iterator[Violation]:
    """Each row-step once, however many parts of the equality it breaks; all are marked in `broken_at`."""
    seen = np.zeros(len(ledger), dtype=bool)
    listed: Counter[int] = Counter()
    shown = 0
    for broken in invariant.find(ledger):
        rows = broken.rows[ledger.known[broken.rows] & ~seen[broken.rows]]
        seen[rows] = broken_at[rows] = True
        expected, found = _Numbers(broken.expected), _Numbers(broken.found)
        for index, number in zip(rows.tolist(), ledger.request[rows].tolist(), strict=True):
            listed[number] += 1
            if most is None or listed[number] == 1 or (listed[number] <= most and shown < MOST_LISTED):
                shown += 1
                yield _violation(ledger, invariant, broken, index, expected.at(index), found.at(index))


def _violation(
    ledger: Ledger, invariant: Invariant, broken: Broken, index: int, expected: Value, found: Value
) -> Violation:
    steps = ledger.steps
    other = NOTHING if broken.other is None else int(broken.other[index])
    handed = steps.has("handed")
    return Violation(
        invariant=invariant.name,
        step=int(steps.step[index]),
        row=int(steps.row[index]),
        index=index,
        request=ledger.request_of(index),
        position=int(ledger.emitted_before[index]) if handed else 0,
        length=int(ledger.emitted[index]) if handed else 0,
        expected=expected,
        found=found,
        row_before=_row_before(ledger, index),
        shared_with=None if other == NOTHING else ledger.request_of(other),
    )


class _Numbers:
    """A number or a list of them by row-step."""

    def __init__(self, values: Ints | Ragged) -> None:
        self._starts = values.starts if isinstance(values, Ragged) else None
        self._values: Ints = values.values if isinstance(values, Ragged) else values

    def at(self, index: int) -> Value:
        if self._starts is None:
            return int(self._values[index])
        return tuple(self._values[self._starts[index] : self._starts[index + 1]].tolist())


def _row_before(ledger: Ledger, index: int) -> StepRequest | None:
    steps = ledger.steps
    place, row = int(steps.step_index[index]), int(steps.row[index])
    if place == 0 or row >= int(steps.rows[place - 1]):
        return None
    before = index - row - int(steps.rows[place - 1]) + row
    if int(ledger.request[before]) == int(ledger.request[index]):
        return None
    return ledger.request_of(before)
