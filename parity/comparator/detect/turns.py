"""The detectors, one after another, over the cases of a run: a part of them at a time, so that of most nothing is held.

Only the cases that a detector has to see at once (`Detector.together`) wait for the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from msgspec.structs import replace

from parity.comparator.detect.cases import Case, Cases, Detector, PairByPair, Setup, is_bare
from parity.comparator.reference.gaps import TokenGaps
from parity.comparator.streams.pairing import Pairs
from parity.records import Key
from parity.unnamed import Numbers

AT_ONCE = 1 << 10
"""Cases that are looked at together."""


class _Waiting:
    """The cases that wait for one detector, in any order."""

    def __init__(self, pairs: Pairs, gaps: Mapping[Key, TokenGaps]) -> None:
        """gaps: of the scored ones; where these lie in a file, a case waits without them."""
        self._pairs, self._bare, self._held, self._gaps = pairs, Numbers("q", held=True), list[Case](), gaps

    def append(self, case: Case) -> None:
        if is_bare(case):
            self._bare.append(case.row)
        elif case.from_scores and not isinstance(self._gaps, dict):
            self._held.append(replace(case, gaps=None))
        else:
            self._held.append(case)

    def __len__(self) -> int:
        return len(self._bare) + len(self._held)

    def in_order(self) -> Cases:
        """All of them, in the order of the run: first those that part."""
        held = sorted(self._held, key=lambda case: (case.is_identical, case.row))
        rows = np.array([case.row for case in held], dtype=np.int64)
        bare = np.sort(self._bare.whole())
        parted = np.searchsorted([case.is_identical for case in held], 1)
        places = np.arange(len(held)) + np.where(np.arange(len(held)) < parted, np.searchsorted(bare, rows), len(bare))
        every = np.zeros(len(self), dtype=np.int64)
        every[places] = rows
        every[np.delete(np.arange(len(self)), places)] = bare
        return Cases(self._pairs, every, dict(zip(places.tolist(), held, strict=True)), self._gaps)


def looked_at(
    parts: Iterable[Sequence[Case]], setup: Setup, detectors: Sequence[Detector], gaps: Mapping[Key, TokenGaps]
) -> Iterator[Sequence[Case]]:
    """Each case of `parts` once, after all detectors; in parts, in any order. gaps: of those that are scored."""
    detectors = [one for one in detectors if one.is_asked(setup)]
    waiting = [_Waiting(setup.pairs, gaps) for _ in detectors]
    for part in parts:
        yield _through(part, 0, setup, detectors, waiting)
    for turn, detector in enumerate(detectors):
        if not len(waiting[turn]):
            continue
        cases = detector.look(waiting[turn].in_order(), setup)
        waiting[turn] = _Waiting(setup.pairs, gaps)
        for begin in range(0, len(cases), AT_ONCE):
            yield _through(cases[begin : begin + AT_ONCE], turn + 1, setup, detectors, waiting)


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
