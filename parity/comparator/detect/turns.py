"""The detectors, one after another, over the cases of a run: a part of them at a time, so that of most nothing is held.

Only the cases that a detector has to see at once (`Detector.together`) wait for the others.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from msgspec.structs import astuple, replace

from parity.comparator.detect.cases import Case, Cases, Detector, PairByPair, Setup, is_bare
from parity.comparator.reference.gaps import TokenGaps
from parity.comparator.streams.pairing import Pairs
from parity.comparator.types import Spread
from parity.messages import message
from parity.records import Key

P = TypeVar("P")
S = TypeVar("S")

AT_ONCE = 1 << 10
"""Cases that are looked at together."""


_ABOUT = message("spread.pairs", "pairs of completions")


class _Waiting:
    """The cases that wait for one detector, in any order."""

    def __init__(self, pairs: Pairs, gaps: Mapping[Key, TokenGaps]) -> None:
        """gaps: of the scored ones; where these lie in a file, a case waits without them."""
        self._pairs, self._bare, self._held, self._gaps = pairs, array("q"), list[Case](), gaps

    def append(self, case: Case) -> None:
        if is_bare(case):
            self._bare.append(case.row)
        elif case.from_scores and not isinstance(self._gaps, dict):
            self._held.append(replace(case, gaps=None))
        else:
            self._held.append(case)

    def take(self, others: _Waiting | _Sent) -> None:
        """Those that another look, or another process, left waiting."""
        if isinstance(others, _Waiting):
            self._bare.extend(others._bare)
            self._held += others._held
            return
        self._bare.extend(others.bare)
        for values in others.held:
            case = Case(self._pairs, *values)
            missing = case.from_scores and isinstance(self._gaps, dict)
            self._held.append(replace(case, gaps=self._gaps[case.key]) if missing else case)

    def __reduce__(self) -> tuple[type[_Sent], tuple[Any, ...]]:
        """As it is sent: pairs and gaps by scores are there already."""
        bare = (replace(one, gaps=None) if one.from_scores else one for one in self._held)
        return _Sent, (self._bare, [astuple(one)[1:] for one in bare])

    def __len__(self) -> int:
        return len(self._bare) + len(self._held)

    def in_order(self) -> Cases:
        """All of them, in the order of the run: first those that part."""
        held = sorted(self._held, key=lambda case: (case.is_identical, case.row))
        rows = np.array([case.row for case in held], dtype=np.int64)
        bare = np.sort(np.array(self._bare, dtype=np.int64))
        parted = np.searchsorted([case.is_identical for case in held], 1)
        places = np.arange(len(held)) + np.where(np.arange(len(held)) < parted, np.searchsorted(bare, rows), len(bare))
        every = np.zeros(len(self), dtype=np.int64)
        every[places] = rows
        every[np.delete(np.arange(len(self)), places)] = bare
        return Cases(self._pairs, every, dict(zip(places.tolist(), held, strict=True)), self._gaps)


class _Sent(NamedTuple):
    """`_Waiting` on its way: rows of those of which nothing is known, and all but `pairs` of the others."""

    bare: array[int]
    held: list[tuple[Any, ...]]


def looked_at(
    parts: Sequence[P],
    cases_of: Callable[[P], Sequence[Case]],
    setup: Setup,
    detectors: Sequence[Detector],
    gaps: Mapping[Key, TokenGaps],
    see: Callable[[Sequence[Case]], S],
    spread: Spread,
) -> Iterator[S]:
    """What `see` makes of the cases of `parts`: of each once, after all detectors, in any order. gaps: of those that
    are scored."""
    detectors = [one for one in detectors if one.is_asked(setup)]

    def nobody() -> list[_Waiting]:
        return [_Waiting(setup.pairs, gaps) for _ in detectors]

    def work(part: P) -> tuple[S, list[_Waiting]]:
        others = nobody()
        return see(_through(cases_of(part), 0, setup, detectors, others)), others

    waiting = nobody()
    for seen, left in spread(parts, work, _ABOUT):
        for of_all, some in zip(waiting, left, strict=True):
            of_all.take(some)
        yield seen
    for turn, detector in enumerate(detectors):
        if not len(waiting[turn]):
            continue
        cases = detector.look(waiting[turn].in_order(), setup)
        waiting[turn] = _Waiting(setup.pairs, gaps)
        for begin in range(0, len(cases), AT_ONCE):
            yield see(_through(cases[begin : begin + AT_ONCE], turn + 1, setup, detectors, waiting))


def _through(
    cases: Sequence[Case], first: int, setup: Setup, detectors: Sequence[Detector], waiting: Sequence[_Waiting]
) -> Sequence[Case]:
    """Those of the cases that have to wait for no detector from the `first` on; the others are `waiting`."""
    for detector, others in zip(detectors[first:], waiting[first:], strict=True):
        if isinstance(detector.look, PairByPair):
            cases = detector.look(cases, setup)
            continue
        left = []
        for case in cases:
            if detector.together(case, setup):
                others.append(case)
            else:
                left.append(case)
        cases = left
    return cases
