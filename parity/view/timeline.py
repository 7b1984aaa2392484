"""The engine's steps around a completion: which request had which row, what moved, what was accepted, what broke.

From the steps file of an arm (docs/steps.md); only the steps in which the completion ran, and a few on either side.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from msgspec import Struct

from parity.capture.steps import Ints, RowSteps, StepRequest, read_steps, steps_path
from parity.explain.ledger import Ledger, Mask
from parity.explain.predicates import moved, new
from parity.explain.violations import Violation, check
from parity.files import is_file
from parity.records import Key

AROUND: Final = 8
"""Steps kept before the completion's first and after its last."""


class Cell(Struct, frozen=True):
    """One row in one step. `number` names its request."""

    number: int
    emitted: int
    drafts: int
    moved: bool
    new: bool
    prefill: bool
    """It computes (a part of) its prompt."""
    violations: tuple[Violation, ...] = ()

    @property
    def rejected(self) -> int:
        """Drafts that were not accepted; 0 of a row that emits nothing."""
        return self.drafts - (self.emitted - 1) if self.emitted else 0


@dataclass(frozen=True, eq=False)
class Timeline:
    """Row-steps in the order of steps and then of rows. `first`: where those of each step begin, shape (steps + 1,)."""

    steps: Ints
    """The engine's step numbers."""
    first: Ints
    cells: tuple[Cell, ...]
    own: int
    """The number of the completion's request."""
    requests: Mapping[int, StepRequest]
    positions: Ints
    """Output tokens that the completion had before each step."""

    def __len__(self) -> int:
        return len(self.steps)

    def row(self, step: int) -> Sequence[Cell]:
        """The rows of the step at this place."""
        return self.cells[int(self.first[step]) : int(self.first[step + 1])]

    def place_of(self, position: int) -> int:
        """Where the step is that made this output token of the completion."""
        ran = [at for at in range(len(self)) if any(cell.number == self.own and cell.emitted for cell in self.row(at))]
        if not ran:
            return 0
        starts = self.positions[ran]
        return ran[max(0, int(np.searchsorted(starts, position, side="right")) - 1)]

    def window(self, middle: int, count: int) -> range:
        """`count` steps around one, as far as there are so many."""
        begin = max(0, min(middle - count // 2, len(self) - count))
        return range(begin, min(len(self), begin + count))

    def name(self, number: int) -> str:
        return name_of(self.requests[number])


def name_of(request: StepRequest) -> str:
    """Of a completion, round and sample only where they are not the first."""
    key = request.key
    if key is None:
        return request.engine_id
    return key.request if (key.round, key.sample) == (0, 0) else str(key)


def timeline_beside(capture: Path, key: Key) -> Timeline | None:
    """From the steps beside a capture; None where there are none of this completion. Raises CaptureError."""
    path = steps_path(capture)
    if not is_file(path):
        return None
    found = (timeline_of(steps, key) for steps in read_steps(path))
    return next((one for one in found if one is not None), None)


def timeline_of(steps: RowSteps, key: Key) -> Timeline | None:
    """Of one start of an engine; None where the completion did not run in it, or too little was seen."""
    own = next((number for number, one in steps.requests.items() if one.key == key), None)
    if own is None or not steps.has("request", "handed", "computed", "scheduled", "drafts", "arrival"):
        return None
    ledger = Ledger(steps)
    ran = np.flatnonzero(ledger.request == own)
    if not len(ran):
        return None
    begin = max(0, int(steps.step_index[ran[0]]) - AROUND)
    end = min(len(steps.rows), int(steps.step_index[ran[-1]]) + 1 + AROUND)
    starts = np.concatenate(([0], np.cumsum(steps.rows)))
    chosen = slice(int(starts[begin]), int(starts[end]))
    broken: dict[int, list[Violation]] = {}
    for one in check(steps).violations:
        broken.setdefault(one.index, []).append(one)
    cells = _cells(ledger, chosen, broken)
    positions = np.zeros(end - begin, dtype=np.int64)
    np.add.at(positions, steps.step_index[ran] - begin, ledger.emitted[ran])
    return Timeline(
        steps=steps.numbers("step")[begin:end],
        first=starts[begin : end + 1] - starts[begin],
        cells=cells,
        own=own,
        requests=steps.requests,
        positions=np.cumsum(positions) - positions,
    )


def _cells(ledger: Ledger, chosen: slice, broken: Mapping[int, list[Violation]]) -> tuple[Cell, ...]:
    drafts: Ints = ledger.lists("drafts").counts
    masks: tuple[Mask, Mask] = (moved(ledger), new(ledger))
    columns = (ledger.request, ledger.emitted, drafts, *masks, ~ledger.decodes)
    rows = zip(*(column[chosen].tolist() for column in columns), strict=True)
    return tuple(
        Cell(number, emitted, drafted, went, came, prompt, tuple(broken.get(at, ())))
        for at, (number, emitted, drafted, went, came, prompt) in enumerate(rows, chosen.start)
    )
