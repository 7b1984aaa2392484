"""With which fault does a completion begin? What comes after it in the same completion mostly follows from it.

The first is the one at the first token; of several there, the one of the lowest precedence. A fault of the completion
as a whole comes before all. A finding about the run, and one that is no fault, stands by itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Final, NamedTuple

from parity.records.kinds import Kind

FOLLOWS: Final = -1
"""In the place of a count: it comes after another fault of its completion."""


class Fault(NamedTuple):
    """What decides which finding comes first."""

    completion: Hashable
    """Arm, request, round and sample. None: about the run, or no fault, and so by itself."""
    kind: Kind
    position: int | None


def followed(findings: Sequence[Fault]) -> list[int]:
    """For each finding, how many faults come after it in its completion; FOLLOWS where it is one of these itself."""
    first: dict[Hashable, int] = {}
    faults: Counter[Hashable] = Counter()
    for number, one in enumerate(findings):
        faults[one.completion] += 1
        known = first.setdefault(one.completion, number)
        if _place(one) < _place(findings[known]):
            first[one.completion] = number
    return [
        0 if one.completion is None else faults[one.completion] - 1 if first[one.completion] == number else FOLLOWS
        for number, one in enumerate(findings)
    ]


def _place(fault: Fault) -> tuple[int, int]:
    return -1 if fault.position is None else fault.position, fault.kind.row.precedence
